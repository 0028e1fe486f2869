"""From batches to host feeds of the loader's shape: side by side, split, padded or dropped."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.batches import batch, map_batches
from jreader.devices import Placement, places_placement, sharding_placement
from jreader.errors import FeedMismatch, NotResumable
from jreader.feeds import Feeds, padded
from jreader.readers import (
    Pass,
    Position,
    Reader,
    at_epoch,
    leaves,
    length,
    map_tree,
    origin,
    start,
)
from jreader.transforms import map_readers
from jreader.workers import fetched

Kind: TypeAlias = Literal["samples", "sample lists", "arrays", "collated"]


@dataclass
class Grouping:
    """What turns a group of batches into one host feed.

    Attributes:
        feeds: Names, shapes and dtypes.
        kind: What the reader yields: samples (batched by the loader), lists of them, arrays, or
            what is a feed already (`loaders/mapped.py`).
        placement: Where feeds go.
        beside: Whether each part of the placement gets a batch of its own (the seeds' places);
            otherwise one batch is split over the parts.
        drop_last: Whether short groups are left out, not padded.
        rows: Samples of a full batch; None until the first one tells.
        return_list: Whether feeds are lists in the order of the feed_list, not dicts.
        chunk: How many steps make one feed; None for feeds without an axis of steps.
    """

    feeds: Feeds
    kind: Kind
    placement: Placement
    beside: bool
    drop_last: bool
    rows: int | None = None
    return_list: bool = False
    chunk: int | None = None

    @property
    def batches(self) -> int:
        """How many batches make a feed."""
        return ((self.placement.parts or 1) if self.beside else 1) * (self.chunk or 1)

    @property
    def axes(self) -> int:
        """How many leading axes of a feed count samples."""
        return 1 + (self.placement.parts is not None) + (self.chunk is not None)

    @property
    def placed(self) -> Placement:
        """Where feeds go, their mask and their axis of steps included."""
        placement = self.placement.with_mask() if self.masked else self.placement
        return placement.chunked() if self.chunk else placement

    @property
    def masked(self) -> bool:
        """Whether every feed carries a mask."""
        return not self.drop_last

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a group; None where it is short and short ones are dropped."""
        batches = [self._named(batch) for batch in group]
        counts = [len(leaves(batch)[0]) for batch in batches]
        if self.rows is None:
            self.rows = counts[0]
            if not self.beside:
                self.placement.check(self.rows)
        if max(counts) > self.rows:
            raise FeedMismatch(
                f"a batch of {max(counts)} samples came after batches of {self.rows}: all batches "
                f"of a loader need one size, but for a short last one. Use jreader.batch, or "
                f"set_sample_generator, which batches by itself."
            )
        short = len(counts) < self.batches or min(counts) < self.rows
        if short and self.drop_last:
            return None
        if self.drop_last:
            return self._finished(self._laid_out(batches))
        full = [padded(batch, self.rows) for batch in batches]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(self.rows, bool)
        full += [nothing] * (self.batches - len(full))
        mask = self._laid_out([mask for _, mask in full])
        return self._finished(self._laid_out([feed for feed, _ in full]), mask)

    def _named(self, batch: Any) -> Any:
        if self.kind == "arrays":
            return self.feeds.from_arrays(batch)
        return self.feeds.from_samples(batch, lists=self.kind == "samples")

    def _laid_out(self, batches: list[Any]) -> Any:
        if self.chunk is None:
            return self._step(batches)
        each = len(batches) // self.chunk
        steps = [self._step(batches[at : at + each]) for at in range(0, len(batches), each)]
        behind = 0 if self.placement.parts is None else 1
        return map_tree(lambda *columns: np.stack(columns, axis=behind), *steps)

    def _step(self, batches: list[Any]) -> Any:
        parts = self.placement.parts
        if parts is None:
            return batches[0]
        if self.beside:
            return map_tree(lambda *columns: np.stack(columns), *batches)
        return map_tree(lambda column: column.reshape(parts, -1, *column.shape[1:]), batches[0])

    def _finished(self, feed: Any, mask: Any = None) -> Any:
        if self.return_list and isinstance(feed, dict):
            feed = list(feed.values())
        if mask is None:
            return feed
        if isinstance(feed, dict):
            if "mask" in feed:
                raise FeedMismatch(
                    "a field is named 'mask', and so is what drop_last=False adds: rename the field"
                )
            return {**feed, "mask": mask}
        return [*feed, mask] if isinstance(feed, list) else (*_as_tuple(feed), mask)


def _as_tuple(feed: Any) -> tuple[Any, ...]:
    return feed if isinstance(feed, tuple) else (feed,)


@dataclass(frozen=True)
class Source:
    """What a loader reads, and where to: the part that `set_*_generator` sets."""

    batches: Reader[Any]
    kind: Kind
    places: Any
    beside: bool  # the seeds' door: each of several places gets a batch of its own
    pmap: Any = None
    rows: int | None = None
    resident: bool = False

    def placement(self) -> Placement:
        """Resolved on the thread that iterates: jax's modes are the thread's."""
        if self.beside:
            return places_placement(self.places)
        return sharding_placement(self.places, self.pmap)


def hosted(source: Source, grouping: Grouping, epoch: int, at: Position) -> Pass[Any]:
    """Host feeds of an epoch, each with the number of its first sample.

    The position is (rows of a full batch, how many samples were fed, position of the source).
    """
    rows, fed, inner = at or (grouping.rows, 0, None)
    if source.rows not in (None, rows):
        raise NotResumable(
            f"this cursor is of batches of {rows} samples, and this loader has batches of "
            f"{source.rows}: resume with the batch size of the run that wrote it"
        )
    grouping.rows = rows
    # arrays are copied as they come: their generator may fill them anew, while they wait here, or
    # while a device reads them
    batches = map_readers(_copied, source.batches) if source.kind == "arrays" else source.batches
    up = start(at_epoch(batch(batches, grouping.batches), epoch), inner)

    def deal() -> Generator[Any, None, None]:
        nonlocal fed
        given = dropped = False
        for group in up.items:
            feed = grouping.feed(group)
            dropped = dropped or feed is None
            if feed is not None:
                given = True
                fed += len(group) * (grouping.rows or 1)
                yield feed, fed - len(group) * (grouping.rows or 1)
        if not given and at is None and (dropped or _short(source.batches)):
            warnings.warn(
                "this epoch is empty: its only batches were short, and were dropped. Use a smaller "
                "batch size or fewer places, or drop_last=False.",
                stacklevel=2,
            )

    return Pass(deal(), lambda: (grouping.rows, fed, up.position()), up.close)


def _short(reader: Reader[Any]) -> bool:
    """Whether the only batch of a reader is a short one, which it leaves out itself."""
    reader = origin(reader, "all")
    while isinstance(reader, fetched):
        reader = origin(reader.reader, "all")
    if not isinstance(reader, batch) or not reader.drop_last:
        return False
    samples = start(reader.reader)
    try:
        return any(True for _ in samples.items)
    finally:
        samples.close()


def _copied(arrays: Any) -> Any:
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arrays)


def rows_of(reader: Reader[Any]) -> int | None:
    """Samples of a full batch, where the reader was made by `batch`."""
    reader = origin(reader, "all", "some")
    return reader.batch_size if isinstance(reader, batch) else None


def batches_of(reader: Reader[Any]) -> tuple[int | None, bool | None]:
    """How many full batches there are, and whether a short one follows; None: not known."""
    whole, reader = reader, origin(reader, "all")
    if isinstance(reader, fetched):  # what a data set gives is a feed, also if it is short
        return length(reader), False
    while isinstance(reader, map_batches):
        reader = origin(reader.reader, "all")
    samples = length(reader.reader) if isinstance(reader, batch) else None
    if not isinstance(reader, batch) or samples is None:
        return length(whole), None
    return samples // reader.batch_size, samples % reader.batch_size > 0 and not reader.drop_last
