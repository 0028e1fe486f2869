"""From batches to host feeds: stacked side by side, split, padded or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal, TypeAlias

import numpy as np
from jax.sharding import NamedSharding

from jreader.batches import Gaps
from jreader.devices import Placement, Share
from jreader.errors import FeedMismatch, ShortEpoch
from jreader.feeds import Feeds, padded, with_mask
from jreader.loaders.multihost.shards import Part
from jreader.loaders.on_device import Layout
from jreader.loaders.remainders import Remainder
from jreader.readers import leaves, map_tree
from jreader.readers.planes import Array

_ONE_SIZE = (
    "steps have one size. Make the batches with .batch(n); or give them as they are, of any size, "
    "to DataLoader.from_generator().set_batch_generator(reader)."
)

Kind: TypeAlias = Literal["samples", "sample lists", "arrays", "collated"]


@dataclass(frozen=True, eq=False)
class FeedShape:
    """How batches become feeds, as far as that is known before the first batch.

    Attributes:
        feeds: Names, shapes and dtypes.
        kind: What the reader yields: samples (the loader batches them), lists of them, stacked
            arrays, or collated feeds (`loaders/map_style.py`).
        placement: The devices and shardings of feeds.
        batch_per_place: Whether each part of the placement gets a batch of its own; otherwise one
            batch is split over the parts.
        remainder: What to do with short groups of batches, and how many feeds an epoch has.
        per_feed: How many batches make a feed.
        size: The samples of a full batch; None unless `batch` makes the batches.
        rows: The rows of a full batch: `size`, unless a function of whole batches returns more, or
            fewer; None if unknown before the first batch.
        return_list: Whether feeds are lists in the order of the feed_list, not dicts.
        chunk: How many steps make one feed; None for feeds without an axis of steps.
        strict: Whether a short group is an error.
        share: The rows of each batch that this process feeds, if it reads no others.
        buckets: Whether each batch says itself how many samples a full one of its kind has.
        shares: The rows of the batches of each bucket that this process feeds, if it reads no
            others.
        lanes: Whether some rows of a batch may be empty, not only its last ones.
    """

    feeds: Feeds
    kind: Kind
    placement: Placement
    batch_per_place: bool
    remainder: Remainder
    per_feed: int = 1
    size: int | None = None
    rows: int | None = None
    return_list: bool = False
    chunk: int | None = None
    strict: bool = False
    share: Share | None = None
    buckets: bool = False
    shares: tuple[Share, ...] = ()
    lanes: bool = False

    @property
    def axes(self) -> int:
        """How many leading axes of a feed count samples."""
        return 1 + (self.placement.parts is not None) + (self.chunk is not None)

    @property
    def layout(self) -> Layout:
        """The axes and the sharding of a feed on the devices."""
        steps = None if self.chunk is None else int(self.placement.parts is not None)
        target = self.placed.target
        return Layout(self.axes, steps, target if isinstance(target, NamedSharding) else None)

    @cached_property
    def plain(self) -> bool:
        """Whether the named arrays of a full batch are a feed without further work."""
        alone = self.per_feed == 1 and self.placement.parts is None and self.chunk is None
        named = self.kind in ("samples", "sample lists") and not self.return_list
        return alone and named and not self.masked and self.share is None

    @cached_property
    def placed(self) -> Placement:
        """The placement of feeds with their mask and their axis of steps."""
        placement = replace(self.placement, share=self.share)
        placement = placement.with_mask() if self.masked else placement
        return placement.chunked() if self.chunk else placement

    @cached_property
    def masked(self) -> bool:
        """Whether every feed carries a mask."""
        return self.remainder.last == "pad"

    def held(self, rows: int) -> int:
        """How many of the rows of a full batch this process feeds."""
        share = self.share or next((each for each in self.shares if each.size == rows), None)
        return rows if share is None else len(share)

    def of(self, feed: Any) -> FeedShape:
        """The same for feeds of the rows of this one, where they come from buckets."""
        rows = len(leaves(feed)[0]) if self.shares else 0
        shares = [each for each in self.shares if len(each) == rows]
        return replace(self, share=shares[0], shares=()) if shares else self

    def takes(self, rows: int) -> bool:
        """Whether `rows` rows can be divided evenly over the devices."""
        if self.share is not None:
            return rows == self.share.size
        return self.batch_per_place or self.placement.divides(rows)

    def gives(self, samples: int) -> bool:
        """Whether a remainder of `samples` samples makes a feed."""
        alone = self.remainder.any_size and self.per_feed == 1 and self.takes(samples)
        return self.masked or self.remainder.last == "keep" or alone

    def named(self, batch: Any) -> Any:
        """The named arrays of a batch, or of this process's rows of it."""
        if not isinstance(batch, Part):
            return self._fields(batch)
        named = self._fields(batch.samples() if callable(batch.samples) else batch.samples)
        return map_tree(lambda column: column[:0], named) if batch.stands_in else named

    def _fields(self, batch: Any) -> Any:
        if self.kind == "arrays":
            return self.feeds.from_arrays(batch)
        return self.feeds.from_samples(batch, lists=self.kind == "samples")

    def laid_out(self, batches: list[Any]) -> Any:
        """The arrays of a feed, stacked or split from those of its batches."""
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
        if self.batch_per_place:
            return map_tree(lambda *columns: np.stack(columns), *batches)
        return map_tree(lambda column: column.reshape(parts, -1, *column.shape[1:]), batches[0])

    def finished(self, feed: Any, mask: Any = None) -> Any:
        """The feed as a dict, list or tree, with its mask."""
        if self.return_list and isinstance(feed, dict):
            feed = list(feed.values())
        return feed if mask is None else with_mask(feed, mask)

    def short(self, seen: int, needed: int) -> ShortEpoch:
        """The error of a step with fewer samples."""
        given = f"the last step of this epoch has {seen} samples, not {needed}"
        if self.remainder.steps is not None:
            return ShortEpoch(
                f"{given}, and steps_per_epoch={self.remainder.steps} counts whole ones: give "
                f"fewer steps, or last='pad', which fills it up with zeros, under a mask."
            )
        return ShortEpoch(
            f"{given}. With last='drop' they are left out, with 'pad' filled up with zeros, under "
            f"a mask, and with 'wrap' with the first ones of the epoch."
        )


