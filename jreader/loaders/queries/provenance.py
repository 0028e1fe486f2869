"""`loader.samples(step)`: the samples of any step, found by arithmetic, without a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from jreader.batches import Batching, batch
from jreader.batches.batch_sizes import BatchSizes
from jreader.loaders.checkpoints.cursors import beginning, kept_lines
from jreader.loaders.checkpoints.positions import EpochPosition, Place
from jreader.loaders.loading import Loading
from jreader.readers import Cursor, Reader, at_epoch, described, indexed, leaves, rebuilt
from jreader.readers.columns import Array, Column, column_of
from jreader.readers.lanes import by_lane, owners_of
from jreader.readers.planes import Plane, SideBySide
from jreader.readers.seeds import lacks_seed, seeded
from jreader.readers.stacked_rows import StackedRows
from jreader.transforms.maps import without_maps
from jreader.transforms.mixtures import mixed_as_read, sources_of

_CALL = "loader.samples(step)"


@dataclass(frozen=True)
class Samples:
    """The samples of one step.

    Attributes:
        epoch: The number of the epoch.
        step: The number of the step, as `loader.samples` got it.
        places: The indices of the samples in the order of the epoch, of shape [samples]; of those
            of a bucket, the indices in the reader that it sorts.
        rows: For each column, the indices of its rows that make the samples: a tree like `columns`;
            of samples that are several rows (`window`), with an axis more.
        columns: The columns of the plan: a tree of arrays, or of what is indexed as they are, so
            that `columns[rows]` gives the samples before functions have them.
        sources: Which reader of a `mix` each sample comes from: names, or numbers where the readers
            have none. None if the samples do not come from a `mix`, perhaps reordered.
    """

    epoch: int
    step: int
    places: Array
    rows: Any
    columns: Any
    sources: Array | None = None

    @property
    def files(self) -> Any:
        """A `Where` for each row of each column that lies in files; None for other columns.

        A window across files has the file in which it begins.
        """
        pairs = zip(map(column_of, leaves(self.columns)), leaves(self.rows), strict=True)
        files = [column.where(_in_line(column, rows)) for column, rows in pairs]
        return rebuilt(self.columns, iter(files))

    def __repr__(self) -> str:
        """Return the rows, without the columns, which may be large."""
        sources = "" if self.sources is None else f", sources={self.sources!r}"
        return f"Samples(epoch={self.epoch}, step={self.step}, rows={self.rows!r}{sources})"


def samples_of(loading: Loading, place: Place, step: int, epoch: int | None) -> Samples:
    """Return the samples of a step; it reads only the lengths of the columns.

    Args:
        loading: What the loader loads.
        place: The place of the latest pass.
        step: The number of the step.
        epoch: The number of an epoch whose steps count from 0; None for the one under way.

    Raises:
        TypeError: The plan is not indexed.
        ValueError: The order of the epoch is not drawn yet, or the epoch has no such step; or the
            data have another length than when it began.
    """
    cursor, began = place.cursor, place.began
    known = kept_lines(cursor["plan"])
    if epoch is None and known and known != kept_lines(loading.plan()):
        raise ValueError(
            f"the data have grown or shrunk since epoch {cursor['epoch']} began, and its order is "
            f"that of the data as they were: ask for a later epoch, as in "
            f"loader.samples({step}, epoch={cursor['epoch'] + 1})."
        )
    loading.check()
    if epoch is None:
        found = loading.of_epoch(cursor, began).batching
    else:
        began, found = beginning(epoch), loading.of_epoch().batching
    reader, rows, plane = in_order(_CALL, loading, found, began, cursor)
    if found.buckets is None:
        places = _places_in_batches(loading, cast("batch[Any]", found.counted), plane, began, step)
    else:
        places = _places_in_bucket(reader, began, step)
    routed = zip(leaves(plane.columns), plane.rows(places), strict=True)
    columns, of_each = zip(*(_unstacked(column, each) for column, each in routed), strict=True)
    made, held = (
        as_users_know(rebuilt(plane.columns, iter(every))) for every in (of_each, columns)
    )
    return Samples(began["epoch"], step, places, made, held, sources_of(rows, places))


def in_order(
    call: str, loading: Loading, found: Batching, began: Cursor, cursor: Cursor
) -> tuple[Any, Reader[Any], Plane]:
    """Return the reader that orders the samples of an epoch.

    Args:
        call: The call, as errors show it.
        loading: What the loader loads.
        found: How the batches of the epoch are made.
        began: The cursor of a part of the epoch.
        cursor: A cursor that knows the numbers drawn for the epoch.

    Returns:
        The `bucket`, or what is below the `batch`, in the order of the epoch; the samples that are
        counted; and their plane.

    Raises:
        TypeError: The plan is not indexed.
        ValueError: The order is not drawn yet, or epochs are parts of one pass.
    """
    if loading.remainder.continues:
        raise ValueError(
            f"{call}: with steps_per_epoch, the epochs of {described(loading.source.batches)}, "
            "which has no end, are parts of one pass: leave steps_per_epoch out, and ask for steps "
            "as loader.steps(n) counts them."
        )
    reader: Any = _reordered(_counted(call, loading, found), began, cursor, loading)
    rows = without_maps(mixed_as_read(reader)) if found.buckets is None else reader.reader
    return reader, rows, cast("Plane", indexed(rows))  # checked above


def _counted(call: str, loading: Loading, found: Batching) -> Any:
    """Return the op that orders the samples: the `bucket`, or the reader below the `batch`.

    Raises:
        TypeError: It is not indexed.
    """
    op = found.counted
    rows = indexed(seeded(without_maps(op.reader), 0)) if op else None
    if not (found.indexed if op is None else rows):
        raise TypeError(
            f"{call} needs an indexed plan, one that finds samples by their index, and "
            f"{described(loading.of_epoch().batches)} has to be read in order: begin with "
            "jreader.arrays(...), npy or source, and leave samples out by .filter(fn, keep=path), "
            "which keeps its answers, or by .firstn, .skip and .shard."
        )
    return op.reader if op else found.buckets


def _reordered(reader: Reader[Any], began: Cursor, cursor: Cursor, loading: Loading) -> Reader[Any]:
    """Return the reader in the order of the epoch of `began`.

    Raises:
        ValueError: The order is not drawn yet.
    """
    epoch = began["epoch"]
    if lacks_seed(reader):
        if cursor["epoch"] != epoch or cursor["position"] is None:
            raise ValueError(
                f"{described(loading.of_epoch().batches)} draws new numbers in each pass, and "
                f"epoch {epoch} is not under way: give its shuffles a seed, and every step of "
                "every epoch is known."
            )
        reader = seeded(reader, EpochPosition.of(cursor).batches[0])
    return at_epoch(reader, epoch)


def _places_in_batches(
    loading: Loading, op: batch[Any], plane: Plane, began: Cursor, step: int
) -> Array:
    """Return the indices of a step's samples if all steps have as many batches."""
    sizes, ahead = op.sizes.times(loading.per_feed), step - began["step"]
    end = loading.here.fed(plane.length, op, began["samples"])
    sample, number = counted_from(_CALL, sizes, op, began, end if ahead < 0 else None)
    first = sizes.after(sample, EpochPosition.of(began).steps + ahead - number)
    size = sizes.at(max(first, 0))
    if not 0 <= first < end:
        raise ValueError(
            f"{_CALL}: epoch {began['epoch']} has no step {step}; it has {plane.length:,} samples, "
            f"{size} a step, and those that fill none may be left out. For another epoch type "
            f"loader.samples(step, epoch=...), where steps count from 0 in each: "
            f"step % len(loader) of epoch step // len(loader)."
        )
    each, lanes = op.sizes.at(first), owners_of(op.reader)
    begins = range(first, min(first + size, end), each)
    places = np.concatenate([by_lane(each, lanes, begin) + begin for begin in begins])
    return places[places < end]


