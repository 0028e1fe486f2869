"""Blocks in random order, then samples within groups of them: any place by itself."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import few

from jreader.orders import key, permutation
from jreader.orders.block_orders import BlockOrder

sizes = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 90)), min_size=1, max_size=30)


def by_hand(sizes, together, path, lanes=1):
    """The definition, with lists."""
    starts = np.cumsum([0, *sizes])
    blocks = [np.arange(size) + start for size, start in zip(sizes, starts, strict=False) if size]
    order = permutation(np.arange(len(blocks)), len(blocks), key(*path, 0)) if blocks else []
    laid, owned, done = [(block, row) for block in order for row in blocks[block]], [], 0
    for lane in range(lanes):
        size = len(laid) // lanes + (lane < len(laid) % lanes)
        owned.append(laid[done : done + size])
        done += size
    made = [in_groups(part, together) for part in owned]
    most = groups_of_a_lane([len(block) for block in blocks], together, lanes)
    rows = [None] * len(laid)
    for lane, groups in enumerate(made):
        dealt = []
        for group, held in enumerate(groups):
            chosen = key(*path, lane * most + group + 1)
            dealt += np.array(held)[permutation(np.arange(len(held)), len(held), chosen)].tolist()
        rows[lane::lanes] = dealt
    return rows


def in_groups(part, together):
    """The rows of a lane, by groups of so many blocks."""
    groups, seen = [], []
    for block, row in part:
        if block not in seen:
            if len(seen) % together == 0:
                groups.append([])
            seen.append(block)
        groups[-1].append(row)
    return groups


def groups_of_a_lane(sizes, together, lanes):
    """How many numbers of groups a lane has: the most that it can need."""
    if lanes == 1:
        return len(sizes)
    inside = np.cumsum(sorted(sizes))
    most = min(int((inside <= sum(sizes) // lanes + 1).sum()) + 2, len(sizes))
    return -(-most // together)


def order_of(sizes, together, lanes=1):
    return BlockOrder(np.cumsum([0, *sizes])[:-1], sum(sizes), together, lanes)


@given(sizes, st.integers(1, 9), st.integers(0, 5), st.integers(1, 12), st.data())
def test_every_place_has_the_sample_that_the_definition_says(sizes, together, epoch, lanes, data):
    order, path = order_of(sizes, together, lanes), (7, epoch, 1)
    expected = np.array(by_hand(sizes, together, path, lanes), int)
    assert sorted(expected.tolist()) == list(range(sum(sizes)))
    np.testing.assert_array_equal(order.rows(np.arange(sum(sizes)), path), expected)
    if sum(sizes):
        some = data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=20))
        places = np.array(some, int)
        np.testing.assert_array_equal(order.rows(places, path), expected[places])


def test_a_group_has_the_samples_of_so_many_blocks_and_no_others():
    order = order_of([10] * 12, 3)
    rows = order.rows(np.arange(120), (1, 0, 1)).reshape(4, 30)
    assert [len({*(part // 10).tolist()}) for part in rows] == [3] * 4
    assert sorted(rows.ravel().tolist()) == list(range(120))


UNEVEN, ONE, EQUAL = [3, 0, 20, 7, 1, 300], [5], [4] * 40
PAIRS = [  # any two of sizes, groups and lanes meet; each case is compiled
    *[(UNEVEN, 1, 1), (UNEVEN, 3, 4), (UNEVEN, 99, 7)],
    *[(ONE, 3, 7), (ONE, 99, 1), (ONE, 1, 4)],
    *[(EQUAL, 99, 4), (EQUAL, 1, 7), (EQUAL, 3, 1)],
]


@pytest.mark.parametrize(("sizes", "together", "lanes"), few(PAIRS, [(UNEVEN, 3, 4)]))
def test_a_trace_has_the_same_order_in_every_epoch(sizes, together, lanes):
    order, places = order_of(sizes, together, lanes), np.arange(sum(sizes))

    @jax.jit
    def traced(places, epoch):
        return order.rows(places, (7, epoch, 1))

    for epoch in (0, 5):
        expected = order.rows(places, (7, epoch, 1))
        np.testing.assert_array_equal(traced(jnp.asarray(places), jnp.array([epoch])), expected)
    several = np.arange(sum(sizes)) % 3
    found = traced(jnp.asarray(places), jnp.asarray(several))
    by_epoch = np.array([order.rows(places, (7, epoch, 1)) for epoch in range(3)])
    np.testing.assert_array_equal(found, by_epoch[several, places])


def test_lanes_share_the_blocks_at_their_borders_alone():
    order = order_of([10] * 100, 2, 8)
    blocks = [
        set((order.rows(np.arange(lane, 1000, 8), (1, 0, 1)) // 10).tolist()) for lane in range(8)
    ]
    for lane, other in itertools.combinations(range(8), 2):
        assert len(blocks[lane] & blocks[other]) <= (other - lane == 1)
    assert sum(map(len, blocks)) <= 100 + 7
