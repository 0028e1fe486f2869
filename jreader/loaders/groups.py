"""From batches to host feeds of the loader's shape: side by side, split, padded or dropped."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import Any, Literal, TypeAlias

import numpy as np
from jax.sharding import NamedSharding

from jreader.batches import as_batch, batch, map_batches, sized
from jreader.devices import Placement, Share, places_placement, sharding_placement
from jreader.errors import FeedMismatch, NotResumable, ShortEpoch
from jreader.feeds import Feeds, padded
from jreader.loaders.cursors import Trail
from jreader.loaders.ends import Ends
from jreader.loaders.hosts import Part, dealt_to
from jreader.loaders.passes import SKIPPED, Here
from jreader.loaders.stages import Layout
from jreader.readers import (
    Cursor,
    Pass,
    Position,
    Reader,
    at_epoch,
    described,
    leaves,
    length,
    map_tree,
    origin,
    start,
)
from jreader.readers.nodes import waits
from jreader.readers.openings import in_epoch
from jreader.transforms import exactly, map_readers
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
        ends: What becomes of short groups, and how many feeds there are.
        rows: Samples of a full batch; None until the first one tells.
        return_list: Whether feeds are lists in the order of the feed_list, not dicts.
        chunk: How many steps make one feed; None for feeds without an axis of steps.
        strict: Whether a short group is an error.
        share: The rows of each batch that this process feeds, if it reads no others.
        fed: How many samples the last feed had, on all processes, without padding.
    """

    feeds: Feeds
    kind: Kind
    placement: Placement
    beside: bool
    ends: Ends
    rows: int | None = None
    return_list: bool = False
    chunk: int | None = None
    strict: bool = False
    share: Share | None = None
    fed: int = 0

    @property
    def batches(self) -> int:
        """How many batches make a feed."""
        return ((self.placement.parts or 1) if self.beside else 1) * (self.chunk or 1)

    @property
    def axes(self) -> int:
        """How many leading axes of a feed count samples."""
        return 1 + (self.placement.parts is not None) + (self.chunk is not None)

    @property
    def layout(self) -> Layout:
        """What feeds look like once they are placed."""
        steps = None if self.chunk is None else int(self.placement.parts is not None)
        target = self.placed.target
        return Layout(self.axes, steps, target if isinstance(target, NamedSharding) else None)

    @property
    def placed(self) -> Placement:
        """Where feeds go, their mask and their axis of steps included."""
        placement = replace(self.placement, share=self.share)
        placement = placement.with_mask() if self.masked else placement
        return placement.chunked() if self.chunk else placement

    @property
    def masked(self) -> bool:
        """Whether every feed carries a mask."""
        return self.ends.last == "pad"

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a group; None where it is short and short ones are dropped."""
        batches = list(map(self._own, group))
        counts = self.counts(group, batches)
        if self.rows is None:
            self.rows = counts[0]
            if not self.beside:
                self.placement.check(self.rows)
        self.fed = sum(counts)
        if max(counts) > self.rows:
            raise FeedMismatch(
                f"a batch of {max(counts)} samples came after batches of {self.rows}: all batches "
                f"of a loader need one size, but for a short last one. Use jreader.batch, or "
                f"set_sample_generator, which batches by itself."
            )
        short = len(counts) < self.batches or min(counts) < self.rows
        if short and self.strict:
            raise self.short(self.fed, self.rows * self.batches)
        if self.ends.last != "pad":
            return None if short else self._finished(self._laid_out(batches))
        held = self.rows if self.share is None else len(self.share)
        full = [padded(batch, held) for batch in batches]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(held, bool)
        full += [nothing] * (self.batches - len(full))
        mask = self._laid_out([mask for _, mask in full])
        return self._finished(self._laid_out([feed for feed, _ in full]), mask)

    def short(self, seen: int, needed: int) -> ShortEpoch:
        """The error of a step with fewer samples."""
        given = f"the last step of this epoch has {seen} samples, not {needed}"
        if self.ends.steps is not None:
            return ShortEpoch(
                f"{given}, and steps_per_epoch={self.ends.steps} counts whole ones: give fewer "
                f"steps, or last='pad', which fills it up with zeros, under a mask."
            )
        return ShortEpoch(
            f"{given}. With last='drop' they are left out, with 'pad' filled up with zeros, under "
            f"a mask, and with 'wrap' with the first ones of the epoch."
        )

    def _own(self, batch: Any) -> Any:
        """The named arrays of a batch, or of this process's rows of it."""
        if not isinstance(batch, Part):
            return self._named(batch)
        named = self._named(batch.samples)
        return map_tree(lambda column: column[:0], named) if batch.stands_in else named

    def counts(self, group: Sequence[Any], batches: Sequence[Any]) -> list[int]:
        """How many samples each batch of a group has, on all processes together."""
        return [
            part.total if isinstance(part, Part) else len(leaves(batch)[0])
            for part, batch in zip(group, batches, strict=True)
        ]

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


