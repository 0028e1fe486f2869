"""A column whose rows are slices of one size of the values of all documents, end to end.

Arithmetic, or a table of documents, gives the begin of window `i`: no window is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from jreader.readers.columns import (
    Array,
    ArrayColumn,
    Column,
    Indices,
    Take,
    Where,
    array_column,
    column_of,
)
from jreader.readers.holders import Held
from jreader.readers.joined_columns import locate
from jreader.readers.overlaps import overlapping
from jreader.readers.ragged import Ragged
from jreader.staging import Staging

_LONGEST = 1 << 31  # values that 32 bits can index, on a device


@dataclass(frozen=True, eq=False)
class Cut:
    """Where windows begin among the values of all documents, end to end.

    >>> Cut(4, 2, 6).begins(np.array([0, 5]))
    array([ 0, 10])

    Attributes:
        size: The number of values in a window.
        stride: The number of values from the begin of one window to that of the next.
        count: The number of windows.
        table: For windows within documents: for each document that has one, the number of its first
            window, and the value at which it begins.
    """

    size: int
    stride: int
    count: int
    table: tuple[Array, ...] = ()

    @classmethod
    def within(cls, lengths: Array, size: int, stride: int) -> Cut:
        """Cut windows within documents of these lengths, which lie end to end.

        >>> cut = Cut.within(np.array([5, 1, 4]), 2, 2)
        >>> cut.count, cut.begins(np.arange(cut.count)).tolist()
        (4, [0, 2, 6, 8])
        """
        begins = np.cumsum(lengths) - lengths
        some = lengths >= size
        windows = (lengths[some] - size) // stride + 1
        last = np.cumsum(windows)
        return cls(size, stride, int(last[-1]) if len(last) else 0, (last - windows, begins[some]))

    @classmethod
    def across(cls, total: int, size: int, stride: int) -> Cut:
        """Cut windows over `total` values as one stream."""
        return cls(size, stride, max((total - size) // stride + 1, 0))

    def holding(self, documents: Held) -> Held:
        """Return the windows that hold these documents, whose `begin` and `end` count all values.

        >>> cut = Cut.within(np.array([5, 1, 4]), 2, 2)
        >>> both = Held(np.arange(2), np.arange(2), np.array([0, 5]), np.array([5, 6]))
        >>> print(*cut.holding(both))
        [0 0] [0 1] [0 0] [2 2]
        """
        low, high = documents.begin, documents.end
        first = np.maximum((low - self.size) // self.stride + 1, 0)
        last = np.minimum((high - 1) // self.stride, self.count - 1)
        if self.table:
            number, begins = self.table
            which = np.minimum(begins.searchsorted(low), len(begins) - 1)
            first = number[which]
            last = first + (high - low - self.size) // self.stride
        many = np.where(low < high, np.maximum(last - first + 1, 0), 0)
        held = documents.at(first).repeated(many)
        begin = self.begins(held.index)
        return replace(
            held,
            begin=np.maximum(held.begin - begin, 0),
            end=np.minimum(held.end - begin, self.size),
        )

    def begins(self, rows: Indices, table: tuple[Any, ...] | None = None) -> Indices:
        """Return the values at which windows begin; `table` is the device's copy, in a trace."""
        if not self.table:
            return rows * self.stride
        first, begins = table or self.table
        which = rows.__array_namespace__().searchsorted(first, rows, side="right") - 1
        return begins[which] + (rows - first[which]) * self.stride


