"""Columns each of whose rows is several rows of another one, stacked.

So samples made of several samples (`sliding_window`) are arithmetic on indices too. Of rows in any
order, `route` gives all that are stacked in a sample, as one more axis; of rows that follow one
another it gives only the first, which makes the rest a slice. Either way neither the host nor a
device holds a row twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Column, Indices, column_of
from jreader.readers.messages import described
from jreader.readers.overlaps import overlapping
from jreader.readers.trees import map_tree


class StackedRows(Column):
    """A column whose rows are `size` rows each of another column.

    >>> pairs = StackedRows(np.arange(5) * 10, 2, np.stack)
    >>> pairs.gather(np.array([[0, 1], [3, 4]]))
    array([[ 0, 10],
           [30, 40]])
    >>> runs = StackedRows(np.arange(5) * 10, 3, np.stack, runs=True)
    >>> len(runs), runs.gather(np.array([2, 0]))
    (3, array([[20, 30, 40],
           [ 0, 10, 20]]))

    Args:
        column: The other column.
        size: How many of its rows make one.
        stack: Makes one row of a list of them, where the column gives a list.
        runs: Whether they follow one another, so that the first says which they are: only of an
            array, or of several `Joined`.
    """

    at_once = 1

    def __init__(
        self,
        column: Any,
        size: int,
        stack: Callable[[Sequence[Any]], Any],
        *,
        runs: bool = False,
    ) -> None:
        self.column, self.size, self.stack, self.runs = column, size, stack, runs
        self._inner = inner = column_of(column)
        self.stacks, self.kind = inner.stacks, inner.kind
        self.form = type(self), size, runs, inner.form
        self.rows_each = 1 if runs else size * inner.rows_each

    def __len__(self) -> int:
        """What its rows are checked against: rows of the other column, where they name all."""
        return max(len(self.column) - self.size + 1, 0) if self.runs else len(self.column)

    def __repr__(self) -> str:
        return f"{described(self.column)} by {self.size}"

    @property
    def source(self) -> Column:
        """That of the other column."""
        return self._inner.source

    def of_column(self, column: Any) -> StackedRows:
        """The same of another column."""
        return StackedRows(column, self.size, self.stack, runs=self.runs)

    def inner_rows(self, rows: Indices) -> Indices:
        """The rows of the other column that these are made of, along the second axis."""
        return rows[..., None] + rows.__array_namespace__().arange(self.size) if self.runs else rows

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows one by one, runs as views of an array."""
        if self.runs:
            return (self.column[row : row + self.size] for row in rows.tolist())
        return super().each(rows)

    def gather(self, rows: Array) -> Any:
        """The rows stacked; a list of them where the other column gives a list."""
        if self.runs and isinstance(self.column, np.ndarray) and len(rows):
            return self._all[rows]
        rows = self.inner_rows(rows)
        flat = rows.reshape(-1, *rows.shape[2:])
        given = self._inner.gather(flat)
        if isinstance(given, list):
            return [self.stack(given[at : at + self.size]) for at in range(0, len(flat), self.size)]
        return _in_rows(given, len(rows), self.size)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """The other column, each of whose rows is on the device once."""
        tree, rows_of = self._inner.placed()

        def rows_of_several(placed: Any, rows: Indices) -> Any:
            rows = self.inner_rows(rows)
            flat = rows_of(placed, rows.reshape(-1, *rows.shape[2:]))
            return _in_rows(flat, len(rows), self.size)

        return tree, rows_of_several

    @cached_property
    def _all(self) -> Array:
        """All runs, as a view of the array."""
        return overlapping(self.column, self.size)


def _in_rows(flat: Any, many: int, size: int) -> Any:
    """A tree of arrays with `size` rows of each in one."""
    return map_tree(lambda column: column.reshape(many, size, *column.shape[1:]), flat)
