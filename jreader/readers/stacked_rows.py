"""Columns each of whose rows is several rows of another one, stacked.

So samples made of several samples (`window`) are arithmetic on indices too. Of rows in any order,
`route` gives all that are stacked in a sample, as one more axis (`StackedRows`); of rows that
follow one another it gives only the first, which makes the rest a slice (`RowRuns`). Either way
neither the host nor a device holds a row twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Column, Indices, column_of
from jreader.readers.messages import described
from jreader.readers.trees import map_tree


class StackedRows(Column):
    """A column whose rows are `size` rows each of another column.

    >>> pairs = StackedRows(np.arange(5) * 10, 2, np.stack)
    >>> pairs.gather(np.array([[0, 1], [3, 4]]))
    array([[ 0, 10],
           [30, 40]])

    Args:
        column: The other column.
        size: How many of its rows make one.
        stack: Makes one row of a list of them, where the column gives a list.
    """

    at_once = 1

    def __init__(self, column: Any, size: int, stack: Callable[[Sequence[Any]], Any]) -> None:
        self.column, self.size, self.stack = column, size, stack
        self._inner = inner = column_of(column)
        self.stacks, self.kind = inner.stacks, inner.kind
        self.form = type(self), size, inner.form
        self.rows_each = size * inner.rows_each

    def __len__(self) -> int:
        """The number of rows of the other column: what its rows are checked against."""
        return len(self.column)

    def __repr__(self) -> str:
        return f"{described(self.column)} by {self.size}"

    def over(self, column: Any) -> StackedRows:
        """The same of another column."""
        return type(self)(column, self.size, self.stack)

    def below(self, rows: Array) -> tuple[Any, Array]:
        """The other column, and its rows that these are made of, along the last axis."""
        return self.column, rows

    def gather(self, rows: Array) -> Any:
        """The rows stacked; a list of them where the other column gives a list."""
        flat = rows.reshape(-1, *rows.shape[2:])
        given = self._inner.gather(flat)
        if isinstance(given, list):
            return [self.stack(given[at : at + self.size]) for at in range(0, len(flat), self.size)]
        return _in_rows(given, len(rows), self.size)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """The other column, each of whose rows is on the device once."""
        tree, rows_of = self._inner.placed()

        def rows_of_several(placed: Any, rows: Indices) -> Any:
            flat = rows_of(placed, rows.reshape(-1, *rows.shape[2:]))
            return _in_rows(flat, len(rows), self.size)

        return tree, rows_of_several


class RowRuns(StackedRows):
    """A column whose row i is rows i to i + `size` of an array, or of several `Joined`.

    >>> runs = RowRuns(np.arange(5) * 10, 3, np.stack)
    >>> len(runs), runs.gather(np.array([2, 0]))
    (3, array([[20, 30, 40],
           [ 0, 10, 20]]))
    """

    def __init__(self, column: Any, size: int, stack: Callable[[Sequence[Any]], Any]) -> None:
        super().__init__(column, size, stack)
        self.rows_each = 1  # the rest of a row is no index

    def __len__(self) -> int:
        return max(len(self.column) - self.size + 1, 0)

    def below(self, rows: Array) -> tuple[Any, Array]:
        """The array, and its rows that these are made of, along the last axis."""
        return self.column, self._every(rows)

    def gather(self, rows: Array) -> Any:
        """The runs that begin with these rows, stacked."""
        if isinstance(self.column, np.ndarray) and len(rows):
            return self._all[rows]
        return super().gather(self._every(rows))

    def each(self, rows: Array) -> Iterator[Array]:
        """The runs one by one, as views of an array."""
        return (self.column[row : row + self.size] for row in rows.tolist())

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """The array."""
        tree, rows_of = super().placed()
        return tree, lambda placed, rows: rows_of(placed, self._every(rows))

    def _every(self, rows: Indices) -> Indices:
        return rows[..., None] + rows.__array_namespace__().arange(self.size)

    @cached_property
    def _all(self) -> Array:
        """All runs, as a view of the array."""
        return overlapping(self.column, self.size)


def overlapping(array: Array, size: int) -> Array:
    """The array whose row i is `array[i : i + size]`, as a view.

    >>> overlapping(np.arange(5), 3).tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    shape = (max(len(array) - size + 1, 0), size, *array.shape[1:])
    strides = (array.strides[0], *array.strides)
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


def _in_rows(flat: Any, many: int, size: int) -> Any:
    """A tree of arrays with `size` rows of each in one."""
    return map_tree(lambda column: column.reshape(many, size, *column.shape[1:]), flat)
