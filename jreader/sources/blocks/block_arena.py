"""`Arena`: open blocks in one array for each column, so that a batch of all is one gather.

A batch of a block shuffle has a few rows of each of 64 blocks: to take them block by block costs
64 calls for each column. In an arena each open block has a slot, and a row has an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jreader.readers.columns import Array
from jreader.readers.trees import rebuilt
from jreader.sources.blocks.decoded_blocks import Decoded
from jreader.staging import Staging

_UNEVEN = (
    8  # times the mean number of rows: a slot for a block that large would be wasted on others
)


class Arena:
    """Slots for blocks of at most so many rows, all with the columns of the first one.

    >>> arena = Arena(Decoded.of({"n": np.arange(3)}, 3, ""), slots=2, rows=4)
    >>> placed = arena.put(Decoded.of({"n": np.arange(3) * 10}, 3, ""), 1)
    >>> arena.gather(np.array([6, 4]))
    {'n': array([20,  0])}

    Args:
        like: A block: the others have to be of its kind.
        slots: The number of slots.
        rows: The rows of a slot.
    """

    def __init__(self, like: Decoded, slots: int, rows: int) -> None:
        """Memory is taken when it is written to."""
        self.kind, self.tree, self.rows = like.kind, like.tree, rows
        self.free = list(range(slots))
        self._arrays = [
            np.empty((slots * rows, *column.shape[1:]), column.dtype) for column in like.arrays
        ]
        self._size, self._staged = 0, list[Staging]()

    def put(self, block: Decoded, slot: int) -> Decoded:
        """Copies a block into a slot; returns the copy."""
        low = slot * self.rows
        parts = [array[low : low + block.rows] for array in self._arrays]
        for part, column in zip(parts, block.arrays, strict=True):
            part[...] = column
        return block.over(parts)

    def gather(self, addresses: Array) -> Any:
        """The rows at these addresses: slot times rows of a slot, and the row of the block."""
        if len(addresses) > self._size:
            self._size = len(addresses)
            self._staged = [
                Staging(self._size, array.shape[1:], array.dtype) for array in self._arrays
            ]
        return rebuilt(self.tree, self._taken(addresses))

    def _taken(self, addresses: Array) -> Iterator[Array]:
        many = len(addresses)
        for array, staged in zip(self._arrays, self._staged, strict=True):
            yield array.take(addresses, 0, staged(many), "clip")


def slot_rows(sizes: Array) -> int:
    """The rows that a slot needs for blocks of these sizes; 0 where slots would waste memory."""
    filled = sizes[sizes > 0]
    most = int(filled.max(initial=0))
    return most if len(filled) and most <= _UNEVEN * filled.mean() else 0
