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
from jreader.readers import Node, Reader, at_epoch, indexed, itself, lookup_of, op, start
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import unwrapped

REORDERING = [op for op in OPS if op.moves == "rows"]


def has_seed(step):
    return getattr(step, "given", {}).get("seed", 0) is not None


_reader = Recipe(None, {}, leaf=None)
steps = st.lists(
    st.one_of(st.none(), *[op_recipes(op, st.just(_reader)) for op in REORDERING]), max_size=5
).filter(lambda each: all(map(has_seed, each)))


def noted(calls, sample):
    calls.append(sample)
    return sample


def built(recipes, reader, mapped):
    """The steps over a reader, with a map for each that is None."""
    for recipe in recipes:
        if recipe is None or isinstance(recipe, str):
            reader = (mapped[recipe] if recipe else mapped)(reader)
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
def test_a_plan_resumes_from_positions_of_releases_that_read_it_in_order(recipes, count, many):
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


def with_draw(sample, rng):
    return sample, int(rng.integers(10**6))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["map", "random map", "threads", "xmap"]),
            *[op_recipes(op, st.just(_reader)) for op in REORDERING],
        ),
        max_size=6,
    ).filter(
        lambda each: all(getattr(step, "given", {}).get("seed", 0) is not None for step in each)
    ),
    st.integers(0, 14),
    st.integers(0, 2),
)
def test_samples_and_draws_are_those_of_the_plan_that_is_read_in_order(recipes, count, epoch):
    mapped = {
        "map": partial(map_readers, str),
        "random map": lambda reader: map_samples(with_draw, reader, rng=True, seed=4),
        "threads": lambda reader: map_samples(repr, reader, threads=2),
        "xmap": lambda reader: xmap_readers(repr, reader, 2, 2, order=True),
    }
    of_arrays, in_order = (
        at_epoch(built(["map", *recipes], reader, mapped), epoch)
        for reader in (arrays(np.arange(count)), Rows(count, 0, "bare"))
    )
    if mapped_rows(of_arrays) is not None:
        assert list(of_arrays()) == list(in_order())


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
        "two random maps above one": rows.map(int)
        .map(with_draw, rng=True, seed=3)
        .map(with_draw, rng=True, seed=4),
    }[kind]


KINDS = [
    "map",
    "map on threads",
    "map with a generator",
    "map with a generator, on threads",
    "xmap",
    "two maps",
    "two random maps above one",
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
    assert list(plan) == list(unwrapped(plan).start(None).items)
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


def test_ops_of_users_stay_where_they_were_written():
    @op
    class largest(Node):
        """The largest samples first; it looks at them, also in its plane."""

        reader: Reader
        from_reader = "all"

        def start(self, at):
            return start(lambda: iter(sorted(start(self.reader).items, reverse=True)), at)

        def plane(self):
            up = indexed(self.reader)
            order = up and np.argsort(-np.asarray(up.columns))
            return up and up.reordered(up.length, lambda indices: order[indices])

    @op
    class enumerated(Node):
        """Each sample with its number."""

        reader: Reader
        in_cursor = "never"

        def start(self, at):
            items = enumerate(start(self.reader).items)
            return start(lambda: items, at)

        def lookup(self):
            find = lookup_of(self.reader)
            return find and (lambda index: (index, find(index)))

    class seeded_map(map_samples):
        seed = 5

    rows = arrays(np.arange(8))
    mapped = map_readers(lambda row: int(row) * 5 % 8, rows)
    assert list(largest(mapped)()) == [7, 6, 5, 4, 3, 2, 1, 0]
    order = list(shuffle(lambda: iter(range(8)), 8, seed=1)())
    assert list(shuffle(enumerated(rows), 8, seed=1)()) == [(row, row) for row in order]
    in_order = seeded_map(int, Rows(8, 0, "bare"))
    assert list(shuffle(seeded_map(int, rows), seed=1)()) == list(shuffle(in_order, seed=1)())


def test_an_error_of_a_map_below_a_random_one_shows_the_sample_alone():
    def failing(row):
        raise KeyError(row)

    plan = Pipeline(arrays(np.arange(3))).map(failing).map(with_draw, rng=True, seed=1)
    with pytest.raises(KeyError) as caught:
        list(plan.shuffle(seed=0))
    assert any("raised by failing(np.int64(" in note for note in caught.value.__notes__)


def test_a_subclass_that_overrides_the_pass_is_read_as_it_says():
    class backwards(map_readers):
        def start(self, at):
            up = start(self.readers[0], at)
            return up._replace(items=reversed([self.func(sample) for sample in up.items]))

    plan = shuffle(backwards(int, arrays(np.arange(5))), seed=0)
    order = list(shuffle(arrays(np.arange(5)), seed=0)())
    assert list(plan()) == [4 - row for row in order]
