"""What Paddle's tests of its samplers check, of jreader; and the same through the real ones."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pytest

from jreader import DataLoader
from jreader.datasets import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

differs = pytest.mark.differs
HUNDRED, THOUSAND = range(100), range(1000)


def weights(total, positive):
    """As many weights, in any order, of which so many are not zero."""
    random = np.random.default_rng(total)
    drawn = np.zeros(total, "float32")
    drawn[random.permutation(total)[:positive]] = random.random(positive) + 0.01
    return drawn


class TestSampler:
    def test_one_that_is_not_extended_has_no_indices(self):
        with pytest.raises(NotImplementedError):
            iter(Sampler(HUNDRED))

    def test_one_that_is_extended_needs_no_more_than_iter(self):
        class Backwards(Sampler):
            def __init__(self, data_source):
                self.data_source = data_source

            def __iter__(self):
                return iter(range(len(self.data_source) - 1, -1, -1))

            def __len__(self):
                return len(self.data_source)

        sampler = BatchSampler(sampler=Backwards(range(5)), batch_size=2)
        assert list(sampler) == list(sampler) == [[4, 3], [2, 1], [0]]
        assert len(sampler) == 3

    def test_a_sequence_sampler_counts(self):
        assert list(SequenceSampler(HUNDRED)) == [*HUNDRED]
        assert len(SequenceSampler(HUNDRED)) == 100


class TestRandomSampler:
    def test_it_gives_every_index_once(self):
        sampler = RandomSampler(HUNDRED)
        assert (len(sampler), sorted(sampler)) == (100, [*HUNDRED])

    @pytest.mark.parametrize(("count", "replacement"), [(50, True), (150, True), (80, False)])
    def test_or_as_many_as_it_is_asked_for(self, count, replacement):
        sampler = RandomSampler(HUNDRED, num_samples=count, replacement=replacement)
        drawn = list(sampler)
        assert len(drawn) == len(sampler) == count
        assert set(drawn) <= set(HUNDRED)
        assert replacement or len(set(drawn)) == count

    def test_without_replacement_it_has_no_more_than_there_are(self):
        with pytest.raises(ValueError, match="100 indices to draw"):
            RandomSampler(HUNDRED, replacement=False, num_samples=120)

    @differs
    def test_a_seed_is_given_and_no_generator(self):
        """Paddle's is an iterator of indices, which a second epoch finds empty."""
        with pytest.raises(TypeError, match="generator"):
            RandomSampler(HUNDRED, generator=iter(range(60)))
        assert list(RandomSampler(HUNDRED, seed=7)) == list(RandomSampler(HUNDRED, seed=7))


class TestSubsetRandomSampler:
    def test_it_gives_each_of_its_indices_once(self):
        indices = list(RandomSampler(HUNDRED, num_samples=30, seed=0))
        sampler = SubsetRandomSampler(indices)
        assert (len(sampler), sorted(sampler)) == (30, sorted(indices))

    @differs
    def test_none_at_all_are_an_empty_epoch(self):
        assert list(SubsetRandomSampler([])) == list(RandomSampler([])) == []
        for shuffled in (True, False):
            with pytest.warns(UserWarning, match="epoch 0 is empty"):
                assert list(DataLoader([], 2, shuffle=shuffled)) == []


class TestBatchSampler:
    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize(
        "given",
        [
            {"dataset": THOUSAND},
            {"dataset": THOUSAND, "shuffle": True},
            {"sampler": SequenceSampler(THOUSAND)},
            {"sampler": THOUSAND},
        ],
        ids=["data set", "shuffled", "sampler", "iterable"],
    )
    def test_its_length_is_the_number_of_its_batches(self, given, drop_last):
        sampler = BatchSampler(**given, batch_size=32, drop_last=drop_last)
        batches = list(sampler)
        assert len(sampler) == len(batches) == (31 if drop_last else 32)
        assert {len(indices) for indices in batches[:31]} == {32}
        together = [*chain.from_iterable(batches)]
        assert len(set(together)) == (992 if drop_last else 1000)
        assert (together == [*islice(THOUSAND, len(together))]) != ("shuffle" in given)

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_torchs_arguments_by_place_are_understood(self, drop_last):
        spelled = BatchSampler(SequenceSampler(THOUSAND), 32, drop_last)
        assert list(spelled) == list(
            BatchSampler(sampler=SequenceSampler(THOUSAND), batch_size=32, drop_last=drop_last)
        )

    def test_a_sampler_is_not_shuffled(self):
        with pytest.raises(ValueError, match="has an order"):
            BatchSampler(sampler=RandomSampler(HUNDRED), shuffle=True, batch_size=32)


