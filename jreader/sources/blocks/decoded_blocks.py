"""`Decoded`: a block as columns; `Arena`: open blocks in one array per column.

A batch of a block shuffle has a few rows from each of 64 blocks: gathering them block by block
costs 64 calls per column. In an arena, each open block has a slot, and each row has an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, Column, Dense, column_of, each_column
from jreader.readers.joined_columns import alike
from jreader.readers.planes import BatchGatherer
from jreader.readers.protected import read_only
from jreader.readers.trees import leaves, map_tree, rebuilt, zipped

_UNEVEN = 8  # times the mean number of rows: slots for such large blocks would waste memory


class Decoded:
    """A block as a tree of columns.

    Args:
        given: The columns of the block, as the decoding function returned them.
        rows: The number of rows that each should have.
        name: The name of the block for errors.

    Attributes:
        tree: The columns.
        rows: The number of rows in each.
        arrays: The columns if all are arrays; else [].

    Raises:
        DamagedData: It has a different number of rows.
    """

    def __init__(self, given: Any, rows: int, name: str) -> None:
        self.tree, self.rows = each_column(_block_column, given), rows
        self._columns = columns = list(map(column_of, leaves(self.tree)))
        lengths = {len(column) for column in columns}
        if lengths != {rows} and (columns or rows):
            raise DamagedData(
                f"{name} has {' and '.join(map(str, sorted(lengths))) or 'no'} rows, and was "
                f"announced with {rows}: the file was changed, or is damaged."
            )
        arrays = [column.array for column in columns if isinstance(column, Dense)]
        self.arrays: list[Array] = arrays if len(arrays) == len(columns) else []
        self._stacks = all(column.stacks for column in columns)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows."""
        return zipped(self.tree, [column.each(rows) for column in self._columns])

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays, or a list of samples."""
        if self.arrays:
            return rebuilt(self.tree, (array.take(rows, 0, None, "clip") for array in self.arrays))
        if self._stacks:
            return rebuilt(self.tree, (column.gather(rows) for column in self._columns))
        return list(self.each(rows))


class Arena:
    """Slots for blocks with a limited number of rows, all structured like the first one.

    >>> arena = Arena({"n": np.arange(3)}, slots=2, rows=4)
    >>> block = arena.put({"n": np.arange(3) * 10}, 1)
    >>> block.gather(np.array([2, 0])), list(block.each(np.array([1])))
    ({'n': array([20,  0])}, [{'n': np.int64(10)}])

    Args:
        like: The arrays of a block.
        slots: The number of slots.
        rows: The rows of a slot.
    """

    def __init__(self, like: Any, slots: int, rows: int) -> None:
        """Memory is allocated when it is written to."""
        self.rows, self.free = rows, list(range(slots))
        self._tree = map_tree(
            lambda array: np.empty((slots * rows, *array.shape[1:]), array.dtype), like
        )
        self._arrays = leaves(self._tree)
        self._size, self._gathering = 0, BatchGatherer(self._tree, 0)

    def fits(self, block: Any) -> bool:
        """Return whether a slot is free, and the block has the same kind of arrays as the first."""
        return bool(self.free) and alike([self._tree, block])

    def put(self, block: Any, slot: int) -> Slot:
        """Copy the arrays of a block into a slot."""
        low = slot * self.rows
        for array, column in zip(self._arrays, leaves(block), strict=True):
            array[low : low + len(column)] = column
        return Slot(self, slot)

    def gather(self, slots: Any, rows: Array) -> Any:
        """Gather rows of the blocks in these slots, or in one slot, as a tree of arrays."""
        if len(rows) > self._size:
            self._size = len(rows)
            self._gathering = BatchGatherer(self._tree, self._size)
        addresses = slots * self.rows + rows
        batch: Any = self._gathering.gather([addresses] * len(self._arrays))  # all are arrays
        return batch.columns


class Slot(NamedTuple):
    """A block in a slot of an arena; a later block may overwrite it, so rows are copies."""

    arena: Arena
    number: int

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows."""
        tree = self.gather(rows)
        return zipped(tree, list(map(read_only, leaves(tree))))

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays."""
        return self.arena.gather(self.number, rows)


def slot_rows(sizes: Array) -> int:
    """Return the rows that a slot needs for blocks of these sizes; 0 if slots waste memory."""
    filled = sizes[sizes > 0]
    most = int(filled.max(initial=0))
    return most if len(filled) and most <= _UNEVEN * filled.mean() else 0


def _block_column(column: Any) -> Any:
    if isinstance(column, (list, Column)):
        return column_of(column)
    return read_only(np.asanyarray(column))
