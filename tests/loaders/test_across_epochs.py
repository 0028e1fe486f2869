"""A run looks ahead across the end of an epoch, and notices nothing of it."""

import json
import threading
import time

import numpy as np
import pytest
from programs import PATIENCE
from steps import stream, told

from jreader import DataLoader, Pipeline, ReaderError, arrays


class Noted:
    """A source of three batches that notes which epochs have begun."""

    def __init__(self):
        self.begun, self.again = 0, threading.Event()

    def __call__(self):
        self.begun += 1
        if self.begun > 1:
            self.again.set()
        yield from (np.full(2, number) for number in range(3))

    def loader(self, **options):
        return DataLoader.from_generator(**options).set_batch_generator(self)


def stay_away():
    """A step that takes long enough to be worth a thread."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass


def test_the_next_epoch_begins_while_the_step_has_the_last_feed_of_this_one():
    source = Noted()
    with source.loader(capacity=2).steps() as feeds:
        for _ in range(3):
            next(feeds)
            stay_away()
        assert source.again.wait(PATIENCE)
        assert (feeds.epoch, feeds.step) == (0, 3)
        assert told(next(feeds)) == [0, 0]
        assert (feeds.epoch, feeds.step) == (1, 4)


def test_no_epoch_begins_behind_the_last_step_that_was_asked_for():
    source = Noted()
    with source.loader(capacity=4).steps(3) as feeds:
        for _ in feeds:
            stay_away()
    assert source.begun == 1


def test_without_capacity_it_begins_when_it_is_asked_for():
    source = Noted()
    with source.loader(capacity=0).steps() as feeds:
        for _ in range(3):
            next(feeds)
            stay_away()
        assert source.begun == 1
        next(feeds)
        assert source.begun == 2


@pytest.mark.parametrize("capacity", [0, 1, 2, 7])
@pytest.mark.parametrize("step", range(8))
def test_a_cursor_taken_there_is_that_of_the_feed_and_goes_on_behind_it(capacity, step):
    def loader():
        rows = Pipeline(arrays(n=np.arange(10))).shuffle(seed=1).batch(3)
        return rows.load(capacity=capacity, drop_last=False)

    whole = stream(loader().steps(12))
    feeds = loader().steps(12)
    for _ in range(step):
        next(feeds)
        stay_away()
    cursor = json.loads(json.dumps(feeds.cursor))
    assert (cursor["epoch"], cursor["step"]) == (max(step - 1, 0) // 4, step)
    assert stream(loader().steps(12, at=cursor)) == whole[step:] == stream(feeds)


def test_an_error_of_the_next_epoch_comes_after_the_last_feed_of_this_one():
    passes = iter([[1, 2, 3], LookupError("no second epoch")])

    def source():
        given = next(passes)
        if isinstance(given, Exception):
            raise given
        return (np.full(2, number) for number in given)

    feeds = DataLoader.from_generator(capacity=2).set_batch_generator(source).steps()
    for number in (1, 2, 3):
        assert told(next(feeds)) == [number, number]
        stay_away()
    with pytest.raises(LookupError, match="no second epoch"):
        next(feeds)
    assert feeds.step == 3


@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_an_epoch_that_gives_nothing_ends_the_run_behind_the_feeds_before():
    passes = iter([[1, 2], []])
    source = DataLoader.from_generator().set_batch_generator(
        lambda: (np.full(2, number) for number in next(passes))
    )
    feeds = source.steps()
    assert [told(next(feeds)), told(next(feeds))] == [[1, 1], [2, 2]]
    with pytest.raises(ReaderError, match="epoch 1 gave no feed"):
        next(feeds)


@pytest.mark.filterwarnings("ignore:.*ends a run at step")
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("steps", [0, 3, 4, 5])
def test_a_run_that_is_resumed_behind_its_last_step_gives_nothing(steps, resident):
    loader = Pipeline(arrays(n=np.arange(6))).batch(2).load(resident=resident)
    feeds = loader.steps(5)
    stream(feeds)
    rest = loader.steps(steps, at=feeds.cursor)
    assert stream(rest) == []
    assert rest.step == 5