class TestWeightedRandomSampler:
    def test_with_replacement_only_positive_weights_are_drawn(self):
        drawn = list(WeightedRandomSampler(weights(20, 10), 30, replacement=True))
        assert len(drawn) == 30
        assert (weights(20, 10)[drawn] > 0).all()

    def test_without_replacement_each_is_drawn_once(self):
        drawn = list(WeightedRandomSampler(weights(20, 10), 10, replacement=False))
        assert len(set(drawn)) == 10
        assert (weights(20, 10)[drawn] > 0).all()

    @differs
    @pytest.mark.parametrize(
        ("drawn_by", "replacement"),
        [(weights(10, 0), True), (weights(10, 5), False), (-np.ones(10), True)],
        ids=["all zero", "too few", "negative"],
    )
    def test_weights_that_nothing_is_drawn_by_are_refused_at_once(self, drawn_by, replacement):
        with pytest.raises(ValueError, match="WeightedRandomSampler"):
            WeightedRandomSampler(drawn_by, 10, replacement)

    def test_a_negative_number_is_refused(self):
        with pytest.raises(ValueError, match="num_samples"):
            WeightedRandomSampler(weights(10, 5), -1)

    @differs
    @pytest.mark.parametrize("arguments", [(2.3, True), (5, 5)])
    def test_a_wrong_kind_of_argument_is_a_type_error(self, arguments):
        with pytest.raises(TypeError, match="WeightedRandomSampler"):
            WeightedRandomSampler(weights(10, 5), *arguments)

    @differs
    def test_weights_are_a_list_too(self):
        assert len(list(WeightedRandomSampler([0.1, 0.9], 8))) == 8


class TestDistributedBatchSampler:
    @pytest.mark.parametrize(
        ("n", "size", "replicas", "rank", "batches"),
        [
            (10, 2, 2, 0, [[0, 1], [4, 5], [8]]),
            (10, 2, 2, 1, [[2, 3], [6, 7], [9]]),
            (11, 2, 3, 2, [[4, 5], [10, 0]]),
            (1, 1, 4, 3, [[0]]),
            (0, 2, 3, 1, []),
        ],
    )
    def test_blocks_are_dealt_in_turn_and_the_beginning_fills_up_the_end(
        self, n, size, replicas, rank, batches
    ):
        sampler = DistributedBatchSampler(range(n), size, replicas, rank)
        assert (list(sampler), len(sampler)) == (batches, len(batches))

    @differs
    def test_dropping_the_end_repeats_no_index(self):
        ranks = [DistributedBatchSampler(range(11), 2, 3, r, drop_last=True) for r in range(3)]
        assert list(map(list, ranks)) == [[[0, 1]], [[2, 3]], [[4, 5]]]

    @differs
    def test_a_rank_beyond_is_refused_where_it_is_written(self):
        with pytest.raises(ValueError, match="from 0 to 2"):
            DistributedBatchSampler(range(10), 2, 3, 3)

    @differs
    def test_an_epoch_is_asked_for_and_not_set(self):
        sampler = DistributedBatchSampler(range(10), 2, 1, 0, shuffle=True)
        assert list(sampler) == list(sampler)
        with pytest.raises(TypeError, match="at_epoch"):
            sampler.set_epoch(1)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def io(self):
        return pytest.importorskip("paddle").io

    @pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 1000])
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_batches_in_order_are_theirs(self, io, n, drop_last):
        options = {"batch_size": 32, "drop_last": drop_last}
        for given in ({"dataset": range(n)}, {"sampler": range(n)}):
            ours, theirs = BatchSampler(**given, **options), io.BatchSampler(**given, **options)
            assert (list(ours), len(ours)) == (list(theirs), len(theirs))

    @pytest.mark.parametrize(
        "arguments", [(-1, True), (0, True), (2.3, True), (5, 5), (5, "yes"), (None, True)]
    )
    def test_what_they_refuse_is_refused(self, io, arguments):
        for samplers in (io.WeightedRandomSampler, WeightedRandomSampler):
            with pytest.raises((ValueError, TypeError)):
                samplers(weights(10, 5), *arguments)
