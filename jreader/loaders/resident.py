"""Loaders whose data are on the devices already: nothing but the number of a sample goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jreader.devices import Placement
from jreader.errors import NotResumable
from jreader.feeds import FeedList
from jreader.loaders.as_function import as_function
from jreader.loaders.assembling import Grouping
from jreader.loaders.cursors import Trail
from jreader.loaders.iterators import SKIPPED, Here
from jreader.loaders.on_device import Layout, Stages, words
from jreader.loaders.sources import Source, left_out, steps_done
from jreader.readers import Cursor, Pass, Position


class Resident:
    """The data of a loader on its devices, and what gathers feeds from them there."""

    def __init__(self, source: Source, feed_list: FeedList | None, grouping: Grouping) -> None:
        """Places the data."""
        self.placement, self.axes = grouping.placement, grouping.axes
        if self.placement.target == "host":
            raise ValueError(
                "load(resident=True) keeps data on devices: leave sharding='host' out."
            )
        self.data, self.batch_at = as_function(
            source.batches,
            feed_list,
            sharding=_everywhere(self.placement),
            last="pad" if grouping.masked else None,
        )
        self._jitted: dict[Stages, Callable[..., Any]] = {}

    def steps(self, cursor: Cursor) -> Pass[Any]:
        """The number of the first sample of each feed; the position is that of a streaming one."""
        if cursor["epoch"] >> 32:
            raise ValueError(
                f"load(resident=True) counts epochs in 32 bits, and {cursor['epoch']} has more: "
                f"leave resident=True out, or begin at an epoch below 2**32."
            )
        size, end = self.batch_at.batch_size, self.batch_at.samples
        done, made = self._done(cursor["position"]), steps_done(cursor)
        trail, steps = Trail(cursor, None), left_out(cursor)
        least = 1 if self.batch_at.masked else size

        def deal() -> Iterator[Any]:
            nonlocal done, made
            while done + least <= end:
                first, many = done, min(size, end - done)
                done, made = done + many, made + 1
                if next(steps):
                    trail.leave_out(many)
                    yield SKIPPED
                else:
                    trail.add(many)
                    yield None, first

        def here() -> Here:
            return Here(trail.samples, (size, size, done, made), trail.digest)

        return Pass(deal(), here, lambda: None)

    def _done(self, position: Position) -> int:
        done = position[2] if isinstance(position, (list, tuple)) and len(position) > 2 else None
        if position is not None and not isinstance(done, int):
            raise NotResumable(
                f"this cursor, of position {position!r}, is of a loader that is not resident, over "
                f"an unseeded plan or one that is not indexed: resume it with such a loader."
            )
        return done or 0

    def placing(self, stages: Stages, epoch: int) -> Callable[[tuple[None, int]], Any]:
        """What makes a feed of the number of its first sample."""
        if stages not in self._jitted:
            self._jitted[stages] = jax.jit(
                lambda data, epoch, first: self._feed(data, epoch, first, stages)
            )
        jitted, data = self._jitted[stages], self.data

        def placed(numbered: tuple[None, int]) -> Any:
            with self.placement.modes():
                return jitted(data, *jax.device_put((np.uint32(epoch), np.int32(numbered[1]))))

        return placed

    def _feed(self, data: Any, epoch: Any, first: Any, stages: Stages) -> Any:
        feed = self.batch_at.beginning(data, epoch, first)
        parts, target = self.placement.parts, self.placement.target
        if parts:
            feed = jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), feed)
        return stages.traced(feed, Layout(self.axes, None, target), words(epoch), words(first))


def _everywhere(placement: Placement) -> Sharding | None:
    """A copy on every device that feeds go to."""
    target = placement.target
    if isinstance(target, NamedSharding):
        return NamedSharding(target.mesh, PartitionSpec())
    if target is None or isinstance(target, Sharding):
        return target
    raise TypeError(
        f"load(resident=True) needs one sharding for all fields, not the tree {target!r}: give a "
        f"Mesh, a NamedSharding or a Device."
    )
