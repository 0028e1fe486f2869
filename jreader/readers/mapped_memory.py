"""Mapped files read at scattered rows: the kernel should read these, and not what is near.

By default it reads 128 KB or more around each page that is not in memory, which is right for rows
in order. In a shuffled file with rows of 2 KB, that is 60 times the data requested.

It also reads one page after the other, as they are touched; requested together, the pages of a
whole batch come 3 to 20 times sooner. If they are in memory, requesting them takes half as long as
the gather. So the first rows of some large batches show, by the kernel's count of page waits,
whether to request the others. NumPy copies rows without the GIL, and one core does not fill the
memory bus: two threads that copy half of a large batch each take half the time.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.cores import usable_cores
from jreader.readers.columns import Array, Take, column_of
from jreader.readers.exits_and_forks import resolve_future
from jreader.readers.joined_columns import ConcatColumn
from jreader.readers.trees import leaves
from jreader.staging import Staging

if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

Task: TypeAlias = tuple[Future[Array], Callable[[], Array]]

_MIN_COLUMN = 1 << 24  # bytes of a column; a smaller one is soon read whole
_MAX_ROW = 1 << 14  # bytes of a row; for a larger one, single pages cost more than they save
_READAHEAD = 1 << 17  # bytes that the kernel usually reads ahead
_MIN_CHECKED = 1 << 19  # bytes of a batch; a smaller copy takes no longer than some 15 checks
_MIN_SPLIT = 1 << 23  # bytes: two threads copy them in 0.5 ms; waking one takes up to 0.05 ms
_ROWS_PER_CHECK = 16  # one of so many rows shows whether they are in memory


class Mapped(NamedTuple):
    """A large column of small rows in mapped files.

    Attributes:
        number: Its number among the columns.
        which: Its number in a column whose rows are pairs (`ConcatColumn`); else None.
        width: The bytes of a row.
        parts: What gets advice: arrays in mapped files, or columns that take advice themselves.
        given: The latest advice, if any.
    """

    number: int
    which: int | None
    width: int
    parts: list[Any]
    given: list[int]


def mapped_columns(columns: Any) -> list[Mapped]:
    """Return the columns that benefit from `advise`.

    >>> mapped_columns(np.zeros((1 << 14, 1 << 8)))
    []
    """
    found = []
    for number, leaf in enumerate(leaves(columns)):
        pairs = isinstance(leaf, ConcatColumn) and leaf.in_pairs
        for which, column in enumerate(leaf.parts) if pairs else ((None, leaf),):
            if parts := _large_in_files(column):
                width = sum(each.nbytes for each in parts) // len(column)
                found.append(Mapped(number, which, width, parts, []))
    return found


def _large_in_files(column: Any) -> list[Any]:
    """Return the files' arrays that hold a large column of small rows; none if not in files."""
    if isinstance(column, np.ndarray) and column.nbytes < _MIN_COLUMN:
        return []  # the usual case, in one call
    parts = [part for part in column_of(column).arrays if len(part)]
    size = sum([each.nbytes for each in parts])
    if size < _MIN_COLUMN or not len(column) or size // len(column) >= _MAX_ROW:
        return []
    return parts if _in_file(parts[0]) else []


