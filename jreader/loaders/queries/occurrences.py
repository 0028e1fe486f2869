"""`loader.where(indices)`: the steps that hold a sample, by inverting the order of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jreader.batches import batch
from jreader.errors import check_number
from jreader.loaders.checkpoints.cursors import beginning, kept_lines
from jreader.loaders.checkpoints.positions import EpochPosition, Place
from jreader.loaders.loading import Loading
from jreader.loaders.queries.asked_rows import AskedRows
from jreader.loaders.queries.provenance import counted_from, in_order
from jreader.readers import Cursor
from jreader.readers.columns import Array
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.lanes import by_lane, owners_of

_CALL = "loader.where(indices)"


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Where samples occur in a run: arrays, with an entry for each sample of a step that holds one.

    They are in the order of the requested samples, and for each sample in the order of the run.
    Iteration gives tuples: (sample, epoch, step, row).

    Attributes:
        sample: The number of the requested sample.
        epoch: The number of the epoch.
        step: The number of the step in its epoch, from 0.
        row: The row of the batch of that step.
        begin: For a sample that is a part of the row, such as a document in a window, the value of
            the row at which it begins; else 0.
        end: The value of the row before which it ends; 0 if the sample is the whole row.
    """

    sample: Array
    epoch: Array
    step: Array
    row: Array
    begin: Array
    end: Array

    def __len__(self) -> int:
        return len(self.step)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the sample, epoch, step and row of each."""
        parts = (self.sample, self.epoch, self.step, self.row)
        return zip(*(part.tolist() for part in parts), strict=True)

    def __repr__(self) -> str:
        """Show the arrays, without those of parts if there are none."""
        many = 6 if self.end.any() else 4
        parts = list(vars(self).items())[:many]
        return f"Occurrences({', '.join(f'{name}={part!r}' for name, part in parts)})"


class Epochs(NamedTuple):
    """The part of a run to search.

    Attributes:
        epochs: The numbers of epochs, ascending; None for all, up to the last known one.
        since: A cursor; occurrences before it do not count.
        until: A cursor; occurrences after it do not count.
    """

    epochs: list[int] | None
    since: Cursor | None
    until: Cursor | None

    def numbers(self, latest: int) -> list[int]:
        """Return the numbers of the epochs in order; `latest` is the epoch of the last pass."""
        first = self.since["epoch"] if self.since else 0
        last = self.until["epoch"] if self.until else max(first, latest)
        wanted = range(first, last + 1) if self.epochs is None else self.epochs
        return [each for each in wanted if first <= each and not (self.until and each > last)]

    def known(self, place: Place, epoch: int) -> tuple[Cursor, Cursor]:
        """Return the cursor from which an epoch's steps count, and one that knows its draws."""
        for cursor in (self.since, self.until):
            if cursor and cursor["epoch"] == epoch and cursor["position"] is not None:
                return cursor, cursor
        under_way = place.cursor["epoch"] == epoch and place.cursor["position"] is not None
        return (place.began if under_way else beginning(epoch)), place.cursor

    def ends(self, epoch: int) -> tuple[Cursor, Cursor | None]:
        """Return the cursors between which steps of an epoch count; None for its end."""
        since = self.since if self.since and self.since["epoch"] == epoch else beginning(epoch)
        return since, self.until if self.until and self.until["epoch"] == epoch else None


def checked_epochs(epochs: Iterable[int] | None) -> list[int] | None:
    """Return the numbers of epochs, in order, each once.

    >>> checked_epochs([2, 0, 2])
    [0, 2]

    Raises:
        TypeError: They are not ints.
        ValueError: One is negative.
    """
    if epochs is None:
        return None
    if not isinstance(epochs, Iterable):
        raise TypeError(
            f"epochs={epochs!r} does not list the numbers of epochs: type epochs=[{epochs!r}] for "
            f"that one, or epochs=range({epochs!r}) for as many."
        )
    return sorted({check_number("each of epochs=...", each) for each in epochs})


