"""`KeptRows`: keep small rows in memory, so that a block is decoded once for all passes.

Opening and closing blocks in every pass costs more than gathering their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, Column, Take
from jreader.readers.joined_columns import alike
from jreader.readers.planes import BatchGatherer
from jreader.readers.trees import leaves, map_tree
from jreader.sources.blocks.decoded_blocks import Decoded
from jreader.staging import Staging

if TYPE_CHECKING:
    from jreader.sources.blocks.block_columns import BlockColumns


class KeptRows(Column):
    """The rows of a column, in one array per field.

    A block is decoded when one of its rows is requested. If several threads request it at the same
    time, each writes the same rows, so no lock is needed that a forked process could find held.

    Args:
        column: The column.
        like: A tree of arrays with the structure, dtypes and shapes of its blocks.
    """

    def __init__(self, column: BlockColumns, like: Any) -> None:
        """Allocate memory, which becomes resident when it is written to."""
        self.column, many = column, len(column)
        self._tree = map_tree(lambda each: np.empty((many, *each.shape[1:]), each.dtype), like)
        self._arrays = leaves(self._tree)
        self._rows = Decoded(self._tree, many, repr(column))
        self._missing = column.sizes > 0

    def __len__(self) -> int:
        return len(self.column)

    def __repr__(self) -> str:
        return repr(self.column)

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Return a function that gathers up to `size` rows into staging memory."""
        gathering, fields = BatchGatherer(self._tree, size), len(self._arrays)

        def gather(rows: Array) -> Any:
            if self._missing.any():
                self._decode(rows)
            batch: Any = gathering.gather([rows] * fields)  # all are arrays
            return batch.columns

        return gather, None

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays."""
        return self.gatherer(len(rows))[0](rows)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows; decode a block when its first row is requested."""
        firsts = self._first_of_missing(rows).tolist()
        for low, high in pairwise([*sorted({0, *firsts}), len(rows)]):
            self._decode(rows[low : low + 1])
            yield from self._rows.each(rows[low:high])

    def block(self, number: int) -> Any:
        """Return the columns of a block, as views."""
        low = int(self.column.block_starts[number])
        high = low + int(self.column.sizes[number])
        self._decode(np.arange(low, high)[:1])
        return map_tree(lambda array: array[low:high], self._tree)

    def _first_of_missing(self, rows: Array) -> Array:
        """Return the first place in `rows` of each block that is not decoded yet."""
        which = self.column.blocks_of(rows)
        missing = np.flatnonzero(self._missing[which])
        first: Array = missing[np.unique(which[missing], return_index=True)[1]]
        return np.sort(first)

    def _decode(self, rows: Array) -> None:
        """Decode the missing blocks of these rows, in the order of their first use."""
        column, which = self.column, self.column.blocks_of(rows)
        missing = which[self._missing[which]].tolist()
        for block in dict.fromkeys(missing):
            tree, low = column.decoded(block).tree, int(column.block_starts[block])
            if not alike([self._tree, tree]):
                raise DamagedData(
                    f"block {block} of {column!r} has columns of other dtypes or shapes than was "
                    f"announced: the file was changed, or is damaged."
                )
            for array, part in zip(self._arrays, leaves(tree), strict=True):
                array[low : low + len(part)] = part
            self._missing[block] = False
