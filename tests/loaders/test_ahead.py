"""Feeds are ahead of the step as far as was asked for, and whoever draws them, nothing changes."""

import gc
import sys
import threading
import time
import weakref

import jax
import numpy as np
import pytest
from programs import PATIENCE
from steps import stream, told

from jreader import DataLoader, Pipeline, arrays, start
from jreader.readers import itself
from jreader.workers import lookahead

DEVICES = jax.devices()


class Watched:
    """A reader of numbers that knows how far it is ahead of what was asked for."""

    def __init__(self, count=12, fails=None):
        self.count, self.fails = count, fails
        self.asked = self.most = 0
        self.limit, self.full, self.closed = None, threading.Event(), threading.Event()

    def __call__(self):
        try:
            for number in range(self.count):
                self._look(number + 1 - self.asked)
                if number == self.fails:
                    raise LookupError(number)
                yield number
        finally:
            self.closed.set()

    def _look(self, ahead):
        self.most = max(self.most, ahead)
        if ahead == self.limit:
            self.full.set()

    def loader(self, capacity, places=None, **options):
        self.limit = capacity * (len(places) if places else 1)
        loader = DataLoader.from_generator(capacity=capacity, **options)
        return loader.set_sample_generator(self, 1, places=places)

    def taken(self, feeds, steps, width=1):
        """The next feeds, by a consumer whose steps take long enough to be worth a thread."""
        seen = []
        for _ in range(steps):
            self.asked += width
            self.full.clear()
            seen.append(next(feeds))
            time.sleep(0.002)
            self.full.wait(0.02)
        return seen


def loader_threads():
    return [each for each in threading.enumerate() if each.name.startswith("jreader loader")]


def check_threads_end():
    for each in loader_threads():
        each.join(PATIENCE)
    assert loader_threads() == []


