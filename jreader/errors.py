"""The exceptions, and the checks of arguments, which raise where the mistake was written.

    ReaderError
    ├── ComposeNotAligned   the readers of a `compose` differ in length (also a ValueError)
    ├── NotResumable        no pass can be resumed from a position, or from a cursor
    ├── WorkerDied          a worker process died, and its work could not be repeated
    ├── FeedMismatch        samples do not fit the feed_list (also a ValueError)
    ├── MissingSample       a data set has no sample of that index (also an IndexError)
    ├── BatchNotDivisible   a batch cannot be split evenly over the devices (also a ValueError)
    ├── ShortEpoch          an epoch has fewer steps than it should, or than on other processes
    └── DamagedData         a file is truncated, or its format or checksum is not the expected one
    EOFException            `loader.next()` after the last batch, as in Paddle

A wrong argument is a plain `TypeError` or `ValueError`. An error that a user's own function raises
keeps its type; the op and the place in the plan are added as a note (`readers.explain`).
"""

from __future__ import annotations

import inspect
import operator
import os
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from numbers import Real
from threading import TIMEOUT_MAX
from types import FunctionType
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from jreader.cores import usable_cores

T = TypeVar("T")


class ReaderError(Exception):
    """The base class of the errors that jreader itself raises while it reads."""


class ComposeNotAligned(ReaderError, ValueError):
    """One reader of a `compose` ended before the others; the message says which."""


class NotResumable(ReaderError):
    """No pass can be resumed from this position or cursor; the message says why."""


class WorkerDied(ReaderError):
    """A worker process died, and what it worked on could not be done again."""


class FeedMismatch(ReaderError, ValueError):
    """Samples do not fit the names, shapes or dtypes of a feed_list."""


class MissingSample(ReaderError, IndexError):
    """A data set has no sample at an index: it shrank, or the sampler belongs to another one."""


class BatchNotDivisible(ReaderError, ValueError):
    """A batch cannot be split evenly over the devices; the message says which sizes can be."""


class ShortEpoch(ReaderError):
    """An epoch has fewer steps than it should, or than on the other processes."""


class DamagedData(ReaderError):
    """A file is truncated, or its format or checksum is not the expected one."""


class EOFException(Exception):
    """`loader.next()` was called after the last batch: `reset()` the loader, and `start()` it."""


class LintWarning(UserWarning):
    """A plan has a probable mistake; the message begins with the name of the rule, to filter by."""


def noted(error: BaseException, note: str) -> None:
    """Add a note to an error of a user's code, if its class allows it (a frozen one does not).

    >>> error = ValueError("bad")
    >>> noted(error, "raised here")
    >>> error.__notes__
    ['raised here']
    """
    with suppress(Exception):
        error.add_note(note)


class noting:  # read as `with noting(note):`
    """Add a note to the errors of a block, as `noted` does; only of some kinds, if given.

    >>> with suppress(KeyError), noting("raised here"):
    ...     raise KeyError("a")
    """

    def __init__(self, note: str, *kinds: type[Exception]) -> None:
        self.note, self.kinds = note, kinds or Exception

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Add the note."""
        if isinstance(error, self.kinds):
            noted(error, self.note)


class assigned(AbstractContextManager[None]):
    """Give a context variable another value inside the block.

    Each pass does so several times, and a generator would take twice as many calls.

    >>> with assigned(begun_at, "train.py:7"):
    ...     begun_at.get()
    'train.py:7'
    """

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable: ContextVar[Any] = variable
        self._value = value

    def __enter__(self) -> None:
        """Set the variable."""
        self._before = self._variable.set(self._value)

    def __exit__(self, *_error: object) -> None:
        """Restore the value that it had before."""
        self._variable.reset(self._before)


begun_at: ContextVar[str] = ContextVar("begun_at", default="an unknown place:0")
"""Where the user's code began the pass that a thread of jreader begins or draws."""
_NOT_USERS = frozenset({"jreader", "threading"})


