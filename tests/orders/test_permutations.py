"""An order is the same for one index, for blocks, for windows, and inside jax."""

from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from widths import examples, few

from jreader.orders import key, order, permutation, windows

LENGTHS = [1, 2, 3, 13, 16, 17, 32, 97, 255, 1009, 4099, 65536, 65537, 65539]
LONG = [10**6 + 3, 2**30, 2**30 + 1, 2**31 - 1, 2**31]


def some_indices(n, count=500):
    ends = [0, n - 1, n // 2]
    drawn = np.random.default_rng(n % 1009).integers(0, n, count)
    return np.concatenate([ends, drawn])


@given(st.integers(1, 1 << 48), st.integers(0, 1 << 70), st.integers(0, (1 << 64) - 1))
@examples(100)
def test_an_index_goes_where_it_goes_among_others(n, seed, epoch):
    chosen = key(seed, epoch)
    some = some_indices(n, 20)
    alone = [int(permutation(np.array(index), n, chosen)) for index in some]
    assert permutation(some, n, chosen).tolist() == alone


def test_both_words_of_a_key_matter_at_every_length():
    for n in (10, 60, 1000, 10**5, 10**10):
        some = some_indices(n)
        one = key(7)
        for other in (one._replace(low=one.low ^ 1), one._replace(high=one.high ^ 1)):
            same = permutation(some, n, one) == permutation(some, n, other)
            assert same.mean() < 0.7 if n == 10 else same.mean() < 0.1, n


@pytest.mark.parametrize("n", [8, 15, 16, 100, 255, 1000, 4096, 10**6, 2**31 - 1, 2**31, 10**12])
def test_orders_of_n_and_n_plus_1_have_no_more_in_common_than_any_two(n):
    some, keys = some_indices(n, 200), key(np.arange(50)[:, None])
    same = permutation(some, n, keys) == permutation(some, n + 1, keys)
    assert same.mean() < 2 / n + 0.001  # 1 / n, where they have nothing in common


@pytest.mark.parametrize("n", few(LENGTHS + LONG, (1, 3, 17, 1009, 65537, 2**30 + 1, 2**31)))
def test_jax_gives_the_bits_of_numpy(n):
    some = some_indices(n).astype(np.int32)
    expected = permutation(some, n, key(5, 1))
    traced = jax.jit(lambda some, seed: permutation(some, n, key(seed, 1)))
    assert np.array_equal(expected, permutation(jnp.asarray(some), n, key(5, 1)))
    assert np.array_equal(expected, traced(some, jnp.uint32(5)))
    assert traced(some, jnp.uint32(5)).dtype == jnp.int32


@given(st.integers(1, 3000), st.integers(0, (1 << 32) - 1))
@examples(25)
def test_jax_gives_the_bits_of_numpy_at_any_length(n, seed):
    some = some_indices(n, 61)
    assert np.array_equal(
        permutation(some, n, key(seed)), permutation(jnp.asarray(some), n, key(seed))
    )


@pytest.mark.parametrize("n", [7, pytest.param(60, marks=pytest.mark.slow)])
def test_seeds_can_be_mapped_over(n):
    orders = jax.vmap(lambda seed: permutation(jnp.arange(n), n, key(seed, 2)))
    moved = orders(jnp.arange(4, dtype=jnp.uint32))
    for seed in range(4):
        assert np.array_equal(moved[seed], permutation(np.arange(n), n, key(seed, 2)))


@pytest.mark.parametrize("n", [0, 1, 2, 16, 17, 300, 70_000, 1 << 33])
def test_any_shape_and_dtype_of_indices_comes_back(n):
    chosen = key(7)
    assert permutation(np.empty((0, 3), np.int64), n, chosen).shape == (0, 3)
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        if 0 < n <= np.iinfo(dtype).max:
            moved = permutation(np.array(n - 1, dtype), n, chosen)
            assert (moved.shape, moved.dtype) == ((), dtype)
            assert int(moved) == int(permutation(np.array([n - 1]), n, chosen)[0])
            assert int(moved) == int(permutation(dtype(n - 1), n, chosen))
    if n:
        many = permutation(np.zeros((1, 1), np.int64), n, key(7, np.arange(4)[:, None]))
        assert many.shape == (4, 1)


@pytest.mark.filterwarnings("error")
def test_nothing_warns_and_nothing_is_overwritten():
    for n in (1, 2, 10, 17, 64, 1000, 10**10):
        for dtype in (np.uint32, np.int64, np.uint64):
            some = np.arange(min(n, 1000), dtype=dtype) if n <= 1 << 32 else np.arange(9)
            some.flags.writeable = False
            moved = permutation(some, n, key(7))
            assert moved.flags.writeable
            assert not np.shares_memory(some, moved)


@pytest.mark.parametrize(
    ("indices", "n", "error", "said"),
    [
        (np.arange(3), -1, ValueError, "at least 0.*-1"),
        (np.arange(3), 3.0, TypeError, "int.*3.0"),
        (np.arange(3), True, TypeError, "int.*True"),
        (np.arange(3), 1 << 49, ValueError, "2\\*\\*48"),
        (jnp.arange(3), (1 << 31) + 1, ValueError, "under jax.*type np.asarray"),
        ([0, 1], 2, TypeError, r"type np.asarray\(indices\)"),
        (np.arange(3.0), 3, TypeError, "indices holds float64.*astype"),
        (np.arange(3, dtype=np.int8), 1000, ValueError, "int8.*astype"),
        (np.arange(3), 2, IndexError, "indices holds 2, but n is 2"),
        (np.arange(-1, 3), 9, IndexError, "indices holds -1"),
        (np.arange(1), 0, IndexError, "n is 0"),
    ],
)
def test_what_cannot_be_ordered_is_refused(indices, n, error, said):
    with pytest.raises(error, match=said):
        permutation(indices, n, key(7))


def test_a_seed_is_not_taken_for_a_key():
    with pytest.raises(TypeError, match=r"key is 7.*type key"):
        permutation(np.arange(3), 3, 7)


@given(
    st.integers(0, 200),
    st.one_of(st.none(), st.integers(-250, 250)),
    st.one_of(st.none(), st.integers(-250, 250)),
    st.integers(1, 90),
)
@settings(deadline=None)
def test_blocks_make_the_order(n, start, stop, block):
    blocks = list(order(n, key(7, 1), start or 0, stop, block))
    expected = permutation(np.arange(n), n, key(7, 1))[start or 0 : stop]
    assert [place for each in blocks for place in each.tolist()] == expected.tolist()
    assert all(0 < len(each) <= block for each in blocks)


def test_an_order_begins_at_once_however_long():
    assert (
        next(order(10**12, key(7), start=10**11, block=4)).tolist()
        == permutation(np.arange(10**11, 10**11 + 4), 10**12, key(7)).tolist()
    )


@pytest.mark.parametrize("size", [1, 2, 7, 16, 33, 1000, 5000, 40_000])
@pytest.mark.parametrize("first", [0, 3, 2**32 - 1])
def test_windows_are_the_orders_of_their_keys(size, first):
    for window, moved in islice(enumerate(windows(size, 2**70, 4, 1, first=first), first), 5):
        assert moved.dtype == np.intp
        assert np.array_equal(moved, permutation(np.arange(size), size, key(2**70, 4, 1, window)))


def test_windows_go_on_past_what_is_computed_at_once():
    moved = list(islice(windows(3, 9), 3000))
    later = list(islice(windows(3, 9, first=1000), 2000))
    assert np.array_equal(moved[1000:], later)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: windows(0, 1), ValueError, "at least 1"),
        (lambda: windows(3, -1), ValueError, "seed is -1"),
        (lambda: windows(3, 1, first=-1), ValueError, "first"),
        (lambda: windows(3, 1, 0.5), TypeError, "path"),
        (lambda: order(-1, key(1)), ValueError, "at least 0"),
        (lambda: order(3, key(1), block=0), ValueError, "block"),
        (lambda: order(3, 1), TypeError, "type key"),
        (lambda: order(3, key(1, np.arange(3))), ValueError, "one key"),
    ],
)
def test_mistakes_are_refused_before_anything_is_drawn(call, error, said):
    with pytest.raises(error, match=said):
        call()


