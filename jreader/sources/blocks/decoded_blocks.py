"""`Decoded`: a block as columns; `Arena`: open blocks in one array for each column.

A batch of a block shuffle has a few rows of each of 64 blocks: to take them block by block costs
64 calls for each column. In an arena each open block has a slot, and a row has an address.
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

_UNEVEN = 8  # times the mean number of rows: a slot for so large a block would be wasted on others


class Decoded:
    """A block as a tree of columns.

    Args:
        given: What a function gave as the columns of the block.
        rows: How many rows each is to have.
        name: What errors call the block.

    Attributes:
        tree: The columns.
        rows: How many rows each has.
        arrays: The columns if all are arrays; else an empty list.

    Raises:
        DamagedData: It has another number of rows.
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
        """Those rows one by one."""
        return zipped(self.tree, [column.each(rows) for column in self._columns])

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays, or a list of samples."""
        if self.arrays:
            return rebuilt(self.tree, (array.take(rows, 0, None, "clip") for array in self.arrays))
        if self._stacks:
            return rebuilt(self.tree, (column.gather(rows) for column in self._columns))
        return list(self.each(rows))


class Arena:
    """Slots for blocks of at most so many rows, all with the columns of the first one.

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
        """Memory is taken when it is written to."""
        self.rows, self.free = rows, list(range(slots))
        self._tree = map_tree(
            lambda array: np.empty((slots * rows, *array.shape[1:]), array.dtype), like
        )
        self._arrays = leaves(self._tree)
        self._size, self._gathering = 0, BatchGatherer(self._tree, 0)

    def fits(self, block: Any) -> bool:
        """Whether there is a slot for the arrays of a block, which are of the kind of the first."""
        return bool(self.free) and alike([self._tree, block])

    def put(self, block: Any, slot: int) -> Slot:
        """Copies the arrays of a block into a slot."""
        low = slot * self.rows
        for array, column in zip(self._arrays, leaves(block), strict=True):
            array[low : low + len(column)] = column
        return Slot(self, slot)

    def gather(self, slots: Any, rows: Array) -> Any:
        """Rows of the blocks in these slots, or in one of them: a tree of arrays."""
        if len(rows) > self._size:
            self._size = len(rows)
            self._gathering = BatchGatherer(self._tree, self._size)
        addresses = slots * self.rows + rows
        batch: Any = self._gathering.gather([addresses] * len(self._arrays))  # all are arrays
        return batch.columns


class Slot(NamedTuple):
    """The block in a slot of an arena, which a later one may write over: rows are copies."""

    arena: Arena
    number: int

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""
        tree = self.gather(rows)
        return zipped(tree, list(map(read_only, leaves(tree))))

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays."""
        return self.arena.gather(self.number, rows)


def slot_rows(sizes: Array) -> int:
    """The rows that a slot needs for blocks of these sizes; 0 where slots would waste memory."""
    filled = sizes[sizes > 0]
    most = int(filled.max(initial=0))
    return most if len(filled) and most <= _UNEVEN * filled.mean() else 0


def _block_column(column: Any) -> Any:
    if isinstance(column, (list, Column)):
        return column_of(column)
    return read_only(np.asanyarray(column))
