"""From batches to host feeds: stack them side by side, split, pad or drop them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.feeds import Feeds, padded, with_mask
from jreader.feeds.collations import arrays_of, check_rows, refilled
from jreader.loaders.loading import Loading
from jreader.readers import Columns, leaves, map_tree
from jreader.readers.trees import Rows

_ONE_SIZE = (
    "steps have one size. Make the batches with .batch(n); or give them as they are, of any size, "
    "to DataLoader.from_generator().set_batch_generator(reader)."
)


class Assembler:
    """Makes the host feeds of one epoch from groups of batches.

    Attributes:
        rows: The rows of a full batch; None before the first batch.
        fed: The number of samples in the last group, on all processes, without padding.
        spread: The number of rows that a function of whole batches makes per sample, rounded up.
    """

    def __init__(self, loading: Loading, rows: int | None = None) -> None:
        """Begin an epoch, or resume one whose full batches have `rows` rows."""
        source, remainder, parts = loading.source, loading.remainder, loading.placement.parts
        self.loading, self.last, self._any_size = loading, remainder.last, remainder.any_size
        self.rows = source.rows if rows is None else rows
        self.fed, self.spread = 0, 1
        self._kind, self._size, self._per_feed = source.kind, source.batching.size, loading.per_feed
        self._parts, self._chunk = parts, loading.options.chunk
        self._alone = loading.axes == 1  # the arrays of a batch are those of its feed
        self._per_place = source.batch_per_place and parts is not None
        self._lanes, self._vary = source.batching.lanes > 0, bool(source.batching.sizes)
        own = self._lanes and loading.share is not None
        self._needs_own_rows = own and not loading.pads  # else one without makes no feed
        self._ended = False  # whether a short batch has come, which must be the last
        self._whole_sizes: list[int] | None = None  # batches of these sizes make a feed, unchecked
        self._plain_rows: int | None = None  # a batch of this many rows is a feed as it is
        feeds = loading.feeds
        self._named: Callable[[Any], Any] = partial(
            feeds.from_samples, lists=self._kind == "samples"
        )
        if self._kind == "arrays":
            self._named = feeds.from_arrays
        elif loading.options.workers is not None:
            self._named = partial(_received, feeds)

    def feed(self, group: Any) -> Any | None:
        """Make the host feed of a batch, or of a list of batches; None if it is dropped.

        Raises:
            FeedMismatch: The batches differ in size, and steps have one size.
            ShortEpoch: They are too few, and the loader has `last="error"` or `steps_per_epoch`.
        """
        rows = -1  # equals no number of rows
        if self._kind == "arrays":
            rows = _rows_of_first(group)
        elif type(group) is Columns and group.made_of is None:
            rows = len(group.arrays[0])
        elif type(group) is list:
            rows = len(group)
        if rows == self._plain_rows:
            return self._named(group)
        batches = group if self._per_feed > 1 else [group]
        if self._lacks_rows(batches):
            return self._left_out(0, self._size or 0)
        facts, arrays, sizes, samples = map(list, zip(*map(self._part, batches), strict=True))
        if self._whole_sizes == sizes == samples:
            return self._finished(facts, arrays)
        return self._feed_of_new_size(facts, arrays, sizes, samples)

    def _lacks_rows(self, batches: list[Columns[Any]]) -> bool:
        return self._needs_own_rows and any(batch.is_placeholder for batch in batches)

    def _part(self, batch: Any) -> tuple[Columns[Any], Any, int, int]:
        """Return a batch as a part of a feed.

        Returns:
            Its facts; its named arrays, or those of this process's rows; and the numbers of its
            rows and samples, on all processes.
        """
        facts = batch if type(batch) is Columns else _PLAIN
        if self._kind == "collated":
            arrays = self._collated(facts.columns)
        elif self._kind == "arrays":
            arrays = self._named(batch)
        else:
            samples = facts.columns if facts is batch and not facts.stacked else batch
            arrays = self._named(samples)
        rows = facts.rows
        if rows is None:
            rows = _rows(arrays, facts)
        elif facts.is_placeholder:
            arrays = map_tree(lambda column: column[:0], arrays)
        return facts, arrays, rows, rows if facts.made_of is None else facts.made_of

    def _collated(self, feed: Any) -> list[Any]:
        self.loading.feeds.check_none(feed)
        arrays = arrays_of(feed, self.loading.placement.canonical)
        if self.last != "keep":
            check_rows(arrays)
        return arrays

    def _feed_of_new_size(
        self, facts: list[Columns[Any]], arrays: list[Any], rows: list[int], samples: list[int]
    ) -> Any | None:
        """Return the feed of batches whose sizes differ from those before them."""
        loading, self._whole_sizes, self._plain_rows = self.loading, None, None
        self.fed = sum(samples)
        self.spread = 1 if rows == samples else max(-(-sum(rows) // max(self.fed, 1)), 1)
        whole, full_rows, needed = self._compared(facts[0], rows, samples)
        if loading.pads:
            if self._lanes:  # a sample has the number of its row, even if other rows are empty
                self.fed = (self._size or 0) * len(arrays)
            return self._padded(facts, arrays, full_rows)
        if not whole:
            return self._left_out(self.fed, needed * self._per_feed)
        if loading.masked:
            return self._padded(facts, arrays, rows[0])
        if rows == samples and not self._vary:
            self._whole_sizes, self._plain_rows = rows, rows[0] if loading.plain else None
        return self._finished(facts, arrays)

    def _compared(
        self, first: Columns[Any], rows: list[int], samples: list[int]
    ) -> tuple[bool, int, int]:
        """Return whether batches make a feed as they are; rows and samples of a full one."""
        if not self._vary:
            whole = self._is_whole(samples, rows)
            return whole, self.rows or 0, self._size or self.rows or max(rows)
        full = samples[0] if first.full is None else first.full  # each may have another size
        whole = samples[0] == full or self.last == "keep"
        return whole, -(-rows[0] * full // max(samples[0], 1)), full

    def _left_out(self, seen: int, needed: int) -> Any | None:
        """Return None for batches that make no feed, or raise if that is an error."""
        if self.loading.strict:
            raise self.loading.short(seen, needed)
        return None

    def _is_whole(self, samples: list[int], rows: list[int]) -> bool:
        """Return whether batches make a feed as they are; check their sizes if steps have one."""
        if self.last == "keep":
            return True
        if self._any_size and not self.loading.pads:
            equal = rows == rows[:1] * self._per_feed
            return equal and self.loading.takes(rows[0])
        self._fix(samples, rows)
        full, many = not self._ended and rows == [self.rows] * self._per_feed, self._per_feed
        whole = full and (self._size is None or samples == [self._size] * many)
        if not (whole or self._any_size):
            self._check(samples, rows)
        return whole

    def _fix(self, samples: list[int], rows: list[int]) -> None:
        """Set the rows of a full batch by the first batch, or by a larger one if sizes vary."""
        if self.rows is None:
            few, made = samples[0], rows[0]
            self.rows = -(-made * self._size // few) if self._size and few else made
            if not (self._per_place or self._any_size):
                self.loading.placement.check(self.rows)
            rows = [*rows, self.rows]
        if self._any_size and (max(rows) > self.rows or not self.loading.takes(self.rows)):
            self.rows = next(filter(self.loading.takes, count(max(rows))))

    def _check(self, samples: list[int], rows: list[int]) -> None:
        """Check that batches have one size, except for a short one at the end of a reader.

        Raises:
            FeedMismatch: One has another size.
        """
        full, size = self.rows or 0, self._size
        if max(rows) > full:
            raise FeedMismatch(
                f"a batch of {max(rows)} samples came after batches of {full}: {_ONE_SIZE}"
            )
        if size is not None:
            made = [each for few, each in zip(samples, rows, strict=True) if few == size]
            self._check_made(full, made)
            return
        if self._ended or min(rows[:-1], default=full) < full:
            raise FeedMismatch(
                f"a batch came after one that has fewer samples than {full}, as only the last of "
                f"an epoch may: {_ONE_SIZE}"
            )
        self._ended = rows[-1] < full

    def _check_made(self, full: int, rows: list[int]) -> None:
        """Check how many rows a function of whole batches made from full ones."""
        if min(rows, default=full) < full and not self.loading.pads:
            raise FeedMismatch(
                f"a function of whole batches made {min(rows)} rows of {self._size} samples, and "
                f"{full} before: {_ONE_SIZE}"
            )

    def _padded(self, facts: list[Columns[Any]], batches: list[Any], rows: int) -> Any:
        held = rows if self.loading.share is None else len(self.loading.share)
        for share in self.loading.shares:
            held = len(share) if share.size == rows else held
        full = [
            padded(arrays, held, batch.valid) for arrays, batch in zip(batches, facts, strict=True)
        ]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(held, bool)
        full += [nothing] * (self._per_feed - len(full))
        arrays, masks = zip(*full, strict=True)
        return self._finished(facts, [*arrays], masks)

    def _finished(
        self, group: list[Columns[Any]], batches: list[Any], masks: Sequence[Any] = ()
    ) -> Any:
        """Return the feed of the named arrays of a group of batches, with a mask for each.

        It is a dict, a list or a tree.
        """
        feed = batches[0] if self._alone else self._laid_out(batches)
        if self._kind == "collated":
            trees = [group[0].columns] if self._alone else [each.columns for each in group]
            feed = refilled(trees, feed, None if self._alone else self._per_feed)
        if self.loading.options.return_list and isinstance(feed, dict):
            feed = list(feed.values())
        return with_mask(feed, self._laid_out([*masks])) if masks else feed

    def _laid_out(self, batches: list[Any]) -> Any:
        """Stack or split the arrays of batches into those of a feed."""
        if self._chunk is None:
            return self._step(batches)
        each = len(batches) // self._chunk
        steps = [self._step(batches[at : at + each]) for at in range(0, len(batches), each)]
        behind = 0 if self._parts is None else 1
        return map_tree(lambda *columns: np.stack(columns, axis=behind), *steps)

    def _step(self, batches: list[Any]) -> Any:
        parts = self._parts
        if parts is None:
            return batches[0]
        if self._per_place:
            return map_tree(lambda *columns: np.stack(columns), *batches)
        return map_tree(lambda column: column.reshape(parts, -1, *column.shape[1:]), batches[0])


def _received(feeds: Feeds, batch: Any) -> Any:
    """Return the named arrays of a batch from a worker, which has named them if it could."""
    if not (type(batch) is Columns and batch.named):
        return feeds.from_samples(batch)
    feeds.check_none(batch.columns)
    return batch.columns


_PLAIN: Columns[Any] = Columns(Rows())
"""The facts of a batch that is a list, or arrays: none."""


def _rows_of_first(batch: Any) -> int:
    """Return the rows of the first array in a tuple or dict; -1 if it is not an array."""
    arrays = batch.values() if type(batch) is dict else batch if type(batch) is tuple else ()
    first = next(iter(arrays), None)
    return len(first) if type(first) is np.ndarray and first.ndim else -1


def _rows(arrays: Any, facts: Columns[Any]) -> int:
    """Return the rows of a batch that is wholly on this process."""
    for leaf in leaves(arrays):
        if leaf is not None and leaf.ndim:
            return len(leaf)
    return facts.made_of or 0