class Assembler:
    """It makes the host feeds of one epoch out of groups of batches.

    Attributes:
        rows: The rows of a full batch; None before the first batch.
        fed: How many samples the last group had, on all processes, without padding.
        spread: How many rows a function of whole batches makes of a sample, rounded up.
        usual: The rows of a batch that makes a feed as `FeedShape.plain` has it, whatever comes
            before it; None until there was one.
    """

    def __init__(self, shape: FeedShape, rows: int | None = None) -> None:
        """Begins an epoch, or goes on in one whose full batches have `rows` rows."""
        self.shape = shape
        self.rows = shape.rows if rows is None else rows
        self.fed, self.spread = 0, 1
        self.usual: int | None = None
        self._ended = False  # whether a short batch has come that has to be the last
        self._usual: list[int] | None = None  # the rows of a whole feed: another needs no look

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a group of batches; None if it is left out."""
        if self.shape.lanes and not self.shape.masked and any(map(_is_empty, group)):
            if self.shape.strict:
                raise self.shape.short(0, self.shape.size or 0)
            return None
        batches = list(map(self.shape.named, group))
        rows = [
            batch.total if isinstance(batch, Part) else len(leaves(named)[0])
            for batch, named in zip(group, batches, strict=True)
        ]
        samples = [
            there if (made_of := getattr(batch, "made_of", None)) is None else made_of
            for batch, there in zip(group, rows, strict=True)
        ]
        return self.fed_by(batches, samples, rows, group)

    def fed_by(
        self,
        batches: list[Any],
        samples: list[int],
        rows: list[int],
        group: Sequence[Any] = (),
    ) -> Any | None:
        """The host feed of named arrays; None if they are left out.

        Args:
            batches: The arrays of each batch, as far as this process feeds them.
            samples: How many samples each batch was made of, on all processes.
            rows: How many rows each batch has, on all processes.
            group: The batches, of which some may have gaps.

        Raises:
            FeedMismatch: The batches differ in size, and steps have one size.
            ShortEpoch: They are too few, and the loader has `last="error"` or `steps_per_epoch`.
        """
        if self._usual == rows == samples:
            return self.shape.finished(self.shape.laid_out(batches))
        self._usual = self.usual = None
        self._count(samples, rows)
        if self.shape.remainder.any_size and not self.shape.masked:
            whole = self._equal(rows)
        else:
            self._fix(samples, rows)
            full = self.shape.size is None or samples == [self.shape.size] * self.shape.per_feed
            whole = full and rows == [self.rows] * self.shape.per_feed and not self._ended
            if not whole:
                self._check(samples, rows)
        if whole and not self.shape.masked:
            if rows == samples:
                self._usual, self.usual = rows, rows[0] if self.shape.plain else None
            return self.shape.finished(self.shape.laid_out(batches))
        if not whole and self.shape.strict:
            raise self.shape.short(
                self.fed, (self.shape.size or self.rows or max(rows)) * self.shape.per_feed
            )
        if not self.shape.masked:
            return None
        if self.shape.lanes:  # a sample has the number of its row, whatever rows are empty
            self.fed = (self.shape.size or 0) * len(batches)
        return self._padded(batches, self.rows or 0, list(map(_places, group)))

    def _count(self, samples: list[int], rows: list[int]) -> None:
        self.fed = sum(samples)
        self.spread = 1 if rows == samples else max(-(-sum(rows) // max(self.fed, 1)), 1)

    def _equal(self, rows: list[int]) -> bool:
        """Whether each part of a feed gets equally many rows, of any number."""
        if len(rows) < self.shape.per_feed or len(set(rows)) > 1:
            return False
        return self.shape.takes(rows[0])

    def _fix(self, samples: list[int], rows: list[int]) -> None:
        """Sets the rows of a full batch by the first batch, or by a larger one where sizes vary."""
        if self.rows is None:
            few, made = samples[0], rows[0]
            self.rows = -(-made * self.shape.size // few) if self.shape.size and few else made
            if not self.shape.batch_per_place and not self.shape.remainder.any_size:
                self.shape.placement.check(self.rows)
            rows = [*rows, self.rows]
        if self.shape.remainder.any_size and (
            max(rows) > self.rows or not self.shape.takes(self.rows)
        ):
            self.rows = next(filter(self.shape.takes, count(max(rows))))

    def _check(self, samples: list[int], rows: list[int]) -> None:
        """Checks that batches have one size, except for a short one at the end of a reader.

        Raises:
            FeedMismatch: One has another size.
        """
        if self.shape.remainder.any_size:
            return
        full = self.rows or 0
        if max(rows) > full:
            raise FeedMismatch(
                f"a batch of {max(rows)} samples came after batches of {full}: {_ONE_SIZE}"
            )
        if self.shape.size is not None:
            odd = [made for few, made in zip(samples, rows, strict=True) if few == self.shape.size]
            if odd and min(odd) < full and not self.shape.masked:
                raise FeedMismatch(
                    f"a function of whole batches made {min(odd)} rows of {self.shape.size} "
                    f"samples, and {full} before: {_ONE_SIZE}"
                )
            return
        if self._ended or min(rows[:-1], default=full) < full:
            raise FeedMismatch(
                f"a batch came after one that has fewer samples than {full}, as only the last of "
                f"an epoch may: {_ONE_SIZE}"
            )
        self._ended = rows[-1] < full

    def _padded(self, batches: list[Any], rows: int, places: Sequence[Array | None] = ()) -> Any:
        held = self.shape.held(rows)
        where = places or [None] * len(batches)
        full = [padded(batch, held, at) for batch, at in zip(batches, where, strict=True)]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(held, bool)
        full += [nothing] * (self.shape.per_feed - len(full))
        mask = self.shape.laid_out([mask for _, mask in full])
        return self.shape.finished(self.shape.laid_out([feed for feed, _ in full]), mask)


def _is_empty(batch: Any) -> bool:
    """Whether this process has no sample of a batch."""
    return isinstance(batch, Part) and batch.stands_in


def _places(batch: Any) -> Array | None:
    """Where the samples of a batch stand in it; None if they are the first ones."""
    samples = batch.samples if isinstance(batch, Part) else batch
    return samples.rows if isinstance(samples, Gaps) else None


class BucketAssembler(Assembler):
    """It makes each batch of a `bucket` a feed; how many rows a full one has, the batch knows."""

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a batch; None if it is short, and left out.

        Raises:
            ShortEpoch: It is short, and the loader has `last="error"`.
        """
        (batch,) = group
        named = self.shape.named(batch)
        part = isinstance(batch, Part)
        rows = batch.total if part else len(leaves(named)[0])
        whole = batch.samples if part else batch
        samples = rows if whole.made_of is None else whole.made_of
        full = samples if whole.full is None else whole.full
        self._count([samples], [rows])
        if self.shape.masked:
            return self._padded([named], -(-rows * full // max(samples, 1)))
        if samples == full or self.shape.remainder.last == "keep":
            return self.shape.finished(self.shape.laid_out([named]))
        if self.shape.strict:
            raise self.shape.short(samples, full)
        return None
