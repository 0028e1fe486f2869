"""From batches to host feeds: stacked side by side, split, padded or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import Any, Literal, TypeAlias

import numpy as np
from jax.sharding import NamedSharding

from jreader.batches import batch
from jreader.devices import Placement, Share
from jreader.errors import FeedMismatch, ShortEpoch
from jreader.feeds import Feeds, padded, with_mask
from jreader.loaders.collated import arrays_of, check_rows, refilled
from jreader.loaders.device_programs.stages import Layout
from jreader.loaders.remainders import Remainder
from jreader.readers import Columns, first_column, leaves, map_tree
from jreader.readers.trees import Rows

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
        named = self.kind in ("samples", "sample lists") and not self.return_list
        whole = not (self.masked or self.share or self.buckets)
        return self.alone and self.per_feed == 1 and named and whole

    @cached_property
    def alone(self) -> bool:
        """Whether the arrays of a batch are a feed as they are, not side by side, nor split."""
        return self.placement.parts is None and self.chunk is None

    @cached_property
    def needs_own_rows(self) -> bool:
        """Whether batches of which this process has no row make no feed."""
        return self.lanes and self.share is not None and not self.masked

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
        rows = len(first_column(feed)) if self.shares else 0
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

    def fed(self, samples: int, op: batch[Any]) -> int:
        """How many of the samples of an epoch, which `op` batches, make feeds."""
        if op.drop_last:
            samples -= samples % op.batch_size
        rest = samples % (op.batch_size * self.per_feed)
        return samples - rest if rest and not self.gives(rest) else samples

    def named(self, batch: Any) -> tuple[Columns[Any], Any, int, int]:
        """A batch as a part of a feed.

        Returns:
            What is known of it; its named arrays, or those of this process's rows of it; and how
            many rows and samples it has, on all processes.
        """
        facts = batch if type(batch) is Columns else _PLAIN
        if self.kind == "arrays":
            arrays = self.feeds.from_arrays(batch)
        elif self.kind == "collated":
            arrays = self._collated(facts.columns)
        else:
            lists = self.kind == "samples"
            samples = facts.columns if facts is batch and not facts.stacked else batch
            arrays = self.feeds.from_samples(samples, lists=lists)
        rows = facts.rows
        if rows is None:
            rows = _rows(arrays, facts)
        elif facts.stands_in:
            arrays = map_tree(lambda column: column[:0], arrays)
        return facts, arrays, rows, rows if facts.made_of is None else facts.made_of

    def _collated(self, feed: Any) -> list[Any]:
        self.feeds.check_none(feed)
        arrays = arrays_of(feed, self.placement.canonical)
        if self.remainder.last != "keep":
            check_rows(arrays)
        return arrays

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

    def finished(
        self, group: list[Columns[Any]], batches: list[Any], masks: Sequence[Any] = ()
    ) -> Any:
        """The feed of the named arrays of a group of batches, and of a mask for each.

        It is a dict, a list or a tree.
        """
        feed = batches[0] if self.alone else self.laid_out(batches)
        if self.kind == "collated":
            beside = None if self.alone else self.per_feed
            feed = refilled([batch.columns for batch in group], iter(feed), beside)
        if self.return_list and isinstance(feed, dict):
            feed = list(feed.values())
        return with_mask(feed, self.laid_out([*masks])) if masks else feed

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
    """

    def __init__(self, shape: FeedShape, rows: int | None = None) -> None:
        """Begins an epoch, or goes on in one whose full batches have `rows` rows."""
        self.shape = shape
        self.rows = shape.rows if rows is None else rows
        self.fed, self.spread = 0, 1
        self._ended = False  # whether a short batch has come that has to be the last
        self._usual: list[int] | None = None  # the rows of a whole feed: another needs no look
        self._plain: int | None = None  # those of its batch, if its arrays are the feed
        self._named = partial(shape.feeds.from_samples, lists=shape.kind == "samples")

    def feed(self, group: Any) -> Any | None:
        """The host feed of a batch, or of a list of them if it takes several; None: it is left out.

        Raises:
            FeedMismatch: The batches differ in size, and steps have one size.
            ShortEpoch: They are too few, and the loader has `last="error"` or `steps_per_epoch`.
        """
        alike = type(group) is Columns and group.made_of is None
        if alike and len(group.arrays[0]) == self._plain:
            return self._named(group)
        shape = self.shape
        batches = group if shape.per_feed > 1 else [group]
        if shape.needs_own_rows and any(batch.stands_in for batch in batches):
            return self._left_out(0, shape.size or 0)
        facts, arrays, rows, samples = map(list, zip(*map(shape.named, batches), strict=True))
        if self._usual == rows == samples:
            return shape.finished(facts, arrays)
        return self._of_other_size(facts, arrays, rows, samples)

    def _of_other_size(
        self, facts: list[Columns[Any]], arrays: list[Any], rows: list[int], samples: list[int]
    ) -> Any | None:
        """The feed of batches that do not have the sizes of those before them."""
        shape, self._usual, self._plain = self.shape, None, None
        self.fed = sum(samples)
        self.spread = 1 if rows == samples else max(-(-sum(rows) // max(self.fed, 1)), 1)
        whole, full_rows, needed = self._compared(facts[0], rows, samples)
        if shape.masked:
            if shape.lanes:  # a sample has the number of its row, whatever rows are empty
                self.fed = (shape.size or 0) * len(arrays)
            return self._padded(facts, arrays, full_rows)
        if not whole:
            return self._left_out(self.fed, needed * shape.per_feed)
        if rows == samples and not shape.buckets:
            self._usual, self._plain = rows, rows[0] if shape.plain else None
        return shape.finished(facts, arrays)

    def _compared(
        self, first: Columns[Any], rows: list[int], samples: list[int]
    ) -> tuple[bool, int, int]:
        """Whether batches make a feed as they are; the rows, and samples, of a full one of them."""
        shape = self.shape
        if not shape.buckets:
            whole = self._is_whole(samples, rows)
            return whole, self.rows or 0, shape.size or self.rows or max(rows)
        full = samples[0] if first.full is None else first.full  # each bucket has another size
        whole = samples[0] == full or shape.remainder.last == "keep"
        return whole, -(-rows[0] * full // max(samples[0], 1)), full

    def _left_out(self, seen: int, needed: int) -> Any | None:
        """None, for batches that make no feed; or the error that it is."""
        if self.shape.strict:
            raise self.shape.short(seen, needed)
        return None

    def _is_whole(self, samples: list[int], rows: list[int]) -> bool:
        """Whether batches make a feed as they are; checks their sizes where steps have one."""
        shape = self.shape
        if shape.remainder.last == "keep":
            return True
        if shape.remainder.any_size and not shape.masked:
            equal = len(rows) == shape.per_feed and len(set(rows)) == 1
            return equal and shape.takes(rows[0])
        self._fix(samples, rows)
        full = shape.size is None or samples == [shape.size] * shape.per_feed
        whole = full and rows == [self.rows] * shape.per_feed and not self._ended
        if not whole and not shape.remainder.any_size:
            self._check(samples, rows)
        return whole

    def _fix(self, samples: list[int], rows: list[int]) -> None:
        """Sets the rows of a full batch by the first batch, or by a larger one where sizes vary."""
        shape, any_size = self.shape, self.shape.remainder.any_size
        if self.rows is None:
            few, made = samples[0], rows[0]
            self.rows = -(-made * shape.size // few) if shape.size and few else made
            if not shape.batch_per_place and not any_size:
                shape.placement.check(self.rows)
            rows = [*rows, self.rows]
        if any_size and (max(rows) > self.rows or not shape.takes(self.rows)):
            self.rows = next(filter(shape.takes, count(max(rows))))

    def _check(self, samples: list[int], rows: list[int]) -> None:
        """Checks that batches have one size, except for a short one at the end of a reader.

        Raises:
            FeedMismatch: One has another size.
        """
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

    def _padded(self, facts: list[Columns[Any]], batches: list[Any], rows: int) -> Any:
        held = self.shape.held(rows)
        full = [
            padded(arrays, held, batch.valid) for arrays, batch in zip(batches, facts, strict=True)
        ]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(held, bool)
        full += [nothing] * (self.shape.per_feed - len(full))
        arrays, masks = zip(*full, strict=True)
        return self.shape.finished(facts, [*arrays], masks)


_PLAIN: Columns[Any] = Columns(Rows())
"""What is known of a batch that is a list, or arrays: nothing."""


def _rows(arrays: Any, facts: Columns[Any]) -> int:
    """How many rows a batch has that is here as a whole."""
    for leaf in leaves(arrays):
        if leaf is not None and leaf.ndim:
            return len(leaf)
    return facts.made_of or 0
