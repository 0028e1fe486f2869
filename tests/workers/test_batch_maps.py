"""`map_batches` on threads and in processes: the batches, positions and errors of one thread."""

import os
import re
import threading

import numpy as np
import pytest
from engines import seen
from seen import see

import jreader
from jreader import Pipeline, arrays

ENGINES = [{"threads": 3}, {"processes": 2}]


def doubled(columns):
    return {"x": columns["x"] * 2, "who": np.full(len(columns["x"]), os.getpid())}


def halves(columns):
    return columns[: len(columns) // 2] * 1.0


def lengths(samples):
    return np.array([len(sample) for sample in samples])


def bad(columns):
    if 5 in columns:
        raise ValueError("bad five")
    return columns


def forgetful(columns):
    columns + 1  # what a user forgot


def unsendable(columns):
    return np.array([threading.Lock() for _ in columns])


def rows(count=22):
    return Pipeline(arrays(np.arange(count))).shuffle(seed=3)


PLANS = {
    "rows": lambda **on: rows().batch(4).map_batches(halves, **on).epochs(2),
    "a stream": lambda **on: Pipeline(lambda: range(9)).batch(2).map_batches(np.negative, **on),
    "lists": lambda **on: (
        Pipeline(lambda: ["a", "bb", "ccc"]).batch(2).map_batches(lengths, stacked=False, **on)
    ),
    "above other maps": lambda **on: (
        rows().map(np.square, **on).batch(3).map_batches(np.negative, **on)
    ),
}


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("on", ENGINES)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_batches_and_positions_are_those_of_one_thread(plan, on):
    here, there = see(plan()), see(plan(**on))
    assert seen(plan(**on)) == seen(plan())
    assert [len(batch) for batch in there.samples] == [len(batch) for batch in here.samples]
    for place in range(len(here.positions)):
        assert see(plan(**on), here.positions[place]).samples == here.samples[place:]
        assert see(plan(), there.positions[place]).samples == here.samples[place:]


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("on", ENGINES)
def test_a_loader_feeds_and_resumes_with_another_engine(on):
    def loader(**on):
        return rows().batch(4).map_batches(halves, **on).load(sharding="host", last="pad")

    plain = [feed["x"] if isinstance(feed, dict) else feed for feed in loader()]
    feeds = loader(**on).epoch(0)
    next(feeds)
    rest = list(loader().epoch(0, at=feeds.cursor))
    assert repr([next(loader(**on).epoch(0)), *rest]) == repr(plain)


def test_other_processes_do_the_work(pool):
    plan = Pipeline(arrays(x=np.arange(40))).batch(4).map_batches(doubled, processes=2)
    batches = list(plan)
    assert np.concatenate([batch.columns["x"] for batch in batches]).tolist() == [*range(0, 80, 2)]
    assert os.getpid() not in np.concatenate([batch.columns["who"] for batch in batches])


def test_threads_work_side_by_side():
    both = threading.Barrier(2, timeout=30)

    def meets(columns):
        both.wait()
        return columns

    assert len(list(rows(4).batch(2).map_batches(meets, threads=2))) == 2


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("on", [{}, *ENGINES])
@pytest.mark.parametrize(
    ("fn", "error", "note"),
    [
        (bad, "bad five", r"raised by bad\(int64\[2\]\) in map_batches, made at .*batch_maps.py"),
        (forgetful, "lack a return", r"given by forgetful in map_batches, made at .*batch_maps.py"),
    ],
)
def test_an_error_comes_after_the_good_batches_and_names_function_and_line(on, fn, error, note):
    plan = Pipeline(arrays(np.arange(8))).batch(2).map_batches(fn, **on)
    batches = iter(plan)
    good = [next(batches).columns.tolist() for _ in range(2 * (fn is bad))]
    assert good == [[0, 1], [2, 3]][: len(good)]
    with pytest.raises(ValueError, match=error) as raised:
        next(batches)
    assert any(re.match(note, told) for told in raised.value.__notes__)


@pytest.mark.usefixtures("pool")
def test_a_result_that_cannot_be_sent_names_function_and_line():
    plan = Pipeline(arrays(np.arange(8))).batch(2).map_batches(unsendable, processes=2)
    with pytest.raises(TypeError, match="cannot") as raised:
        list(plan)
    assert "unsendable" in str(raised.value.__notes__)
    assert "map_batches, made at" in str(raised.value.__notes__)


def test_a_batch_map_prints_as_it_was_written():
    plan = rows(4).batch(2)
    assert str(plan.map_batches(halves, threads=2)).endswith(".map_batches(halves, threads=2)")
    assert str(plan.map_batches(halves, processes=2)).endswith(".map_batches(halves, processes=2)")


def test_one_kind_of_workers_is_asked_for():
    with pytest.raises(TypeError, match=r"threads=n.*processes=n.*one of them"):
        rows().batch(2).map_batches(halves, threads=2, processes=2)
    with pytest.raises(ValueError, match="threads"):
        jreader.map_batches(halves, rows().batch(2), threads=-1)