def hosted(source: Source, grouping: Grouping, cursor: Cursor) -> Pass[Any]:
    """Host feeds of what is left of an epoch, each with the number of its first sample.

    The position is what a cursor has of it; that of the source in it is (rows of a full batch, size
    that `batch` gave it, position of the batches).

    Raises:
        NotResumable: The cursor is not of this source.
    """
    inner = _resumed(source, grouping, cursor)
    # arrays are copied as they come: their generator may fill them anew, while they wait here, or
    # while a device reads them
    batches = map_readers(_copied, source.batches) if source.kind == "arrays" else source.batches
    if grouping.share:
        batches = dealt_to(batches, grouping.share) or batches
    plan = at_epoch(batch(batches, grouping.batches), cursor["epoch"])
    with in_epoch(cursor["epoch"]):
        up = _begun(plan, inner)
    drawn = up.position()[0] if waits(plan) else None
    trail, steps = Trail(cursor, drawn), left_out(cursor)
    size = _size(source)

    def deal() -> Generator[Any, None, None]:
        given = dropped = False
        for group in up.items:
            if dropped and inner is not None and size is None:
                raise NotResumable(_OTHER_SIZE.format(grouping.rows, source.batches))
            made = [grouping.feed(group)]
            if made[0] is None:
                dropped = True
                continue
            given = True
            first = trail.samples
            if next(steps):
                trail.leave_out(grouping.fed)
                yield SKIPPED
            else:
                trail.add(grouping.fed)
                del group  # and nothing here holds what is handed over: its memory is free sooner
                yield made.pop(), first
        if not given and cursor["position"] is None and (dropped or _short(source.batches)):
            warnings.warn(
                "this epoch is empty: its only batches were short, and were dropped. Use a smaller "
                "batch size or fewer places, or drop_last=False.",
                stacklevel=2,
            )

    def here() -> Here:
        return Here(trail.samples, (grouping.rows, size, up.position()), trail.digest)

    return Pass(deal(), here, up.close)


def foresee(source: Source, grouping: Grouping) -> None:
    """Refuses epochs that are known to end too soon, before the first step of one.

    Raises:
        ShortEpoch: They do.
    """
    op = sized(source.batches)
    if op and isinstance(op.reader, exactly):
        op.reader.check()
    samples = length(op.reader) if op and grouping.strict else None
    size = (op.batch_size if op else 1) * grouping.batches
    if samples is not None and samples % size:
        raise grouping.short(samples % size, size)


_OTHER_SIZE = (
    "this cursor is of batches of {} samples, and {!r} gives smaller ones. Its place is counted in "
    "batches: resume with the batch size of the run that wrote it, or batch with jreader.batch, "
    "whose places are samples."
)


def _resumed(source: Source, grouping: Grouping, cursor: Cursor) -> Position:
    """The position of the batches; the rows of a full batch are those of the cursor, or of now."""
    if cursor["position"] is None:
        return None
    try:
        rows, before, inner = cursor["position"]
    except (TypeError, ValueError):
        raise _foreign(cursor["position"]) from None
    size = _size(source)
    if (size is None) != (before is None):
        counted, here = ("batches", "samples") if before is None else ("samples", "batches")
        raise NotResumable(
            f"the place of this cursor is counted in {counted}, and in {here} here, by "
            f"{described(source.batches)}: resume with the pipeline that wrote it, whose batches "
            f"were made in another way."
        )
    if size is None:
        grouping.rows = rows
    elif rows and grouping.rows is None:
        grouping.rows = rows * size // before  # functions of batches may change their length
    return inner


def _foreign(position: Position) -> NotResumable:
    return NotResumable(
        f"the position of this cursor, {position!r}, is not one of this pipeline: it was changed, "
        f"or written by another one. Give an earlier cursor as it was written, or begin anew, "
        f"without at=."
    )


def _begun(plan: Reader[Any], at: Position) -> Pass[Any]:
    """A pass of the plan; what is no position of it is refused, whatever else it may be."""
    try:
        return start(plan, at)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        last = error.__traceback__
        while last and last.tb_next:
            last = last.tb_next
        here = last.tb_frame.f_globals.get("__name__", "") if last else ""
        if at is None or not here.startswith("jreader."):
            raise  # a reader of the user's
        raise _foreign(at) from error


def _size(source: Source) -> int | None:
    """The size that `batch` gives the batches, where they go on at any sample."""
    op = sized(source.batches)
    return op.batch_size if op else None


def left_out(cursor: Cursor) -> Iterator[bool]:
    """For step after step, whether it is left out."""
    spans, step = cursor["skipped"], cursor["step"]
    if not spans:
        return repeat(False)  # noqa: FBT003  # what is repeated
    return (any(low <= each < high for low, high in spans) for each in count(step))


def _short(reader: Reader[Any]) -> bool:
    """Whether the only batch of a reader is a short one, which it leaves out itself."""
    reader = origin(reader, "all")
    while isinstance(reader, fetched):
        reader = origin(reader.reader, "all")
    op = as_batch(reader)
    if op is None or not op.drop_last:
        return False
    samples = start(op.reader)
    try:
        return any(True for _ in samples.items)
    finally:
        samples.close()


def _copied(arrays: Any) -> Any:
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arrays)


def rows_of(reader: Reader[Any]) -> int | None:
    """Samples of a full batch, where the reader was made by `batch`."""
    op = as_batch(origin(reader, "all", "some"))
    return op.batch_size if op else None


def batches_of(reader: Reader[Any]) -> tuple[int | None, bool | None]:
    """How many full batches there are, and whether a short one follows; None: not known."""
    whole, reader = reader, origin(reader, "all")
    if isinstance(reader, fetched):  # what a data set gives is a feed, also if it is short
        return length(reader), False
    while isinstance(reader, map_batches):
        reader = origin(reader.reader, "all")
    op = as_batch(reader)
    samples = length(op.reader) if op else None
    if op is None or samples is None:
        return length(whole), None
    return samples // op.batch_size, samples % op.batch_size > 0 and not op.drop_last
