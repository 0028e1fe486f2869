"""Columns each of whose rows is several rows of another one, stacked.

So samples made of several samples (`window`) are arithmetic on indices too. Of rows in any order,
`route` gives all that are stacked in a sample, as one more axis (`StackedRows`); of rows that
follow one another it gives only the first, which makes the rest a slice (`RowRuns`). Either way
neither the host nor a device holds a row twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jreader.readers.messages import described
from jreader.readers.planes import Array, Gathering, Indices, Placed
from jreader.readers.trees import Columns, map_tree


class StackedRows:
    """A column whose rows are `size` rows each of another column.

    >>> pairs = StackedRows(np.arange(5) * 10, 2, np.stack)
    >>> pairs.gather(np.array([[0, 1], [3, 4]]))
    array([[ 0, 10],
           [30, 40]])

    Args:
        column: The other column, or a column that gathers.
        size: How many of its rows make one.
        stack: Makes one row of a list of them, where the column gives a list.
    """

    def __init__(self, column: Any, size: int, stack: Callable[[Sequence[Any]], Any]) -> None:
        self.column, self.size, self.stack = column, size, stack
        self.stacks = getattr(column, "stacks", True)
        self.rows_each = size * getattr(column, "rows_each", 1)

    def __len__(self) -> int:
        """The number of rows of the other column: what its rows are checked against."""
        return len(self.column)

    def __repr__(self) -> str:
        return f"{described(self.column)} by {self.size}"

    def over(self, column: Any) -> StackedRows:
        """The same of another column."""
        return StackedRows(column, self.size, self.stack)

    def below(self, rows: Array) -> tuple[Any, Array]:
        """The other column, and its rows that these are made of, along the last axis."""
        return self.column, rows

    def gather(self, rows: Array) -> Any:
        """The rows stacked; a list of them where the other column gives a list."""
        flat = rows.reshape(-1, *rows.shape[2:])
        given = Gathering(self.column, len(flat))([flat])
        if isinstance(given, Columns):
            return _in_rows(given.columns, len(rows), self.size)
        return [self.stack(given[at : at + self.size]) for at in range(0, len(given), self.size)]

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows one by one."""
        for at in range(len(rows)):
            given = self.gather(rows[at : at + 1])
            yield given[0] if isinstance(given, list) else map_tree(itemgetter(0), given)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to a device: the other column, each of whose rows is there once.

        Raises:
            ValueError: The other column makes its rows when they are asked for.
        """
        if isinstance(self.column, Placed):
            tree, rows_of = self.column.placed()
        elif hasattr(self.column, "__array__"):
            tree, rows_of = np.asarray(self.column), _rows_of_array
        else:
            raise ValueError(
                f"{described(self.column)} makes its rows when they are asked for, and a device "
                f"needs columns that fit on it as a whole: use .load(...)."
            )

        def rows_of_several(placed: Any, rows: Indices) -> Any:
            flat = rows_of(placed, rows.reshape(-1, *rows.shape[2:]))
            return _in_rows(flat, len(rows), self.size)

        return tree, rows_of_several


class RowRuns:
    """A column whose row i is rows i to i + `size` of an array, or of several `Joined`.

    >>> runs = RowRuns(np.arange(5) * 10, 3)
    >>> len(runs), runs.gather(np.array([2, 0]))
    (3, array([[20, 30, 40],
           [ 0, 10, 20]]))

    Args:
        column: The array.
        size: How many of its rows make one.
    """

    def __init__(self, column: Any, size: int) -> None:
        self.column, self.size = column, size

    def __len__(self) -> int:
        return max(len(self.column) - self.size + 1, 0)

    def __repr__(self) -> str:
        return f"{described(self.column)} by {self.size}"

    def over(self, column: Any) -> RowRuns:
        """The same of another column."""
        return RowRuns(column, self.size)

    def below(self, rows: Array) -> tuple[Any, Array]:
        """The array, and its rows that these are made of, along the last axis."""
        return self.column, self._every(rows, np)

    def gather(self, rows: Array) -> Array:
        """The runs that begin with these rows, stacked."""
        if isinstance(self.column, np.ndarray) and len(rows):
            runs: Array = self._all[rows]
            return runs
        flat = self._every(rows, np).reshape(-1)
        gathered: Any = Gathering(self.column, len(flat))([flat])  # an array's are Columns
        stacked: Array = _in_rows(gathered.columns, len(rows), self.size)
        return stacked

    def each(self, rows: Array) -> Iterator[Array]:
        """The runs one by one, as views of an array."""
        return (self.column[row : row + self.size] for row in rows.tolist())

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to a device: the array."""
        return np.asarray(self.column), lambda placed, rows: _rows_of_array(
            placed, self._every(rows, rows.__array_namespace__())
        )

    def _every(self, rows: Indices, namespace: Any) -> Indices:
        return rows[..., None] + namespace.arange(self.size)

    @cached_property
    def _all(self) -> Array:
        """All runs, as a view of the array."""
        column = self.column
        strides = column.strides[0], *column.strides
        shape = len(self), self.size, *column.shape[1:]
        return as_strided(column, shape, strides, writeable=False)


STACKED = (StackedRows, RowRuns)


def _rows_of_array(placed: Any, rows: Indices) -> Any:
    return placed.at[rows].get(mode="promise_in_bounds")


def _in_rows(flat: Any, many: int, size: int) -> Any:
    """A tree of arrays with `size` rows of each in one."""
    return map_tree(lambda column: column.reshape(many, size, *column.shape[1:]), flat)