def place_of_caller() -> str:
    """Return the file and line of the user's code that called jreader, or the cell of a notebook.

    >>> place_of_caller().rpartition(":")[2].isdigit()
    True
    """
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_USERS:
        frame = frame.f_back
    if frame is None:
        return begun_at.get()
    return place_of_code(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def place_of_code(file: str, line: int, module: dict[str, Any]) -> str:
    """Return the file (or notebook cell) and line of code in a module, given its globals.

    >>> place_of_code("train.py", 7, {})
    'train.py:7'
    """
    notebook = module.get("get_ipython")  # where files have generated names
    name_of = getattr(getattr(notebook and notebook(), "compile", None), "format_code_name", None)
    cell = name_of and name_of(file)
    return f"{' '.join(cell) if cell else file}:{line}"


def warn(text: str, made_at: str = "", kind: type[Warning] = UserWarning) -> None:
    """Warn at the user's line that called jreader, or at the line that made an op.

    Python shows it once for each such line, and filters it like any UserWarning, which `kind` is.
    """
    place, _, line = (made_at or place_of_caller()).rpartition(":")
    seen = _warned.setdefault(place, {})
    warnings.warn_explicit(text, kind, place, int(line or 0), registry=seen)


_RENAMED = {"window": "sliding_window"}  # for one release (docs/contributing.md)


def newer_name(owner: str, name: str) -> str | None:
    """Return the new name for an older one, with a warning; None for any other name.

    >>> newer_name("Pipeline", "shuffle") is None
    True
    """
    newer = _RENAMED.get(name)
    if newer:
        warn(f"{owner}.{name} is now {owner}.{newer}", kind=DeprecationWarning)
    return newer


_warned: dict[str, dict[Any, Any]] = {}  # Python's record of the warnings that it has shown


def missing(what: str, index: int, n: int) -> MissingSample:
    """Return the error for an index of a data set that has only `n` samples.

    >>> missing("list", 7, 3)
    MissingSample('sample 7 of list was asked for, and there are 3: a data set may grow or shrink \
between epochs, but not within one, and a sampler has to count the data set that is read.')
    """
    return MissingSample(
        f"sample {index} of {what} was asked for, and there are {n}: a data set may grow or shrink "
        "between epochs, but not within one, and a sampler has to count the data set that is read."
    )


def check_number(call: str, value: object, least: int = 0) -> int:
    """Return `value` as an int, or raise an error that shows the `call` if it is not one.

    >>> check_number("firstn(reader, n)", 3)
    3
    >>> check_number("firstn(reader, n)", 2.5)
    Traceback (most recent call last):
    TypeError: firstn(reader, n) needs a whole number of at least 0 (an int), not 2.5.
    """
    if type(value) is int and value >= least:  # the usual case: anything else uses a protocol
        return value
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


def warn_of_many(number: int, kind: str, each: int) -> None:
    """Warn of more threads or processes than it can use: more than `each` per core."""
    cores = usable_cores()
    most = each * max(cores, 8)
    if number > most:
        warn(
            f"{number} {kind} on {cores} cores that this program may use: more than about {most} "
            "only take memory, and time to start. Give as many as there are cores, or a few for "
            "each."
        )


def check_sides(call: str, size: Any) -> tuple[int, int]:
    """Return a height and a width in pixels; a single number is both.

    >>> check_sides("decode(data, size)", 224)
    (224, 224)
    >>> check_sides("decode(data, size)", (1, 2, 3))
    Traceback (most recent call last):
    TypeError: decode(data, size) needs a number of pixels, or (height, width), not (1, 2, 3).
    """
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        raise TypeError(f"{call} needs a number of pixels, or (height, width), not {size!r}.")
    height, width = (check_number(call, side, 1) for side in sides)
    return height, width


def check_flag(call: str, value: object) -> bool:
    """Return `value` as a bool, or raise TypeError if it is not one.

    >>> check_flag("shuffle", [1, 2])
    Traceback (most recent call last):
    TypeError: shuffle needs True or False, not [1, 2].
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{call} needs True or False, not {value!r}.")
    return bool(value)


def check_seconds(call: str, value: Any) -> float:
    """Return `value` as seconds; 0, which infinity becomes too, means no limit.

    >>> check_seconds("timeout", 2.5), check_seconds("timeout", float("inf"))
    (2.5, 0)
    >>> check_seconds("timeout", -1)
    Traceback (most recent call last):
    ValueError: timeout needs seconds, 0 or more (0 for no limit), not -1.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) >= 0:
        raise ValueError(f"{call} needs seconds, 0 or more (0 for no limit), not {value!r}.")
    seconds: float = value  # type: ignore[assignment]  # any kind of number
    return 0 if seconds > TIMEOUT_MAX else seconds


def check_function(call: str, value: object, of: str = "one sample", takes: int = 0) -> None:
    """Raise TypeError if `value` cannot be called, or not with `takes` arguments (0 for any).

    >>> check_function("filter(fn, reader)", 3)
    Traceback (most recent call last):
    TypeError: filter(fn, reader) needs a function of one sample, not the int 3.
    """
    if not callable(value) or hasattr(value, "made_at"):  # a reader
        kind = type(value).__name__
        raise TypeError(
            f"{call} needs a function of {of}, not the {kind} {value!r}"
            + (": type the function itself, fn, not fn(...)." if value is None else ".")
        )
    if takes and isinstance(value, FunctionType) and len(lacking := _needed_by(value)) > takes:
        name = of.rpartition(" ")[2]
        instead = f"lambda {name}: fn(*{name}) for a tuple, fn(**{name}) for a dict"
        if lacking[-1] == "rng":
            instead = "rng=True, seed=0 for a random generator"
        raise TypeError(
            f"{call} needs a function of {of}, and {value.__name__} takes {', '.join(lacking)}: "
            f"type {instead}."
        )
    if is_async(value):
        raise TypeError(
            f"{call} needs a plain function, and {value!r} is async: it returns a coroutine, which "
            "is not awaited. Type lambda sample: asyncio.run(fn(sample)), with threads=n for "
            "several samples at once."
        )


