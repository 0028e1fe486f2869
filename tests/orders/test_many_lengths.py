"""Permutations of many lengths at once are those of each length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jreader.orders import key, permutation
from jreader.orders.permutations import Lengths, permutation_of_each

sizes = st.lists(
    st.one_of(st.integers(1, 40), st.integers(200, 300), st.integers(4000, 5000), st.just(2**20)),
    min_size=1,
    max_size=6,
)


@given(sizes, st.integers(0, 9))
def test_each_index_is_moved_as_the_permutation_of_its_length_moves_it(sizes, seed):
    lengths, indices, which = drawn(sizes, seed)
    moved = permutation_of_each(indices, which, lengths)
    for number, size in enumerate(sizes):
        mine = which == number
        expected = permutation(indices[mine], size, key(seed, 1, number))
        np.testing.assert_array_equal(moved[mine], expected)


@pytest.mark.parametrize("sizes", [[3, 16, 17, 300, 5000], [2**20, 70000], [1, 2]])
def test_a_trace_moves_them_alike(sizes):
    seed = 3
    lengths, indices, which = drawn(sizes, seed)

    @jax.jit
    def traced(sizes, indices, which, seed):
        keys = key(seed, 1, jnp.arange(len(sizes)))
        of = Lengths(sizes, keys, lengths.least, lengths.most)
        return permutation_of_each(indices, which, of)

    given_ = map(jnp.asarray, (lengths.sizes, indices, which))
    np.testing.assert_array_equal(
        traced(*given_, seed), permutation_of_each(indices, which, lengths)
    )


def drawn(sizes, seed):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, len(sizes), 200)
    indices = (rng.random(200) * np.array(sizes)[which]).astype(int)
    keys = key(seed, 1, np.arange(len(sizes)))
    return Lengths(np.array(sizes), keys, min(sizes), max(sizes)), indices, which
