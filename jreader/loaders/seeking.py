"""Where a step is, without a cursor: where samples are found by place, that is arithmetic."""

from __future__ import annotations

from jreader.batches import sized
from jreader.datasets.samplers import Sampler
from jreader.loaders.assembling import Grouping
from jreader.loaders.cursors import Trail
from jreader.loaders.iterators import too_few
from jreader.loaders.sources import Source, feeds_of
from jreader.readers import Cursor, described, indexed, length
from jreader.readers.planes import ENDLESS
from jreader.readers.seeds import waits


def found(
    source: Source, grouping: Grouping, cursor: Cursor, start: int, *, endless: bool
) -> Cursor | None:
    """The cursor of a step; None where what lies before it has to be read.

    Args:
        source: What is read, and to where.
        grouping: What makes feeds of it.
        cursor: Where steps begin: that of an epoch of which nothing was read.
        start: How many steps lie between.
        endless: Whether steps go on in later epochs.

    Raises:
        ValueError: The plan draws anew for each pass, or the epoch has fewer steps.
    """
    if waits(source.batches):
        raise ValueError(
            f"{described(source.batches)} draws anew for each pass, and step {start} of another "
            f"run is not to be found: give its shuffles and random maps a seed, or at=cursor."
        )
    op, each = sized(source.batches), feeds_of(source, grouping)
    if op is None or each == 0 or grouping.ends.onward:
        return None
    plane = indexed(op.reader)
    samples = plane.length if plane else length(op.reader)
    if samples is None or not (plane or isinstance(op.reader, Sampler)):
        return None
    if each is None and samples < ENDLESS:
        return None
    size, left = op.batch_size * grouping.batches, start
    samples -= samples % op.batch_size if op.drop_last and each is not None else 0
    while endless and each is not None and left >= each:
        cursor = {**_after(cursor, min(each * size, samples)), "epoch": cursor["epoch"] + 1}
        left -= each
    if each is not None and left > each:
        raise too_few(cursor["epoch"], each, start)
    done = min(left * size, samples)
    if not done:
        return {**cursor, "step": start}
    position = (grouping.rows, op.batch_size, done, left)
    return {**_after(cursor, done), "step": start, "samples": done, "position": position}


def _after(cursor: Cursor, samples: int) -> Cursor:
    """The cursor with the digest of so many samples of its epoch."""
    trail = Trail(cursor, drawn=None)
    trail.add(samples)
    return {**cursor, "digest": trail.digest}
