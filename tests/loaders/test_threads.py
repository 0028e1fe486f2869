"""Threads of a loader: passes are independent of them, and they end with the pass."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from programs import PATIENCE
from steps import stream, told
from watched_source import Watched, check_threads_end, in_a_thread, loader_threads

from jreader import DataLoader, Pipeline, arrays, start
from jreader.loaders import iterators
from jreader.loaders.checkpoints.positions import Place
from jreader.readers import itself
from jreader.workers import lookahead


class TestThreads:
    def test_two_passes_at_once_are_independent(self):
        loader = Pipeline(arrays(n=np.arange(40))).shuffle(seed=1).batch(4).load(capacity=2)
        first, second = loader.epoch(0), loader.epoch(1)
        pairs = [(told(a), told(b)) for a, b in zip(first, second, strict=True)]
        assert [a for a, _ in pairs] == stream(loader.epoch(0))
        assert [b for _, b in pairs] == stream(loader.epoch(1))

    def test_a_loader_works_on_another_thread(self):
        loader = Pipeline(lambda: iter(range(40))).batch(4).load(capacity=2)
        assert in_a_thread(lambda: stream(loader)) == stream(loader)

    def test_another_thread_may_ask_where_a_loader_is_while_a_pass_begins(self, monkeypatch):
        loader = Pipeline(arrays(n=np.arange(40))).batch(4).load()
        asked = []

        class Asking(Place):
            @classmethod
            def of(cls, cursor):
                asked.append(loader.state_dict()["step"])
                return Place.of(cursor)

        monkeypatch.setattr(iterators, "Place", Asking)
        next(iter(loader))
        assert set(asked) == {0}

    def test_a_pass_can_be_handed_to_another_thread(self):
        source = Watched()
        feeds = iter(source.loader(2))
        head = source.taken(feeds, 5)
        source.asked = 12
        assert stream(head) + in_a_thread(lambda: stream(feeds)) == [[n] for n in range(12)]

    @pytest.mark.parametrize("end", ["exhaust", "close", "drop", "with", "loader", "error"])
    def test_threads_and_sources_end_with_the_pass(self, end):
        source = Watched(40, fails=20 if end == "error" else None)
        loader = source.loader(2)
        feeds = iter(loader)
        source.taken(feeds, 6)
        assert loader_threads()
        source.asked = 40
        self.ended(end, loader, feeds)
        del feeds
        check_threads_end()
        assert source.closed.wait(PATIENCE)

    def ended(self, how, loader, feeds):
        if how == "exhaust":
            list(feeds)
        elif how == "error":
            with pytest.raises(LookupError):
                list(feeds)
        elif how == "with":
            with feeds:
                next(feeds)
        elif how == "loader":
            with loader:
                next(feeds)
        elif how == "close":
            feeds.close()
        if how != "drop":
            assert next(feeds, "over") == "over"

    @pytest.mark.parametrize("how", ["break", "return", "raise"])
    def test_threads_end_with_the_training_loop(self, how):
        source = Watched(40)

        def training():
            feeds = iter(source.loader(2))
            source.taken(feeds, 4)
            for step, _ in enumerate(feeds):
                source.asked += 1
                if step == 3 and how == "break":
                    break
                if step == 3 and how == "return":
                    return
                if step == 3:
                    raise ZeroDivisionError

        if how == "raise":
            with pytest.raises(ZeroDivisionError):
                training()
        else:
            training()
        gc.collect()
        check_threads_end()
        assert source.closed.wait(PATIENCE)

    def test_a_pass_in_a_reference_cycle_ends_when_it_is_collected(self):
        source = Watched(40)
        feeds = iter(source.loader(2))
        source.taken(feeds, 6)
        feeds.itself = feeds
        del feeds
        gc.collect()
        check_threads_end()
        assert source.closed.wait(PATIENCE)

    def test_a_pass_may_be_dropped_by_gc_while_its_lock_is_held(self):
        items = lookahead(start(Watched()), 2, str).items
        next(items)
        state = items.gi_frame.f_locals["self"]

        def collected():
            with state.lock:
                items.close()
            return state.over

        assert in_a_thread(collected)

    def test_a_pass_that_is_closed_while_its_consumer_draws_closes_the_source_once(self):
        drawing, go, closed = threading.Event(), threading.Event(), []

        def source():
            try:
                yield 0
                drawing.set()
                go.wait(PATIENCE)
                yield 1
            finally:
                closed.append(drawing.is_set())

        here = lookahead(start(source), 2, itself)
        seen = [next(here.items)]
        consumer = threading.Thread(target=lambda: seen.extend(here.items), daemon=True)
        consumer.start()
        assert drawing.wait(PATIENCE)
        here.close()
        assert closed == []
        go.set()
        consumer.join(PATIENCE)
        assert (seen, closed) == ([0], [True])

    def test_a_source_that_blocks_does_not_block_close(self):
        go = threading.Event()

        def source():
            yield from range(5)
            go.wait(PATIENCE)

        feeds = iter(DataLoader.from_generator(capacity=8).set_sample_generator(source, 1))
        for _ in range(4):
            next(feeds)
            time.sleep(0.002)
        assert in_a_thread(feeds.close) is None
        go.set()
        check_threads_end()

    def test_feeds_that_the_user_dropped_are_freed(self):
        for capacity in (0, 2):
            source = Watched()
            feeds = iter(source.loader(capacity))
            seen = weakref.ref(source.taken(feeds, 5).pop())
            gc.collect()
            assert seen() is None
