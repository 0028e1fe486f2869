"""Samplers: permutations and partitions, whose every place can be begun at."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
from graphs import SAMPLERS
from hypothesis import given
from hypothesis import strategies as st
from seen import see

import jreader
from jreader import DataLoader, at_epoch, epochs, shuffle
from jreader.datasets import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from jreader.datasets.samplers import uniform
from jreader.errors import NotResumable
from jreader.readers import start

numbers = st.integers(0, 40)
any_sampler = st.one_of(
    *[st.builds(op, **arguments) for op, arguments in SAMPLERS.items()],
    st.builds(SequenceSampler, st.just(range(20_000))),
    st.builds(RandomSampler, st.just(range(20_000)), seed=st.just(1)),
)


def ranks(n, batch_size, replicas, **options):
    return [
        list(DistributedBatchSampler(range(n), batch_size, replicas, rank, **options))
        for rank in range(replicas)
    ]


class TestLaws:
    @given(numbers, st.integers(0, 3), st.integers(0, 3))
    def test_a_random_order_is_a_permutation_of_each_epoch(self, n, seed, epoch):
        assert sorted(at_epoch(RandomSampler(range(n), seed=seed), epoch)()) == list(range(n))

    @given(st.lists(st.integers(0, 9)), st.integers(0, 3))
    def test_a_random_subset_is_a_permutation_of_it(self, indices, seed):
        assert sorted(SubsetRandomSampler(indices, seed=seed)) == sorted(indices)

    @given(numbers, st.integers(0, 3), st.integers(0, 3))
    def test_a_random_order_is_that_of_a_shuffle_over_all(self, n, seed, epoch):
        plan = shuffle(jreader.arrays(np.arange(n)), seed=seed)
        assert list(at_epoch(RandomSampler(range(n), seed=seed), epoch)()) == list(
            at_epoch(plan, epoch)()
        )

    @given(any_sampler, st.data())
    def test_a_place_is_a_position_at_any_place(self, sampler, data):
        whole = start(sampler)
        known = len(sampler)
        place = data.draw(st.integers(0, known))
        head = [next(whole.items) for _ in range(place)]
        position = json.loads(json.dumps(whole.position()))
        rest = list(whole.items)
        assert len(head) + len(rest) == known
        assert list(start(sampler, position).items) == rest

    @given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.booleans(), st.booleans())
    def test_ranks_get_as_many_batches_and_cover_the_data_set(
        self, n, size, replicas, shuffled, drop_last
    ):
        parts = ranks(n, size, replicas, shuffle=shuffled, drop_last=drop_last, seed=5)
        assert len({tuple(map(len, part)) for part in parts}) == 1
        dealt = Counter(index for part in parts for batch in part for index in batch)
        if drop_last:
            assert set(dealt.values()) <= {1}
            assert n - sum(dealt.values()) == n % (size * replicas)
        else:
            assert set(dealt) == set(range(n))
            assert sum(dealt.values()) == -(-n // replicas) * replicas

    @given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 5), st.booleans())
    def test_ranks_in_turn_are_the_batches_of_one(self, n, size, replicas, shuffled):
        parts = ranks(n, size, replicas, shuffle=shuffled, drop_last=True, seed=5)
        one = BatchSampler(range(n), shuffle=shuffled, batch_size=size, drop_last=True, seed=5)
        together = [batch for group in zip(*parts, strict=True) for batch in group]
        assert together == list(one)[: len(together)]

    def test_a_length_tells_the_number_without_reading(self):
        for n in range(12):
            for size in (1, 2, 5):
                sampler = BatchSampler(range(n), batch_size=size)
                assert len(sampler) == len(list(sampler))
        for n in range(1, 12):
            for rank in range(3):
                sampler = DistributedBatchSampler(range(n), 2, 3, rank)
                assert len(sampler) == len(list(sampler))


class TestEpochs:
    def test_an_epoch_deals_anew_and_a_seed_deals_again(self):
        sampler = RandomSampler(range(50), seed=1)
        assert list(sampler) == list(sampler) != list(at_epoch(sampler, 1)())
        assert list(sampler) != list(RandomSampler(range(50), seed=2))

    def test_without_a_seed_passes_differ_and_resume(self):
        sampler = RandomSampler(range(50))
        assert list(sampler) != list(sampler)
        first = start(sampler)
        head = [next(first.items) for _ in range(20)]
        rest = list(start(sampler, first.position()).items)
        assert sorted(head + rest) == list(range(50))

    def test_batches_are_reached_by_epochs_too(self):
        sampler = BatchSampler(range(30), shuffle=True, batch_size=7, seed=0)
        passes = [see(at_epoch(sampler, epoch)).samples for epoch in range(2)]
        assert see(epochs(sampler, 2)).samples == passes[0] + passes[1]
        assert passes[0] != passes[1]

    def test_set_epoch_says_who_counts(self):
        with pytest.raises(TypeError, match=r"loader\.epoch\(3\).*at_epoch\(sampler, 3\)"):
            DistributedBatchSampler(range(4), 2, 1, 0).set_epoch(3)


class TestChance:
    def test_uniform_numbers_fill_their_range_evenly(self):
        drawn = uniform(np.arange(100_000), 3, 0, 1)
        assert 0 <= drawn.min() < drawn.max() < 1
        counts = np.bincount((drawn * 100).astype(int), minlength=100)
        assert ((counts - 1000) ** 2 / 1000).sum() < 150  # 99 degrees of freedom: 4 sigma
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.015

    def test_with_replacement_every_index_is_as_likely(self):
        counts = Counter(RandomSampler(range(10), replacement=True, num_samples=50_000, seed=0))
        assert sum((counts[index] - 5000) ** 2 / 5000 for index in range(10)) < 30

    @pytest.mark.parametrize(
        "draw",
        [
            lambda n: RandomSampler(range(n), seed=1),
            lambda n: RandomSampler(range(n), replacement=True, num_samples=1000, seed=1),
            lambda n: WeightedRandomSampler(np.ones(n), 1000, seed=1),
            lambda n: WeightedRandomSampler(np.ones(n), 1000, replacement=False, seed=1),
            lambda n: SubsetRandomSampler(range(n), seed=1),
        ],
    )
    def test_n_and_n_plus_1_indices_have_nothing_in_common(self, draw):
        same = [one == other for one, other in zip(draw(1000), draw(1001), strict=False)]
        assert sum(same) < 10  # one, on average

    def test_weights_are_frequencies(self):
        weights = np.array([1.0, 0.0, 2.0, 5.0])
        counts = Counter(WeightedRandomSampler(weights, 40_000, seed=0))
        expected = weights / weights.sum() * 40_000
        assert counts[1] == 0
        assert all(abs(counts[at] - expected[at]) < 4 * expected[at] ** 0.5 for at in (0, 2, 3))

    @pytest.mark.slow
    def test_without_replacement_the_first_is_as_likely_as_its_weight(self):
        weights = [1.0, 0.0, 2.0, 5.0]
        firsts = Counter()
        for seed in range(4000):
            drawn = list(WeightedRandomSampler(weights, 3, replacement=False, seed=seed))
            assert sorted(drawn) == [0, 2, 3]
            firsts[drawn[0]] += 1
        assert abs(firsts[3] - 2500) < 130
        assert abs(firsts[0] - 500) < 90


class TestPaddle:
    """The examples that Paddle 3.3.1 was measured on."""

    def test_blocks_are_dealt_in_turn(self):
        assert ranks(10, 2, 2) == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]

    def test_the_beginning_fills_up_the_end(self):
        assert ranks(11, 2, 3)[2] == [[4, 5], [10, 0]]
        assert ranks(1, 1, 4) == [[[0]]] * 4

    def test_dropping_repeats_nothing(self):
        assert ranks(11, 2, 3, drop_last=True) == [[[0, 1]], [[2, 3]], [[4, 5]]]

    def test_an_empty_data_set_has_no_batches(self):
        assert ranks(0, 2, 3) == [[], [], []]
        assert list(RandomSampler([])) == list(SequenceSampler([])) == []

    def test_batches_of_another_sampler_and_of_torchs_spelling(self):
        odd = BatchSampler(sampler=[1, 3, 5], batch_size=2)
        assert (list(odd), list(odd), len(odd)) == ([[1, 3], [5]], [[1, 3], [5]], 2)
        spelled = BatchSampler(SequenceSampler(range(3)), batch_size=2)
        assert list(spelled) == [[0, 1], [2]]
        assert eval(repr(spelled)) is not spelled  # what is shown can be typed


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "error", "says"),
        [
            (lambda: RandomSampler(5), TypeError, "needs a data set with a length, not the int 5"),
            (lambda: RandomSampler("abc", num_samples=4), ValueError, "draw at most 3, or give re"),
            (lambda: RandomSampler("abc", "yes"), TypeError, "needs True or False"),
            (lambda: RandomSampler("abc", num_samples=0), ValueError, "at least 1"),
            (lambda: RandomSampler("", True, 3), ValueError, "there are 0 indices"),  # noqa: FBT003  # Paddle gives it by place
            (lambda: RandomSampler("abc", seed=0.5), TypeError, "seed of RandomSampler"),
            (lambda: WeightedRandomSampler([1, -1], 1), ValueError, "finite number >= 0"),
            (lambda: WeightedRandomSampler([np.inf], 1), ValueError, "finite number >= 0"),
            (lambda: WeightedRandomSampler([[1, 2]], 1), ValueError, "one finite number"),
            (lambda: WeightedRandomSampler([0, 0], 1), ValueError, "there are 0 indices"),
            (lambda: WeightedRandomSampler([1, 0], 2, replacement=False), ValueError, "most 1"),
            (lambda: SubsetRandomSampler(["a"]), TypeError, "list of ints"),
            (BatchSampler, TypeError, "a data set or a sampler, not neither"),
            (lambda: BatchSampler("ab", range(2)), TypeError, "not both"),
            (lambda: BatchSampler(sampler=range(2), shuffle=True), ValueError, "has an order"),
            (lambda: BatchSampler(sampler=iter("ab")), TypeError, "read only once"),
            (lambda: BatchSampler("ab", batch_size=0), ValueError, "at least 1"),
            (lambda: DistributedBatchSampler("ab", 1, 2, 2), ValueError, "from 0 to 1"),
            (lambda: DistributedBatchSampler("ab", 1, seed=None), TypeError, "seed of Distrib"),
        ],
    )
    def test_it_is_refused_where_it_was_written(self, make, error, says):
        with pytest.raises(error, match=says):
            make()

    def test_a_position_beyond_the_end_is_refused(self):
        with pytest.raises(NotResumable, match="cannot resume after index 5"):
            start(SequenceSampler("abc"), 5)

    def test_a_sampler_takes_the_length_along_and_not_the_data(self):
        assert repr(RandomSampler(["long"] * 1000, seed=0)) == (
            "RandomSampler(data_source=range(0, 1000), seed=0)"
        )
        held = RandomSampler([b"long" * 1000] * 1000, seed=0)
        assert len(pickle.dumps(held)) < 1000
        assert list(pickle.loads(pickle.dumps(held))) == list(held)


@pytest.mark.parametrize("kind", [tuple, list, np.array])
def test_a_cursor_goes_on_over_another_kind_of_data_set(kind):
    feeds = iter(DataLoader([*range(8)], 2, shuffle=True, seed=0))
    next(feeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the data are others
        rest = list(DataLoader(kind(range(8)), 2, shuffle=True, seed=0).epoch(0, at=feeds.cursor))
    np.testing.assert_array_equal(rest, list(feeds))
