"""Columns whose rows are each several rows of another column, stacked.

So samples made of several samples (`sliding_window`) are arithmetic on indices too. For rows in any
order, `route` returns all that a sample stacks, along one more axis. For consecutive rows it
returns only the first, which makes the sample a slice. Either way neither the host nor a device
holds a row twice.
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
    """A column whose rows are each `size` rows of another column.

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
        size: The number of its rows in one row here.
        stack: Makes one row from a list of them, if the column gives lists.
        runs: Whether they are consecutive, so that the first identifies them: only for an array, or
            several as `ConcatArray`.
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
        """Return the bound of row numbers: of the other column's rows, if they name all of them."""
        return max(len(self.column) - self.size + 1, 0) if self.runs else len(self.column)

    def __repr__(self) -> str:
        return f"{described(self.column)} by {self.size}"

    @property
    def source(self) -> Column:
        """The source of the other column."""
        return self._inner.source

    def of_column(self, column: Any) -> StackedRows:
        """Return the same over another column."""
        return StackedRows(column, self.size, self.stack, runs=self.runs)

    def inner_rows(self, rows: Indices) -> Indices:
        """Return the rows of the other column that make up these, along the second axis."""
        return rows[..., None] + rows.__array_namespace__().arange(self.size) if self.runs else rows

    def each(self, rows: Array) -> Iterator[Any]:
        """Return the rows one by one; runs are views of an array."""
        if self.runs:
            return (self.column[row : row + self.size] for row in rows.tolist())
        return super().each(rows)

    def gather(self, rows: Array) -> Any:
        """Return the rows stacked; a list of them if the other column gives lists."""
        if self.runs and isinstance(self.column, np.ndarray) and len(rows):
            return self._all[rows]
        rows = self.inner_rows(rows)
        flat = rows.reshape(-1, *rows.shape[2:])
        given = self._inner.gather(flat)
        if isinstance(given, list):
            return [self.stack(given[at : at + self.size]) for at in range(0, len(flat), self.size)]
        return _in_rows(given, len(rows), self.size)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return the other column, whose rows are on the device once."""
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
    """Join every `size` rows of each array in a tree into one."""
    return map_tree(lambda column: column.reshape(many, size, *column.shape[1:]), flat)
