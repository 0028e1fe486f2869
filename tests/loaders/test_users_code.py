"""A pass over users' code has one thread and one context, from its begin to its close."""

import contextvars
import gc
import threading
import weakref
from itertools import chain

import jax
import numpy as np
import pytest
from programs import PATIENCE
from steps import stream
from thread_bound import ThreadBound, held, told
from watched_source import Watched, check_threads_end, in_a_thread, loader_threads

from jreader import DataLoader, Pipeline
from jreader.datasets import ChainDataset, IterableDataset

CAPACITIES = [0, 1, 2, 8]
PLANS = {
    "samples": lambda source: Pipeline(source).batch(2),
    "windows": lambda source: Pipeline(source).shuffle(8, seed=0).batch(2),
    "maps": lambda source: Pipeline(source).map(lambda n: n).batch(2),
    "flat": lambda source: Pipeline(source).flat_map(lambda n: [n]).batch(2),
    "an epoch after another": lambda source: Pipeline(source).epochs(2).firstn(40).batch(2),
}


WITHIN = {  # a function gives the source
    "flat_map": lambda source: Pipeline(lambda: range(9)).flat_map(lambda _: source()),
    "a map of it": lambda source: Pipeline(lambda: range(9)).flat_map(lambda _: map(abs, source())),
    "lanes": lambda source: Pipeline(lambda: range(9)).read(lambda _: source(), lanes=2),
    "one lane": lambda source: Pipeline(lambda: range(9)).read(lambda _: source()),
    "a plan": lambda source: Pipeline(lambda: range(9)).flat_map(lambda _: Pipeline(source)),
    "interleaved": lambda source: Pipeline(source).interleave(source),
    "chained": lambda source: Pipeline(source).chain(source),
    "grouped": lambda source: Pipeline(source).group_by(lambda n: n // 3).map(len),
    "kept": lambda source: Pipeline(source).cache(),
}


def slow_step():
    """One that is awaited, long beside what a look-ahead takes for long."""
    threading.Event().wait(0.002)


def fed(feeds, slow=lambda step: step % 8 < 4):
    """All feeds of a loop whose steps are slow, then quick, then slow again."""
    seen = []
    for step, feed in enumerate(feeds):
        seen.append(np.asarray(feed).tolist())
        if slow(step):
            slow_step()
    return seen


class TestOneThread:
    @pytest.mark.parametrize("capacity", CAPACITIES)
    @pytest.mark.parametrize("plan", PLANS)
    def test_draws_a_pass_whatever_the_loop_does(self, plan, capacity):
        source = ThreadBound()
        loader = PLANS[plan](source).load(capacity=capacity)
        for _ in range(3):
            fed(loader)
        source.check(passes=3)

    @pytest.mark.parametrize("capacity", CAPACITIES)
    def test_draws_a_pass_where_the_steps_of_each_epoch_are_of_another_speed(self, capacity):
        source = ThreadBound()
        loader = Pipeline(source).batch(2).load(capacity=capacity)
        for speed in (False, False, True, True, False):
            assert [*chain(*fed(loader, lambda _, speed=speed: speed))] == [*range(40)]
        source.check(passes=5)

    @pytest.mark.parametrize("tune", [False, True])
    def test_draws_each_epoch_of_a_run_that_changes_its_speed(self, tune):
        source = ThreadBound()
        feeds = Pipeline(source).batch(2).load(tune=tune).steps(160)
        seen = fed(feeds, lambda step: step // 40 % 2)
        assert [*chain(*seen)] == [*range(40)] * 8
        source.check(passes=8)

    def test_draws_a_stream_that_goes_on_across_epochs(self):
        source = ThreadBound(400)
        loader = Pipeline(source).batch(2).load(steps_per_epoch=10)
        seen = [number for _ in range(4) for feed in fed(loader) for number in feed]
        assert seen == [*range(80)]
        with loader:
            pass
        source.check(passes=1)
        check_threads_end()

    def test_draws_what_a_cursor_goes_on_with(self):
        source = ThreadBound()
        loader = Pipeline(source).batch(2).load()
        feeds = iter(loader)
        head = [next(feeds) for _ in range(5)]
        rest = fed(loader.epoch(0, at=feeds.cursor))
        feeds.close()
        assert [feed.tolist() for feed in head] + rest == stream(loader)
        source.check(passes=3)

    @pytest.mark.parametrize("capacity", CAPACITIES)
    @pytest.mark.parametrize("taken", [0, 1, 7])
    @pytest.mark.parametrize("how", ["close", "close elsewhere", "drop", "loader"])
    @pytest.mark.parametrize("slow", [False, True])
    def test_closes_a_pass_that_ends_early(self, capacity, taken, how, slow):
        source = ThreadBound()
        loader = Pipeline(source).batch(2).load(capacity=capacity)
        feeds = iter(loader)
        for _ in range(taken):
            next(feeds)
            if slow:
                slow_step()
        if how == "close":
            feeds.close()
        elif how == "close elsewhere" and capacity:
            in_a_thread(lambda close=feeds.close: [close()])
        elif how == "loader":
            loader.__exit__()
        del feeds
        gc.collect()
        if taken:
            source.check(passes=1)
        check_threads_end()

    @pytest.mark.parametrize("how", ["close", "drop"])
    def test_closes_a_stream_that_others_follow(self, how):
        class Numbers(IterableDataset):
            def __iter__(self):
                return source()

        source = ThreadBound()
        feeds = iter(DataLoader(ChainDataset([Numbers(), Numbers()]), batch_size=2))
        next(feeds)
        if how == "close":
            feeds.close()
        del feeds
        gc.collect()
        source.check(passes=1)

    @pytest.mark.parametrize("how", ["close", "close elsewhere", "drop"])
    @pytest.mark.parametrize("capacity", [0, 2])
    @pytest.mark.parametrize("plan", WITHIN)
    def test_closes_what_a_function_gave_where_a_pass_ends_early(self, plan, capacity, how):
        source = ThreadBound()
        feeds = iter(WITHIN[plan](source).batch(2).load(capacity=capacity))
        next(feeds)
        begun = len(source.passes)
        if how == "close":
            feeds.close()
        elif how == "close elsewhere" and capacity:
            in_a_thread(lambda close=feeds.close: [close()])
        del feeds
        gc.collect()
        source.check(passes=begun)
        check_threads_end()

    @pytest.mark.parametrize("quick", [False, True])
    def test_closes_a_pass_that_is_being_drawn_when_another_thread_closes_it(self, quick):
        drawing, go, closed, threads = threading.Event(), threading.Event(), [], set()

        def source():
            threads.add(threading.get_ident())
            try:
                yield from range(20)
                drawing.set()
                go.wait(PATIENCE)
                yield 1
            finally:
                threads.add(threading.get_ident())
                closed.append(go.is_set())

        loader = Pipeline(source).batch(1).load(capacity=1)
        if quick:
            go.set()
            stream(loader)
            go.clear()
            drawing.clear()
            closed.clear()
            threads.clear()
        feeds, seen = iter(loader), []
        loop = threading.Thread(target=lambda: seen.extend(feeds), daemon=True)
        loop.start()
        assert drawing.wait(PATIENCE)
        feeds.close()
        assert closed == []
        go.set()
        loop.join(PATIENCE)
        check_threads_end()
        assert (len(threads), closed) == (1, [True])

    def test_may_close_its_own_pass(self):
        closed = []

        def source():
            try:
                yield from range(4)
                feeds.close()
                yield 4
            finally:
                closed.append(True)

        feeds = iter(Pipeline(source).batch(1).load())
        assert len(list(feeds)) <= 4
        check_threads_end()
        assert closed == [True]

    def test_of_a_loader_that_is_dropped_closes_a_stream_that_was_kept(self):
        source = ThreadBound(400)
        loader = Pipeline(source).batch(2).load(steps_per_epoch=10)
        fed(loader)
        del loader
        gc.collect()
        source.check(passes=1)
        check_threads_end()


class TestOneContext:
    @pytest.mark.parametrize("capacity", CAPACITIES)
    def test_is_that_of_the_loops_thread_when_the_pass_began(self, capacity):
        source = ThreadBound()
        loader = Pipeline(source).batch(2).load(capacity=capacity)
        for _ in range(2):
            token = told.set("the loop")
            feeds = iter(loader)
            told.reset(token)
            fed(feeds)
            assert held.get() == "nothing"
        source.check(2, "the loop")

    def test_is_there_where_another_thread_goes_on_with_the_loop(self):
        source = ThreadBound()
        feeds = iter(Pipeline(source).batch(2).load(capacity=2))
        head = [next(feeds).tolist() for _ in range(5)]
        rest = in_a_thread(lambda: contextvars.Context().run(fed, feeds))
        assert [*chain(*head, *rest)] == [*range(40)]
        source.check(passes=1)

    @pytest.mark.parametrize("capacity", CAPACITIES)
    def test_has_the_modes_of_jax_of_the_loop(self, capacity):
        source, device = ThreadBound(), jax.devices()[3]
        loader = Pipeline(source).batch(2).load(capacity=capacity)
        with jax.default_device(device):
            for _ in range(2):
                fed(loader)
        assert source.modes == {str(device)}

    def test_has_the_modes_that_were_on_where_the_pass_began(self):
        source, device = ThreadBound(), jax.devices()[3]
        with jax.default_device(device):
            feeds = iter(Pipeline(source).batch(2).load(capacity=2))
            next(feeds)
        fed(feeds)
        assert source.modes == {str(device)}


class TestAhead:
    """One thread looks as far ahead as several did, where that pays."""

    def test_a_first_epoch_is_read_ahead_from_its_first_feed_on(self):
        source = Watched(40)
        feeds = iter(source.loader(3))
        source.asked = 1
        next(feeds)
        assert source.full.wait(PATIENCE)
        assert source.most == 3
        source.asked = 40
        list(feeds)

    def test_an_epoch_after_slow_steps_is_read_ahead(self):
        source = Watched(40)
        loader = source.loader(2)
        list(source.taken(iter(loader), 40))
        source.asked, feeds = 0, iter(loader)
        source.full.clear()
        source.asked = 1
        next(feeds)
        assert source.full.wait(PATIENCE)
        source.asked = 40
        list(feeds)

    def test_an_epoch_after_quick_steps_has_no_thread(self):
        loader = Pipeline(lambda: iter(range(400))).batch(4).load(capacity=2)
        list(loader)
        feeds = iter(loader)
        next(feeds)
        assert loader_threads() == []
        feeds.close()

    def test_two_passes_of_one_loader_do_not_wait_for_each_other(self):
        loader = Pipeline(ThreadBound()).batch(2).load()
        one, other = loader.epoch(0), loader.epoch(1)
        pairs = [(a.tolist(), b.tolist()) for a, b in zip(one, other, strict=True)]
        assert [a for a, _ in pairs] == [b for _, b in pairs]

    def test_a_pass_that_fails_where_it_begins_leaves_no_thread(self):
        def source():
            raise OSError("no such file")

        loader = DataLoader.from_generator().set_sample_generator(source, 1)
        with pytest.raises(OSError, match="no such file"):
            iter(loader)
        check_threads_end()

    def test_a_pass_that_is_dropped_before_its_first_feed_leaves_no_thread(self):
        source = ThreadBound()
        seen = weakref.ref(iter(Pipeline(source).batch(2).load()))
        gc.collect()
        assert seen() is None
        check_threads_end()
