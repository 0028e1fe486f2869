"""A reader of blocks of numbers, which tells what was decoded, and how much is in memory."""

from __future__ import annotations

import threading
import weakref

import numpy as np

from jreader.readers import op
from jreader.sources.blocks import BlockColumns
from jreader.sources.columns import Table


@op
class in_blocks(Table):
    """The rows of a column that is read in blocks."""

    columns: object


class Blocks:
    """Blocks of numbers, the first of which is `base`."""

    def __init__(self, sizes, base=0):
        self.sizes, self.base = sizes, base
        self.decoded, self.most, self._open, self._lock = [], 0, 0, threading.RLock()

    def __call__(self, block):
        first = sum(self.sizes[:block]) + self.base
        rows = np.arange(first, first + self.sizes[block])
        with self._lock:
            self.decoded.append(block)
            self._open += 1
            self.most = max(self.most, self._open)
        weakref.finalize(rows, self._freed)
        return {"n": rows}

    def _freed(self):
        with self._lock:
            self._open -= 1

    def __reduce__(self):
        return Blocks, (self.sizes, self.base)

    def reader(self):
        starts = np.cumsum([0, *self.sizes])[:-1]
        return in_blocks(BlockColumns(starts, sum(self.sizes), self))

    @property
    def filled(self):
        """The numbers of the blocks that have rows."""
        return [block for block, rows in enumerate(self.sizes) if rows]


def numbers(reader):
    return [int(sample["n"]) for sample in reader()]
