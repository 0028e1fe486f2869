"""`Decoded`: a block as columns, and rows of several blocks as one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, Column, Dense, column_of, each_column
from jreader.readers.planes import Gathering
from jreader.readers.protected import read_only
from jreader.readers.trees import Columns, branches, leaves, rebuilt, zipped


@dataclass(frozen=True, eq=False)
class Decoded:
    """A block as a tree of columns.

    Attributes:
        tree: The columns.
        columns: The leaves of the tree.
        rows: How many rows each has.
        arrays: The columns if all are arrays; else an empty list.
        kind: The structure of the tree, and dtypes and shapes: of equal ones, rows can be stacked.
        lent: Whether others may write over the arrays later, so that no row may be a view of them.
    """

    tree: Any
    columns: list[Column]
    rows: int
    arrays: list[Array]
    kind: tuple[Any, ...]
    lent: bool = False

    @classmethod
    def of(cls, given: Any, rows: int, name: str) -> Decoded:
        """What a function gave as the columns of a block.

        Raises:
            DamagedData: It has another number of rows.
            TypeError: It has no columns.
        """
        tree = each_column(_as_column, given)
        columns = list(map(column_of, leaves(tree)))
        lengths = {len(column) for column in columns}
        if lengths != {rows} and (columns or rows):
            raise DamagedData(
                f"{name} has {' and '.join(map(str, sorted(lengths))) or 'no'} rows, and was "
                f"announced with {rows}: the file was changed, or is damaged."
            )
        arrays = [column.array for column in columns if isinstance(column, Dense)]
        plain = len(arrays) == len(columns)
        kind = (_structure_of(tree), *(column.kind for column in columns if plain))
        return cls(tree, columns, rows, arrays if plain else [], kind)

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""
        if self.lent:
            return zipped(self.tree, [read_only(array.take(rows, 0)) for array in self.arrays])
        return zipped(self.tree, [column.each(rows) for column in self.columns])

    def over(self, arrays: list[Array]) -> Decoded:
        """The same block in other arrays, which are lent."""
        tree = rebuilt(self.tree, iter(arrays))
        return Decoded(tree, self.columns, self.rows, arrays, self.kind, lent=True)

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays, or a list of samples."""
        if self.arrays:  # to make a `Gathering` for each batch would cost more than the rows
            return rebuilt(self.tree, (array.take(rows, 0, None, "clip") for array in self.arrays))
        given = Gathering(self.tree, len(rows))([rows] * len(self.columns))
        return given.columns if isinstance(given, Columns) else given


def _structure_of(tree: Any) -> Any:
    """What is equal for trees with the same branches."""
    parts = branches(tree)
    return parts and (type(tree), *((key, _structure_of(part)) for key, part in parts.items()))


def _as_column(column: Any) -> Any:
    if isinstance(column, (list, Column)):
        return column_of(column)
    return read_only(np.asanyarray(column))


class Stack:
    """Rows of several blocks as one batch; each block may be closed once its rows are in.

    >>> stack = Stack(3)
    >>> stack.put(Decoded.of(np.arange(3), 3, ""), np.array([2, 0]), 0)
    >>> stack.put(Decoded.of(np.arange(3) + 10, 3, ""), np.array([1]), 2)
    >>> stack.dealt(np.array([2, 0, 1]))
    array([ 0, 11,  2])

    Args:
        many: The number of rows.
    """

    def __init__(self, many: int) -> None:
        self.many = many
        self._kind: tuple[Any, ...] = ()
        self._tree: Any = None
        self._arrays: list[Array] = []
        self._samples: list[Any] | None = None
        self._filled: list[tuple[int, int]] = []

    def put(self, block: Decoded, rows: Array, low: int) -> None:
        """Takes these rows of a block as those from `low` on."""
        high = low + len(rows)
        if self._samples is None and block.arrays:
            if not self._arrays:
                self._kind, self._tree = block.kind, block.tree
                self._arrays = [
                    np.empty((self.many, *column.shape[1:]), column.dtype)
                    for column in block.arrays
                ]
            if block.kind == self._kind:
                for column, array in zip(block.arrays, self._arrays, strict=True):
                    column.take(rows, 0, array[low:high], "clip")
                self._filled.append((low, high))
                return
        samples = self._as_samples()
        samples[low:high] = block.each(rows)

    def dealt(self, order: Array) -> Any:
        """A tree of arrays, or a list of samples, in which row `order[i]` is that with number i."""
        if self._samples is None:
            turned = [np.empty_like(array) for array in self._arrays]
            for array, ordered in zip(turned, self._arrays, strict=True):
                array[order] = ordered
            return rebuilt(self._tree, iter(turned))
        dealt: list[Any] = [None] * self.many
        for place, sample in zip(order.tolist(), self._samples, strict=True):
            dealt[place] = sample
        return dealt

    def _as_samples(self) -> list[Any]:
        """The rows as a list: no array has them all."""
        if self._samples is None:
            self._samples = [None] * self.many
            for low, high in self._filled:
                parts = [array[low:high] for array in self._arrays]
                self._samples[low:high] = zipped(self._tree, parts)
        return self._samples
