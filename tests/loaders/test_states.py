"""Feeds go to a state of other feeds, as iterators of Grain do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jreader import NotResumable, Pipeline, arrays

PLANS = {
    "indexed": Pipeline(arrays(np.arange(12))).shuffle(seed=3).batch(2),
    "threads": Pipeline(arrays(np.arange(12))).shuffle(seed=3).map(int, threads=2).batch(2),
    "stream": Pipeline(lambda: iter(range(12))).shuffle(5, seed=3).batch(2),
}
BEGUN = {"epoch": lambda loader: loader.epoch(1), "steps": lambda loader: loader.steps(14)}


def given(feeds):
    return [feed.tolist() for feed in feeds]


@pytest.mark.parametrize("capacity", [0, 3])
@pytest.mark.parametrize("begin", BEGUN.values(), ids=BEGUN)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_feeds_go_from_any_step_to_any_state_and_lose_nothing(plan, begin, capacity):
    loader = plan.load(capacity=capacity)
    feeds, states, seen = begin(loader), [], []
    states.append(feeds.get_state())
    for feed in feeds:
        seen.append(feed.tolist())
        states.append(feeds.get_state())
    for done in range(0, len(seen), 3):
        moved = begin(loader)
        for _ in range(len(seen) - done):  # further on, with feeds prefetched
            next(moved)
        moved.set_state(json.loads(json.dumps(states[done])))
        assert (moved.get_state(), moved.step) == (states[done], json.loads(states[done])["step"])
        assert given(moved) == seen[done:]


def test_a_pass_that_drew_its_order_goes_on_with_it():
    feeds = Pipeline(arrays(np.arange(12))).shuffle().batch(2).load().epoch(0)
    first = next(feeds).tolist()
    state, rest = feeds.get_state(), given(feeds)
    feeds.set_state(state)
    assert sorted(np.ravel([first, *given(feeds)]).tolist()) == [*range(12)]
    feeds.set_state(state)
    assert given(feeds) == rest


def test_a_state_is_text_that_a_handler_may_take_for_bytes():
    feeds = PLANS["indexed"].load().epoch(0)
    first = next(feeds).tolist()
    state = feeds.get_state()
    assert json.loads(state) == json.loads(json.dumps(feeds.cursor))
    assert type(state.decode()) is str
    rest = given(feeds)
    for form in (state, state.decode().encode(), json.loads(state)):
        feeds.set_state(form)
        feeds.start_prefetch()
        assert given(feeds) == rest
        assert first not in rest


def test_the_loader_goes_on_with_the_epoch_after_that_of_the_state():
    loader, again = PLANS["indexed"].load(), PLANS["indexed"].load()
    later = loader.epoch(5)
    kept = [next(later), later.get_state()][1]
    feeds = iter(again)
    next(feeds)
    feeds.set_state(kept)
    assert given(feeds) == given(later)
    assert (again.next_epoch, given(again)) == (6, given(loader.epoch(6)))


def test_feeds_beside_those_of_the_loop_leave_the_epochs_of_the_loop_alone():
    loader = PLANS["indexed"].load()
    later = loader.epoch(5).get_state()
    feeds = loader.epoch(0)
    feeds.set_state(later)
    assert loader.next_epoch == 0


def test_steps_that_a_pass_was_to_begin_at_do_not_count_after_a_state():
    feeds = PLANS["indexed"].load().epoch(0, start=4)
    feeds.set_state(PLANS["indexed"].load().epoch(0).get_state())
    assert given(feeds) == given(PLANS["indexed"].load().epoch(0))


@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        ("{", ValueError, r"this is not a cursor: '{'. Give feeds.cursor, feeds.get_state\(\)"),
        (7, ValueError, "this is not a cursor: 7"),
        (PLANS["stream"].load().epoch(0).get_state(), NotResumable, "another plan"),
    ],
    ids=["text", "number", "plan"],
)
def test_what_is_no_state_of_the_plan_is_refused_and_the_feeds_go_on(state, error, says):
    feeds = PLANS["indexed"].load().epoch(0)
    first = next(feeds).tolist()
    with pytest.raises(error, match=says):
        feeds.set_state(state)
    assert [first, *given(feeds)] == given(PLANS["indexed"].load().epoch(0))
