"""What a loader reads: its batches, from any position of an epoch on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from jreader.batches import batch
from jreader.batching import Batching, batching, plain_batch
from jreader.devices import Placement, places_placement, sharding_placement
from jreader.errors import NotResumable
from jreader.loaders.assembling import FeedShape, Kind
from jreader.loaders.cursors import EpochPosition
from jreader.loaders.multihost.shards import dealt_to
from jreader.readers import (
    Columns,
    Cursor,
    Node,
    Pass,
    Position,
    Reader,
    at_epoch,
    described,
    leaves,
    map_tree,
    start,
)
from jreader.readers.nodes import inputs
from jreader.readers.plain_functions import in_epoch
from jreader.readers.seeds import waits
from jreader.transforms import cache, map_readers
from jreader.workers import fetch_batches


@dataclass(frozen=True)
class Source:
    """What a loader reads, and where to: the part that `set_*_generator` sets.

    Attributes:
        batches: A reader of batches.
        kind: What these are.
        places: The devices, as the user named them.
        batch_per_place: Whether each of several places gets a batch of its own, as in Paddle and in
            loaders of data sets; otherwise each batch is split over them.
        pmap: The devices of the pmap layout, if that was asked for.
        rows: The rows of a full batch, where they are known.
    """

    batches: Reader[Any]
    kind: Kind
    places: Any
    batch_per_place: bool
    pmap: Any = None
    rows: int | None = None

    def placement(self) -> Placement:
        """Where feeds go."""
        if self.batch_per_place:
            return places_placement(self.places)
        return sharding_placement(self.places, self.pmap)

    @property
    def batching(self) -> Batching:
        """How its batches are made."""
        return batching(self.batches)


class Opened:
    """The batches of an epoch, begun.

    Attributes:
        up: A pass of them: in groups of as many as make a feed, if that is more than one.
        drawn: What an unseeded plan drew for this epoch; None for any other.
        size: The samples of a batch, if positions count samples.
        unchecked: Whether the sizes of batches are still to be checked (`check_sizes`).
    """

    def __init__(
        self, source: Source, shape: FeedShape, cursor: Cursor, kept: Pass[Any] | None
    ) -> None:
        """Begins where a cursor says, or goes on with what is left of a pass over a stream."""
        counted = source.batching.counted
        self.size = counted.batch_size if counted else None
        inner = _checked(source, self.size, cursor)
        self._read: list[int] = []
        self.unchecked = False
        batches = self._watched(source, shape, cursor)
        remainder = shape.remainder
        epoch = 0 if remainder.continues else cursor["epoch"]
        plan = at_epoch(batches, epoch)
        if shape.per_feed > 1:
            plan = batch(plan, shape.per_feed)
        if kept is None:
            with in_epoch(epoch):
                kept = start(plan, inner)
        self.up = kept
        if remainder.continues and cursor["position"] is None:
            # an epoch that is asked for by its number: those before it are passed over
            deque(islice(self.up.items, (remainder.steps or 0) * cursor["epoch"]), maxlen=0)
        self.drawn = self.up.position()[0] if waits(plan) else None

    def _watched(self, source: Source, shape: FeedShape, cursor: Cursor) -> Reader[Any]:
        """The batches as they are read, each with memory of its own."""
        batches, remainder = source.batches, shape.remainder
        again = cursor["samples"] > 0 and not (remainder.continues and cursor["epoch"])
        if not isinstance(batches, Node) and remainder.last == "keep" and again:
            batches = self._counting(batches, arrays=source.kind == "arrays")
        if source.kind == "arrays":
            # copied as they come: their generator may fill them anew, while they wait here, or
            # while a device reads them
            batches = map_readers(_copied, batches)
        elif shape.placement.target == "host" and _kept(batches):
            batches = map_readers(_own, batches)  # who writes to a feed writes to nothing else
        if shape.share:
            batches = dealt_to(batches, shape.share) or batches
        return batches

    def _counting(self, reader: Reader[Any], *, arrays: bool) -> Reader[Any]:
        """The same, counting samples: a plain function is read again, maybe in other sizes."""
        self._read, self.unchecked = [0], True

        def counting() -> Iterator[Any]:
            for each in reader():
                first = leaves(each)[0] if arrays else each
                if self._read:
                    self._read[0] += len(first) if hasattr(first, "__len__") else 0
                yield each

        return counting

    def check_sizes(self, source: Source, samples: int, latest: int) -> None:
        """Refuses, once, batches of other sizes than those of the cursor.

        Args:
            source: What is read.
            samples: How many samples the cursor has.
            latest: How many the batch behind it has, which has been read.
        """
        self.unchecked = False
        if (before := self._read.pop() - latest) != samples:
            raise NotResumable(
                f"this cursor is of batches of other sizes: it has {samples} samples before its "
                f"position, which is counted in batches, and {source.batches!r} gives {before} up "
                f"to there. Resume with the sizes of the run that wrote it, or batch with "
                f"jreader.batch, whose positions are samples."
            )


def _checked(source: Source, size: int | None, cursor: Cursor) -> Position:
    """The position of the batches, refused where another kind of reader counted it."""
    position = EpochPosition.of(cursor["position"])
    if position is None:
        return None
    if (size is None) != (position.size is None):
        counted, here = ("batches", "samples") if size else ("samples", "batches")
        raise NotResumable(
            f"the position of this cursor is counted in {counted}, and in {here} here, by "
            f"{described(source.batches)}: resume with the pipeline that wrote it, whose batches "
            f"were made in another way."
        )
    return position.batches


def _copied(arrays: Any) -> Any:
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arrays)


def _own(samples: Sequence[Any]) -> Sequence[Any]:
    """A batch whose arrays are nobody else's; lists are stacked, and so copied, anyway."""
    if not isinstance(samples, Columns):
        return samples
    return Columns(_copied(samples.columns), samples.made_of)


def _kept(batches: Reader[Any]) -> bool:
    """Whether batches are kept by a cache, or come from a function, which may keep them."""
    if isinstance(batches, cache) or not isinstance(batches, Node):
        return True
    fresh = isinstance(batches, fetch_batches) or plain_batch(batches) is not None
    return not fresh and any(map(_kept, inputs(batches)))
