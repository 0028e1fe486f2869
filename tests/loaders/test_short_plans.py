"""What it takes to begin: a plan for a few feeds (a rollout in reinforcement learning, say)."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from jreader import Pipeline, arrays, at_epoch, hints
from tests.benchmarks.one_feed import counting

ROWS = {"x": np.zeros((256, 8), np.float32), "y": np.arange(256)}
EPOCHS = count()
BATCHES = Pipeline(arrays(**ROWS)).shuffle(seed=0).batch(32)
LOADER = BATCHES.load(capacity=0)


def a_plan_and_its_eight_feeds():
    assert sum(1 for _ in Pipeline(arrays(**ROWS)).batch(32).load()) == 8


def a_plan_and_its_first_feed():
    next(iter(Pipeline(arrays(**ROWS)).shuffle(seed=0).batch(32).load(capacity=0)))


def the_first_feed_of_an_epoch():
    next(iter(LOADER))


def an_epoch_on_the_host():
    assert len(list(at_epoch(BATCHES, next(EPOCHS))())) == 8


@pytest.mark.parametrize(
    ("begin", "most"),
    [  # 1,334, 1,571, 666 and 462 before some was asked only once, and once per class
        (a_plan_and_its_eight_feeds, 905),
        (a_plan_and_its_first_feed, 895),
        (the_first_feed_of_an_epoch, 300),
        (an_epoch_on_the_host, 190),
    ],
)
def test_to_begin_takes_few_calls_of_functions_of_jreader(begin, most):
    begin()
    begin()  # what is made once is made
    taken = []
    with counting() as since:
        for _ in range(50):  # where the machine is busy, feeds are timed, and threads called in
            since()
            begin()
            taken.append(len(since().own))
            if taken[-1] <= most:
                break
    assert min(taken) <= most


def test_to_begin_reads_no_hints_for_mistakes():
    hints.known_words.cache_clear()
    a_plan_and_its_first_feed()
    assert hints.known_words.cache_info().currsize == 0