def advise(mapped: list[Mapped], routed: list[Array]) -> None:
    """Tell the kernel, before rows are read, whether they are near each other.

    Args:
        mapped: The columns.
        routed: The rows to be read, for each column of the plan.
    """
    for number, which, width, parts, given in mapped:
        rows = routed[number]
        if which is not None:
            rows = rows[rows[:, 1] == which, 0]
        if rows.ndim > 1 or len(rows) < 2:
            continue
        far = np.count_nonzero(np.abs(np.diff(rows)) > _READAHEAD // max(width, 1))
        advice = mmap.MADV_RANDOM if 2 * far >= len(rows) else mmap.MADV_NORMAL
        if given == [advice]:
            continue
        given[:] = [advice]
        for part in parts:
            if not isinstance(part, np.ndarray):
                part.advise(advice)
                continue
            first = part.ctypes.data
            begin = first - first % mmap.PAGESIZE
            _madvise()(begin, first + part.nbytes - begin, advice)


def for_large_batches(take: Take, staged: Staging | None) -> tuple[Take, Staging | None]:
    """Return a faster gather for batches of many bytes.

    Args:
        take: Gathers rows; the method `take` of an array, if there is `staged`.
        staged: Makes the array that rows are taken into.
    """
    if staged is None or staged.nbytes < _MIN_CHECKED:
        return take, staged
    large = _LargeTake(take, splits=staged.nbytes >= _MIN_SPLIT and usable_cores() > 1)
    return (large if large.mapped or large.splits else take), staged


class _LargeTake:
    """The method `take` of an array of contiguous rows without gaps."""

    def __init__(self, take: Any, *, splits: bool) -> None:
        self._array, self._take, self.splits = take.__self__, take, splits
        self.mapped = sys.platform == "linux" and _in_file(self._array)
        self._unlooked = 0

    def __call__(self, rows: Array, axis: int, out: Array, mode: Any) -> Array:
        """Take the rows, which must be in bounds, into `out`."""
        take = self._take
        begin = self._begun(rows, axis, out, mode) if self.mapped else 0
        if not self.splits:
            take(rows[begin:], axis, out[begin:], mode)
            return out
        half = (begin + len(rows)) // 2
        rest = partial(take, rows[half:], axis, out[half:], mode)
        given: Future[Array] = Future()
        _second_thread(os.getpid()).put((given, rest))
        take(rows[begin:half], axis, out[begin:half], mode)
        if given.cancel():  # the other thread has not begun
            rest()
        else:
            given.result()
        return out

    def _begun(self, rows: Array, axis: int, out: Array, mode: Any) -> int:
        """Take the first rows; if their pages had to be read, request those of all others.

        After a batch that was in memory, it does not check the next 15.
        """
        if self._unlooked:
            self._unlooked -= 1
            return 0
        begin, before = -(-len(rows) // _ROWS_PER_CHECK), _waits()
        self._take(rows[:begin], axis, out[:begin], mode)
        if _waits() > before:
            width = self._array.strides[0]
            firsts = self._array.ctypes.data + rows[begin:] * width
            pages = firsts - firsts % mmap.PAGESIZE
            for page, size in zip(pages.tolist(), (firsts + width - pages).tolist(), strict=True):
                _madvise()(page, size, mmap.MADV_WILLNEED)
        else:
            self._unlooked = _ROWS_PER_CHECK - 1
        return begin


def _waits() -> int:
    """Return the number of page waits of this thread since it began."""
    return getrusage(RUSAGE_THREAD).ru_majflt


@cache
def _second_thread(_process: int) -> SimpleQueue[Task]:
    """Return the task queue of a thread of this process; a fork begins its own."""
    tasks: SimpleQueue[Task] = SimpleQueue()
    Thread(target=_work_on, args=(tasks,), name="jreader gather", daemon=True).start()
    return tasks


def _work_on(tasks: SimpleQueue[Task]) -> None:
    while True:
        given, call = tasks.get()
        if given.set_running_or_notify_cancel():
            resolve_future(given, call)
        del given, call  # otherwise they hold their arrays until the next task


def _in_file(array: Any) -> bool:
    """Return whether the memory of an array is that of a file, mapped by NumPy or by Arrow."""
    if not isinstance(array, np.ndarray):
        return hasattr(mmap, "MADV_RANDOM")
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(getattr(base, "obj", base), mmap.mmap):  # also of a memoryview
        return hasattr(mmap, "MADV_RANDOM")
    if not type(base).__module__.startswith("pyarrow"):
        return False
    address, maps = array.ctypes.data, Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        span, _, _, _, number, *_ = line.split()
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return number != "0"
    return False


@cache
def _madvise() -> Callable[[int, int, int], int]:
    """Return the C library's function, since not all maps are Python objects."""
    import ctypes  # noqa: PLC0415  # rarely needed

    call = ctypes.CDLL(None).madvise
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call
