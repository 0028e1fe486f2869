"""`Source`: the batches that a loader reads, from any position of an epoch on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from jreader.batches import Batching, batch, batching, plain_batch
from jreader.devices import Placement, places_placement, sharding_placement
from jreader.errors import NotResumable
from jreader.loaders.assembling import FeedShape, Kind
from jreader.loaders.checkpoints.positions import Place
from jreader.loaders.multihost.shards import buckets_dealt_to, dealt_to
from jreader.readers import (
    Columns,
    Cursor,
    Node,
    Pass,
    Position,
    Reader,
    at_epoch,
    described,
    first_column,
    map_tree,
    start,
)
from jreader.readers.growing import as_it_was
from jreader.readers.plain_functions import in_epoch
from jreader.readers.seeds import waits
from jreader.transforms import cache, map_readers
from jreader.workers import fetch_batches


@dataclass(frozen=True)
class Source:
    """What a loader reads, and the devices it feeds: what `set_*_generator` sets.

    Attributes:
        batches: A reader of batches.
        kind: What a batch is (`assembling.FeedShape.kind`).
        places: The devices or the sharding, as the user gave them.
        batch_per_place: Whether each of several places gets a batch of its own, as in Paddle and in
            loaders of data sets; otherwise each batch is split over them.
        pmap: The devices of the pmap layout, if that was asked for.
        rows: The rows of a full batch; None if unknown before the first batch.
    """

    batches: Reader[Any]
    kind: Kind
    places: Any
    batch_per_place: bool
    pmap: Any = None
    rows: int | None = None

    def placement(self) -> Placement:
        """The devices and shardings of feeds."""
        if self.batch_per_place:
            return places_placement(self.places)
        return sharding_placement(self.places, self.pmap)

    @cached_property
    def batching(self) -> Batching:
        """How the batches are made; what has a length now may have another one later."""
        return batching(self.batches)

    @property
    def size(self) -> int | None:
        """The samples per batch, if positions count samples; else None."""
        return self.batching.counted.batch_size if self.batching.counted else None


def batches_from(
    source: Source, shape: FeedShape, cursor: Cursor, kept: Pass[Any] | None
) -> tuple[Pass[Any], int | None]:
    """Begins a pass over the batches of an epoch at a cursor, or goes on with an open one.

    Args:
        source: What is read.
        shape: How batches become feeds. If several make a feed, the items are lists of them.
        cursor: The cursor.
        kept: The open pass over a stream that goes on; None for none.

    Returns:
        The pass, and the seed that an unseeded plan drew for this epoch; None for a seeded plan.
    """
    at, remainder = _checked(source, cursor), shape.remainder
    epoch = 0 if remainder.continues else cursor["epoch"]
    plan = at_epoch(_counted_batches(source, shape, cursor, at), epoch)
    if shape.per_feed > 1:
        plan = batch(plan, shape.per_feed)
    if kept is None:
        with in_epoch(epoch):
            kept = start(plan, at)
    if remainder.continues and cursor["position"] is None:
        # the user asked for an epoch by its number: the epochs before it are read and dropped
        deque(islice(kept.items, (remainder.steps or 0) * cursor["epoch"]), maxlen=0)
    return kept, kept.position()[0] if waits(plan) else None


def _counted_batches(source: Source, shape: FeedShape, cursor: Cursor, at: Position) -> Reader[Any]:
    """The reader of batches, copied and counted where that is needed, each in own memory."""
    batches, remainder = as_it_was(source.batches, at), shape.remainder
    again = cursor["samples"] > 0 and not (remainder.continues and cursor["epoch"])
    if not isinstance(batches, Node) and remainder.last == "keep" and again:
        batches = _of_same_sizes(batches, at, cursor["samples"], source)
    if source.kind == "arrays":
        # copied as they come: their generator may write to them again while they wait here,
        # or while a device reads them
        batches = map_readers(_copied, batches)
    elif shape.placement.hosts and _may_be_kept(batches):
        batches = map_readers(_own, batches)  # so that writing to a feed changes nothing else
    if shape.share:
        batches = dealt_to(batches, shape.share, pads=shape.masked) or batches
    if shape.shares:
        batches = buckets_dealt_to(batches, shape.shares)
    return batches


def _of_same_sizes(reader: Reader[Any], at: Position, samples: int, source: Source) -> Reader[Any]:
    """The batches of a plain function, which may have other sizes now: it is read up to a cursor.

    Args:
        reader: The function.
        at: The position of the cursor: how many batches were read.
        samples: How many samples they had.
        source: The source of the loader.

    Raises:
        NotResumable: They have other sizes (while iterating).
    """
    done = at if isinstance(at, int) else at[0]

    def checked() -> Iterator[Any]:
        before = 0
        for number, each in enumerate(reader()):
            if number == done and before != samples:
                raise NotResumable(
                    f"this cursor is of batches of other sizes: it has {samples} samples before "
                    f"its position, which is counted in batches, and {source.batches!r} gives "
                    f"{before} up to there. Resume with the sizes of the run that wrote it, or "
                    f"batch with jreader.batch, whose positions are samples."
                )
            if number < done:
                first = first_column(each) if source.kind == "arrays" else each
                before += len(first) if hasattr(first, "__len__") else 0
            yield each

    return checked


def _checked(source: Source, cursor: Cursor) -> Position:
    """The position of the reader of batches in a cursor.

    Raises:
        NotResumable: It counts batches where this reader counts samples, or the reverse.
    """
    if cursor["position"] is None:
        return None
    place = Place.of(cursor)
    if (source.size is None) != (place.size is None):
        counted, here = ("batches", "samples") if source.size else ("samples", "batches")
        raise NotResumable(
            f"the position of this cursor is counted in {counted}, and that of "
            f"{described(source.batches)} in {here}: resume with the pipeline that wrote it, whose "
            f"batches were made in another way."
        )
    return place.batches


def _copied(arrays: Any) -> Any:
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arrays)


def _own(samples: Sequence[Any]) -> Sequence[Any]:
    """The batch with arrays of its own; lists are copied anyway, when they are stacked."""
    if not isinstance(samples, Columns) or not samples.stacked:
        return samples
    return samples.having(_copied(samples.columns))


def _may_be_kept(batches: Reader[Any]) -> bool:
    """Whether something else may hold the arrays of batches: a cache, or the user's function."""
    left = [batches]
    while left:
        reader = left.pop()
        if isinstance(reader, cache) or not isinstance(reader, Node):
            return True
        if not isinstance(reader, fetch_batches) and plain_batch(reader) is None:
            left += reader.input_readers
    return False
