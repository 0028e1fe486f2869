"""Weights of a mixture as a traced argument: the stream of a loader with these weights."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples, few

import jreader
from jreader import Pipeline, arrays, mix
from jreader.orders.turns import TRACED_SUM, Turns

LENGTHS = {"web": 20, "code": 130, "books": 9}
MANY = len(LENGTHS)


def rows(number, length):
    here = np.arange(length, dtype=np.float32) + 1000 * number
    return Pipeline(arrays(x=here, of=np.full(length, number)))


def mixed(weights=None, seed=0, **options):
    readers = {name: rows(at, length) for at, (name, length) in enumerate(LENGTHS.items())}
    readers["code"] = readers["code"].shuffle(seed=seed)
    return Pipeline(mix(readers, weights, seed=seed, **{"stop": "repeat", **options}))


def equal(feed, other):
    jax.tree.map(np.testing.assert_array_equal, feed, other)


def shares(most):
    return st.lists(st.integers(0, most), min_size=MANY, max_size=MANY).filter(any)


turns = jax.jit(lambda weights, numbers, seed: Turns.traced(weights).at(numbers, (seed, 0)))


@given(st.one_of(shares(9), shares(10**6), shares(TRACED_SUM // MANY - 1)), st.integers(0, 99))
@examples(500)
def test_traced_turns_are_those_of_the_host_by_law(weights, seed):
    drawn = np.random.default_rng(seed).integers(0, 2**31 - 1, 60)
    numbers = np.concatenate([np.arange(70), drawn])
    active = np.flatnonzero(weights)
    which, sample = Turns([weights[source] for source in active]).at(numbers, (seed, 0))
    traced = turns(jnp.asarray(weights), jnp.asarray(numbers), seed)
    np.testing.assert_array_equal(traced[0], active[which])
    np.testing.assert_array_equal(traced[1], sample)


@pytest.mark.parametrize("weights", [(TRACED_SUM - 3, 1, 1), (0, 1, 0), (1, 0, 2**29)])
def test_traced_turns_are_those_of_the_host_up_to_the_largest_sum(weights):
    test_traced_turns_are_those_of_the_host_by_law.hypothesis.inner_test([*weights], 1)


PLANS = {
    "as it is": lambda plan: plan,
    "a shard of it": lambda plan: plan.skip(7).shard(2, 1),
    "shuffled once more": lambda plan: plan.firstn(90).shuffle(seed=5),
    "shuffled in windows": lambda plan: plan.shuffle(8, seed=5),
}


@cache
def program(name):
    """The data of a plan, and its function, which is compiled once for all examples."""
    held, batch_at = jreader.as_function(PLANS[name](mixed()).batch(9))
    return held, jax.jit(batch_at)


@pytest.mark.parametrize("name", few(PLANS, ["a shard of it"]))
@given(shares(20), st.integers(0, 2))
@examples(60)
def test_a_traced_mixture_is_that_of_a_loader_with_these_weights_by_law(name, weights, epoch):
    held, batch_at = program(name)
    loader = PLANS[name](mixed(weights)).batch(9).load(capacity=0)
    for step, feed in zip(range(4), loader.epoch(epoch), strict=False):
        equal(batch_at(held, epoch, step, None, jnp.asarray(weights)), feed)


def test_runs_of_other_seeds_and_mixtures_are_one_program_each_as_its_loader():
    held, batch_at = jreader.as_function(mixed().batch(16))
    every = batch_at.weights([6, 3, 1])

    @jax.jit
    def runs(held, seeds, sweep):
        def run(seed, weights):
            return jax.lax.map(lambda step: batch_at(held, 1, step, seed, weights), jnp.arange(5))

        return jax.vmap(run)(seeds, sweep)

    without_one = np.where(np.eye(MANY, dtype=bool), 0, every)
    sweep = np.stack([every, *without_one, batch_at.weights(dict.fromkeys(LENGTHS, 0.5))])
    feeds = runs(held, jnp.arange(len(sweep)), sweep)
    for run, weights in enumerate(sweep.tolist()):
        loader = mixed(weights, run).batch(16).load(capacity=0)
        for step, feed in zip(range(5), loader.epoch(1), strict=False):
            equal(jax.tree.map(lambda leaf, at=(run, step): leaf[at], feeds), feed)
    assert all(number not in np.asarray(feeds["of"][number + 1]) for number in range(MANY))


def test_weights_on_the_host_are_those_of_mix():
    held, batch_at = jreader.as_function(mixed().batch(8))
    weights = {"web": 0.7, "code": 0.3, "books": 0}
    assert batch_at.weights(weights).tolist() == [7, 3, 0]
    feed = next(iter(mixed(weights).batch(8).load()))
    for given_ in (weights, [0.7, 0.3, 0], np.array([14, 6, 0]), jnp.array([7, 3, 0])):
        equal(batch_at(held, 0, 0, weights=given_), feed)


def test_a_mixture_without_an_end_has_steps_and_no_length():
    held, batch_at = jreader.as_function(mixed().batch(8), last="pad")
    feeds = mixed().batch(8).load(last="pad").steps(100)
    equal(batch_at(held, 0, 99), list(feeds)[-1])
    with pytest.raises(TypeError, match=r"has no end: count steps yourself"):
        len(batch_at)
    with pytest.raises(ValueError, match=r"add \.firstn\(n\) before \.batch"):
        mixed().batch(8).load(resident=True)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1, 2], ValueError, r"needs 3 numbers"),
        ([0, 0, 0], ValueError, r"are all 0"),
        ({"web": 1}, ValueError, r"no number for \['code'"),
        ([0.123456789012, 0.7, 1], ValueError, r"less than 2\*\*30 is needed: round them"),
        (jnp.array([1, -1, 2]), ValueError, r"that of 'code' is -1"),
    ],
)
def test_weights_that_are_no_mixture_are_refused(weights, error, message):
    held, batch_at = jreader.as_function(mixed().batch(8))
    with pytest.raises(error, match=message):
        batch_at(held, 0, 0, weights=weights)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (jnp.ones(3), TypeError, r"whole numbers, not float32: .* batch_at\.weights\(\["),
        (jnp.ones((2, 3), int), ValueError, r"shape \(2, 3\): .* use jax\.vmap"),
    ],
)
def test_traced_weights_of_another_form_are_refused(weights, error, message):
    held, batch_at = jreader.as_function(mixed().batch(8))
    with pytest.raises(error, match=message):
        jax.jit(batch_at)(held, 0, 0, weights=weights)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda: rows(0, 9), r"one mix, and .* has 0: leave weights out"),
        (lambda: mixed().firstn(90).mix(rows(0, 9), seed=1), r"has 2"),
        (lambda: mixed(stop="first"), r"an end that follows from its weights: .* stop='repeat'"),
        (lambda: mixed(at={9: [1, 1, 1]}), r"weights that change: .* without at"),
    ],
)
def test_a_plan_without_one_endless_mixture_takes_no_weights(plan, message):
    held, batch_at = jreader.as_function(plan().batch(1))
    with pytest.raises(TypeError, match=message):
        batch_at(held, 0, 0, weights=[1, 1, 1])
