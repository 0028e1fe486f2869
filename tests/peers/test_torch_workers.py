"""What torch's tests of the workers of its loader check, of jreader."""

from __future__ import annotations

import os

import jax
import numpy as np
import pytest
from steps import stream

from jreader import DataLoader, Dataset, IterableDataset, get_worker_info

differs = pytest.mark.differs


class TestWorkers:
    def test_they_know_their_number_and_the_program_is_none(self):
        class Asking(Dataset):
            def __getitem__(self, index):
                info = get_worker_info()
                return info.id, info.num_workers, os.getpid(), self.value

            def __len__(self):
                return 8

        def begin(number):
            info = get_worker_info()
            assert number == info.id < info.num_workers
            assert not hasattr(info.dataset, "value")
            info.dataset.value = number * 10

        dataset = Asking()
        assert get_worker_info() is None
        feeds = stream(DataLoader(dataset, 1, num_workers=2, worker_init_fn=begin))
        assert get_worker_info() is None
        assert not hasattr(dataset, "value")
        for (number,), (count,), (pid,), (value,) in feeds:
            assert (count, value) == (2, number * 10)
            assert number in (0, 1)
            assert pid != os.getpid()

    @differs
    def test_what_they_know_is_read_only_and_says_what_it_is(self):
        """An AttributeError, as of any frozen object; torch's and Paddle's is a RuntimeError."""

        def begin(number):
            info = get_worker_info()
            for name in ("id", "a"):
                with pytest.raises(AttributeError):
                    setattr(info, name, 3999)
            assert all(
                f"{name}=" in repr(info) for name in ("id", "num_workers", "seed", "dataset")
            )

        assert stream(DataLoader([1, 2], 2, num_workers=1, worker_init_fn=begin)) == [[1, 2]]

    def test_their_seeds_differ_and_follow_that_of_the_loader(self):
        class Seeds(Dataset):
            def __getitem__(self, index):
                info = get_worker_info()
                return info.id, info.seed

            def __len__(self):
                return 16

        def told(seed):
            loader = DataLoader(Seeds(), 1, shuffle=True, seed=seed, num_workers=2)
            return {(number, own) for (number,), (own,) in stream(loader)}

        together = told(42) | told(42)
        seeds = dict(together)
        assert len(together) == len(seeds) == len(set(seeds.values()))
        assert not together & told(4200)

    @differs
    def test_what_they_draw_follows_the_seed_for_any_number_of_them(self):
        class Noisy(Dataset):
            def __getitem__(self, index):
                return np.random.rand()  # noqa: NPY002  # what users call

            def __len__(self):
                return 8

        drawn = [stream(DataLoader(Noisy(), 2, seed=7, num_workers=count)) for count in (1, 2)]
        assert drawn[0] == drawn[1]
        assert len(set(np.ravel(drawn[0]))) == 8

    def test_what_worker_init_fn_sets_holds_in_a_stream(self):
        (expected, *_) = os.sched_getaffinity(0)

        class Affinity(IterableDataset):
            def __iter__(self):
                return iter(os.sched_getaffinity(0))

        loader = DataLoader(
            Affinity(), num_workers=2, worker_init_fn=lambda _: os.sched_setaffinity(0, [expected])
        )
        assert stream(loader) == [[expected]]

    @differs
    def test_a_stream_has_one_worker_however_many_there_are(self):
        class OfEach(IterableDataset):
            """Has another number of samples in each worker."""

            def __iter__(self):
                info = get_worker_info()
                assert (info.id, info.num_workers) == (0, 1)
                return iter(range((4, 20, 0)[info.id]))

        assert stream(DataLoader(OfEach(), 7, num_workers=3)) == [[0, 1, 2, 3]]

    def test_those_that_persist_keep_the_data_set_they_were_given(self):
        class Started(Dataset):
            start = 0

            def __init__(self):
                self.start = 0

            def __getitem__(self, index):
                assert self.start == 0
                return index

            def __len__(self):
                return 4

        dataset = Started()
        loader = DataLoader(dataset, 2, num_workers=2, persistent_workers=True)
        for epoch in range(3):
            assert stream(loader) == [[0, 1], [2, 3]]
            dataset.start = epoch

    @pytest.mark.slow
    def test_a_program_that_leaves_its_loop_ends_well(self, python):
        ran = python(
            """
            import numpy as np
            import jreader
            class Random(jreader.IterableDataset):
                def __iter__(self):
                    yield from np.random.default_rng(0).random((64, 28, 28))
            loader = jreader.DataLoader(Random(), 16, num_workers=2, persistent_workers=True)
            for _ in loader:
                break
            """
        )
        assert (ran.stdout, ran.stderr) == ("", "")

    @differs
    def test_arrays_of_a_library_are_used_in_workers_after_the_program_used_them(self):
        """No process is forked: the locks of the program's threads do not reach it."""

        class Convolved(Dataset):
            def __getitem__(self, index):
                return np.convolve(np.ones(24_000), np.ones(2), "valid").sum()

            def __len__(self):
                return 1

        jax.block_until_ready(jax.numpy.convolve(np.ones(24_000), np.ones(2)))
        (feed,) = DataLoader(Convolved(), num_workers=1)
        assert feed.tolist() == [2 * 23_999]
