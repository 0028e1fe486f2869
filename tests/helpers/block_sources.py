"""Readers of blocks: of numbers, which tells what was decoded, and of lines of a file."""

from __future__ import annotations

import tempfile
import threading
import weakref
from pathlib import Path

import numpy as np

from jreader import jsonl
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


FOLDER = tempfile.TemporaryDirectory()  # until the tests end


def lines_in_blocks(sizes, block):
    """Lines of two bytes more than these sizes, in blocks of so many bytes."""
    path = Path(FOLDER.name, f"{'-'.join(map(str, sizes))}.jsonl")
    if not path.exists():
        path.write_text("".join(f"{place % 10}{' ' * size}\n" for place, size in enumerate(sizes)))
    return jsonl(path, block=block)


def numbers(reader):
    return [int(sample["n"]) for sample in reader()]
