"""The feeds of a loader on the devices: those of a pass, prefetched, and the first one by itself.

Host feeds are made by `host_feeds.py`. Here they go to the devices, and through the functions that
run there; a look-ahead does so before the loop asks for them, and several processes agree on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from jreader.counters import Counters
from jreader.devices import placeable
from jreader.errors import NotResumable
from jreader.loaders.assembling import FeedShape
from jreader.loaders.checkpoints.changed_weights import weights_line
from jreader.loaders.checkpoints.cursors import with_plan
from jreader.loaders.checkpoints.positions import EVERY, SKIPPED, Place, Wanted, epochs
from jreader.loaders.host_feeds import host_feeds
from jreader.loaders.loading import Loading
from jreader.loaders.multihost.agreement import Agreement
from jreader.loaders.multihost.board import Board
from jreader.loaders.multihost.lane_places import LanesHere, lanes_read
from jreader.loaders.shared_state import SharedState
from jreader.readers import Cursor, Pass, described, first_column, itself, leaves, rebuilt
from jreader.readers.seeds import waits
from jreader.workers import lookahead
from jreader.workers.threads import Drawer


def device_feeds(
    loading: Loading,
    cursor: Cursor,
    shared: SharedState,
    wanted: Wanted = EVERY,
    *,
    counters: Counters | None = None,
) -> Pass[Any]:
    """Begins a pass over feeds on the devices, from a cursor on, with its look-ahead.

    Args:
        loading: What the loader loads.
        cursor: The cursor to begin at.
        shared: What the passes of the loader share.
        wanted: The steps to give.
        counters: The counters of the loader; None for some that nobody reads.

    Raises:
        ValueError: Several processes would each draw an order of their own.
    """
    shape, counters = loading.shape, counters or Counters()
    capacity, spans = loading.options.capacity, shape.placement.spans
    continues = loading.remainder.continues
    if spans and waits(loading.source.batches):
        raise ValueError(
            f"{loading.source.batches!r} draws a new order in each pass, and each process would "
            "draw another one: give its shuffles and random maps a seed, the same on all processes."
        )
    finish = finisher(loading, shape)
    at_once = finish if not capacity and not spans else None

    def epoch(cursor: Cursor) -> Pass[Any]:
        return _epoch(loading, shape, cursor, shared, wanted, at_once, counters)

    def prefetched(cursor: Cursor) -> Pass[Any]:
        drawer = _drawer(loading, cursor, shared)
        begin = partial(epoch, cursor)
        if wanted.endless and not spans:
            turns = drawer is not None and capacity > 0 and not continues
            begin = partial(epochs, epoch, cursor, wanted.until, continues=continues, turns=turns)
        host = drawer.begun(begin) if drawer else begin()
        if at_once:
            return host
        ahead = partial(
            _ahead, loading, finish=finish, counters=counters, drawer=drawer, shared=shared
        )
        return _agreed(loading, shape, shared, cursor, host, ahead) if spans else ahead(host)

    if wanted.endless and spans:  # the processes agree on each epoch
        return epochs(prefetched, cursor, wanted.until, continues=continues)
    return prefetched(cursor)


def _agreed(
    loading: Loading,
    shape: FeedShape,
    shared: SharedState,
    cursor: Cursor,
    host: Pass[Any],
    ahead: Callable[[Pass[Any]], Pass[Any]],
) -> Pass[Any]:
    """The prefetched feeds of an epoch that all processes have."""
    agreement = _agreement(loading, shape, shared, Place(*host.position()).began)
    if loading.resident or loading.batching(cursor).indexed:
        return agreement.heeding(ahead(host), streamed=False)
    window = max(loading.options.capacity, 1)
    return agreement.heeding(ahead(agreement.telling(host, window)))


def _drawer(loading: Loading, cursor: Cursor, shared: SharedState) -> Drawer | None:
    """Who begins, draws and closes a pass that runs users' code; None for whoever is free."""
    if not loading.runs_users_code:
        return None
    kept = shared.stream.drawer(Place.of(cursor).batches)
    apart = loading.options.capacity > 0 and shared.pace.pays
    return kept or Drawer("loader", apart=apart)


def _epoch(
    loading: Loading,
    shape: FeedShape,
    cursor: Cursor,
    shared: SharedState,
    wanted: Wanted,
    finish: Callable[[Any], Any] | None,
    counters: Counters,
) -> Pass[Any]:
    """The host feeds of what is left of an epoch, or `finish` of each."""
    try:
        if not cursor["samples"]:  # data sets may have grown since the last epoch
            cursor = with_plan(cursor, loading.plan(cursor))
            loading.check()
        if loading.resident:
            _check_same(loading, cursor)
            return loading.resident.steps(cursor, shared, wanted, finish)
        return host_feeds(
            *(loading.of_epoch(cursor), shape, cursor, shared, wanted, finish),
            numbered=loading.numbered,
            counters=counters,
        )
    except StopIteration as stopped:  # it would look like the end of the run
        raise RuntimeError(
            f"raised StopIteration when epoch {cursor['epoch']} was begun"
        ) from stopped


