"""Turns of mixtures: shares at the ends of blocks, own orders, the same under NumPy and a trace."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples, few

from jreader.orders.turns import RUN, Turns

drawn = np.random.default_rng(14)
MANY = tuple(drawn.integers(1, 100, 200).tolist())
SKEWED = tuple((10 ** drawn.uniform(0, 6, 200)).astype(int).tolist())
WEIGHTS = {
    "one": (1,),
    "equal": (1, 1),
    "7 : 3": (7, 3),
    "four": (5, 3, 2, 1),
    "a rare one": (3000, 1),
    "primes": (101, 103, 107),
    "200": MANY,
    "200, up to 10**6 : 1": SKEWED,
    "large numbers": (2**45 + 7, 2**44 + 11, 12345678901),
}
small = st.lists(st.integers(1, 60), min_size=1, max_size=9).map(tuple)


def deal(weights, turns, path=(7, 0), **settled):
    return Turns(weights).at(turns, path, **settled)


@given(small, st.integers(0, 9), st.integers(2, 700))
def test_each_source_gives_its_samples_in_their_order(weights, seed, many):
    which, sample = deal(weights, np.arange(many), (seed, 1))
    for source in range(len(weights)):
        mine = sample[which == source]
        assert mine.tolist() == list(range(len(mine)))


@pytest.mark.parametrize("name", WEIGHTS)
def test_counts_are_within_one_sample_of_the_weights_at_the_end_of_every_block(name):
    weights = WEIGHTS[name]
    turns, total = Turns(weights), sum(weights)
    for end in drawn.integers(1, 10**12 // turns.block, 40).tolist():
        counts = turns.counts(end * turns.block)
        assert sum(counts) == end * turns.block
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count - Fraction(end * turns.block * weight, total)) < 1


@pytest.mark.parametrize("name", ["7 : 3", "four", "primes", "200", "a rare one"])
def test_counts_are_those_of_the_turns_one_by_one(name):
    weights = WEIGHTS[name]
    turns = Turns(weights)
    which, _ = turns.at(np.arange(2 * turns.block), (3, 1))
    for turn in [*drawn.integers(0, 2 * turns.block, 30).tolist(), turns.block]:
        counted = np.bincount(which[:turn], minlength=len(weights))
        assert turns.counts(turn, (3, 1)) == tuple(counted.tolist())


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_turn_of_every_sample_is_found_from_its_source_and_number(name):
    turns = Turns(WEIGHTS[name])
    for end in (1000, 10**6, 10**9, 10**13):
        some = drawn.integers(0, end, 200)
        for settled in (None, int(some[0]) // RUN):
            which, sample = turns.at(some, (3, 1), settled)
            found = turns.turns_of(which.astype(int), sample, (3, 1), settled)
            assert found.tolist() == some.tolist()


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_source_has_a_turn_in_every_block_and_its_share_of_every_aligned_run(name):
    weights = WEIGHTS[name]
    turns, shares = Turns(weights), np.array(weights) / sum(weights)
    run = min(turns.block, 1 << 12)
    for first in (0, turns.block * 10**6, turns.block * 10**8 + run * 3):
        which, _ = turns.at(first + np.arange(run), (0, 0))
        for size in (4, RUN, run):
            for part in which.reshape(-1, size)[:20]:
                counts = np.bincount(part, minlength=len(weights))
                assert (abs(counts - size * shares) < 2).all()
    if run == turns.block:
        assert (np.bincount(which, minlength=len(weights)) >= 1).all()


@given(small, st.integers(0, 2**40), st.integers(0, 3))
def test_any_turns_in_any_order_are_those_of_a_row_of_them(weights, first, seed):
    turns = first + np.arange(400)
    which, sample = deal(weights, turns, (seed, 0))
    order = np.random.default_rng(seed).permutation(400)
    apart = order[:3] * 10**6
    for some in (order, order[:1], order[:0]):
        there = deal(weights, turns[some], (seed, 0))
        assert (there[0] == which[some]).all()
        assert (there[1] == sample[some]).all()
    several = deal(weights, np.concatenate([turns[:5], turns[0] + apart]), (seed, 0))
    assert (several[0][:5] == which[:5]).all()
    assert (several[1][:5] == sample[:5]).all()


@pytest.mark.parametrize(
    "name",
    few(WEIGHTS, ("one", "four", "primes")),
)
def test_a_trace_of_32_bits_deals_the_same_turns(name):
    weights = WEIGHTS[name]
    turns = np.concatenate([np.arange(100), drawn.integers(0, 2**31, 200), [2**31 - 1]])

    @jax.jit
    def traced(turns, epoch):
        return Turns(weights).at(turns, (7, epoch, 1))

    for epoch in (0, 5):
        which, sample = deal(weights, turns, (7, epoch, 1))
        there = traced(jnp.asarray(turns, jnp.int32), epoch)
        assert (np.asarray(there[0]) == which).all()
        assert (np.asarray(there[1]) == sample).all()


@given(small, st.integers(0, 10**6))
@examples(50)
def test_a_trace_deals_any_weights_as_the_host_does(weights, first):
    turns = first + np.arange(70)
    which, sample = deal(weights, turns)
    there = Turns(weights).at(jnp.asarray(turns), (7, 0))
    assert (np.asarray(there[0]) == which).all()
    assert (np.asarray(there[1]) == sample).all()


def test_an_epoch_of_each_turn_may_be_traced():
    turns, epochs = np.arange(100), np.arange(100) // 10
    which, sample = Turns((2, 1)).at(jnp.asarray(turns), (7, jnp.asarray(epochs)))
    for epoch in range(10):
        mine = slice(epoch * 10, epoch * 10 + 10)
        alone = deal((2, 1), turns[mine], (7, epoch))
        assert (np.asarray(which)[mine] == alone[0]).all()
        assert (np.asarray(sample)[mine] == alone[1]).all()


def test_seeds_and_epochs_choose_the_order_of_a_block_and_keep_its_counts():
    turns = np.arange(RUN)
    orders = {
        tuple(deal((7, 3), turns, (seed, epoch))[0]) for seed in range(9) for epoch in range(9)
    }
    assert len(orders) == 81
    assert {order.count(1) for order in orders} == {20}


def test_every_turn_of_a_run_goes_to_each_source_as_often_as_its_share():
    """Over many blocks: no place of a run belongs to one source."""
    which, _ = deal((3, 1), np.arange(RUN * 4000), (1, 2))
    shares = which.reshape(-1, RUN).mean(0)
    assert (abs(shares - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)).all()


def test_neighbours_of_different_pairs_are_independent():
    """Of two equal sources each pair of turns has both, in an order that no other pair tells."""
    which, _ = deal((1, 1), np.arange(RUN * 4000), (5,))
    pairs = which.reshape(-1, RUN // 2, 2)
    assert (pairs.sum(2) == 1).all()
    first = pairs[:, :, 0] - 0.5
    correlated = 4 * (first.T @ first) / len(first) - np.eye(RUN // 2)
    assert abs(correlated).max() < 5 / np.sqrt(len(first))


@given(small, st.integers(0, 30))
def test_a_settled_run_has_one_order_for_all_keys_and_others_keep_theirs(weights, settled):
    turns = np.arange(RUN * 31)
    one, other = (deal(weights, turns, (seed,), settled=settled)[0] for seed in (1, 2))
    mine = turns // RUN == settled
    assert (one[mine] == other[mine]).all()
    assert (one[~mine] == deal(weights, turns, (1,))[0][~mine]).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_source_is_found_empty_in_the_run_of_its_first_sample_too_many(name):
    weights = WEIGHTS[name]
    turns = Turns(weights)
    lengths = drawn.integers(0, 10**6, len(weights)).tolist()
    runs = turns.found_empty(lengths)
    for source in range(0, len(weights), 1 + len(weights) // 5):
        before, after = (turns.counts((runs[source] + more) * RUN)[source] for more in (0, 1))
        assert before <= lengths[source] < after
    assert min(turns.found_empty([None] * len(weights))) == (1 << 46) // RUN


PINNED = {
    (7, 3): "0101100010000010001000100100100110010100010000101000100001101000",
    (1, 1, 2): "1202212021202021202102211202210220121202122020212102210212202102",
}


@pytest.mark.parametrize("weights", PINNED)
def test_an_order_never_changes(weights):
    which, _ = deal(weights, np.arange(RUN), (42, 1, 1, 0))
    assert "".join(map(str, which.tolist())) == PINNED[weights]


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=17).map(tuple),
    st.integers(0, 10**12),
    st.integers(1, 400),
    st.integers(0, 9),
    st.integers(0, 8),
)
@examples(60)
def test_turns_in_a_row_are_those_that_are_asked_for_one_by_one(weights, first, many, seed, back):
    turns = np.arange(first, first + many)
    settled = first // RUN + back if back else None
    order = np.random.default_rng(seed).permutation(many)
    which, sample = deal(weights, turns, (seed, 1), settled=settled)
    mixed_which, mixed_sample = deal(weights, turns[order], (seed, 1), settled=settled)
    assert (which[order] == mixed_which).all()
    assert (sample[order] == mixed_sample).all()
    assert (which.dtype, sample.dtype) == (mixed_which.dtype, mixed_sample.dtype)
