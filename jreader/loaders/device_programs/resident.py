"""Loaders whose data are on the devices: a feed sends only the number of a sample there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jreader.devices import Placement
from jreader.feeds import FeedList
from jreader.loaders.device_programs.as_function import as_function
from jreader.loaders.device_programs.stages import Layout, Stages, words
from jreader.profiling import profiler
from jreader.readers import Reader, described
from jreader.readers.joined_columns import ENDLESS


class Resident:
    """The data of a loader on its devices, and the jitted function that gathers feeds there."""

    def __init__(
        self,
        batches: Reader[Any],
        feed_list: FeedList | None,
        placement: Placement,
        *,
        axes: int,
        masked: bool,
    ) -> None:
        """Put the data on the devices."""
        self.placement, self.axes = placement, axes
        if placement.target == "host":
            raise ValueError(
                "load(resident=True) keeps data on devices: leave sharding='host' out."
            )
        self.data, self.batch_at = as_function(
            batches,
            feed_list,
            sharding=placement.context or _everywhere(placement),
            last="pad" if masked else None,
        )
        if self.batch_at.samples >= ENDLESS:
            raise ValueError(
                f"load(resident=True) counts up to 2**31 samples, and {described(batches)} has no "
                f"end: add .firstn(n) before .batch, or leave resident out."
            )
        self._jitted: dict[Stages, Callable[..., Any]] = {}

    def placing(self, stages: Stages) -> Callable[[None, int, int], Any]:
        """Return a function that makes a feed from the number of its first sample and its epoch."""
        if stages not in self._jitted:
            self._jitted[stages] = jax.jit(
                lambda data, epoch, first: self._feed(data, epoch, first, stages)
            )
        jitted, data = self._jitted[stages], self.data

        def placed(_feed: None, first: int, epoch: int) -> Any:
            span = profiler.begin("on_device") if profiler.active else None
            with self.placement.modes():
                feed = jitted(data, *jax.device_put((np.uint32(epoch), np.int32(first))))
            if span:
                profiler.end(span)
            return feed

        return placed

    def _feed(self, data: Any, epoch: Any, first: Any, stages: Stages) -> Any:
        feed = self.batch_at.beginning(data, epoch, first)
        parts, target = self.placement.parts, self.placement.target
        if parts:
            feed = jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), feed)
        return stages.traced(feed, Layout(self.axes, None, target), words(epoch), words(first))


def _everywhere(placement: Placement) -> Sharding | None:
    """Return the sharding that puts a copy on every device of the feeds.

    Raises:
        TypeError: The fields have different shardings.
    """
    target = placement.target
    if isinstance(target, NamedSharding):
        return NamedSharding(target.mesh, PartitionSpec())
    if target is None or isinstance(target, Sharding):
        return target
    raise TypeError(
        f"load(resident=True) needs one sharding for all fields, not the tree {target!r}: give a "
        f"Mesh, a NamedSharding or a Device."
    )
