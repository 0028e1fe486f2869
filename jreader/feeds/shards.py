"""Several processes, one global batch: which of its rows each process reads and feeds.

All processes know one global order, and each reads its rows of it by index. So together they read
the same sequence, however many they are. Which rows a process feeds follows from the sharding,
never from the index of the process: they may be several ranges, and processes may share some. The
length of an epoch, and whether its last batch is short, follows from the global length, which is
the same on all processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jreader.batches import batch, batching, bucket, padded_batch
from jreader.batches.local_rows import NONE, cut, part, rows_pass
from jreader.feeds.collations import without_texts
from jreader.feeds.shares import Share
from jreader.readers import Columns, Node, Pass, Position, Reader, indexed, map_tree, op, start
from jreader.readers.columns import Array
from jreader.readers.lanes import dealt_below
from jreader.readers.trees import Rows
from jreader.transforms import map_readers
from jreader.workers import fetch_batches


@op
class _parts(Node[Columns[Any]]):
    """The batches of a reader, of which only the rows of one process are read.

    Args:
        reader: The batches, or what they are made of, the same on every process.
        begin: Begins a pass over the parts, from a position of the batches.
    """

    reader: Any
    begin: Callable[[Any, Position], Pass[Columns[Any]]]
    in_cursor = "counted"

    def start(self, at: Position) -> Pass[Columns[Any]]:
        """The position of the batches, on all processes."""
        return self.begin(self.reader, at)


def dealt_to(
    reader: Reader[Any], share: Share, *, pads: bool = True
) -> Reader[Columns[Any]] | None:
    """The batches of a reader with only the rows of `share`; None if whole batches are needed.

    They are needed by what looks at whole batches (`map_batches`, `padded_batch`), and if the
    reader is a stream.

    >>> from jreader import arrays, batch
    >>> digits = dealt_to(batch(arrays(np.arange(7)), 4), Share(4, ((0, 1), (3, 4))))
    >>> [(part.columns.tolist(), part.rows) for part in digits()]
    [([0, 3], 4), ([4], 3)]

    Args:
        reader: The batches.
        share: The rows of each batch that this process feeds.
        pads: Whether feeds are made of batches of which this process has no row, too.
    """
    if isinstance(reader, fetch_batches):
        return None if reader.read_in_worker else _parts(reader, partial(_fetched_parts, share))
    found = batching(reader)
    batches = found.counted
    padded = isinstance(batches, padded_batch)  # to the longest row of all
    if batches is None or padded or found.rows != share.size:
        return None
    if found.lanes:
        return _parts(batches, partial(_parts_of_lanes, share, pads))
    if not found.indexed:
        return None
    return _parts(batches, partial(rows_pass, partial(_rows_of_size, (share,))))


def whole_dealt_to(reader: Reader[Any], share: Share) -> Reader[Columns[Any]]:
    """The batches of a reader that is read as a whole, with only the rows of `share`.

    This resumes what was a stream when it stopped and is indexed by now.
    """
    return map_readers(partial(cut, share.rows()), reader)


def _fetched_parts(share: Share, fetching: fetch_batches[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of a data set, of which no other samples are fetched."""
    rows, counts = share.rows(), deque[int]()

    def own(indices: Sequence[Any]) -> Sequence[Any]:
        counts.append(len(indices))  # of batches that are fetched ahead
        return [indices[row] for row in rows[rows < len(indices)].tolist()] or indices[:1]

    def own_part(made: Columns[Any]) -> Columns[Any]:
        made.made_of = count = counts.popleft()
        held = bool(np.any(rows < count))
        made.columns = made.columns if held else without_texts(made.columns)
        return part(made, count, None if held else NONE)

    asked = map_readers(own, fetching.reader)
    return start(fetching.changed({"reader": asked}), at).mapped(own_part)


def _parts_of_lanes(share: Share, pads: bool, op: batch[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of a stream in lanes; lanes that are not read stay where they were.

    It has no end where lanes stay empty, or begin again, when they have ended: the process cannot
    know whether others have samples left.
    """
    dealt: Any = dealt_below(op.reader)
    lanes = op.in_lanes(dealt, at, share.rows())

    def deal() -> Iterator[Columns[Any]]:
        latest: list[Any] = []  # a sample, once there was one
        for made in lanes.runs():
            if len(made):
                latest = [made[0]]
            elif pads:
                latest = latest or [lanes.any_sample()]
                made.columns, made.arrays = Rows(latest), [latest]
            yield made

    return Pass(deal(), lanes.position, lanes.close)


def _parts_of_buckets(shares: Sequence[Share], op: bucket[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of a `bucket` that knows its lengths."""
    plane: Any = indexed(op.reader)
    rows = [share.rows() for share in shares]

    def own_part(number: int, samples: Array) -> Columns[Any]:
        mine = samples[rows[number][rows[number] < len(samples)]]
        held = mine if len(mine) else samples[:1]
        made = op.made(op.padding, list(plane.each(held)), number)
        return part(made, len(samples), None if len(mine) else NONE)

    return op.dealt(at, own_part)


def _rows_of_size(shares: Sequence[Share], size: int) -> Array:
    """The rows of this process of batches of a size."""
    return next(share.rows() for share in shares if share.size == size)


def sizes_dealt_to(reader: Reader[Any], shares: tuple[Share, ...]) -> Reader[Columns[Any]]:
    """The batches of a reader that have several sizes, with only the rows of the share of each."""
    found = batching(reader)
    if found.buckets is None:
        return _parts(found.counted, partial(rows_pass, partial(_rows_of_size, shares)))
    return _parts(found.buckets, partial(_parts_of_buckets, shares))


def part_of(batch: Columns[Any], share: Share) -> Columns[Any]:
    """The rows of a whole batch that a share has."""
    rows = share.rows()
    mine = map_tree(lambda column: column[rows], batch.columns)
    return Columns(mine, full=batch.full, rows=len(batch))
