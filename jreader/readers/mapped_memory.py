"""Mapped files whose rows come here and there: the kernel is to read these, and not what is near.

By default it reads 128 KB or more around each page that is not in memory, which is right for rows
in order. Of a shuffled file of rows of 2 KB, that is 60 times as much as is asked for.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jreader.readers.columns import Array, column_of
from jreader.readers.joined_columns import EndToEnd
from jreader.readers.trees import leaves

_LARGE = 1 << 24  # bytes of a column: less is soon read as a whole
_SMALL = 1 << 14  # bytes of a row: page after page of a larger one would cost more than it saves
_NEAR = 1 << 17  # bytes that the kernel reads ahead, as a rule


class Mapped(NamedTuple):
    """A large column of small rows that lie in mapped files.

    Attributes:
        number: Its number among the columns.
        which: Its number in a column whose rows are pairs (`EndToEnd`); else None.
        width: The bytes of a row.
        parts: What is advised: arrays in mapped files, or columns that take advice themselves.
        given: The advice that was given last, if any.
    """

    number: int
    which: int | None
    width: int
    parts: list[Any]
    given: list[int]


def mapped_columns(columns: Any) -> list[Mapped]:
    """The columns for which `advise` is of use.

    >>> mapped_columns(np.zeros((1 << 14, 1 << 8)))
    []
    """
    found = []
    for number, leaf in enumerate(leaves(columns)):
        pairs = isinstance(leaf, EndToEnd) and leaf.in_pairs
        for which, column in enumerate(leaf.parts) if pairs else ((None, leaf),):
            if parts := _large_in_files(column):
                width = sum(each.nbytes for each in parts) // len(column)
                found.append(Mapped(number, which, width, parts, []))
    return found


def _large_in_files(column: Any) -> list[Any]:
    """What a large column of small rows lies in, if that is files; else nothing."""
    parts = [part for part in column_of(column).arrays if len(part)]
    size = sum([each.nbytes for each in parts])
    if size < _LARGE or not len(column) or size // len(column) >= _SMALL:
        return []
    return parts if _in_file(parts[0]) else []


def advise(mapped: list[Mapped], routed: list[Array]) -> None:
    """Tells the kernel, before rows are read, whether they lie near to one another.

    Args:
        mapped: The columns.
        routed: The rows that come, of each column of the plan.
    """
    for number, which, width, parts, given in mapped:
        rows = routed[number]
        if which is not None:
            rows = rows[rows[:, 1] == which, 0]
        if rows.ndim > 1 or len(rows) < 2:
            continue
        far = np.count_nonzero(np.abs(np.diff(rows)) > _NEAR // max(width, 1))
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


def _in_file(array: Any) -> bool:
    """Whether the memory of an array is that of a file, mapped by NumPy or by Arrow."""
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
    """Of the C library, since not all maps are objects of Python."""
    import ctypes  # noqa: PLC0415  # few need it

    call = ctypes.CDLL(None).madvise
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call
