"""What reads ahead on threads has one of them draw a pass over users' code."""

import gc
import threading

import numpy as np
import pytest
from programs import PATIENCE
from thread_bound import ThreadBound, told
from watched_source import in_a_thread

from jreader import Pipeline, buffered, map_samples, start, xmap_readers
from jreader.readers import itself

OPS = {
    "buffered": lambda source: buffered(source, 4),
    "a map on a thread": lambda source: map_samples(itself, source, threads=1),
    "a map on threads": lambda source: map_samples(itself, source, threads=3),
    "a map with a timeout": lambda source: map_samples(itself, source, timeout=PATIENCE),
    "xmap": lambda source: xmap_readers(itself, source, 3, 4, order=True),
    "xmap as ready": lambda source: xmap_readers(itself, source, 3, 4),
    "one above the other": lambda source: map_samples(itself, buffered(source, 2), threads=2),
    "of a loader": lambda source: Pipeline(source).map(itself, threads=2).batch(1).load(),
}


@pytest.fixture(params=OPS)
def op(request):
    return OPS[request.param]


BEFORE = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests():
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def wait_for_threads():
    gc.collect()
    for thread in set(threading.enumerate()) - BEFORE:
        if thread.name.startswith("jreader") and "processes" not in thread.name:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_pass_is_begun_drawn_and_closed_on_one_thread(op):
    source = ThreadBound(200)
    for _ in range(2):
        assert sorted(np.asarray(sample).item() for sample in iter(op(source)())) == [*range(200)]
    source.check(passes=2)
    wait_for_threads()


@pytest.mark.parametrize("how", ["close", "close elsewhere", "drop"])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_a_pass_that_ends_early_is_closed_there(op, how, taken):
    source = ThreadBound(200)
    plan = op(source)
    here = iter(plan) if hasattr(plan, "epoch") else start(plan)
    items = getattr(here, "items", here)
    for _ in range(taken):
        next(items)
    if how == "close":
        here.close()
    elif how == "close elsewhere":
        in_a_thread(lambda close=here.close: [close()])
    del here, items
    wait_for_threads()
    if taken:
        source.check(passes=1)


def test_a_pass_has_the_context_that_it_was_begun_in(op):
    source = ThreadBound(20)
    token = told.set("here")
    items = iter(op(source)())
    told.reset(token)
    assert len(list(items)) == 20
    source.check(1, "here")
