"""What torch's tests of its samplers check, of jreader; and the same through the real ones."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from steps import stream

from jreader import DataLoader, Dataset, Pipeline, arrays
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
HUNDRED = range(100)
WEIGHTS = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
BATCHES = [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9], [10, 11], [12, 13, 14]]

SEEDED = {
    "with replacement": lambda: RandomSampler(HUNDRED, True, 5, seed=42),  # noqa: FBT003  # by place, as there
    "without": lambda: RandomSampler(HUNDRED, seed=42),
    "weighted": lambda: WeightedRandomSampler(WEIGHTS, 5, seed=42),
    "weighted, without": lambda: WeightedRandomSampler(WEIGHTS, 5, replacement=False, seed=42),
    "subset": lambda: SubsetRandomSampler(range(10), seed=42),
}


class TestRandomSampler:
    def test_with_replacement_some_come_again(self):
        sampler = RandomSampler(HUNDRED, replacement=True, num_samples=101)
        counts = Counter(sampler)
        assert len(sampler) == sum(counts.values()) == 101
        assert max(counts.values()) > 1
        assert set(counts) <= set(HUNDRED)

    @pytest.mark.parametrize("count", [None, 99])
    def test_without_replacement_none_does(self, count):
        counts = Counter(RandomSampler(HUNDRED, num_samples=count))
        assert (len(counts), max(counts.values())) == (count or 100, 1)

    @differs
    @pytest.mark.parametrize("count", [101, 200])
    def test_more_than_there_are_need_replacement_or_epochs(self, count):
        """Torch deals one permutation after another, as Paddle does not."""
        with pytest.raises(ValueError, match="give replacement=True"):
            RandomSampler(HUNDRED, num_samples=count)
        assert len(list(DataLoader(HUNDRED, shuffle=True).steps(count))) == count

    def test_a_flag_that_is_none_is_refused(self):
        with pytest.raises(TypeError, match="replacement"):
            RandomSampler(HUNDRED, replacement=0)

    @pytest.mark.parametrize("size", [1, 6])
    def test_a_loader_has_as_many_batches_as_its_sampler_fills(self, size):
        sampler = RandomSampler(HUNDRED, replacement=True, num_samples=105)
        loader = DataLoader(HUNDRED, size, sampler=sampler)
        assert len(loader) == len(list(loader)) == -(-105 // size)


class TestSeeds:
    @pytest.mark.parametrize("make", SEEDED.values(), ids=SEEDED)
    def test_a_seed_deals_again(self, make):
        assert list(make()) == list(make())

    @pytest.mark.parametrize("make", SEEDED.values(), ids=SEEDED)
    def test_two_passes_at_once_are_each_the_whole(self, make):
        sampler = make()
        pairs = list(zip(sampler, sampler, strict=True))
        assert [one for one, _ in pairs] == [two for _, two in pairs] == list(sampler)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_seeded_loader_shuffles_again(self, workers):
        def dealt():
            return stream(DataLoader(HUNDRED, shuffle=True, seed=42, num_workers=workers))

        assert dealt() == dealt()


class TestLoaders:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_any_iterable_of_indices_is_a_sampler(self, workers):
        loader = DataLoader(HUNDRED, 2, sampler=range(2, 12), num_workers=workers)
        assert len(loader) == 5
        assert stream(loader) == [[n, n + 1] for n in range(2, 12, 2)]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_any_iterable_of_batches_is_a_batch_sampler(self, workers):
        batches = [tuple(indices) for indices in BATCHES]
        loader = DataLoader(HUNDRED, batch_sampler=batches, num_workers=workers)
        assert len(loader) == 6
        assert stream(loader) == BATCHES

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_data_set_that_loads_in_bulk_is_handed_lists(self, workers):
        class Bulk(Dataset):
            def __getitem__(self, indices):
                assert isinstance(indices, list)
                return np.array(indices)

            def __len__(self):
                return 35

        class Lists(Sampler):
            def __init__(self, size):
                self.size = size

            def __iter__(self):
                return iter(BatchSampler(range(35), shuffle=True, batch_size=self.size))

            def __len__(self):
                return (35 + self.size - 1) // self.size

        loader = DataLoader(Bulk(), batch_size=None, sampler=Lists(4), num_workers=workers)
        feeds = stream(loader)
        assert len(loader) == len(feeds) == 9
        assert sorted(chain.from_iterable(feeds)) == [*range(35)]

    @pytest.mark.parametrize(
        "options",
        [
            {"sampler": SequenceSampler(HUNDRED), "shuffle": True},
            {"sampler": SequenceSampler(HUNDRED), "batch_sampler": BATCHES},
            {"batch_sampler": BATCHES, "batch_size": 11},
            {"batch_sampler": BATCHES, "shuffle": True},
            {"batch_sampler": BATCHES, "drop_last": True},
        ],
        ids=" and ".join,
    )
    def test_two_ways_to_say_the_order_are_refused(self, options):
        with pytest.raises(ValueError, match="sampler"):
            DataLoader(HUNDRED, **options)


class TestDistributed:
    @pytest.mark.parametrize("rank", [3, -1])
    def test_a_rank_beyond_is_refused(self, rank):
        with pytest.raises(ValueError, match="rank"):
            DistributedBatchSampler(range(10), 1, 3, rank)

    def test_with_drop_last_nothing_comes_twice(self):
        shares = [
            DistributedBatchSampler(range(9), 2, 4, rank, drop_last=True) for rank in range(4)
        ]
        scanned = [*chain.from_iterable(chain.from_iterable(shares))]
        assert len(scanned) == len(set(scanned)) == 8

    @differs
    def test_every_nth_sample_is_what_shard_deals(self):
        """Torch's DistributedSampler; jreader's, as Paddle's, deals whole batches."""
        for rank in range(3):
            share = Pipeline(arrays(np.arange(9))).shard(3, rank)
            assert [int(n) for n in share] == [*range(rank, 9, 3)]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def data(self):
        return pytest.importorskip("torch").utils.data

    @pytest.mark.parametrize("n", [0, 1, 31, 32, 33])
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_batches_of_a_sampler_are_theirs(self, data, n, drop_last):
        ours = BatchSampler(SequenceSampler(range(n)), 32, drop_last)
        theirs = data.BatchSampler(data.SequentialSampler(range(n)), 32, drop_last)
        assert (list(ours), len(ours)) == (list(theirs), len(theirs))

    def test_their_samplers_load_our_data_sets(self, data):
        sampler = data.SubsetRandomSampler([3, 5, 7])
        feeds = stream(DataLoader(HUNDRED, 2, sampler=sampler))
        assert sorted(chain.from_iterable(feeds)) == [3, 5, 7]

    @pytest.mark.parametrize("arguments", [(-1,), (0,), (2.5,), (True,), (5, "yes")])
    def test_what_they_refuse_is_refused(self, data, arguments):
        for samplers in (data.WeightedRandomSampler, WeightedRandomSampler):
            with pytest.raises((ValueError, TypeError)):
                samplers(WEIGHTS, *arguments)