def counted_from(
    call: str, sizes: BatchSizes, op: batch[Any], began: Cursor, end: int | None
) -> tuple[int, int]:
    """Return a sample at which a step begins, and the number of that step in its epoch.

    Args:
        call: The call, as errors show it.
        sizes: The samples of steps.
        op: The op that makes the batches.
        began: The cursor of a part of the epoch, in which they have these sizes.
        end: The number of samples of the epoch, if earlier steps are wanted; else None.

    Raises:
        ValueError: The earlier steps had other sizes.
    """
    at, done = EpochPosition.of(began), began["samples"]
    if end is None:
        return done, at.steps
    before = at.size if began["position"] else op.named_size
    if before != op.named_size or min(sizes.after(0, at.steps), end) != done:
        other = "several sizes" if before == op.named_size else f"{before} samples"
        raise ValueError(
            f"{call}: steps were of batches of {other}, and here they have {op.named_size}, from "
            f"step {began['step']} on: ask a loader with the size that they had."
        )
    return 0, 0


def _places_in_bucket(op: Any, began: Cursor, step: int) -> Array:
    """Return the same for batches from buckets whose lengths are known."""
    index, steps = EpochPosition.of(began).steps + step - began["step"], len(op)
    if not 0 <= index < steps:
        raise ValueError(
            f"{_CALL}: epoch {began['epoch']} has no step {step}; it has {steps:,} steps. For "
            f"another epoch type loader.samples(step, epoch=...), where steps count from 0 in each."
        )
    places: Array = op.known().at(index)[1]
    return places


def _unstacked(column: Any, rows: Array) -> tuple[Any, Array]:
    """Return the column that holds rows, and which; for windows, those of all samples."""
    while isinstance(column, StackedRows):
        column, rows = column.column, column.inner_rows(rows)
    return column, rows


def _in_line(column: Column, rows: Array) -> Array:
    """Flatten rows, also of samples that are several rows."""
    return rows.reshape(-1, 2) if column.in_pairs else rows.ravel()


def as_users_know(tree: Any) -> Any:
    """Return the tree as users know it, with a tuple for the parts of a `compose`."""
    return tuple(map(as_users_know, tree.parts)) if isinstance(tree, SideBySide) else tree
