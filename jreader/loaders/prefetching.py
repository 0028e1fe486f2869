"""The feeds of a loader on the devices: the prefetched feeds of a pass, and the first one alone.

`host_feeds.py` makes host feeds. Here they go to the devices, and through the functions that run
there. They are prefetched before the loop asks for them, and several processes agree on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from jreader.devices import placeable
from jreader.loaders.checkpoints.cursors import with_plan
from jreader.loaders.checkpoints.positions import (
    EVERY,
    SKIPPED,
    EpochPosition,
    Place,
    Wanted,
    epochs,
)
from jreader.loaders.host_feeds import HostFeeds, resident_feeds
from jreader.loaders.loading import Loading
from jreader.loaders.multihost.agreement import Agreement
from jreader.loaders.multihost.board import Board
from jreader.loaders.multihost.lane_places import LanesHere, lanes_read
from jreader.loaders.run import Run
from jreader.readers import Cursor, Pass, first_column, itself, leaves, rebuilt
from jreader.readers.growing import any_stores
from jreader.readers.seeds import lacks_seed
from jreader.workers import lookahead
from jreader.workers.threads import Drawer


def device_feeds(loading: Loading, cursor: Cursor, run: Run, wanted: Wanted = EVERY) -> Pass[Any]:
    """Begin a prefetched pass over feeds on the devices, from a cursor on.

    Args:
        loading: What the loader loads.
        cursor: The cursor to begin at.
        run: The state that the loader's passes share; its counters become those of this pass.
        wanted: The steps to give.

    Raises:
        ValueError: Several processes would each draw their own order.
    """
    return _DeviceFeeds(loading, run, wanted).feeds_from(cursor)


class _DeviceFeeds:
    """The pass of `device_feeds`: host feeds, epoch after epoch, prefetched."""

    def __init__(self, loading: Loading, run: Run, wanted: Wanted) -> None:
        self.loading, self.run, self.wanted, self.counters = loading, run, wanted, run.counters
        self.here, self.capacity = loading.here, loading.options.capacity
        self.spans = loading.placement.spans
        if self.spans and lacks_seed(loading.source.batches):
            raise ValueError(
                f"{loading.source.batches!r} draws a new order in each pass, and each process "
                "would draw another one: give its shuffles and random maps a seed, the same on all "
                "processes."
            )
        self.begun_at: Cursor | None = None
        self.finish = finisher(self.here)
        self.at_once = not (self.capacity or self.spans)  # a feed is placed on request

    def feeds_from(self, cursor: Cursor) -> Pass[Any]:
        """Return the feeds from a cursor on; several processes agree on each epoch."""
        self.begun_at = cursor if cursor["plan"]["ops"] else None
        if self.spans and self.wanted.endless:
            return self._epochs(self._prefetched, cursor)
        return self._prefetched(cursor)

    def _epochs(
        self, begin: Callable[[Cursor], Pass[Any]], cursor: Cursor, *, turns: bool = False
    ) -> Pass[Any]:
        continues = self.loading.remainder.continues
        return epochs(begin, cursor, self.wanted.until, continues=continues, turns=turns)

    def _prefetched(self, cursor: Cursor) -> Pass[Any]:
        drawer, begin = self._drawer(cursor), partial(self._epoch, cursor)
        if self.wanted.endless and not self.spans:
            continues = self.loading.remainder.continues
            turns = drawer is not None and self.capacity > 0 and not continues
            begin = partial(self._epochs, self._epoch, cursor, turns=turns)
        host = drawer.begun(begin) if drawer else begin()
        if self.at_once:
            return host
        if not self.spans:
            return self._ahead(host, drawer)
        agreement = self._agreement(Place(*host.position()).began)
        if self.loading.resident or self.loading.of_epoch(cursor).batching.indexed:
            return agreement.agreed(self._ahead(host, drawer), streamed=False)
        posted = agreement.posting(host, max(self.capacity, 1))
        return agreement.agreed(self._ahead(posted, drawer))

    def _drawer(self, cursor: Cursor) -> Drawer | None:
        """Return the drawer of a pass that runs users' code; None if any thread may draw it."""
        if not self.loading.runs_users_code:
            return None
        kept = self.run.stream.drawer(EpochPosition.of(cursor).batches)
        return kept or Drawer("loader", apart=self.capacity > 0 and self.run.pace.pays)

    def _epoch(self, cursor: Cursor) -> Pass[Any]:
        """Return the rest of an epoch: feeds on the host, or on the devices if placed at once."""
        loading, finish = self.loading, self.finish if self.at_once else None
        try:
            if not cursor["samples"]:
                if cursor is not self.begun_at:  # data sets may have grown since the last epoch
                    cursor = with_plan(cursor, loading.plan(cursor))
                loading.check()
            if resident := loading.resident:
                loading.check_weights(cursor)
                return resident_feeds(
                    loading, resident.batch_at, cursor, self.run, self.wanted, finish
                )
            source, counters = loading.of_epoch(cursor), self.counters
            feeds = HostFeeds(self.here, source, cursor, self.run, self.wanted, counters)
            return feeds.begun(finish)
        except StopIteration as stopped:  # it would look like the end of the run
            raise RuntimeError(
                f"raised StopIteration when epoch {cursor['epoch']} was begun"
            ) from stopped

    def _ahead(self, host: Pass[Any], drawer: Drawer | None) -> Pass[Any]:
        """Prefetch the feeds of a pass, on the devices or on the host."""
        options, counters = self.loading.options, self.counters
        ahead = partial(lookahead, host, self.capacity, drawer=drawer, pace=self.run.pace)
        if options.double_buffer and self.capacity:
            tunable, tunables = None, counters.tunables
            if tunables is not None and not self.spans:
                tunable = tunables.of("capacity", "", options.made_at, self.capacity)
            return ahead(self.finish, counters=counters, tunable=tunable)

        def counted(feed: Any) -> Any:
            began = time.perf_counter_ns()
            placed = self.finish(feed)
            counters.placed.append(time.perf_counter_ns() - began)
            return placed

        return (ahead(itself) if self.capacity else host).mapped(counted)

    def _agreement(self, began: Cursor) -> Agreement:
        """Return the agreement of the processes that feed one array, in a pass from a cursor on."""
        loading, share = self.loading, self.here.share
        if self.run.board is None:
            self.run.board = Board(loading.placement.processes, loading.options.made_at)
        feeds = f"feeds of {loading.per_feed} batches of {loading.source.rows} samples"
        about, lanes = [feeds, f"{loading.remainder}"], None
        if any_stores(loading.source.batches):  # each process may have its own folders
            placed = loading.of_epoch(began).batching.indexed
            found = "by index, since its folders are complete" if placed else "in order"
            about.append(f"samples {found}")
        if share is not None and (every := loading.source.batching.lanes):
            numbers = lanes_read(share, every)
            ends: dict[str | None, Any] = {"drop": "first", "error": "together"}
            steps = loading.remainder.steps
            left = None if steps is None else steps - EpochPosition.of(began).steps
            lanes = LanesHere(numbers, ends.get(loading.remainder.last, "last"), left)
        return Agreement(self.run.board, began, loading.options.timeout, about, lanes)


