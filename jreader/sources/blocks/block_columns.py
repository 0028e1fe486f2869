"""Columns read in blocks: row groups, record batches, members of a compressed file.

A block is decoded as a whole when its first row is requested, and stays open while more of its rows
are needed. A pass announces its rows (`BlockColumns.reading`), so that threads decode blocks in the
order of their first use before they are needed (`open_blocks`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Column, Indices, Take, Where, rows_on_device
from jreader.readers.joined_columns import alike, concat_columns
from jreader.readers.messages import described
from jreader.readers.planes import BatchGatherer
from jreader.readers.trees import leaves, map_tree
from jreader.sources.blocks.decoded_blocks import Decoded
from jreader.sources.blocks.open_blocks import OpenBlocks
from jreader.staging import Staging


class BlockColumns(Column):
    """A column whose rows are samples in blocks, each decoded on demand.

    A format returns it as the `columns` of its `Table`:

    >>> decoded = []
    >>> def decode(block):
    ...     decoded.append(block)
    ...     return {"n": np.arange(3) + 3 * block, "text": ["a", "b", "c"]}
    >>> rows = BlockColumns([0, 3, 6], 9, decode)
    >>> len(rows), rows.gather(np.array([4, 3, 8])), decoded
    (9, [{'n': np.int64(4), 'text': 'b'}, {'n': np.int64(3), 'text': 'a'}, {'n': np.int64(8), \
'text': 'c'}], [1, 2])

    Args:
        starts: The row where each block begins; the first is 0; blocks may be empty.
        rows: The number of rows of all blocks.
        decode: Takes the number of a block, and returns its rows as a tree of columns: arrays,
            lists of objects (such as strings), `Ragged`. Threads call it at the same time for
            different blocks. Its errors are raised where the first row of the block is requested.
        name: The name for errors: a path.
        open_blocks: How many blocks may be open at a time; None for a few. `shuffle(blocks=)` sets
            its own number (`keeping`).
        by_row: A column of the same rows that reads a single row without its block; None if there
            is none.
    """

    def __init__(
        self,
        starts: Any,
        rows: int,
        decode: Callable[[int], Any],
        *,
        name: str = "",
        open_blocks: int | None = None,
        by_row: Column | None = None,
    ) -> None:
        self.block_starts: Array = np.asarray(starts, np.int64)
        """The row where each block begins."""
        self.by_row, self.stacks = by_row, by_row is None or by_row.stacks
        self.rows, self.name, self.open_blocks = int(rows), name, open_blocks
        self.sizes: Array = np.diff(self.block_starts, append=self.rows)
        """The number of rows in each block."""
        even = self.sizes[:1].max(initial=0)
        self._even = int(even) if len(self.sizes) and (self.sizes[:-1] == even).all() else 0
        self._decode = decode
        self._for_orders: dict[int, BlockColumns] = {}
        self._open: tuple[int, OpenBlocks] | None = None

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return self.name or f"{self.rows} rows in {len(self.block_starts)} blocks"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open blocks."""
        more: Any = {"name": self.name, "open_blocks": self.open_blocks, "by_row": self.by_row}
        return partial(BlockColumns, **more), (self.block_starts, self.rows, self._decode)

    def blocks_of(self, rows: Array) -> Array:
        """Return the number of the block of each row."""
        if self._even and self.sizes[-1] <= self._even:
            return rows // self._even
        return self.block_starts.searchsorted(rows, "right") - 1

    def decoded(self, block: int) -> Decoded:
        """Decode a block.

        Raises:
            DamagedData: Its number of rows differs from the announced one.
        """
        try:
            given = self._decode(block)
        except StopIteration as stopped:  # would silently end the pass
            raise RuntimeError(
                f"decoding block {block} of {self} raised StopIteration"
            ) from stopped
        return Decoded(given, int(self.sizes[block]), f"block {block} of {self}")

    def tree(self, block: int) -> Any:
        """Return the columns of a block, newly decoded."""
        return self.decoded(block).tree

    def keeping(self, open_blocks: int) -> BlockColumns:
        """Return the column with so many blocks open at a time; cached by number."""
        open_blocks = min(open_blocks, len(self.block_starts))
        if open_blocks not in self._for_orders:
            made, given = self.__reduce__()
            self._for_orders[open_blocks] = made(*given, open_blocks=open_blocks)
        return self._for_orders[open_blocks]

    @staticmethod
    def concat(columns: Sequence[BlockColumns]) -> BlockColumns:
        """Concatenate the blocks of several columns.

        >>> halves = [BlockColumns([0], 2, lambda _, n=n: np.arange(2) + n) for n in (0, 10)]
        >>> both = BlockColumns.concat(halves)
        >>> both.block_starts.tolist(), both.gather(np.array([3, 0])).tolist()
        ([0, 2], [11, 0])
        """
        rows = np.cumsum([0, *map(len, columns)])
        firsts = np.cumsum([0, *(len(column.block_starts) for column in columns)])
        starts = [column.block_starts + row for column, row in zip(columns, rows, strict=False)]

        def decode(block: int) -> Any:
            which = int(np.searchsorted(firsts, block, "right")) - 1
            return columns[which].tree(block - int(firsts[which]))

        kept = [column.open_blocks for column in columns if column.open_blocks is not None]
        by_row = [column.by_row for column in columns if column.by_row is not None]
        return BlockColumns(
            np.concatenate(starts),
            int(rows[-1]),
            decode,
            name=" and ".join(dict.fromkeys(map(described, columns))),
            open_blocks=sum(kept) if kept else None,
            by_row=concat_columns(by_row) if len(by_row) == len(columns) else None,
        )

    def announce(self, blocks: Sequence[int], *, first: bool) -> None:
        """Announce the next blocks to `decode`, if it has a method `announce`.

        Args:
            blocks: Their numbers, in the order of their first use.
            first: Whether a pass begins with them.
        """
        announce = getattr(self._decode, "announce", None)
        if announce is not None:
            announce(blocks, first=first)

    def reading(self, *, in_batches: bool = True) -> Column:
        """Return the same rows for one pass, which announces them and closes the column."""
        return OpenBlocks(self, ahead=True, in_batches=in_batches)

    def held(self, low: int, _high: int) -> Any:
        """Return the block that begins with a row."""
        return self.tree(int(self.blocks_of(np.array([low]))[0]))

    def where(self, rows: Array) -> list[Where] | None:
        """Return where those rows are in files, if that is known for single rows."""
        return None if self.by_row is None else self.by_row.where(rows)

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays, or a list of samples if they cannot be stacked."""
        return self._shared().gather(rows)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows."""
        return self._shared().each(rows)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return the data for a device: the arrays of all blocks, decoded and concatenated.

        Raises:
            ValueError: Blocks hold anything but arrays, or differ in dtype, shape or fields.
        """
        if self.by_row is not None:
            return self.by_row.placed()
        filled = [int(block) for block in np.flatnonzero(self.sizes)] or [0]
        trees = [self.tree(block) for block in filled[: len(self.sizes)]]
        if not trees or not leaves(trees[0]) or not alike(trees):
            raise ValueError(
                f"{described(self)} holds rows that no array has, and a device needs columns that "
                f"fit on it as a whole: use .load(...)."
            )
        return map_tree(lambda *parts: np.concatenate(parts), *trees), rows_on_device

    def _shared(self) -> Column:
        """Return the column for rows outside of passes: blocks that stay open, or single rows."""
        if self.by_row is not None:
            return self.by_row
        process = os.getpid()
        if self._open is None or self._open[0] != process:  # the forking process may hold a lock
            self._open = process, OpenBlocks(self, ahead=False, in_batches=False)
        return self._open[1]


class BlocksInMemory(BlockColumns):
    """The same column, with all blocks in memory as arrays: a pass opens and closes none.

    Like `BlockColumns`, it can be joined to other blocks, in memory or not.

    >>> rows = BlocksInMemory([0, 2], {"n": np.arange(3)})
    >>> rows.gather(np.array([2, 0])), rows.tree(1)
    ({'n': array([2, 0])}, {'n': array([2])})

    Args:
        starts: The row where each block begins.
        tree: The rows of all blocks: a tree of arrays.
        name: The name for errors: a path.
    """

    def __init__(self, starts: Any, tree: Any, *, name: str = "") -> None:
        rows = len(leaves(tree)[0])
        super().__init__(starts, rows, partial(_view_of_block, tree, [*starts, rows]), name=name)
        self._whole = Decoded(tree, rows, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arrays once, without views of them."""
        return partial(BlocksInMemory, name=self.name), (self.block_starts, self._whole.tree)

    def keeping(self, _open_blocks: int) -> BlockColumns:
        """Return the same column: nothing is opened."""
        return self

    def reading(self, **_how: bool) -> Column:
        """Return the same column."""
        return self

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Return a function that gathers up to `size` rows into staged memory."""
        gathering, fields = BatchGatherer(self._whole.tree, size), len(self._whole.arrays)

        def gather(rows: Array) -> Any:
            batch: Any = gathering.gather([rows] * fields)  # all are arrays
            return batch.columns

        return gather, None

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays."""
        return self._whole.gather(rows)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows."""
        return self._whole.each(rows)


def _view_of_block(tree: Any, bounds: Sequence[int], number: int) -> Any:
    """Return a view of the rows of one block of a tree of arrays."""
    return map_tree(lambda array: array[bounds[number] : bounds[number + 1]], tree)


def keeping(columns: Any, blocks: int) -> Any:
    """Read columns that have blocks block by block, with so many open at a time."""

    def kept(column: Any) -> Any:
        if isinstance(column, BlockColumns):
            return column.keeping(blocks)
        starts = column.block_starts if isinstance(column, Column) else None
        # for mapped files, the kernel caches pages
        if starts is None or (column.arrays and not column.late):
            return column
        bounds = np.append(starts, len(column))

        def read(block: int) -> Any:
            return column.held(*bounds[block : block + 2].tolist())

        more: Any = {"name": repr(column), "open_blocks": blocks, "by_row": column}
        return BlockColumns(starts, len(column), read, **more)

    return map_tree(kept, columns)
