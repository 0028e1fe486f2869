"""From batches to one host feed of the loader's shape: side by side, split, padded or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.devices import Placement
from jreader.errors import FeedMismatch
from jreader.feeds import Feeds, padded
from jreader.readers import leaves, map_tree

Kind: TypeAlias = Literal["samples", "sample lists", "arrays"]


@dataclass
class Grouping:
    """What turns a group of batches into one host feed.

    Attributes:
        feeds: Names, shapes and dtypes.
        kind: What the reader yields: samples (batched by the loader), lists of them, or arrays.
        placement: Where feeds go.
        beside: Whether each part of the placement gets a batch of its own (the seeds' places);
            otherwise one batch is split over the parts.
        drop_last: Whether short groups are left out, not padded.
        rows: Samples of a full batch; None until the first one tells.
        return_list: Whether feeds are lists in the order of the feed_list, not dicts.
    """

    feeds: Feeds
    kind: Kind
    placement: Placement
    beside: bool
    drop_last: bool
    rows: int | None = None
    return_list: bool = False

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a group; None where it is short and short ones are dropped."""
        batches = [self._named(batch) for batch in group]
        counts = [len(leaves(batch)[0]) for batch in batches]
        if self.rows is None:
            self.rows = counts[0]
            if not self.beside:
                self.placement.check(self.rows)
        parts = (self.placement.parts or 1) if self.beside else 1
        if max(counts) > self.rows:
            raise FeedMismatch(
                f"a batch of {max(counts)} samples came after batches of {self.rows}: all batches "
                f"of a loader need one size, but for a short last one. Use jreader.batch, or "
                f"set_sample_generator, which batches by itself."
            )
        short = len(counts) < parts or min(counts) < self.rows
        if short and self.drop_last:
            return None
        if self.drop_last:
            return self._finished(self._laid_out(batches))
        full = [padded(batch, self.rows) for batch in batches]
        nothing = map_tree(np.zeros_like, full[0][0]), np.zeros(self.rows, bool)
        full += [nothing] * (parts - len(full))
        mask = self._laid_out([mask for _, mask in full])
        return self._finished(self._laid_out([feed for feed, _ in full]), mask)

    def _named(self, batch: Any) -> Any:
        if self.kind == "arrays":
            return self.feeds.from_arrays(batch)
        return self.feeds.from_samples(batch, lists=self.kind == "samples")

    def _laid_out(self, batches: list[Any]) -> Any:
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