def _check_same(loading: Loading, cursor: Cursor) -> None:
    """Checks that a cursor of a resident loader goes on with the plan that is on the devices.

    Raises:
        NotResumable: Weights of a mixture are not what they were.
    """
    if weights_line(loading.plan(cursor)) != weights_line(loading.plan()):
        raise NotResumable(
            "this cursor belongs to other weights than those of "
            f"{described(loading.source.batches)}, and load(resident=True) keeps one order on the "
            "devices: resume with the weights it had, or leave resident=True out."
        )


def _ahead(
    loading: Loading,
    host: Pass[Any],
    *,
    finish: Callable[[Any], Any],
    counters: Counters,
    drawer: Drawer | None,
    shared: SharedState,
) -> Pass[Any]:
    """The feeds of a pass on the devices, prefetched."""
    options = loading.options
    capacity = options.capacity
    ahead = partial(lookahead, host, capacity, drawer=drawer, pace=shared.pace)
    if options.double_buffer and capacity:
        tunable, tunables = None, counters.tunables
        if tunables is not None and not loading.placement.spans:
            tunable = tunables.of("capacity", "", options.made_at, capacity)
        return ahead(finish, counters=counters, tunable=tunable)

    def counted(feed: Any) -> Any:
        began = time.perf_counter_ns()
        placed = finish(feed)
        counters.placed.append(time.perf_counter_ns() - began)
        return placed

    return (ahead(itself) if capacity else host).mapped(counted)


def _agreement(loading: Loading, shape: FeedShape, shared: SharedState, began: Cursor) -> Agreement:
    """What the processes that feed one array agree on, in a pass that began at a cursor."""
    if shared.board is None:
        shared.board = Board(shape.placement.processes, loading.options.made_at)
    feeds = f"feeds of {loading.per_feed} batches of {loading.source.rows} samples"
    about, timeout = (feeds, f"{shape.remainder}"), loading.options.timeout
    return Agreement(shared.board, began, timeout, about, _lanes_here(loading, shape, began))


def _lanes_here(loading: Loading, shape: FeedShape, cursor: Cursor) -> LanesHere | None:
    """The lanes that this process reads; None if it reads all, or there are none."""
    if not shape.lanes or shape.share is None:
        return None
    last, steps = loading.remainder.last, loading.remainder.steps
    ends: dict[str | None, Any] = {"drop": "first", "error": "together"}
    left = None if steps is None else steps - Place.of(cursor).steps
    numbers = lanes_read(shape.share, loading.batching().lanes)
    return LanesHere(numbers, ends.get(last, "last"), left)


def finisher(loading: Loading, shape: FeedShape) -> Callable[[Any], Any]:
    """A function that puts a host feed on the devices and calls the stages there.

    It takes a host feed, or, if `loading.numbered`, (host feed, number of its first row, epoch),
    and returns `SKIPPED` for a `SKIPPED` feed.
    """
    if shape.shares:
        return _finisher_by_rows(loading, shape)
    stages = loading.options.stages
    if loading.resident:
        made: Callable[..., Any] = loading.resident.placing(stages)
    elif not stages.stages:
        return shape.placed.putter()
    else:
        made = stages.on(shape.placed, shape.layout)
    if loading.numbered:
        return lambda item: SKIPPED if item[0] is SKIPPED else made(*item)
    return lambda feed: SKIPPED if feed is SKIPPED else made(feed)


def _finisher_by_rows(loading: Loading, shape: FeedShape) -> Callable[[Any], Any]:
    """The same where processes have some rows of each batch: a bucket has its own number."""
    ways = {
        len(share): finisher(loading, replace(shape, share=share, shares=()))
        for share in shape.shares
    }

    def finished(item: Any) -> Any:
        feed = item[0] if loading.numbered else item
        return SKIPPED if feed is SKIPPED else ways[len(first_column(feed))](item)

    return finished


def first_item(loading: Loading, cursor: Cursor) -> Any:
    """The first host feed from a cursor on, as a `finisher` takes it.

    Raises:
        ValueError: The epoch has no feed.
    """
    host = host_feeds(loading.of_epoch(), loading.shape, cursor, numbered=loading.numbered)
    try:
        for item in host.items:
            return item
    finally:
        host.close()
    raise ValueError(
        "the source of this loader gives no full batch, so there is no feed to look at"
    )


def spec_of(loading: Loading, item: Any) -> Any:
    """The tree of `jax.ShapeDtypeStruct` of a host feed, as a `finisher` takes it."""
    shape = loading.shape
    if loading.options.stages.stages:
        return jax.tree.map(_spec, finisher(loading, shape)(item))
    feed = item[0] if loading.numbered else item
    placed = shape.of(feed).placed

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
