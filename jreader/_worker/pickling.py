"""Pickling between a program and its workers: functions and samples out, results back.

It uses pickle if possible, and cloudpickle for the rest (lambdas, notebook cells). The memory of
large arrays may be taken out of the pickle (protocol 5), to travel as it is.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle
import numpy as np

from jreader._worker.captured_state import captured_as, is_random_generator, stateful_kind
from jreader.errors import noted, warn
from jreader.readers import described
from jreader.readers.overlaps import bytes_below
from jreader.readers.protected import read_only
from jreader.staging import Array

_NO_FILE = "<dynamic-code>"
LARGE = 1 << 16  # bytes of an array; a smaller one costs less inside the pickle


def pickled_from_worker(
    value: object, what: str, taken: list[pickle.PickleBuffer] | None = None
) -> bytes:
    """Pickle a user's value that a worker sends: a sample, or the result of a function.

    Args:
        value: The value.
        what: The name of the value in errors.
        taken: Takes the memory of large arrays out of the pickle; None leaves it in.

    Raises:
        TypeError: It cannot be pickled.
    """
    take = None if taken is None else collect_large(taken)
    try:
        return pickle.dumps(value, protocol=5, buffer_callback=take)
    except Exception:
        if taken is not None:
            taken.clear()
        try:
            return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=take))
        except Exception as error:
            raise TypeError(
                f"the {what} {described(value)} cannot be sent from a worker process ({error}): "
                "map it to arrays, numbers, strings, or containers of them inside the process"
            ) from error


class WorkerPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles what workers get; windows over an array travel as the array and its strides.

    Args:
        room: A file.
        take: The `buffer_callback` of pickle.
        function: The function to send, if it is called again and again: it may not hold state that
            advances, of which each worker would have a copy.
    """

    def __init__(self, room: Any, take: Any = None, function: Any = None) -> None:
        super().__init__(room, protocol=5, buffer_callback=take)
        self.function = self.latest = function
        self.still: set[type] = set()
        self.drawing: Any = None  # a random number generator

    def reducer_override(self, obj: Any) -> Any:
        if self.function is not None:
            self.latest = obj
            self._check_still(obj)
        reduce = _REDUCED.get(type(obj))
        reduced = reduce(obj) if reduce else None
        if reduced is not None:
            return reduced
        if type(obj) is CodeType:  # cloudpickle 3.1.3 leaves out the file, which tracebacks need
            make, parts = self.dispatch_table[CodeType](obj)
            return make, tuple(obj.co_filename if each == _NO_FILE else each for each in parts)
        return super().reducer_override(obj)

    def _check_still(self, obj: Any) -> None:
        """Raise TypeError if each worker would have a copy of state that advances as it is read."""
        if type(obj) in self.still:
            return
        if kind := stateful_kind(obj):
            raise TypeError(
                f"{captured_as(self.function, obj)} is {kind}, and each worker process would have "
                "a copy of it, and read on from the same place: create it inside the function, or "
                "use threads (threads=n)."
            )
        if is_random_generator(obj):
            self.drawing = obj
        elif not isinstance(obj, io.IOBase):
            self.still.add(type(obj))


def _reduced_array(array: Array) -> tuple[Any, ...] | None:
    """Reduce an array to the bytes below it, or a read-only copy; None for the default."""
    if found := bytes_below(array):
        stored, offset = found
        layout = array.dtype, array.shape, offset, array.strides, array.flags.writeable
        return _strided, (stored, *layout)
    if not (array.flags.writeable or array.flags.forc):
        return read_only, (array.copy("K"),)  # NumPy would pickle it as writable
    return None


def _reduced_memmap(array: Array) -> tuple[Any, ...]:
    """Reduce its array as one: NumPy would copy it into the pickle."""
    return np.asarray, (array.view(np.ndarray),)


def _reduced_row(row: Any) -> tuple[Any, ...] | None:
    return None if row.flags.writeable else (_read_only_row, (np.array(row),))


_REDUCED: dict[type, Callable[[Any], tuple[Any, ...] | None]] = {
    np.memmap: _reduced_memmap,
    np.ndarray: _reduced_array,
    np.void: _reduced_row,
}
"""Replacements for NumPy's own reductions."""


def _read_only_row(row: Array) -> Any:
    return read_only(row)[()]


def _strided(
    stored: Array,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    strides: tuple[int, ...],
    writeable: bool,
) -> Array:
    array: Array = np.ndarray(shape, dtype, stored, offset, strides)
    array.flags.writeable = writeable and array.flags.writeable
    return array


def pickled_for_worker(
    value: object, take: Callable[[pickle.PickleBuffer], Any] | None = None
) -> bytes:
    """Pickle what a worker gets, functions too; `take` is the `buffer_callback` of pickle.

    An array whose rows overlap (windows, or one row for all) costs only the bytes below it.

    >>> windows = np.lib.stride_tricks.sliding_window_view(np.arange(999), 500)
    >>> windows.nbytes, len(pickled_for_worker(windows)) < 9000
    (2000000, True)
    """
    room = io.BytesIO()
    WorkerPickler(room, take).dump(value)
    return room.getvalue()


def pickled_function(fn: Any, take: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a function that workers call again and again.

    Raises:
        TypeError: It holds an open file, or an iterator: each worker would advance its own copy.
    """
    room = io.BytesIO()
    sender = WorkerPickler(room, take, fn)
    try:
        sender.dump(fn)
    except Exception as error:
        if not stateful_kind(sender.latest):
            noted(error, f"what cannot be sent is {captured_as(fn, sender.latest)}")
        raise
    if sender.drawing is not None:
        warn(
            f"{captured_as(fn, sender.drawing)} is a generator of random numbers, and each worker "
            "process has a copy, which draws the same numbers: type map(fn, rng=True), which gives "
            "each sample a generator of its own, or make one from the number of the sample."
        )
    return room.getvalue()


def collect_large(taken: list[pickle.PickleBuffer]) -> Callable[[pickle.PickleBuffer], bool]:
    """Return a `buffer_callback` of pickle that collects the memory of large arrays in a list."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as view:
            small = view.nbytes < LARGE
        if not small:
            taken.append(buffer)
        return small

    return take
