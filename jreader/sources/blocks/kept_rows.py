"""`KeptRows`: rows of few bytes, which stay in memory: a block is decoded once for all passes.

To open and close blocks in every pass costs more than to gather their rows.
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
    """The rows of a column in one array for each of its fields.

    A block is decoded when one of its rows is wanted. If several threads want it at the same time,
    each writes the same rows, so there is no lock that a fork could find held.

    Args:
        column: The column.
        like: A tree of arrays that are of the kind of those of its blocks.
    """

    def __init__(self, column: BlockColumns, like: Any) -> None:
        """Takes memory, which counts when it is written to."""
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
        """Gathers into memory that is staged for so many rows."""
        gathering, fields = BatchGatherer(self._tree, size), len(self._arrays)

        def gather(rows: Array) -> Any:
            if self._missing.any():
                self._decode(rows)
            batch: Any = gathering.gather([rows] * fields)  # all are arrays
            return batch.columns

        return gather, None

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays."""
        return self.gatherer(len(rows))[0](rows)

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one; a block is decoded when its first row is asked for."""
        firsts = self._first_of_missing(rows).tolist()
        for low, high in pairwise([*sorted({0, *firsts}), len(rows)]):
            self._decode(rows[low : low + 1])
            yield from self._rows.each(rows[low:high])

    def block(self, number: int) -> Any:
        """The columns of a block: views."""
        low = int(self.column.block_starts[number])
        high = low + int(self.column.sizes[number])
        self._decode(np.arange(low, high)[:1])
        return map_tree(lambda array: array[low:high], self._tree)

    def _first_of_missing(self, rows: Array) -> Array:
        """The places at which rows of blocks come that were not decoded, the first of each."""
        which = self.column.blocks_of(rows)
        missing = np.flatnonzero(self._missing[which])
        first: Array = missing[np.unique(which[missing], return_index=True)[1]]
        return np.sort(first)

    def _decode(self, rows: Array) -> None:
        """Decodes the blocks of these rows that were not, in the order of their first use."""
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
