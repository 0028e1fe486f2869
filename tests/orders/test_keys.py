"""A key follows from its numbers alone: other numbers, another key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jreader.orders import key, permutation


def equal(left, right):
    return all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((42, 1), (43, 0)),
        ((42, 1, 2), (42, 2, 1)),
        ((7,), (7, 0)),
        ((0,), (0, 0)),
        ((7,), (7 + (1 << 32),)),
        ((7,), (7 + (1 << 64),)),
        ((7,), (7 + (1 << 128),)),
        ((7 + (3 << 64),), (7, 3)),
        ((1 << 64,), (0, 1)),
        ((7, 1), (7, 1 + (1 << 32))),
    ],
)
def test_other_numbers_give_another_order(one, other):
    orders = [permutation(np.arange(60), 60, key(*path)) for path in (one, other)]
    assert (orders[0] == orders[1]).sum() < 10


def test_one_bit_of_any_number_changes_half_of_the_key():
    numbers = np.random.default_rng(0).integers(0, 1 << 63, (3, 2000), dtype=np.uint64)
    before = key(*numbers)
    whole = before.low.astype(np.uint64) << 32 | before.high
    for place in range(3):
        for bit in range(64):
            flipped = numbers.copy()
            flipped[place] ^= np.uint64(1 << bit)
            changed = key(*flipped)
            other = changed.low.astype(np.uint64) << 32 | changed.high
            per_bit = ((whole ^ other)[:, None] >> np.arange(64, dtype=np.uint64) & 1).mean(0)
            assert (abs(per_bit - 0.5) < 0.07).all(), (place, bit)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
@settings(deadline=None)
def test_arrays_give_the_keys_of_equal_ints(seed, entry):
    expected = key(seed, entry)
    assert equal(expected, key(np.uint64(seed), np.array(entry, np.uint64)))
    many = key(np.array([seed, 1], np.uint64), np.array([[entry]], np.uint64))
    assert many.low.shape == (1, 2)
    assert equal(expected, [word[0, 0] for word in many])
    for dtype in (np.int64, np.int32, np.uint32, np.uint8):
        if entry <= np.iinfo(dtype).max:
            assert equal(expected, [word[0] for word in key(seed, np.array([entry], dtype))])


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**32 - 1])
def test_traced_numbers_give_the_keys_of_equal_ints(seed):
    expected = key(seed, 3, 1)
    traced = jax.jit(lambda seed, epoch: key(seed, epoch, 1))
    assert equal(expected, traced(jnp.uint32(seed), 3))
    assert equal(expected, key(jnp.uint32(seed), jnp.int32(3), 1))
    mapped = jax.vmap(lambda seed: key(seed, 3, 1))(jnp.array([seed, 5], jnp.uint32))
    assert equal(expected, [word[0] for word in mapped])
    assert mapped.low.dtype == jnp.uint32


def test_a_shared_key_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        key(7, 1).low[...] = 0


@pytest.mark.parametrize(
    ("numbers", "error", "said"),
    [
        ((-3,), ValueError, f"seed is -3.*type {2**64 - 3}"),
        ((1, -3), ValueError, r"path\[0\] is -3"),
        ((1, 0, 1 << 64), ValueError, r"path\[1\] is 18446744073709551616"),
        ((1.0,), TypeError, "seed is 1.0.*type an int"),
        ((True,), TypeError, "seed is True.*type an int"),
        ((np.bool_(1),), TypeError, "seed is True"),
        (("7",), TypeError, "seed is '7'"),
        ((None,), TypeError, "seed is None"),
        ((1, 2.5), TypeError, r"path\[0\] is 2.5"),
        ((1, np.array([1.5])), TypeError, r"path\[0\] holds float64.*type path\[0\].astype"),
        ((1, np.array([True])), TypeError, r"path\[0\] holds bool"),
        ((1, np.array([3, -1])), ValueError, r"path\[0\] holds -1"),
        ((jnp.array([1.5]),), TypeError, "seed holds float32"),
    ],
)
def test_what_is_no_number_is_refused(numbers, error, said):
    with pytest.raises(error, match=said):
        key(*numbers)
