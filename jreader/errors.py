"""What can go wrong, and the checks that say so where the mistake was written.

    ReaderError
    ├── ComposeNotAligned   the readers of a `compose` differ in length (also a ValueError)
    ├── NotResumable        a position that no pass can go on from
    ├── WorkerDied          a process ended before its reader did
    ├── FeedMismatch        samples do not fit the feed_list (also a ValueError)
    ├── MissingSample       a data set has no sample of that number (also an IndexError)
    ├── BatchNotDivisible   a batch cannot be split evenly over the devices (also a ValueError)
    ├── ShortEpoch          an epoch ends before its steps do, or on one of several processes
    └── DamagedData         a file is truncated, of another format or not the one that was expected
    EOFException            `loader.next()` after the last batch, as in Paddle

A wrong argument is a plain `TypeError` or `ValueError`. An error that a user's own function raises
keeps its type; the op and the place in the plan are added as a note (`readers.explain`).
"""

from __future__ import annotations

import inspect
import operator
import os
import warnings
from contextlib import suppress
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any, SupportsIndex

import numpy as np


class ReaderError(Exception):
    """Everything that jreader itself finds wrong while data flow."""


class ComposeNotAligned(ReaderError, ValueError):
    """One reader of a `compose` ended before the others."""


class NotResumable(ReaderError):
    """A position that no pass can go on from."""


class WorkerDied(ReaderError):
    """A worker process ended before its reader did."""


class FeedMismatch(ReaderError, ValueError):
    """Samples do not fit the names, shapes or dtypes of a feed_list."""


class MissingSample(ReaderError, IndexError):
    """A data set has no sample of that number: it shrank, or a sampler counts another one."""


class BatchNotDivisible(ReaderError, ValueError):
    """A batch cannot be split evenly over the devices."""


class ShortEpoch(ReaderError):
    """An epoch ends before its steps do, or on one of several processes before the others."""


class DamagedData(ReaderError):
    """A file is truncated, of another format, or not the one that was expected."""


class EOFException(Exception):
    """There is no next batch: `reset()` the loader, then `start()` it again."""


def noted(error: BaseException, note: str) -> None:
    """Adds a note to an error that a user's code raised; its class may refuse (a frozen one does).

    >>> error = ValueError("bad")
    >>> noted(error, "raised here")
    >>> error.__notes__
    ['raised here']
    """
    with suppress(Exception):
        error.add_note(note)


def place_of_caller() -> str:
    """The user's line that called: file and line, or the cell of a notebook, as its tracebacks say.

    >>> place_of_caller().rpartition(":")[2].isdigit()
    True
    """
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "jreader":
        frame = frame.f_back
    if frame is None:
        return "an unknown place:0"
    notebook = frame.f_globals.get("get_ipython")  # where files have names that nobody has seen
    name_of = getattr(getattr(notebook and notebook(), "compile", None), "format_code_name", None)
    cell = name_of and name_of(frame.f_code.co_filename)
    return f"{' '.join(cell) if cell else frame.f_code.co_filename}:{frame.f_lineno}"


def warn(text: str, made_at: str = "") -> None:
    """Warns the user, at the line that called, or at the one where an op was made.

    Python shows it once for each such line, and filters it like any UserWarning.
    """
    place, _, line = (made_at or place_of_caller()).rpartition(":")
    seen = _warned.setdefault(place, {})
    warnings.warn_explicit(text, UserWarning, place, int(line or 0), registry=seen)


_warned: dict[str, dict[Any, Any]] = {}  # what Python asks whether it has shown a text


def missing(what: str, index: int, n: int) -> MissingSample:
    """The error of a sample that is not among the `n` that there are.

    >>> missing("list", 7, 3)
    MissingSample('sample 7 of list was asked for, out of 3: a data set may grow or shrink between \
epochs, not within one, and a sampler has to count the data set that is read.')
    """
    return MissingSample(
        f"sample {index} of {what} was asked for, out of {n}: a data set may grow or shrink "
        f"between epochs, not within one, and a sampler has to count the data set that is read."
    )


def check_number(call: str, value: object, least: int = 0) -> int:
    """`value` as an int of at least `least`; `call` shows the argument as its user wrote it.

    >>> check_number("firstn(reader, n)", 3)
    3
    >>> check_number("firstn(reader, n)", 2.5)
    Traceback (most recent call last):
    TypeError: firstn(reader, n) needs a whole number of at least 0 (an int), not 2.5.
    """
    needed = f"{call} needs a whole number of at least {least} (an int), not {value!r}."
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, SupportsIndex):
        raise TypeError(needed)
    try:
        number = operator.index(value)
    except TypeError:  # an array of several
        raise TypeError(needed) from None
    if number < least:
        raise ValueError(needed)
    return number


def tell_of_many(number: int, kind: str, each: int) -> None:
    """Warns of more workers than this machine has any use for: some `each` for a core."""
    cores = os.cpu_count() or 1
    most = each * max(cores, 8)
    if number > most:
        warn(
            f"{number} {kind} on a machine of {cores} cores: more than some {most} only take "
            f"memory, and time to begin. Give as many as it has cores, or a few for each."
        )


def check_flag(call: str, value: object) -> bool:
    """`value` as a bool.

    >>> check_flag("shuffle", [1, 2])
    Traceback (most recent call last):
    TypeError: shuffle needs True or False, not [1, 2].
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{call} needs True or False, not {value!r}.")
    return bool(value)


def check_seconds(call: str, value: Any) -> float:
    """`value` as the seconds of a clock; 0, which is also what infinity becomes, for none.

    >>> check_seconds("timeout", 2.5), check_seconds("timeout", float("inf"))
    (2.5, 0)
    >>> check_seconds("timeout", -1)
    Traceback (most recent call last):
    ValueError: timeout needs seconds, 0 or more (0 for any), not -1.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) >= 0:
        raise ValueError(f"{call} needs seconds, 0 or more (0 for any), not {value!r}.")
    seconds: float = value  # type: ignore[assignment]  # of any kind of number
    return 0 if seconds > TIMEOUT_MAX else seconds


def check_function(call: str, value: object) -> None:
    """Refuses what cannot be called.

    >>> check_function("filter(fn, reader)", 3)
    Traceback (most recent call last):
    TypeError: filter(fn, reader) needs a function of one sample, not the int 3.
    """
    if not callable(value):
        kind = type(value).__name__
        raise TypeError(f"{call} needs a function of one sample, not the {kind} {value!r}.")


def check_reader(call: str, value: object) -> None:
    """Refuses what is not a reader: a function without arguments that returns an iterable.

    >>> check_reader("batch(reader, batch_size)", [1, 2])
    Traceback (most recent call last):
    TypeError: batch(reader, batch_size) needs a reader, that is, a function to call without \
arguments, not a list. Pass `lambda: samples`, or the generator function itself: `f`, not `f()`.
    """
    if not callable(value):
        raise TypeError(
            f"{call} needs a reader, that is, a function to call without arguments, not a "
            f"{type(value).__name__}. Pass `lambda: samples`, or the generator function itself: "
            f"`f`, not `f()`."
        )
