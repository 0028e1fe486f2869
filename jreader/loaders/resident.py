"""Loaders whose data lie on the devices: for each feed, only the number of a sample goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jreader.batches import batching
from jreader.devices import Placement
from jreader.errors import NotResumable
from jreader.feeds import FeedList
from jreader.loaders.assembling import FeedShape
from jreader.loaders.checkpoints.positions import SKIPPED, Place, Tally, Wanted
from jreader.loaders.device_programs.as_function import as_function
from jreader.loaders.device_programs.stages import Layout, Stages, words
from jreader.loaders.ends import warn_if_same
from jreader.loaders.run import Run
from jreader.profiling import profiler
from jreader.readers import Cursor, Pass, Reader


class Resident:
    """The data of a loader on its devices, and the jitted function that gathers feeds there."""

    def __init__(self, batches: Reader[Any], feed_list: FeedList | None, shape: FeedShape) -> None:
        """Puts the data on the devices."""
        self.placement, self.axes = shape.placement, shape.axes
        if self.placement.target == "host":
            raise ValueError(
                "load(resident=True) keeps data on devices: leave sharding='host' out."
            )
        self.data, self.batch_at = as_function(
            batches,
            feed_list,
            sharding=_everywhere(self.placement),
            last="pad" if shape.masked else None,
        )
        self._batches, self._warns_if_same = batches, shape.remainder.warns_if_same
        self._jitted: dict[Stages, Callable[..., Any]] = {}

    def steps(
        self,
        cursor: Cursor,
        shared: Run,
        wanted: Wanted,
        finish: Callable[[Any], Any] | None,
    ) -> Pass[Any]:
        """The rest of an epoch, as `host_feeds` gives it, with None for each feed."""
        epoch = cursor["epoch"]
        if epoch >> 32:
            raise ValueError(
                f"load(resident=True) counts epochs in 32 bits, and {epoch} has more: leave "
                f"resident=True out, or begin at an epoch below 2**32."
            )
        size, end = self.batch_at.batch_size, self.batch_at.samples
        done, tally = _resident_samples_done(cursor), Tally(cursor, wanted=wanted)
        least = 1 if self.batch_at.masked else size

        def deal() -> Iterator[Any]:
            nonlocal done
            while done + least <= end and tally.left != 0:
                row, many = done, min(size, end - done)
                done += many
                item = None if tally.gives(many, size, size, done) else SKIPPED, row, epoch
                yield finish(item) if finish else item
            left_out = (batching(self._batches).samples or 0) - end
            whole = not cursor["samples"] and done + least > end
            if left_out and self._warns_if_same and whole:
                warn_if_same(self._batches, left_out, shared)

        tally.stands(size, size, done)
        return Pass(deal(), partial(getattr, tally, "place"), lambda: None)

    def placing(self, stages: Stages) -> Callable[[None, int, int], Any]:
        """A function that makes a feed of the number of its first sample and of its epoch."""
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


def _resident_samples_done(cursor: Cursor) -> int:
    done = Place.of(cursor).batches if cursor["position"] else 0
    if not isinstance(done, int):
        raise NotResumable(
            f"this cursor, of position {cursor['position']!r}, is of a loader that is not "
            f"resident, over an unseeded plan or one that is not indexed: resume it with such a "
            f"loader."
        )
    return done


def _everywhere(placement: Placement) -> Sharding | None:
    """The sharding that puts a copy on every device of the feeds.

    Raises:
        TypeError: The fields have shardings of their own.
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