def in_a_thread(fn):
    """What `fn()` gives on another thread."""
    given = []
    thread = threading.Thread(target=lambda: given.append(fn()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert given, "the thread hangs, or failed"
    return given[0]


@pytest.mark.parametrize("capacity", [1, 2, 5])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("width", [1, 2])
def test_capacity_feeds_are_ahead_and_never_more(capacity, double, width):
    source = Watched(40)
    places = DEVICES[:2] if width == 2 else None
    feeds = iter(source.loader(capacity, places, use_double_buffer=double))
    source.taken(feeds, 8, width)
    assert source.full.wait(PATIENCE)
    assert source.most == capacity * width
    list(feeds)


@pytest.mark.parametrize("double", [True, False])
def test_without_capacity_nothing_is_read_ahead_and_no_thread_runs(double):
    source = Watched()
    feeds = iter(source.loader(0, use_double_buffer=double))
    source.taken(feeds, 8)
    assert (source.most, loader_threads()) == (0, [])


def test_nothing_is_read_before_the_first_feed_is_asked_for():
    source = Watched()
    feeds = iter(source.loader(4))
    assert source.most == 0
    next(feeds)
    assert source.most == 1


class TestWhere:
    """With a double buffer feeds are placed ahead; without it, by the consumer."""

    def feeds(self, **options):
        source = Watched()
        feeds = iter(source.loader(2, **options))
        source.taken(feeds, 4)
        assert source.full.wait(PATIENCE)
        return feeds

    def test_a_double_buffer_is_placed_before_it_is_asked_for(self):
        feeds = self.feeds()
        with jax.transfer_guard("disallow_explicit"):
            assert next(feeds).shape == (1,)

    def test_without_one_the_consumer_places(self):
        feeds = self.feeds(use_double_buffer=False)
        with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="isallow"):
            next(feeds)


class TestModes:
    """jax's context managers belong to a thread: that of the user counts, whoever places."""

    @pytest.mark.parametrize("double", [True, False])
    def test_the_default_device_is_the_users(self, double):
        source = Watched()
        with jax.default_device(DEVICES[3]):
            feeds = iter(source.loader(2, use_double_buffer=double))
            seen = source.taken(feeds, 6)
        seen += source.taken(feeds, 6)
        assert {device for feed in seen for device in feed.devices()} == {DEVICES[3]}

    @pytest.mark.parametrize("double", [True, False])
    def test_x64_is_the_users(self, double):
        source = Watched()
        with jax.enable_x64(new_val=True):
            feeds = iter(source.loader(2, use_double_buffer=double))
            seen = source.taken(feeds, 6)
        seen += source.taken(feeds, 6)
        assert {feed.dtype.name for feed in seen} == {"int64"}

    def test_a_default_of_later_changes_nothing(self):
        source = Watched()
        feeds = iter(source.loader(2))
        with jax.default_device(DEVICES[3]), jax.enable_x64(new_val=True):
            seen = source.taken(feeds, 12)
        assert {device for feed in seen for device in feed.devices()} == {DEVICES[0]}
        assert {feed.dtype.name for feed in seen} == {"int32"}

    def test_another_thread_has_its_own(self):
        def elsewhere():
            with jax.default_device(DEVICES[5]):
                return list(Watched().loader(2))

        assert {feed.devices().pop() for feed in in_a_thread(elsewhere)} == {DEVICES[5]}


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
        state = items.gi_frame.f_locals["state"]

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


def test_an_item_that_the_consumer_draws_for_itself_costs_at_most_two_functions():
    called = []

    def counted(frame, event, _):
        if event == "call" and "jreader/workers" in frame.f_code.co_filename:
            called[-1].append(frame.f_code.co_name)

    here = lookahead(start(lambda: range(100)), 2, itself)
    for _ in range(50):  # some of them another thread draws, on a busy machine
        called.append([])
        sys.setprofile(counted)
        try:
            item, position = next(here.items), here.position()
        finally:
            sys.setprofile(None)
        assert position == item + 1
    assert len(min(called, key=len)) <= 2


class TestErrors:
    @pytest.mark.parametrize("capacity", [0, 1, 4, 64])
    @pytest.mark.parametrize("patient", [True, False])
    @pytest.mark.parametrize("double", [True, False])
    def test_a_source_that_raises_gives_its_good_batches_first(self, capacity, patient, double):
        source = Watched(12, fails=9)
        feeds = iter(source.loader(capacity, use_double_buffer=double))
        seen = source.taken(feeds, 9) if patient else [next(feeds) for _ in range(9)]
        assert stream(seen) == [[n] for n in range(9)]
        with pytest.raises(LookupError) as caught:
            next(feeds)
        assert caught.value.args == (9,)
        assert "__call__" in [entry.name for entry in caught.traceback]
        assert [next(feeds, "over") for _ in range(2)] == ["over"] * 2

    @pytest.mark.parametrize("capacity", [0, 2])
    def test_a_source_that_fails_at_once_fails_at_the_first_feed(self, capacity):
        feeds = iter(Watched(12, fails=0).loader(capacity))
        with pytest.raises(LookupError):
            next(feeds)

    def test_a_source_that_cannot_be_called_fails_where_the_pass_begins(self):
        def source():
            raise OSError("no such file")

        loader = DataLoader.from_generator().set_sample_generator(source, 1)
        with pytest.raises(OSError, match="no such file"):
            list(loader)

    def test_after_an_error_the_next_epoch_begins_anew(self):
        loader = Watched(12, fails=9).loader(2)
        for _ in range(2):
            feeds = iter(loader)
            assert [next(feeds).tolist() for _ in range(9)] == [[n] for n in range(9)]
            with pytest.raises(LookupError):
                next(feeds)

    def test_a_cursor_before_the_error_leads_to_it_again(self):
        loader = Watched(12, fails=9).loader(4)
        feeds = iter(loader)
        for _ in range(5):
            next(feeds)
        again = loader.epoch(0, at=feeds.cursor)
        assert [next(again).tolist() for _ in range(4)] == [[5], [6], [7], [8]]
        with pytest.raises(LookupError):
            next(again)


class TestUnawaited:
    """300 steps that nobody waits for: memory that is taken back early shows as wrong values."""

    STEPS, SHAPE = 300, (256, 128)  # 128 KiB: copies of it run behind the caller's back

    def reused(self):
        """Batches by a generator that has one array and fills it anew."""
        array = np.empty(self.SHAPE, "float32")
        for number in range(self.STEPS):
            array.fill(number)
            yield {"x": array}

    def loader(self, places):
        loader = DataLoader.from_generator(capacity=4)
        return loader.set_batch_generator(self.reused, places)

    places = pytest.mark.parametrize("places", [None, "rows", "pmap"])

    def loaders(self, places):
        if places == "pmap":
            rows = np.repeat(np.arange(self.STEPS, dtype="float32"), 32)
            return Pipeline(arrays(x=rows)).batch(32).load(capacity=4, pmap=True)
        mesh = jax.sharding.Mesh(np.array(DEVICES), ("data",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        return self.loader(rows if places else None)

    def check(self, results):
        means = [np.asarray(result) for result in results]
        for number, mean in enumerate(means):
            np.testing.assert_array_equal(mean, number)
        assert len(means) == self.STEPS

    @places
    def test_kept(self, places):
        kept = list(self.loaders(places))
        self.check(feed["x"].mean() for feed in kept)
        self.check(feed["x"] for feed in kept)

    @places
    def test_dropped(self, places):
        step = jax.jit(lambda feed: feed["x"].mean())
        self.check([step(feed) for feed in self.loaders(places)])

    @places
    def test_donated(self, places):
        step = jax.jit(lambda feed: feed["x"] * 2, donate_argnums=0)
        self.check([array / 2 for array in [step(feed) for feed in self.loaders(places)]])
