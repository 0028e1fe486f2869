"""Several processes, one global batch: which of its rows each process reads and feeds.

All processes know one global order, and each reads its rows of it by index. So together they read
the same sequence, however many they are. Which rows a process feeds follows from the sharding,
never from the index of the process: they may be several ranges, and processes may share some. The
length of an epoch, and whether its last batch is short, follows from the global length, which is
the same on all processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from jreader.batches import LaneBatches, batching, bucket, padded_batch
from jreader.devices import Share
from jreader.readers import Columns, Node, Pass, Position, Reader, indexed, map_tree, op, start
from jreader.readers.planes import Array, Gathering, Plane
from jreader.readers.reading_ahead import opened_for_pass
from jreader.readers.trees import Rows

_NONE = np.zeros(0, int)
"""The valid rows of a batch of which this process has none: one of another stands in."""


@op
class _parts(Node[Columns[Any]]):
    """The batches of an indexed reader, of which only the rows of `share` are gathered.

    Args:
        reader: An indexed reader, the same on every process.
        share: The rows of each batch that this process feeds.
        drop_last: Whether to leave out a last batch with fewer samples.
    """

    reader: Reader[Any]
    share: Share
    drop_last: bool = False
    in_cursor = "counted"

    def start(self, at: Position) -> Pass[Columns[Any]]:
        """The position of a `batch`: how many samples are done, on all processes."""
        plane = indexed(self.reader)
        if plane is None:
            raise TypeError(f"{self.reader!r} is not indexed: processes cannot be dealt its rows")
        done: int = start(self.reader, at).position()  # raises if there is no such position
        blocks = opened_for_pass(plane.columns)
        gathered = Gathering(blocks.columns if blocks else plane.columns, len(self.share))
        told = deque[tuple[list[int], list[int]]]()  # of the runs that are routed ahead

        def routes(first: int) -> Iterator[list[Array]]:
            for routed, *batches in self._blocks(plane, first):
                told.append((batches[0], batches[1]))
                yield routed

        def deal() -> Iterator[Columns[Any]]:
            nonlocal done
            ahead = blocks.ahead(routes(done)) if blocks else routes(done)
            for routed in map(gathered.found, ahead):
                counts, there = told.popleft()
                low = 0
                for count, mine in zip(counts, there, strict=True):
                    high = low + max(mine, 1)
                    samples = gathered.gather([rows[low:high] for rows in routed])
                    done, low = done + count, high
                    yield _part(samples, count, stands_in=not mine)

        return Pass(deal(), lambda: done, blocks.close if blocks else lambda: None)

    def _blocks(
        self, plane: Plane, done: int
    ) -> Iterator[tuple[list[Array], list[int], list[int]]]:
        """Yields for many batches at once: the rows to read, samples and own rows of each batch.

        If a batch has no row here, its first row stands in.
        """
        size, mine = self.share.size, self.share.rows()
        end = plane.length
        if self.drop_last:  # from `done` on, which need not be a whole number of batches
            end -= (end - done) % size
        most = max(plane.at_once // max(len(mine), 1), 1)
        while done < end:
            firsts = np.arange(done, min(done + most * size, end), size)
            counts = np.minimum(end - firsts, size)
            indices = firsts[:, None] + mine
            there = mine < counts[:, None]
            held = there.sum(1)
            indices[held == 0, 0], there[held == 0, 0] = firsts[held == 0], True
            yield plane.rows(indices[there]), counts.tolist(), held.tolist()
            done += int(counts.sum())


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
    found = batching(reader)
    batches = found.counted
    padded = isinstance(batches, padded_batch)  # to the longest row of all
    if batches is None or padded or found.rows != share.size:
        return None
    if found.lanes:
        return _parts_of_lanes(batches, share, pads)
    if not found.indexed:
        return None
    return _parts(batches.reader, share, bool(batches.drop_last))


@op
class _parts_of_lanes(Node[Columns[Any]]):
    """The batches of a stream in lanes, of which only the lanes of the rows of `share` are read.

    It has no end where lanes stay empty, or begin again, when they have ended: the process cannot
    know whether others have samples left.

    Args:
        reader: The `batch`, the same on every process.
        share: The rows of each batch that this process feeds.
        pads: Whether a batch of which this process has no row shows the shapes all the same.
    """

    reader: Any
    share: Share
    pads: bool = True
    in_cursor = "counted"

    def start(self, at: Position) -> Pass[Columns[Any]]:
        """The position of the `batch`, in which lanes that are not read stay where they were."""
        lanes: LaneBatches[Any] = self.reader.in_lanes(at, self.share.rows())

        def deal() -> Iterator[Columns[Any]]:
            latest: list[Any] = []  # a sample, once there was one
            for made in lanes.runs():
                if len(made):
                    latest = [made[0]]
                elif self.pads:
                    latest = latest or [lanes.any_sample()]
                    made.columns, made.arrays = Rows(latest), [latest]
                yield made

        return Pass(deal(), lanes.position, lanes.close)


@op
class _parts_of_buckets(Node[Columns[Any]]):
    """The batches of a `bucket`, of which only the rows of this process are gathered.

    Args:
        reader: A `bucket` that knows its lengths, the same on every process.
        shares: The rows of a full batch of each bucket that this process feeds.
    """

    reader: Any
    shares: tuple[Share, ...]

    def start(self, at: Position) -> Pass[Columns[Any]]:
        """The position of the `bucket`."""
        op: bucket[Any] = self.reader
        plane, padding = indexed(op.reader), op.padding
        assert plane is not None  # noqa: S101  # its lengths are known
        rows = [share.rows() for share in self.shares]

        def part(number: int, samples: Array) -> Columns[Any]:
            mine = samples[rows[number][rows[number] < len(samples)]]
            held = mine if len(mine) else samples[:1]
            made = op.made(padding, list(plane.each(held)), number)
            return _part(made, len(samples), stands_in=not len(mine))

        return op.dealt(at, part)


def buckets_dealt_to(reader: Reader[Any], shares: tuple[Share, ...]) -> Reader[Columns[Any]]:
    """The batches of a reader that come from a `bucket`, with only the rows of the shares."""
    return _parts_of_buckets(batching(reader).buckets, shares)


def part_of(batch: Columns[Any], share: Share) -> Columns[Any]:
    """The rows of a whole batch that a share has."""
    rows = share.rows()
    mine = map_tree(lambda column: column[rows], batch.columns)
    return Columns(mine, full=batch.full, rows=len(batch))