def undone(moved, n, chosen):
    return permutation(moved, n, chosen, inverse=True)


@pytest.mark.parametrize("n", [*LENGTHS, *LONG, 2**31 + 1, 10**12 + 7, 2**48 - 1, 2**48])
def test_the_inverse_undoes_a_permutation_in_either_direction(n):
    some, chosen = some_indices(n), key(5, 1)
    assert np.array_equal(undone(permutation(some, n, chosen), n, chosen), some)
    assert np.array_equal(permutation(undone(some, n, chosen), n, chosen), some)


@given(st.integers(1, 1 << 48), st.integers(0, 1 << 70), st.integers(0, (1 << 64) - 1))
@examples(100)
def test_the_inverse_undoes_the_permutation_of_any_length_and_key(n, seed, epoch):
    some, chosen = some_indices(n, 20), key(seed, epoch)
    assert np.array_equal(undone(permutation(some, n, chosen), n, chosen), some)


@pytest.mark.parametrize("n", [3, 1009, 2**30 + 1, 2**31])
def test_jax_undoes_what_numpy_permutes(n):
    some = some_indices(n).astype(np.int32)
    moved = jnp.asarray(permutation(some, n, key(5)))
    assert np.array_equal(jax.jit(lambda moved: undone(moved, n, key(5)))(moved), some)
