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
from itertools import repeat
from typing import Any

import numpy as np

from jreader.batches import batch, batching, bucket, padded_batch
from jreader.devices import Share
from jreader.feeds.collations import without_texts
from jreader.readers import Columns, Node, Pass, Position, Reader, indexed, map_tree, op, start
from jreader.readers.columns import Array
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.planes import Plane
from jreader.readers.starting import in_batches
from jreader.readers.trees import Rows
from jreader.transforms import map_readers
from jreader.workers import fetch_batches

_NONE = np.zeros(0, int)
"""The valid rows of a batch of which this process has none: one of another stands in."""


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


def _indexed_parts(share: Share, op: batch[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of an indexed reader."""
    found = mapped_rows(op.reader)
    if found is None:
        raise TypeError(f"{op.reader!r} is not indexed: processes cannot be dealt its rows")
    begun = start(op.reader, at)  # raises if there is no such position
    before = begun.position()
    begun.close()
    done = _samples_done(before)
    if done is None:
        return _of_whole_batches(share, op, at)
    own = _own_rows(found.rows, share, done, bool(op.drop_last))
    mapped, size = found.over(own), max(len(share), 1)
    up = in_batches(mapped, size, None) or start(mapped).in_runs(size)

    def deal() -> Iterator[Columns[Any]]:
        nonlocal done
        for samples, (count, held) in zip(up.items, own.batches_of(), strict=True):
            done += count
            yield _part(samples, count, stands_in=not held)

    return Pass(deal(), lambda: _counting(before, done), up.close)


def _of_whole_batches(share: Share, op: batch[Any], at: Position) -> Pass[Columns[Any]]:
    """The same from a position of an earlier release, that counts no samples: it maps all rows."""
    rows = share.rows()

    def part(samples: Sequence[Any]) -> Columns[Any]:
        mine = [samples[row] for row in rows[rows < len(samples)].tolist()]
        return _part(mine or [samples[0]], len(samples), stands_in=not mine)

    return start(op, at).mapped(part)


def _samples_done(at: Position) -> int | None:
    """How many samples are done at a position, where it counts them; beside keys, it does twice."""
    if isinstance(at, tuple) and len(at) == 2:  # of `keyed`, and of what that reads
        first, second = map(_samples_done, at)
        return first if first == second else None
    return at if type(at) is int else None


def _counting(at: Position, done: int) -> Position:
    """The position at which `done` samples are done, in the form of another one."""
    return tuple(_counting(part, done) for part in at) if isinstance(at, tuple) else done


@op
class _own_rows(Node[Any]):
    """The rows that one process feeds, batch by batch.

    Of a batch of which it has none, its first row stands in.

    Args:
        reader: An indexed reader, the same on every process.
        share: The rows of each batch that this process feeds.
        done: How many samples are done before the first batch.
        drop_last: Whether to leave out a last batch with fewer samples.
    """

    reader: Reader[Any]
    share: Share
    done: int
    drop_last: bool

    def plane(self) -> Plane | None:
        """That of `reader`, of which each batch keeps some rows."""
        up = indexed(self.reader)
        if up is None:
            return None
        size, mine = self.share.size, self.share.rows()
        full, rest = divmod(self._left(up), size)
        stands_in = np.zeros(1, int)
        mine = mine if len(mine) else stands_in
        last = mine[mine < rest] if rest > mine[0] else stands_in[:rest]
        table = np.zeros((2, len(mine)), int)  # of a full batch, and of the last one
        table[0], table[1, : len(last)] = mine, last

        def order(indices: Array) -> Array:
            number, place = np.divmod(indices, len(mine))
            rows: Array = self.done + number * size + table[(number == full).astype(int), place]
            return rows

        return up.reordered(full * len(mine) + len(last), order)

    def batches_of(self) -> Iterator[tuple[int, int]]:
        """Yields for each batch how many samples it has, and how many of them are rows here."""
        full, rest = divmod(self._left(indexed(self.reader)), self.share.size)
        mine = self.share.rows()
        yield from repeat((self.share.size, len(mine)), full)
        if rest:
            yield rest, int(np.sum(mine < rest))

    def _left(self, up: Any) -> int:
        left: int = max(up.length - self.done, 0)
        return left - left % self.share.size if self.drop_last else left


def _part(samples: Any, rows: int, *, stands_in: bool) -> Columns[Any]:
    """This process's rows of a batch that has so many on all of them."""
    made = samples if isinstance(samples, Columns) else Columns(Rows(samples))
    made.rows, made.valid = rows, _NONE if stands_in else None
    return made


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
    return _parts(batches, partial(_indexed_parts, share))


def _fetched_parts(share: Share, fetching: fetch_batches[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of a data set, of which no other samples are fetched."""
    rows, counts = share.rows(), deque[int]()

    def own(indices: Sequence[Any]) -> Sequence[Any]:
        counts.append(len(indices))  # of batches that are fetched ahead
        return [indices[row] for row in rows[rows < len(indices)].tolist()] or indices[:1]

    def part(made: Columns[Any]) -> Columns[Any]:
        made.made_of = count = counts.popleft()
        held = bool(np.any(rows < count))
        made.columns = made.columns if held else without_texts(made.columns)
        return _part(made, count, stands_in=not held)

    asked = map_readers(own, fetching.reader)
    return start(fetching.changed({"reader": asked}), at).mapped(part)


def _parts_of_lanes(share: Share, pads: bool, op: batch[Any], at: Position) -> Pass[Columns[Any]]:
    """The parts of batches of a stream in lanes; lanes that are not read stay where they were.

    It has no end where lanes stay empty, or begin again, when they have ended: the process cannot
    know whether others have samples left.
    """
    lanes: Any = op.in_lanes(at, share.rows())

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

    def part(number: int, samples: Array) -> Columns[Any]:
        mine = samples[rows[number][rows[number] < len(samples)]]
        held = mine if len(mine) else samples[:1]
        made = op.made(op.padding, list(plane.each(held)), number)
        return _part(made, len(samples), stands_in=not len(mine))

    return op.dealt(at, part)


def buckets_dealt_to(reader: Reader[Any], shares: tuple[Share, ...]) -> Reader[Columns[Any]]:
    """The batches of a reader that come from a `bucket`, with only the rows of the shares."""
    return _parts(batching(reader).buckets, partial(_parts_of_buckets, shares))


def part_of(batch: Columns[Any], share: Share) -> Columns[Any]:
    """The rows of a whole batch that a share has."""
    rows = share.rows()
    mine = map_tree(lambda column: column[rows], batch.columns)
    return Columns(mine, full=batch.full, rows=len(batch))
