"""Several processes, one global batch: which of its rows each feeds, and nothing else is read.

One global order is dealt by place, so the processes together read the same sequence, however many
there are. Which rows are whose follows from the sharding, never from the number of a process: they
may be several ranges, and processes may share some. How long an epoch is, and whether its last
batch is short, is computed from the global length, the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jreader.batching import batching
from jreader.devices import Share
from jreader.readers import Node, Pass, Position, Reader, indexed, op, start
from jreader.readers.planes import Array, Gathering, Plane

_AT_ONCE = 16384  # places that are routed in one go, as in `readers/planes.py`


class Part(NamedTuple):
    """This process's rows of a batch.

    Attributes:
        samples: The rows.
        total: How many samples the whole batch has, on all processes.
        stands_in: Whether the only row is another's: this process has none of a short batch, and
            what becomes of none, no function could tell.
    """

    samples: Sequence[Any]
    total: int
    stands_in: bool = False


@op
class _parts(Node[Part]):
    """The batches of an indexed reader, of which only the rows of `share` are gathered.

    Args:
        reader: An indexed reader, the same on every process.
        share: The rows.
        drop_last: Whether a last batch with fewer samples is left out.
    """

    reader: Reader[Any]
    share: Share
    drop_last: bool = False
    in_cursor = "counted"

    def start(self, at: Position) -> Pass[Part]:
        """The position of a `batch`: how many samples are done, on all processes."""
        plane = indexed(self.reader)
        if plane is None:
            raise TypeError(f"{self.reader!r} is not indexed: processes cannot be dealt its rows")
        done: int = start(self.reader, at).position()  # refused where there is no such place
        gathered = Gathering(plane.columns, len(self.share))

        def deal() -> Iterator[Part]:
            nonlocal done
            for routed, counts, there in self._blocks(plane, done):
                low = 0
                for count, mine in zip(counts, there, strict=True):
                    high = low + max(mine, 1)
                    samples = gathered([rows[low:high] for rows in routed])
                    done, low = done + count, high
                    yield Part(samples, count, not mine)

        return Pass(deal(), lambda: done, lambda: None)

    def _blocks(
        self, plane: Plane, done: int
    ) -> Iterator[tuple[list[Array], list[int], list[int]]]:
        """The rows of many batches at once, how many samples each has, and how many of them here.

        Where there is none, the first row of the batch stands in for it.
        """
        size, mine = self.share.size, self.share.rows()
        end = plane.length
        if self.drop_last:  # from `done` on, which need not be a whole number of batches
            end -= (end - done) % size
        most = max(_AT_ONCE // max(len(mine), 1), 1)
        while done < end:
            firsts = np.arange(done, min(done + most * size, end), size)
            counts = np.minimum(end - firsts, size)
            places = firsts[:, None] + mine
            there = mine < counts[:, None]
            held = there.sum(1)
            places[held == 0, 0], there[held == 0, 0] = firsts[held == 0], True
            yield plane.rows(places[there]), counts.tolist(), held.tolist()
            done += int(counts.sum())


def dealt_to(reader: Reader[Any], share: Share) -> Reader[Part] | None:
    """The batches of a reader, of which only the rows of `share` are gathered, where they can be.

    Functions of whole batches (`map_batches`) see whole batches on every process: None.

    >>> from jreader import arrays, batch
    >>> digits = dealt_to(batch(arrays(np.arange(7)), 4), Share(4, ((0, 1), (3, 4))))
    >>> [(part.samples.columns.tolist(), part.total) for part in digits()]
    [([0, 3], 4), ([4], 3)]
    """
    found = batching(reader)
    batches = found.counted
    if batches is None or found.rows != share.size or not found.indexed:
        return None
    return _parts(batches.reader, share, bool(batches.drop_last))
