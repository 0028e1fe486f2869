"""Maps over indexed readers are called for what is handed over, whatever reorders it."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice

import numpy as np
import pytest
from graphs import OPS, Recipe, op_recipes
from hypothesis import given
from hypothesis import strategies as st
from movers import Rows

from jreader import Pipeline, arrays, map_readers, map_samples, shuffle, xmap_readers
from jreader.readers import Node, at_epoch, indexed, itself, lookup_of, start
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import bare

REORDERING = [
    op
    for op in OPS
    if op.from_reader in ("all", "some")
    and op.in_cursor != "never"  # what reads ahead calls for more
    and not op.pinned
    and op.plane is not Node.plane
    and op.over_rows is Node.over_rows
]

_reader = Recipe(None, {}, leaf=None)
steps = st.lists(
    st.one_of(st.none(), *[op_recipes(op, st.just(_reader)) for op in REORDERING]), max_size=5
).filter(lambda each: all(step is None or step.given.get("seed", 0) is not None for step in each))


def noted(calls, sample):
    calls.append(sample)
    return sample


def built(recipes, reader, mapped):
    """The steps over a reader, with a map for each that is None."""
    for recipe in recipes:
        if recipe is None:
            reader = mapped(reader)
        else:
            reader = Recipe(recipe.op, recipe.given, (Recipe(None, {}, leaf=reader),)).build()
    return reader


@given(steps, st.integers(0, 14), st.integers(0, 4), st.integers(0, 2))
def test_a_map_is_called_for_the_samples_that_are_handed_over_and_no_others(
    recipes, count, many, epoch
):
    calls = []
    rows = arrays(np.arange(count))
    plan = at_epoch(built(recipes, rows, partial(map_readers, partial(noted, calls))), epoch)
    plain = at_epoch(built(recipes, rows, itself), epoch)
    if indexed(plain) is None:
        return
    samples = list(islice(plan(), many))
    assert samples == list(islice(plain(), many))
    assert sorted(calls) == sorted(recipes.count(None) * samples)


@given(steps, st.integers(0, 14), st.integers(0, 14))
def test_a_plan_goes_on_from_positions_of_releases_that_read_it_in_order(recipes, count, many):
    def over(rows):
        return built([None, *recipes], rows, partial(map_samples, float))

    plan = over(arrays(np.arange(count)))
    if mapped_rows(plan) is None:  # an epoch of `exactly` that is too short
        return
    in_order = start(over(Rows(count, 0, "bare")))
    expected = list(plan())
    done = len(list(islice(in_order.items, many)))
    position = json.loads(json.dumps(in_order.position()))
    assert list(start(plan, position).items) == expected[done:]


def of_rows(kind):
    rows = Pipeline(arrays(np.arange(20)))
    return {
        "map": rows.map(int),
        "map on threads": rows.map(int, threads=2),
        "map with a generator": rows.map(
            lambda row, rng: (int(row), int(rng.integers(1000))), rng=True, seed=3
        ),
        "map with a generator, on threads": rows.map(
            lambda row, rng: (int(row), int(rng.integers(1000))), rng=True, seed=3, threads=2
        ),
        "xmap": rows.pipe(partial(xmap_readers, int), 2, 2, order=True),
        "two maps": rows.map(int).shuffle(5, seed=9).map(float),
    }[kind]


KINDS = [
    "map",
    "map on threads",
    "map with a generator",
    "map with a generator, on threads",
    "xmap",
    "two maps",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "moved",
    [
        lambda plan: plan.shuffle(seed=1),
        lambda plan: plan.shuffle(7, seed=1),
        lambda plan: plan.skip(3).shard(2, 1),
        lambda plan: plan[[4, 0, 4]],
        lambda plan: plan.shuffle(seed=1).prefetch(2).firstn(9),
    ],
    ids=["shuffle", "windows", "shard", "select", "prefetch"],
)
def test_samples_are_those_of_the_plan_as_it_was_written(kind, moved):
    plan = moved(of_rows(kind))
    assert list(plan) == list(bare(plan).start(None).items)
    assert [plan[index] for index in range(len(plan))] == list(plan)


def test_a_random_map_draws_by_the_index_of_its_sample_also_in_other_orders():
    drawn = Pipeline(arrays(np.arange(12))).map(
        lambda row, rng: (int(row), int(rng.integers(10**6))), rng=True, seed=5
    )
    assert sorted(drawn.shuffle(seed=1)) == sorted(drawn)
    assert list(at_epoch(drawn.shuffle(seed=1), 1)()) != list(drawn.shuffle(seed=1))


def test_a_map_that_leaves_samples_out_is_read_in_order():
    calls = []
    skipping = map_samples(partial(noted, calls), arrays(np.arange(6)), on_error="skip")
    next(iter(shuffle(skipping, 6, seed=0)()))
    assert len(calls) == 6
    assert lookup_of(shuffle(skipping, 6, seed=0)) is None


def test_a_subclass_that_overrides_the_pass_is_read_as_it_says():
    class backwards(map_readers):
        def start(self, at):
            up = start(self.readers[0], at)
            return up._replace(items=reversed([self.func(sample) for sample in up.items]))

    plan = shuffle(backwards(int, arrays(np.arange(5))), seed=0)
    order = list(shuffle(arrays(np.arange(5)), seed=0)())
    assert list(plan()) == [4 - row for row in order]
