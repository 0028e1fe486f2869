"""The cursor of any step: for an indexed plan, it is computed without reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from jreader.batches import batch, bucket
from jreader.datasets.samplers import Sampler
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.checkpoints.positions import EpochPosition, Place, Tally, next_epoch
from jreader.loaders.loading import Loading
from jreader.readers import Cursor, Reader, at_epoch, described, indexed, length
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import ops_of
from jreader.readers.planes import Plane
from jreader.readers.seeds import lacks_seed
from jreader.transforms.sample_rng import keyed

DoneAfter: TypeAlias = Callable[[int, int], tuple[Any, ...]]
"""Maps an epoch and a number of its steps to the samples done, and the reader's position."""


def cursor_of_step(loading: Loading, epoch: int, start: int, *, endless: bool) -> Cursor | None:
    """Return the cursor of a step; None if everything before the step must be read.

    Args:
        loading: What the loader loads.
        epoch: The epoch whose first step is step 0.
        start: The number of the step.
        endless: Whether steps continue to count through later epochs.

    Raises:
        ValueError: The plan draws a new order for each pass, or the epoch has fewer steps.
    """
    loading.check()
    batches = loading.of_epoch().batches
    cursor: Cursor = {**beginning(epoch), "plan": loading.plan()}
    if lacks_seed(batches):
        raise ValueError(
            f"{described(batches)} draws new numbers in each pass, so step {start} of another run "
            "cannot be found: give its shuffles and random maps a seed, or give at=cursor."
        )
    each, done_after = loading.count(), _counted_steps(loading)
    if done_after is None or each == 0:
        return None
    left = start
    while endless and each is not None and left >= each:
        cursor, left = next_epoch(_after(cursor, each, done_after), continues=False), left - each
    if each is not None and left > each:
        raise too_few(cursor["epoch"], each, start)
    return {**(_after(cursor, left, done_after) if left else cursor), "step": start}


def _counted_steps(loading: Loading) -> DoneAfter | None:
    """Return a function that computes the samples done after some steps, and the position there."""
    found = loading.of_epoch().batching
    if found.buckets is not None:
        return _steps_of_buckets(found.buckets) if _are_known(loading) else None
    op = found.counted
    end = None if op is None or loading.remainder.continues else _samples_fed(loading, op)
    if op is None or end is None:
        return None
    rows, size, last = loading.source.rows, op.named_size, end
    sizes = op.sizes.times(loading.per_feed)

    def done_after(_epoch: int, steps: int) -> tuple[Any, ...]:
        done = min(sizes.after(0, steps), last)
        return done, rows, size, done

    return done_after


def _samples_fed(loading: Loading, op: batch[Any]) -> int | None:
    """Return how many samples of an epoch make feeds; None if no pass can begin at any."""
    plane = _rows_of(op.reader)
    if plane is None and not isinstance(op.reader, Sampler):
        return None
    samples = plane.length if plane else length(op.reader)
    if samples is None or loading.count() is not None:
        return samples and loading.here.fed(samples, op)
    return samples if samples >= ENDLESS else None


def _rows_of(reader: Reader[Any]) -> Plane | None:
    """Return the plane of rows whose number is the position of a pass; None if there is none.

    Beside the keys of random maps, positions are different.
    """
    found = mapped_rows(reader)
    if found is None or any(isinstance(op, keyed) for op in ops_of(reader)):
        return indexed(reader)
    return indexed(found.rows)


def _are_known(loading: Loading) -> bool:
    """Return whether the steps of batches that come from buckets can be counted."""
    known = loading.count() is not None and not loading.remainder.steps
    return known and loading.of_epoch().batching.indexed


def _steps_of_buckets(op: bucket[Any]) -> DoneAfter:
    """Return the same for batches from buckets, whose steps differ in size."""

    def done_after(epoch: int, steps: int) -> tuple[Any, ...]:
        there: Any = at_epoch(op, epoch)
        batches, samples = there.known().cursor_at(steps)
        return samples, None, None, batches

    return done_after


def _after(cursor: Cursor, steps: int, done_after: DoneAfter) -> Cursor:
    """Return the cursor after the first steps of an epoch."""
    tally = Tally(cursor)
    tally.gives(*done_after(cursor["epoch"], steps))
    there = Place(*tally.place)
    position = EpochPosition(*there.position)._replace(steps=steps)
    return there._replace(position=tuple(position)).cursor


def too_few(epoch: int, steps: int, start: int) -> ValueError:
    """Return the error of a `start` beyond the end of an epoch."""
    return ValueError(
        f"epoch {epoch} has {steps} steps, and start={start} lies beyond: steps of an epoch count "
        "from 0; loader.steps(start=...) counts on through later epochs."
    )
