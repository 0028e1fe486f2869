"""Plans that are made for a few feeds: a rollout in reinforcement learning, say."""

from __future__ import annotations

import numpy as np

from jreader import Pipeline, arrays
from tests.benchmarks.one_feed import counting

MOST = 1_350  # functions of jreader for a plan and its eight feeds; they were 1,863


def test_a_plan_for_eight_feeds_takes_few_calls():
    rollout = {"x": np.zeros((256, 8), np.float32), "y": np.arange(256)}

    def eight_feeds():
        return sum(1 for _ in Pipeline(arrays(**rollout)).batch(32).load())

    eight_feeds()  # what is made once is made
    taken = []
    with counting() as since:
        for _ in range(50):  # where the machine is busy, feeds are timed, and threads called in
            since()
            assert eight_feeds() == 8
            taken.append(len(since().own))
            if taken[-1] <= MOST:
                break
    assert min(taken) <= MOST
