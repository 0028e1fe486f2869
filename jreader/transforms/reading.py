"""`read`: read the samples of many files, in parallel lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeVar

from jreader.readers import Node, Reader, length, op, whole
from jreader.readers.lanes import Lanes
from jreader.transforms.joins import interleave
from jreader.transforms.maps import flat_map
from jreader.transforms.slices import shard

S = TypeVar("S")


@op
class read(flat_map[S], Lanes):
    """Read the samples that `fn` yields for each file, in `lanes` parallel lanes.

    File i belongs to lane i % `lanes`, and each lane reads its files one after another. The ops
    that follow run inside lanes, each lane with its own filters, windows, shuffles and random
    numbers, up to `batch(B)`: there lane k supplies the rows from k * B / lanes to (k + 1) * B /
    lanes of every batch. So a process that feeds some rows reads only their lanes, and the sequence
    depends on the number of lanes, not on that of processes. Ops that need all samples (`firstn`,
    `cache`, `chain`, ...) get one sample of each lane in turn.

    >>> from jreader import batch
    >>> def words(line):
    ...     yield from line.split()
    >>> lines = ["a b c d", "e f g h", "i j", "k l"]
    >>> [*batch(read(words, lambda: lines, lanes=2), 4)()]
    [['a', 'b', 'e', 'f'], ['c', 'd', 'g', 'h'], ['i', 'j', 'k', 'l']]
    >>> "".join(read(words, lambda: lines, lanes=2)())
    'aebfcgdhikjl'

    After the end of a lane, `batch` continues with the rows of the others, unless it has
    `drop_last=True`; `load(last=...)` sets what a loader does.

    Cost: one file per lane is open at a time. Resuming calls `fn` again for the current file of
    each lane and reads it up to the position, or finds it directly in an indexed reader.

    Args:
        fn: Takes a file (a sample of the pipeline), and yields its samples, as a generator function
            does, or returns a reader of them, as `jsonl` does. It must yield equal samples for
            equal files, or a pass cannot resume inside one.
        reader: The names of files, or parts of files (`files(paths, parts=n)`): any reader. Shuffle
            it to read files in a different order in each epoch.
        lanes: The number of lanes: a multiple of every number of processes that will share the
            work.

    Raises:
        ValueError: There are fewer files than lanes.
    """

    lanes: int = whole(default=1, least=1)
    lane: int | None = field(default=None, init=False)

    def check_arguments(self) -> dict[str, Any]:
        """Check that each lane has a file, as far as the number of files is known."""
        known = length(self.reader)
        if known is not None and known < self.lanes and self.lanes > 1:
            raise ValueError(
                f"read(fn, reader, lanes={self.lanes}) deals whole files, and {known} "
                f"file{'s' * (known != 1)} cannot fill {self.lanes} lanes: type "
                f"lanes={max(known, 1)} or less, or give more and smaller files; or parts of "
                f"files, as read(fn, files(paths, parts={-(-self.lanes // max(known, 1))}), "
                f"lanes={self.lanes}), where fn is text, jsonl, parquet, tfrecord, tar, or a "
                f"function that yields the samples of a part."
            )
        return {}

    def of_lane(self, lane: int) -> Node[S]:
        """Return the files of one lane, one after another."""
        files = shard(self.reader, self.lanes, 0).changed({"index": lane})  # not noted as a part
        return self.changed({"reader": files, "lane": lane})

    def in_turn(self, readers: Sequence[Reader[Any]]) -> Reader[Any]:
        """Interleave the samples of the lanes."""
        return interleave(*readers)
