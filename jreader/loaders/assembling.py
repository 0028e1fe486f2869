"""From batches to host feeds of the loader's shape: side by side, split, padded or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, TypeAlias

import numpy as np
from jax.sharding import NamedSharding

from jreader.devices import Placement, Share
from jreader.errors import FeedMismatch, ShortEpoch
from jreader.feeds import Feeds, padded, with_mask
from jreader.loaders.multihost.shards import Part
from jreader.loaders.on_device import Layout
from jreader.loaders.remainders import Ends
from jreader.readers import leaves, map_tree

_ONE_SIZE = (
    "steps have one size. Make the batches with .batch(n); or give them as they are, of any size, "
    "to DataLoader.from_generator().set_batch_generator(reader)."
)

Kind: TypeAlias = Literal["samples", "sample lists", "arrays", "collated"]


@dataclass
class Grouping:
    """What turns a group of batches into one host feed.

    Attributes:
        feeds: Names, shapes and dtypes.
        kind: What the reader yields: samples (batched by the loader), lists of them, arrays, or
            what is a feed already (`loaders/map_style.py`).
        placement: Where feeds go.
        beside: Whether each part of the placement gets a batch of its own (the seeds' places);
            otherwise one batch is split over the parts.
        ends: What becomes of short groups, and how many feeds there are.
        size: The samples of a full batch, where `batch` says it.
        rows: Its rows: as many, but where functions of whole batches give more, or fewer; None
            until the first batch tells.
        return_list: Whether feeds are lists in the order of the feed_list, not dicts.
        chunk: How many steps make one feed; None for feeds without an axis of steps.
        strict: Whether a short group is an error.
        share: The rows of each batch that this process feeds, if it reads no others.
        fed: How many samples the last group had, on all processes, without padding.
        spread: How many rows functions of whole batches make of a sample, rounded up.
        ended: Whether a short batch has come that has to be the last of its epoch.
        usual: The rows of the batches of a whole feed; another one like it needs no other look.
    """

    feeds: Feeds
    kind: Kind
    placement: Placement
    beside: bool
    ends: Ends
    size: int | None = None
    rows: int | None = None
    return_list: bool = False
    chunk: int | None = None
    strict: bool = False
    share: Share | None = None
    fed: int = 0
    spread: int = 1
    ended: bool = False
    usual: list[int] | None = None

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
        """The host feed of a group; None where it is left out."""
        batches = list(map(self._own, group))
        rows = [
            batch.total if isinstance(batch, Part) else len(leaves(named)[0])
            for batch, named in zip(group, batches, strict=True)
        ]
        samples = [
            there if (made_of := getattr(batch, "made_of", None)) is None else made_of
            for batch, there in zip(group, rows, strict=True)
        ]
        return self.fed_by(batches, samples, rows)

    def fed_by(self, batches: list[Any], samples: list[int], rows: list[int]) -> Any | None:
        """The host feed of named arrays; None where they are left out.

        Args:
            batches: The arrays of each batch: those of this process.
            samples: How many samples each was made of, on all processes.
            rows: How many rows each has, likewise.

        Raises:
            FeedMismatch: The batches differ in size where they may not.
            ShortEpoch: They are short, and that is an error.
        """
        if self.usual == rows == samples:
            return self._finished(self._laid_out(batches))
        self.usual = None
        self._count(samples, rows)
        if self.ends.varies and not self.masked:
            whole = self._equal(rows)
        else:
            self._fix(samples, rows)
            full = self.size is None or samples == [self.size] * self.batches
            whole = full and rows == [self.rows] * self.batches and not self.ended
            if not whole:
                self._check(samples, rows)
        if whole and not self.masked:
            self.usual = rows if rows == samples else None
            return self._finished(self._laid_out(batches))
        if not whole and self.strict:
            raise self.short(self.fed, (self.size or self.rows or max(rows)) * self.batches)
        return self._padded(batches) if self.masked else None

    def gives(self, samples: int) -> bool:
        """Whether there is a feed of the last samples of an epoch, which are fewer than others."""
        alone = self.ends.varies and self.batches == 1 and self.takes(samples)
        return self.masked or self.ends.last == "keep" or alone

    def _count(self, samples: list[int], rows: list[int]) -> None:
        self.fed = sum(samples)
        self.spread = 1 if rows == samples else max(-(-sum(rows) // max(self.fed, 1)), 1)

    def _equal(self, rows: list[int]) -> bool:
        """Whether each part of a feed gets as many rows, however many."""
        if len(rows) < self.batches or len(set(rows)) > 1:
            return False
        return self.takes(rows[0])

    def takes(self, rows: int) -> bool:
        """Whether every device gets as many of these rows."""
        if self.share is not None:
            return rows == self.share.size
        return self.beside or self.placement.divides(rows)

    def _fix(self, samples: list[int], rows: list[int]) -> None:
        """Fixes the rows of a full batch when the first batch tells, or a larger one may come."""
        if self.rows is None:
            few, made = samples[0], rows[0]
            self.rows = -(-made * self.size // few) if self.size and few else made
            if not self.beside and not self.ends.varies:
                self.placement.check(self.rows)
            rows = [*rows, self.rows]
        if self.ends.varies and (max(rows) > self.rows or not self.takes(self.rows)):
            self.rows = next(filter(self.takes, count(max(rows))))

    def _check(self, samples: list[int], rows: list[int]) -> None:
        """Refuses batches of other sizes, but for a short one where a reader ends."""
        if self.ends.varies:
            return
        full = self.rows or 0
        if max(rows) > full:
            raise FeedMismatch(
                f"a batch of {max(rows)} samples came after batches of {full}: {_ONE_SIZE}"
            )
        if self.size is not None:
            odd = [made for few, made in zip(samples, rows, strict=True) if few == self.size]
            if odd and min(odd) < full and not self.masked:
                raise FeedMismatch(
                    f"a function of whole batches made {min(odd)} rows of {self.size} samples, and "
                    f"{full} before: {_ONE_SIZE}"
                )
            return
        if self.ended or min(rows[:-1], default=full) < full:
            raise FeedMismatch(
                f"a batch came after one that has fewer samples than {full}, as only the last of "
                f"an epoch may: {_ONE_SIZE}"
            )
        self.ended = rows[-1] < full

    def _padded(self, batches: list[Any]) -> Any:
        held = (self.rows or 0) if self.share is None else len(self.share)
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
        return feed if mask is None else with_mask(feed, mask)
