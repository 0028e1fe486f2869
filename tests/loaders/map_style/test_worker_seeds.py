"""NumPy's and Python's global generators in worker processes follow the seed of their loader."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from steps import stream

from jreader import DataLoader, Dataset, IterableDataset, get_worker_info
from jreader.datasets import BatchSampler, DistributedBatchSampler

pytestmark = pytest.mark.usefixtures("by_value")


class Noisy(Dataset):
    """Samples that a data set of torch's age would augment."""

    def __getitem__(self, index):
        return index, np.random.rand(), random.random()  # noqa: NPY002  # the point

    def __len__(self):
        return 12


class NoisyStream(IterableDataset):
    def __iter__(self):
        for _ in range(6):
            yield np.random.rand(), random.random()  # noqa: NPY002  # the point


class Told(Dataset):
    """What a worker knows of its seed."""

    def __getitem__(self, index):
        info = get_worker_info()
        return info.id, info.seed

    def __len__(self):
        return 8


def noisy(**options):
    return DataLoader(
        Noisy(), **{"batch_size": 3, "shuffle": True, "num_workers": 2, "seed": 7, **options}
    )


def drawn(feeds):
    return [number for _, first, second in feeds for number in (*first, *second)]


class TestSeeds:
    def test_it_draws_the_same_for_any_number_of_workers_and_in_every_run(self):
        expected = stream(noisy(num_workers=1))
        for workers in (1, 2, 3):
            assert stream(noisy(num_workers=workers)) == expected
        assert stream(noisy(persistent_workers=True)) == expected
        assert stream(noisy(timeout=60)) == expected

    def test_no_two_batches_epochs_and_seeds_draw_alike(self):
        loader = noisy()
        numbers = [*drawn(stream(loader)), *drawn(stream(loader)), *drawn(stream(noisy(seed=8)))]
        assert len(set(numbers)) == len(numbers) == 3 * 24

    def test_a_resumed_epoch_draws_what_was_left(self):
        feeds = iter(noisy())
        next(feeds)
        cursor = json.loads(json.dumps(feeds.cursor))
        rest = stream(feeds)
        assert stream(noisy(num_workers=3).epoch(0, at=cursor)) == rest

    def test_ranks_draw_apart(self):
        ranks = [
            noisy(shuffle=False, batch_size=1, batch_sampler=sampler)
            for sampler in (DistributedBatchSampler(range(12), 3, 2, rank) for rank in range(2))
        ]
        numbers = [number for loader in ranks for number in drawn(stream(loader))]
        assert len(set(numbers)) == len(numbers)

    def test_without_a_seed_runs_differ(self):
        assert stream(noisy(seed=None, shuffle=False)) != stream(noisy(seed=None, shuffle=False))

    @pytest.mark.slow
    def test_a_stream_follows_it_too(self):
        def streams(seed):
            loader = DataLoader(NoisyStream(), 2, num_workers=2, seed=seed)
            return [stream(loader), stream(loader)]

        first = streams(1)
        assert first == streams(1)
        assert first[0] != first[1]
        assert streams(2)[0] not in first

    def test_one_with_a_seed_does_not_make_another_one_repeat_itself(self):
        plain, seeded = noisy(seed=None, shuffle=False), noisy(shuffle=False)
        numbers = []
        for _ in range(3):
            numbers += drawn(stream(plain))
            stream(seeded.epoch(0))
        assert len(set(numbers)) == len(numbers)


class TestOwnSeeds:
    def test_what_worker_init_fn_seeds_is_left_alone(self):
        def begin(number):
            np.random.seed(5)  # noqa: NPY002  # the point

        feeds = stream(noisy(num_workers=1, shuffle=False, worker_init_fn=begin))
        expected = np.random.RandomState(5).rand(12).astype("float32")  # likewise
        assert np.concatenate([feed[1] for feed in feeds]).astype("float32").tolist() == (
            expected.tolist()
        )

    def test_one_that_seeds_nothing_changes_nothing(self):
        assert stream(noisy(worker_init_fn=lambda number: None)) == stream(noisy())

    def test_a_seed_beside_a_batch_sampler_is_for_workers(self):
        batches = BatchSampler(range(12), batch_size=3)
        options = {"batch_size": 1, "shuffle": False, "batch_sampler": batches}
        assert stream(noisy(**options)) == stream(noisy(**options))
        with pytest.raises(ValueError, match="not both"):
            noisy(num_workers=0, **options)


class TestWorkerInfo:
    def test_its_seed_is_that_of_the_loader_and_its_number(self):
        for _ in range(2):
            feeds = stream(DataLoader(Told(), 1, num_workers=2, seed=40))
            assert all(seed == [40 + number[0]] for number, seed in feeds)

    def test_without_one_it_differs(self):
        feeds = stream(DataLoader(Told(), 1, num_workers=2, collate_fn=lambda rows: rows))
        seeds = {number: seed for ((number, seed),) in feeds}
        assert len(set(seeds.values())) == len(seeds)
        assert 40 not in seeds.values()