def finisher(here: Loading) -> Callable[[Any], Any]:
    """Return a function that puts a host feed on the devices and calls the stages there.

    It takes a host feed, or, if `loading.numbered`, (host feed, number of its first row, epoch),
    and returns `SKIPPED` for a `SKIPPED` feed.
    """
    if here.shares:
        return _finisher_by_rows(here)
    made, as_instance = _placer(here), here.options.stages.as_instance
    if as_instance is itself:
        return made
    return lambda item: feed if (feed := made(item)) is SKIPPED else as_instance(feed)


def _placer(here: Loading) -> Callable[[Any], Any]:
    """Return the same without `into` of `load`: feeds as the devices have them."""
    stages = here.options.stages
    if here.resident:
        made: Callable[..., Any] = here.resident.placing(stages)
    elif not stages.stages:
        return here.putter
    else:
        made = stages.on(here.placed, here.layout)
    if here.numbered:
        return lambda item: SKIPPED if item[0] is SKIPPED else made(*item)
    return lambda feed: SKIPPED if feed is SKIPPED else made(feed)


def _finisher_by_rows(here: Loading) -> Callable[[Any], Any]:
    """Return the same if processes feed some rows of batches whose sizes vary by bucket."""
    ways = {len(share): finisher(replace(here, share=share, shares=())) for share in here.shares}

    def finished(item: Any) -> Any:
        feed = item[0] if here.numbered else item
        return SKIPPED if feed is SKIPPED else ways[len(first_column(feed))](item)

    return finished


def first_item(loading: Loading, cursor: Cursor) -> Any:
    """Return the first host feed from a cursor on, as a `finisher` takes it.

    Raises:
        ValueError: The epoch has no feed.
    """
    host = HostFeeds(loading.here, loading.of_epoch(cursor), cursor).begun()
    try:
        for item in host.items:
            return item
    finally:
        host.close()
    raise ValueError(
        "the source of this loader gives no full batch, so there is no feed to look at"
    )


def spec_of(loading: Loading, item: Any) -> Any:
    """Return the tree of `jax.ShapeDtypeStruct` of a host feed, as a `finisher` takes it."""
    here = loading.here
    if here.options.stages.stages:
        return jax.tree.map(_spec, finisher(here)(item))
    feed = item[0] if loading.numbered else item
    placed = here.of_feed(feed).placed

    def spec(array: Any, sharding: Any) -> Any:
        if not placeable(array):
            return array
        if sharding == "host":
            return jax.ShapeDtypeStruct(array.shape, array.dtype)
        dtype = placed.canonical(array.dtype)
        return jax.ShapeDtypeStruct(placed.shape(array.shape), dtype, sharding=sharding)

    return rebuilt(feed, map(spec, leaves(feed), placed.shardings(feed)))


def _spec(array: jax.Array) -> jax.ShapeDtypeStruct:
    sharding = array.sharding if len(array.sharding.device_set) > 1 else None
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
