"""The cursor of any step: of an indexed plan it is arithmetic, and nothing is read."""

from __future__ import annotations

from typing import Any

from jreader.batches import bucket
from jreader.datasets.samplers import Sampler
from jreader.loaders.cursors import EpochPosition, beginning
from jreader.loaders.host_feeds import Trail
from jreader.loaders.loading import Loading
from jreader.readers import Cursor, at_epoch, described, indexed, length
from jreader.readers.planes import ENDLESS
from jreader.readers.seeds import waits


def found(loading: Loading, epoch: int, start: int, *, endless: bool) -> Cursor | None:
    """The cursor of a step; None if everything before the step has to be read.

    Args:
        loading: What the loader loads.
        epoch: The epoch whose first step is step 0.
        start: The number of the step.
        endless: Whether steps count on through later epochs.

    Raises:
        ValueError: The plan draws a new order for each pass, or the epoch has fewer steps.
    """
    loading.check()
    shape, batches = loading.shape, loading.batches()
    cursor: Cursor = {**beginning(epoch), "plan": loading.plan()}
    if waits(batches):
        raise ValueError(
            f"{described(batches)} draws new numbers in each pass, so step {start} of another run "
            "cannot be found: give its shuffles and random maps a seed, or give at=cursor."
        )
    if (buckets := loading.batching().buckets) is not None:
        return _among_buckets(loading, buckets, cursor, start, endless=endless)
    op, each = loading.batching().counted, loading.count()
    if op is None or each == 0 or loading.remainder.continues:
        return None
    plane = indexed(op.reader)
    samples = plane.length if plane else length(op.reader)
    if samples is None or not (plane or isinstance(op.reader, Sampler)):
        return None
    if each is None and samples < ENDLESS:
        return None
    size, left = op.batch_size * shape.per_feed, start
    samples -= samples % op.batch_size if op.drop_last and each is not None else 0
    while endless and each is not None and left >= each:
        cursor = {**_after(cursor, min(each * size, samples)), "epoch": cursor["epoch"] + 1}
        left -= each
    if each is not None and left > each:
        raise too_few(cursor["epoch"], each, start)
    done = min(left * size, samples)
    if not done:
        return {**cursor, "step": start}
    position = EpochPosition(shape.rows, op.batch_size, done, left)
    return {**_after(cursor, done), "step": start, "samples": done, "position": tuple(position)}


def _among_buckets(
    loading: Loading, op: bucket[Any], cursor: Cursor, start: int, *, endless: bool
) -> Cursor | None:
    """The same where batches come from buckets, so that steps differ in size."""
    found, each = loading.batching(), loading.count()
    if each is None or not found.indexed or loading.remainder.steps:
        return None

    def in_epoch(cursor: Cursor) -> Any:
        return at_epoch(op, cursor["epoch"])

    left = start
    while endless and each and left >= each:
        _, samples = in_epoch(cursor).cursor_at(each)
        cursor = {**_after(cursor, samples), "epoch": cursor["epoch"] + 1}
        left -= each
    if left > each:
        raise too_few(cursor["epoch"], each, start)
    if not left:
        return {**cursor, "step": start}
    batches, samples = in_epoch(cursor).cursor_at(left)
    position = tuple(EpochPosition(None, None, batches, left))
    return {**_after(cursor, samples), "step": start, "samples": samples, "position": position}


def _after(cursor: Cursor, samples: int) -> Cursor:
    """The cursor with the digest of an epoch of which `samples` samples are done."""
    trail = Trail(cursor, drawn=None)
    trail.add(samples)
    return {**cursor, "digest": trail.digest}


def too_few(epoch: int, steps: int, start: int) -> ValueError:
    """The error of a `start` beyond the end of an epoch."""
    return ValueError(
        f"epoch {epoch} has {steps} steps, and start={start} lies beyond: steps of an epoch count "
        "from 0; loader.steps(start=...) goes on counting through the later ones."
    )
