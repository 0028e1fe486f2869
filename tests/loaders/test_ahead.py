"""Feeds are ahead of the step as far as was asked for, and whoever draws them, nothing changes."""

import sys

import jax
import pytest
from programs import PATIENCE
from steps import stream
from watched_source import Watched, in_a_thread, loader_threads

from jreader import DataLoader, start
from jreader.readers import itself
from jreader.workers import lookahead

DEVICES = jax.devices()


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
    assert 1 <= source.most <= 1 + 4  # a thread is there already, if the first one took long


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
