"""Chosen bounds: the least padding of all, found without trying all."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader.batches.bucket_bounds import chosen_bounds

lengths = st.lists(st.integers(0, 15), min_size=1, max_size=40).map(np.array)


def places(lengths, bounds):
    """What rows take that are padded to the first bound that holds them."""
    ends = np.array(bounds)
    return int(ends[np.searchsorted(ends, lengths)].sum())


def candidates(lengths, multiple_of):
    return sorted({max(-(-each // multiple_of), 1) * multiple_of for each in lengths.tolist()})


@given(lengths, st.integers(1, 6), st.integers(1, 4))
@examples(200)
def test_no_other_bounds_pad_less(lengths, number, multiple_of):
    found = chosen_bounds(lengths, number, multiple_of)
    ends = candidates(lengths, multiple_of)
    assert len(found) == min(number, len(ends))
    assert set(found) <= set(ends)
    assert list(found) == sorted(set(found))
    others = combinations(ends[:-1], len(found) - 1)
    assert places(lengths, found) == min(places(lengths, (*some, ends[-1])) for some in others)


@given(lengths, st.integers(1, 6), st.randoms())
@examples(50)
def test_the_order_of_the_samples_does_not_matter(lengths, number, random):
    mixed = lengths.tolist()
    random.shuffle(mixed)
    assert chosen_bounds(np.array(mixed), number) == chosen_bounds(lengths, number)


@given(lengths, st.integers(1, 5))
@examples(50)
def test_one_bound_more_never_pads_more(lengths, number):
    few, more = chosen_bounds(lengths, number), chosen_bounds(lengths, number + 1)
    assert places(lengths, more) <= places(lengths, few)


def test_powers_of_two_pad_more():
    lengths = np.random.default_rng(0).lognormal(5, 1, 100_000).clip(1, 2048).astype(int)
    doubling = [64, 128, 256, 512, 1024, 2048]
    least = places(lengths, chosen_bounds(lengths, 6))
    assert round(1 - lengths.sum() / places(lengths, doubling), 3) == 0.3
    assert round(1 - lengths.sum() / least, 3) == 0.276


@pytest.mark.parametrize("longest", [2**40, 10**6])
def test_very_long_samples_take_no_more_memory_and_the_last_bound_holds_them(longest):
    lengths = np.random.default_rng(0).integers(1, longest, 50_000)
    tracemalloc.start()
    try:
        bounds = chosen_bounds(lengths, 6, 8)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert lengths.max() <= bounds[-1] <= lengths.max() * (1 + 2**-15) + 8
    assert all(bound % 8 == 0 for bound in bounds)
    even = longest / 6 * np.arange(1, 7)
    assert np.abs(np.array(bounds) / even - 1).max() < 0.05