_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def is_async(value: object) -> bool:
    """Return whether a call returns a coroutine, or an async generator, instead of a value.

    >>> async def fetched(sample): ...
    >>> is_async(fetched), is_async(len)
    (True, False)
    """
    own = getattr(type(value), "__call__", None)  # noqa: B004  # the one of a callable object
    asked = own if isinstance(own, FunctionType) else value
    if isinstance(asked, FunctionType) and not (asked.__code__.co_flags & _ASYNC or vars(asked)):
        return False  # the usual case, in one call: every op asks
    return inspect.iscoroutinefunction(asked) or inspect.isasyncgenfunction(asked)


def check_reader(call: str, value: object) -> None:
    """Raise TypeError if `value` is not a reader: a function without arguments.

    >>> check_reader("batch(reader, batch_size)", [1, 2])
    Traceback (most recent call last):
    TypeError: batch(reader, batch_size) needs a reader, that is, a function to call without \
arguments, not a list. Pass `lambda: samples`, or source(samples), which finds samples by number.
    >>> check_reader("Pipeline(reader)", np.zeros((2, 3)))
    Traceback (most recent call last):
    TypeError: Pipeline(reader) needs a reader, that is, a function to call without arguments, \
not an ndarray. Type arrays(x), or arrays(x=x) for samples that are dicts.
    """
    kind = type(value).__name__
    if not callable(value):
        once = ", which can be read only once" if hasattr(value, "__next__") else ""
        seen = f"{'an' if kind[0] in 'aeionA' else 'a'} {kind}{once}"
        raise TypeError(
            f"{call} needs a reader, that is, a function to call without arguments, not {seen}. "
            f"{_reader_of(value)}"
        )
    if is_async(value):
        raise TypeError(
            f"{call} needs a reader that can be iterated, and {value!r} is async. Write a plain "
            "generator function, which may call asyncio.run(...) for each sample or for several."
        )
    if isinstance(value, FunctionType) and (lacking := ", ".join(_needed_by(value))):
        name, instead = value.__name__, f"lambda: {value.__name__}({lacking}), with your values"
        if name == "<lambda>":
            name, instead = "a lambda", ".map(fn) or .flat_map(fn) for a function of a sample"
        raise TypeError(
            f"{call} needs a function to call without arguments, and {name} has to be given "
            f"{lacking}. Type {instead}."
        )
    if isinstance(value, type) and value.__module__.startswith("jreader."):
        raise TypeError(
            f"{call} needs a reader, and {value.__name__} is a class of them: call it with its "
            f"arguments, as in {value.__name__}(...)."
        )


def _needed_by(function: FunctionType) -> tuple[str, ...]:
    """Return the positional arguments without a default; much faster than via its signature."""
    code, defaults = function.__code__, function.__defaults__ or ()
    return code.co_varnames[: code.co_argcount - len(defaults)]


def _reader_of(value: Any) -> str:
    """Return what to type to make a reader from a value that is none."""
    parts = value if isinstance(value, (list, tuple)) else ()
    of_arrays = isinstance(value, tuple) and any(hasattr(part, "__array__") for part in parts)
    advice = {
        "Type huggingface(dataset).": type(value).__module__.partition(".")[0] == "datasets",
        "Does the function that makes it lack a return? Type return before what it makes.": (
            value is None
        ),
        "Type parquet(path), jsonl(path), image_folder(path), ... or files(path).read(fn).": (
            isinstance(value, (str, os.PathLike))
        ),
        "Type arrays(x), or arrays(x=x) for samples that are dicts.": hasattr(value, "__array__"),
        "Type arrays(**columns) for a dict of arrays.": isinstance(value, Mapping),
        "Give the readers themselves, as in chain(*readers).": parts and all(map(callable, parts)),
        "Type arrays(images, labels), with an array for each field.": of_arrays,
        "Pass `lambda: samples`, or source(samples), which finds samples by number.": (
            hasattr(value, "__getitem__") and hasattr(value, "__len__")
        ),
        "Pass `lambda: samples`, or the generator function itself: `f`, not `f()`.": True,
    }
    return next(text for text, fits in advice.items() if fits)