def occurrences_of(
    loading: Loading, place: Place, asked: AskedRows, between: Epochs
) -> Occurrences:
    """Return where samples occur; it reads nothing but the lengths of the columns.

    Args:
        loading: What the loader loads.
        place: The place of the latest pass.
        asked: The samples.
        between: The part of the run.

    Raises:
        TypeError: The plan is not indexed.
        ValueError: The order of an epoch is not drawn yet, or it has no end.
        IndexError: There is no such sample.
        NotResumable: The epoch under way is of another plan, for example because data have grown.
    """
    loading.check()
    parts = [(Held.of(np.zeros(0, np.int64)), *np.zeros((3, 0), np.int64))]
    numbers = np.zeros(0, np.int64)
    for epoch in between.numbers(place.cursor["epoch"]):
        began, cursor = between.known(place, epoch)
        if kept_lines(began["plan"]):
            loading.check_plan(began)
        here = loading.of_epoch(cursor if began["position"] else began, began)
        reader, samples, plane = in_order(_CALL, loading, here.batching, began, cursor)
        numbers, first, column = asked.found(samples, plane)
        rows = numbers + first
        since, until = between.ends(epoch)
        if here.batching.buckets is None:
            op: Any = here.batching.counted
            fed = loading.here.fed(plane.length, op, began["samples"])
            end = min(until["samples"], fed) if until else fed
            if plane.length >= ENDLESS and not until:
                raise ValueError(
                    f"{_CALL}: epoch {epoch} has no end, and a sample comes again and again: say "
                    f"where to stop, as in loader.where(..., until=loader.state_dict())."
                )
            held = plane.holding(rows, end, column)
            held = held.taken(held.index >= since["samples"])
            step, row = _in_batches(loading, op, began, held.index, fed)
        else:
            held = plane.holding(rows, ENDLESS, column)
            step, row = reader.known().places(held.index)
            there = (row >= 0) & (step >= _steps(since)) & (step < _steps(until, len(reader)))
            held, step, row = held.taken(there), step[there], row[there]
        parts.append((held, np.full(len(step), epoch), step, row))
    found, *places = zip(*parts, strict=True)
    held, (of_epoch, step, row) = Held.joined(found), map(np.concatenate, places)
    order = np.lexsort((row, step, of_epoch, held.asked))
    every = (numbers[held.asked], of_epoch, step, row, held.begin, held.end)
    return Occurrences(*(part[order] for part in every))


def _steps(cursor: Cursor | None, end: int = 0) -> int:
    """Return the number of finished steps of the epoch at a cursor; `end` without one."""
    return end if cursor is None else EpochPosition.of(cursor).steps


def _in_batches(
    loading: Loading, op: batch[Any], began: Cursor, places: Array, end: int
) -> tuple[Array, Array]:
    """Return the step and the row of each of these places in an epoch's order, up to its end."""
    sizes, earlier = op.sizes.times(loading.per_feed), (places < began["samples"]).any()
    low, first = counted_from(_CALL, sizes, op, began, end if earlier else None)
    steps, rows = np.zeros((2, len(places)), np.int64)
    for size, until in sizes.pieces(low):
        here = np.flatnonzero((low <= places) & (places < until))
        step, inside = np.divmod(places[here] - low, size)
        number, row = np.divmod(inside, size // loading.per_feed)
        row = _rows_by_lane(op, size // loading.per_feed, places[here] - row, row, end)
        steps[here], rows[here] = first + step, number * (size // loading.per_feed) + row
        low, first = until, first + (until - low) // size
    return steps, rows


def _rows_by_lane(op: batch[Any], size: int, begins: Array, inside: Array, end: int) -> Array:
    """Return the rows of samples in batches, given their numbers there and batch begins."""
    rows, lanes = inside.copy(), owners_of(op.reader)
    for begin in np.unique(begins).tolist() if lanes > 1 else ():
        here, order = begins == begin, by_lane(size, lanes, begin)
        rows[here] = np.argsort(order[order < end - begin])[inside[here]]
    return rows
