"""A plan that a plain function iterates by itself: no epoch reaches it, and that is told."""

from __future__ import annotations

import linecache
import warnings

import numpy as np
import pytest
from samples import check_resumes_everywhere

from jreader import DataLoader, IterableDataset, Pipeline, arrays, at_epoch, batch, chain, epochs
from jreader.datasets import ChainDataset

pytestmark = pytest.mark.usefixtures("by_value")

ROWS = Pipeline(arrays(np.arange(8.0)))
PLANS = {
    "shuffle": ROWS.shuffle(seed=0),
    "window": Pipeline(lambda: iter(range(8))).shuffle(4, seed=0),
    "unseeded": ROWS.shuffle(),
    "random map": ROWS.map(lambda n, rng: n + rng.random(), rng=True, seed=0),
    "below": ROWS.shuffle(seed=0).map(float).firstn(7),
    "not a pipeline": ROWS.shuffle(seed=0).reader,
}
FIXED = {
    "in order": ROWS,
    "cached": ROWS.shuffle(seed=0).cache(),
}


def looping(plan):
    def reader():
        for sample in plan():
            yield sample + 0

    return reader


def helped(plan):
    def helper():
        yield from plan()

    def reader():
        yield from zip(helper(), strict=True)

    return reader


class Samples(IterableDataset):
    def __init__(self, plan):
        self.plan = plan

    def __iter__(self):
        for sample in self.plan():
            yield sample + 0


READERS = {
    "generator": looping,
    "generator with a helper": helped,
    "map": lambda plan: lambda: map(float, plan()),
    "generator expression": lambda plan: lambda: (sample for sample in plan()),
    "its pass": lambda plan: lambda: iter(plan()),
    "data set": Samples,
}
LATER = {
    "loader": lambda reader: Pipeline(reader).batch(2).load().steps(20),
    "threads": lambda reader: Pipeline(reader).map(abs, threads=2).batch(2).load().steps(20),
    "epochs": lambda reader: Pipeline(reader).epochs(3),
    "epochs in a loader": lambda reader: epochs(batch(reader, 4), 2)(),
    "a later epoch": lambda reader: Pipeline(reader).batch(2).load().epoch(3),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("plan", PLANS)
def test_a_shuffled_plan_inside_a_plain_function_warns_at_its_line(plan, reader):
    with pytest.warns(UserWarning, match="no epoch reaches it") as told:
        list(Pipeline(READERS[reader](PLANS[plan])).epochs(3))
    assert {each.filename for each in told} == {__file__}
    assert f"iterates {PLANS[plan]!r}, made at {PLANS[plan].made_at}" in str(told[0].message)
    lines = {linecache.getline(each.filename, each.lineno) for each in told}
    assert all("plan" in line for line in lines)


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("reader", ["generator", "data set", "generator expression"])
def test_whoever_counts_the_epochs(later, reader):
    with pytest.warns(UserWarning, match="no epoch reaches it"):
        list(LATER[later](READERS[reader](PLANS["shuffle"])))


@pytest.mark.parametrize(
    "chained",
    [lambda given: Pipeline(chain(*given)), lambda given: Pipeline(ChainDataset(given))],
    ids=["chain", "ChainDataset"],
)
def test_whichever_of_several_it_is(chained):
    plain, shuffled = Samples(ROWS), Samples(PLANS["shuffle"])
    with pytest.warns(UserWarning, match="no epoch reaches it") as told:
        list(chained([plain, shuffled]).epochs(2))
    assert {each.filename for each in told} == {__file__}
    assert len(list(chained([plain, shuffled]))) == 16  # and this is no epoch


def test_a_data_set_of_a_loader_is_no_exception():
    loader = DataLoader(Samples(PLANS["shuffle"]), 2)
    list(loader)
    with pytest.warns(UserWarning, match="no epoch reaches it"):
        list(loader)


def test_a_worker_that_reads_it_warns(capfd):
    loader = DataLoader(Samples(PLANS["shuffle"]), 2, num_workers=1)
    list(loader.steps(4))
    assert capfd.readouterr().err == ""
    list(loader.epoch(1))
    assert "no epoch reaches it" in capfd.readouterr().err


@pytest.mark.parametrize("reader", READERS)
class TestNoWarning:
    """Warnings are errors in these tests."""

    @pytest.mark.parametrize("plan", FIXED)
    def test_is_given_of_a_plan_that_is_in_one_order(self, plan, reader):
        assert len(list(Pipeline(READERS[reader](FIXED[plan])).epochs(3))) == 24

    def test_is_given_of_equal_passes(self, reader):
        plain = Pipeline(READERS[reader](PLANS["shuffle"]))
        assert list(plain) == list(plain)

    def test_is_given_of_a_first_epoch(self, reader):
        assert len(list(Pipeline(READERS[reader](PLANS["shuffle"])).batch(2).load().epoch(0))) == 4

    def test_is_given_of_a_plan_that_epochs_reach(self, reader):
        plain = READERS[reader](ROWS)
        assert (
            len(
                {
                    tuple(map(float, np.ravel(each)))
                    for each in Pipeline(plain).shuffle(8, seed=0).batch(8).epochs(3)
                }
            )
            == 3
        )


def test_another_loader_inside_counts_its_own_epochs():
    def reader():
        for epoch in range(2):
            for feed in inner.epoch(epoch):
                yield feed["x"]

    inner = Pipeline(arrays(x=np.arange(8.0))).shuffle(seed=0).batch(2).load(sharding="host")
    assert len(list(Pipeline(reader).epochs(2))) == 16


def test_a_plain_function_inside_is_in_an_epoch_of_its_own():
    def reader():
        yield from Pipeline(looping(PLANS["shuffle"])).epochs(1)()

    assert len(list(Pipeline(reader).epochs(2))) == 16


def test_it_warns_once_for_each_line():
    plain = looping(PLANS["shuffle"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        list(Pipeline(plain).epochs(5))
        list(Pipeline(plain).epochs(5))
    assert len(told) == 1


class TestFlatMap:
    def test_epochs_reach_a_plan_that_its_function_gives(self):
        plan = Pipeline(lambda: "ab").flat_map(lambda _: PLANS["shuffle"])
        passes = [list(map(float, epoch)) for epoch in (plan, at_epoch(plan, 1), at_epoch(plan, 2))]
        assert len({tuple(each) for each in passes}) == 3
        assert [sorted(each[:8]) for each in passes] == [[*range(8)]] * 3
        check_resumes_everywhere(epochs(plan, 2))

    @pytest.mark.parametrize("inner", ["shuffle", "below"])
    def test_a_generator_that_iterates_one_warns(self, inner):
        plan = Pipeline(lambda: "ab").flat_map(lambda _: looping(PLANS[inner])())
        assert list(plan) == list(plan)
        with pytest.warns(UserWarning, match="no epoch reaches it"):
            list(plan.epochs(2))
