"""An order is a bijection, and all of them are equally likely."""

from math import factorial, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples, few

from jreader.orders import Key, key, order, permutation


def words(shape, seed=0):
    """Keys that no path made, so that the permutation is judged apart from `key`."""
    drawn = np.random.default_rng(seed).integers(0, 1 << 32, (2, *shape), dtype=np.uint32)
    return Key(*drawn)


def z_score(counts):
    counts = np.asarray(counts, float).ravel()
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    return (chi_square - (counts.size - 1)) / sqrt(2 * (counts.size - 1))


SIZES = [6, 10, 16, 17, 24, 33, 64, 127, 257, 512, 1009, 4097]


@pytest.mark.parametrize("first", few(range(1, 5001, 500), (1, 1501, 4501)))
def test_every_index_appears_once(first):
    for n in range(first, first + 500):
        keys = key(n, 1, np.arange(2)[:, None])
        for one in permutation(np.arange(n)[None], n, keys):
            assert (np.bincount(one, minlength=n) == 1).all(), n


@pytest.mark.parametrize("n", [2**16 - 1, 2**16, 2**16 + 1, 10**6, 10**6 + 3])
def test_every_index_appears_once_in_long_orders(n):
    moved = np.concatenate(list(order(n, key(3))))
    assert (np.bincount(moved, minlength=n) == 1).all()


@given(
    n=st.integers(1, 1 << 48),
    seed=st.integers(0, 1 << 200),
    path=st.lists(st.integers(0, (1 << 64) - 1), max_size=4),
    data=st.data(),
)
@examples(150)
def test_distinct_indices_go_to_distinct_places_in_range(n, seed, path, data):
    some = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=50))
    moved = permutation(np.array(some, np.int64), n, key(seed, *path))
    assert len(set(moved.tolist())) == len(some)
    assert all(0 <= place < n for place in moved.tolist())


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_orders_of_a_few_are_equally_likely(n):
    many = 200_000
    for keys in (words((many, 1)), key(1, 2, np.arange(many)[:, None])):
        moved = permutation(np.arange(n)[None], n, keys)
        counts = np.unique(moved @ (n ** np.arange(n)), return_counts=True)[1]
        assert counts.size == factorial(n)
        assert abs(z_score(counts)) < 4


@pytest.mark.parametrize("n", few(SIZES, (6, 17, 64, 1009)))
@pytest.mark.parametrize("made", few(["drawn", "counted"], ["counted"]))
def test_positions_and_neighbours_are_fair(n, made):
    many = 1_500_000 // n if n < 4000 else 500
    keys = words((many, 1)) if made == "drawn" else key(7, 1, np.arange(many)[:, None])
    moved = permutation(np.arange(n)[None], n, keys)
    if n < 4000:
        places = np.bincount((moved + n * np.arange(n)).ravel(), minlength=n * n)
        assert abs(z_score(places)) < 4
    inverse = np.argsort(moved, axis=1)
    side = 1 << (n - 1).bit_length() // 2
    for each in (moved, inverse):
        for apart in (1, side, side + 1):
            differences = (each[:, apart:] - each[:, :-apart]) % n
            assert abs(z_score(np.bincount(differences.ravel(), minlength=n)[1:])) < 4.5
    windows_apart = (moved[1:] - moved[:-1]) % n
    assert abs(z_score(np.bincount(windows_apart.ravel(), minlength=n))) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("n", [10**5, 10**5 + 3, 10**9, 2**31, 10**10])
def test_long_orders_are_fair_where_sampled(n):
    many, bins = 300_000, 1000
    for keys in (words((many,)), key(7, 1, np.arange(many))):
        for index in (0, 1023, n // 3, n - 2):
            place, following = (
                permutation(np.full(many, index + step, np.int64), n, keys) for step in (0, 1)
            )
            between = (following - place) % n - 1
            across = (place[1:] - place[:-1]) % n
            for number in (place, following, between, across):
                assert abs(z_score(np.bincount(number * bins // n, minlength=bins))) < 4.5
            assert abs(z_score(np.bincount(place % 64))) < 4.5


@pytest.mark.parametrize("n", range(2, 65))
def test_even_and_odd_orders_are_equally_likely(n):
    many = 4000
    moved = permutation(np.arange(n)[None], n, key(11, np.arange(many)[:, None]))
    odd = np.zeros(many, bool)
    for index in range(1, n):
        odd ^= (moved[:, :index] > moved[:, index : index + 1]).sum(1) % 2 == 1
    assert abs(odd.sum() - many / 2) < 4.5 * sqrt(many) / 2


def test_as_many_indices_stay_as_chance_leaves():
    n, many = 50, 40_000
    moved = permutation(np.arange(n)[None], n, key(5, np.arange(many)[:, None]))
    stayed = np.bincount((moved == np.arange(n)).sum(1), minlength=6)[:5] / many
    chance = np.array([np.exp(-1) / factorial(count) for count in range(5)])
    assert (abs(stayed - chance) < 5 * np.sqrt(chance / many)).all()


def test_no_two_of_ten_thousand_keys_give_equal_orders():
    seeds, epochs, ops = (part.ravel() for part in np.meshgrid(*[np.arange(22)] * 3))
    keys = Key(*(word[:, None] for word in key(seeds, epochs, ops)))
    moved = permutation(np.arange(60)[None], 60, keys)
    assert len({one.tobytes() for one in moved}) == 22**3