class Windowed(ArrayColumn):
    """A column whose rows are the windows of a `Cut`.

    >>> words = Windowed(np.arange(10) * 10, 1, 9, Cut.across(9, 3, 2))
    >>> words, words.gather(np.array([3, 0])).tolist()
    (int64[4, 3], [[70, 80, 90], [10, 20, 30]])

    Args:
        values: An array, a memory map, several as `ConcatArray`, or documents as `ConcatRows`.
        first: The index in `values` at which the first document begins.
        total: The number of values of all documents.
        cut: Where the windows begin.
        documents: The column of the documents.
    """

    kind = None  # its rows overlap: such columns are not joined as arrays

    def __init__(
        self, values: Any, first: int, total: int, cut: Cut, documents: Any = None
    ) -> None:
        self.values, self.first, self.total, self.cut = values, first, total, cut
        self.documents = documents
        self.dtype = values.dtype
        self.shape = (cut.count, cut.size, *values.shape[1:])
        self._column = array_column(values)
        self.arrays, self.tables = self._column.arrays, cut.table
        self.late, self.at_once = self._column.late, max(self._column.at_once // cut.size, 1)

    @property
    def source(self) -> Column:
        """The documents."""
        return column_of(self.documents)

    def begins(self, rows: Array) -> Array:
        """Return the indices of the values at which these rows begin."""
        begins: Array = self.cut.begins(rows) + self.first
        return begins

    def where(self, rows: Array) -> list[Where] | None:
        """Return where the first values of these rows lie."""
        return self._column.where(self.begins(rows))

    def each(self, rows: Array) -> Iterator[Array]:
        """Return the rows one by one, as views if the values of a window are in one array."""
        begins = self.begins(rows)
        return iter(self._column.spans(begins, begins + self.cut.size))

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Return a function that copies windows, into staged memory if that pays."""
        staged, slices = Staging(size, self.shape[1:], self.dtype), self._column.slices

        def gather(rows: Array) -> Array:
            out = staged(len(rows)) if staged.leases else None
            return slices(self.begins(rows), self.cut.size, out)

        return gather, None

    def cuts(self, size: int) -> Array:
        """Return the first window of each run of about `size` bytes, each value counted once."""
        each = prod(self.shape[2:]) * self.dtype.itemsize * self.cut.stride
        return np.arange(0, max(len(self), 1), max(size // max(each, 1), 1))

    def held(self, low: int, high: int) -> Array:
        """Return these rows as windows of values that are read at once."""
        begins, size = self.begins(np.arange(low, high)), self.cut.size
        values = np.array(self.values[int(begins[0]) : int(begins[-1]) + size])
        return np.asarray(overlapping(values, size)[begins - begins[0]])

    def placed(self) -> tuple[Any, Any]:
        """Return what to put on a device: all values of documents, once, and where windows begin.

        Raises:
            ValueError: There are too many values.
        """
        if self.total >= _LONGEST:
            raise ValueError(
                f"a device counts up to 2**31 values, and the documents have {self.total:,}: use "
                f".load(...), or a part of them, as in tokens(paths[:10])."
            )
        cut, values = self.cut, np.asarray(self.values[self.first : self.first + self.total])

        def rows_of(placed: Any, rows: Indices) -> Any:
            flat, *table = placed
            begins = cut.begins(rows, tuple(table))
            steps = np.arange(cut.size, dtype=rows.dtype)
            return flat.at[begins[..., None] + steps].get(mode="promise_in_bounds")

        return (values, *cut.table), rows_of


class ConcatRows(ArrayColumn):
    """Rows of a ragged column end to end, in any order, as one array.

    >>> words = Ragged(np.arange(6), np.array([0, 2, 2, 6]))
    >>> strung = ConcatRows(words, np.array([2, 0, 1, 0]))
    >>> len(strung), strung[3:7].tolist(), np.shares_memory(strung[1:3], words.values)
    (8, [5, 0, 1, 0], True)

    Args:
        column: The column.
        rows: Its rows, in their order.
    """

    def __init__(self, column: Ragged, rows: Array) -> None:
        lengths = column.lengths(rows)
        self.values, self.dtype = column.values, column.dtype
        self._column = array_column(column.values)
        self.begins, self.ends = column.offsets[rows], np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.shape = (int(self.ends[-1]) if len(rows) else 0, *column.shape[2:])

    def found(self, positions: Array) -> tuple[Array, Array]:
        """Return the row of each value, and its index in the values of the column."""
        which, local = locate(self.starts, positions)
        return which, self.begins[which] + local

    def where(self, positions: Array) -> list[Where] | None:
        """Return where these values lie."""
        return self._column.where(self.found(positions)[1])

    def slices(self, begins: Array, size: int, out: Array | None = None) -> Array:
        """Slice the values of the column where a slice does not cross a row's end."""
        which, below = self.found(begins)
        whole = begins + size <= self.ends[which]
        taken = np.empty((len(begins), size, *self.shape[1:]), self.dtype) if out is None else out
        taken[whole] = self._column.slices(below[whole], size)
        taken[~whole] = super().slices(begins[~whole], size)
        return taken

    def __getitem__(self, part: slice) -> Array:
        """Return consecutive values, as a view if they are of one row."""
        first, last, _ = part.indices(len(self))
        ((which,), (begin,)) = self.found(np.array([first]))
        pieces = list[Array]()
        while first < last or not pieces:
            many = min(last, int(self.ends[which])) - first
            pieces.append(self.values[begin : begin + many])
            first, which = first + many, which + 1
            begin = self.begins[which] if which < len(self.begins) else 0
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
