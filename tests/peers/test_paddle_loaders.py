"""What Paddle's tests of paddle.io.DataLoader check, of jreader."""

from __future__ import annotations

import math
import threading

import jax
import numpy as np
import pytest
from peer_datasets import Batched, Mixed, Numbers, Pictures, Shared
from programs import PATIENCE
from steps import Step, beginning, pictures, stream

from jreader import DataLoader, data, get_worker_info
from jreader.datasets import BatchSampler, DistributedBatchSampler

differs = pytest.mark.differs
workers = pytest.mark.parametrize("workers", [0, 2])
FIELDS = [data("image", [None, 32]), data("label", [None, 1], "int64")]
CPU = jax.devices()[0]
TWO = jax.devices()[:2]


def same(ones, others):
    return len(ones) == len(others) and all(
        jax.tree.all(jax.tree.map(np.array_equal, one, other))
        for one, other in zip(ones, others, strict=True)
    )


class TestTraining:
    @pytest.mark.parametrize("persistent", [False, True])
    @pytest.mark.parametrize("dataset", [Pictures(), Batched()], ids=["samples", "batched"])
    def test_workers_change_nothing_in_any_epoch(self, dataset, persistent):
        batched = isinstance(dataset, Batched)
        options = {"batch_size": None} if batched else {"batch_size": 8, "drop_last": True}
        loaders = [
            DataLoader(dataset, **options, num_workers=count, persistent_workers=persistent)
            for count in (0, 2)
        ]
        for _ in range(3):
            one, two = map(list, loaders)
            assert len(one) == len(loaders[0]) == 12
            assert [feed[0].shape for feed in one] == [(8, 32)] * 12
            assert same(one, two)

    def test_losses_with_workers_are_those_without(self):
        fields = [data("image", [None, 6]), data("label", [None, 1], "int64")]
        samples, losses = list(pictures(24)()), []
        for count in (0, 2):
            loader = DataLoader(
                samples, 8, feed_list=fields, return_list=False, num_workers=count, drop_last=True
            )
            losses.append(Step().losses(loader.replicate(beginning()), loader))
        assert losses[0] == losses[1]

    @differs
    def test_no_batches_and_drop_last_contradict_one_another(self):
        with pytest.raises(ValueError, match="leave drop_last out"):
            DataLoader(Batched(), batch_size=None, drop_last=True)


class TestFeeds:
    @workers
    def test_every_structure_is_collated(self, workers):
        feeds = list(DataLoader(Mixed(), 2, drop_last=True, num_workers=workers))
        assert len(feeds) == 8
        for number, text, array, both, named in feeds:
            assert (number.shape, text, array.shape) == ((2,), ["abc", "abc"], (2, 32))
            assert (type(both), both[0].shape, both[1].shape) == (list, (2,), (2, 2))
            assert (type(named), named["a"].shape, named["b"].shape) == (dict, (2,), (2, 2))

    @workers
    @pytest.mark.parametrize("kind", [list, Numbers])
    def test_samples_of_one_field_are_arrays_and_no_lists(self, workers, kind):
        dataset = Numbers(0, 16) if kind is Numbers else [np.array([n]) for n in range(16)]
        feeds = list(DataLoader(dataset, 2, drop_last=True, num_workers=workers))
        assert [feed.shape for feed in feeds] == [(2, 1)] * 8
        assert all(isinstance(feed, jax.Array) for feed in feeds)

    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize(
        ("dataset", "workers"),
        [(range(10), 0), (range(10), 2), (Numbers(0, 10), 0)],
        ids=["indexed", "indexed, by workers", "stream"],
    )
    def test_ten_samples_in_threes_are_three_steps_or_four(self, dataset, workers, drop_last):
        loader = DataLoader(dataset, 3, drop_last=drop_last, num_workers=workers)
        assert len(list(loader)) == (3 if drop_last else 4)

    @workers
    def test_a_list_of_fields_on_one_place_and_a_dict_where_it_is_asked_for(self, workers):
        options = {"feed_list": FIELDS, "num_workers": workers, "drop_last": True}
        for listed in DataLoader(Pictures(), 8, **options):
            assert [type(listed), *(part.shape for part in listed)] == [list, (8, 32), (8, 1)]
        for named in DataLoader(Pictures(), 8, places=CPU, return_list=False, **options):
            assert {name: part.shape for name, part in named.items()} == {
                "image": (8, 32),
                "label": (8, 1),
            }
            assert named["image"].device == CPU

    @differs
    def test_of_two_places_each_field_has_both(self):
        loader = DataLoader(Pictures(), 8, places=TWO, feed_list=FIELDS, drop_last=True)
        feeds = list(loader)
        assert len(feeds) == len(loader) == 6
        assert [part.shape for part in feeds[0]] == [(2, 8, 32), (2, 8, 1)]

    @differs
    @workers
    def test_batches_without_any_array_are_handed_over(self, workers):
        loader = DataLoader(range(4), 2, collate_fn=str, num_workers=workers)
        assert list(loader) == ["[0, 1]", "[2, 3]"]

    @differs
    def test_more_dtypes_than_tensors_have(self):
        for dtype in ("uint32", "uint64"):
            (feed,) = DataLoader([np.dtype(dtype).type(n) for n in range(3)], 3)
            assert feed.tolist() == [0, 1, 2]


class TestArguments:
    @pytest.mark.parametrize(
        "options",
        [
            {"num_workers": -1},
            {"timeout": -1},
            {"batch_size": 0},
            {"batch_sampler": [[0]], "shuffle": True, "drop_last": True},
            {"batch_sampler": [[0]], "batch_size": 2},
        ],
    )
    def test_what_contradicts_itself_is_refused(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            DataLoader(Pictures(), **options)

    @pytest.mark.parametrize("options", [{"shuffle": True}, {"batch_sampler": [[0]]}])
    def test_a_stream_has_no_indices(self, options):
        with pytest.raises(ValueError, match="needs indices"):
            DataLoader(Numbers(0, 5), **options)

    def test_a_batch_sampler_is_no_data_set(self):
        with pytest.raises(TypeError, match="data set"):
            DataLoader(BatchSampler(range(4), batch_size=4), places=CPU)

    @differs
    @pytest.mark.parametrize("wrong", [5, None, iter("ab")], ids=["5", "None", "iterator"])
    def test_what_is_no_data_set_is_refused_where_it_is_written(self, wrong):
        with pytest.raises(TypeError, match="data set"):
            DataLoader(wrong)

    @differs
    def test_batch_sizes_of_numpy_are_whole_numbers_and_true_is_none(self):
        assert len(DataLoader(range(4), np.int64(2))) == 2
        with pytest.raises(TypeError, match="batch_size"):
            DataLoader(range(4), batch_size=True)

    def test_a_batch_sampler_is_taken(self):
        sampler = BatchSampler(range(10), batch_size=4)
        assert stream(DataLoader(range(10), batch_sampler=sampler, places=CPU)) == list(sampler)

    @differs
    def test_a_batch_sampler_that_can_be_read_once_is_refused(self):
        with pytest.raises(TypeError, match="every epoch reads it"):
            DataLoader(range(4), batch_sampler=iter([[0, 1]]))

    def test_the_number_of_workers_can_be_read(self):
        assert DataLoader(Pictures(), 1, num_workers=2).num_workers == 2

    def test_a_distributed_sampler_loads_its_share(self):
        shares = [
            stream(DataLoader(range(10), batch_sampler=DistributedBatchSampler(range(10), 1, 2, r)))
            for r in range(2)
        ]
        assert [sum(share, []) for share in shares] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]  # noqa: RUF017  # ten numbers


class TestStreams:
    def test_one_that_shares_itself_out_gives_every_sample_once(self):
        feeds = DataLoader(Shared(0, 10), 1, num_workers=2, drop_last=True)
        assert sorted(int(feed[0, 0]) for feed in feeds) == [*range(10)]

    def test_one_that_worker_init_fn_shares_out_too(self):
        def share(number):
            info = get_worker_info()
            whole = info.dataset
            each = math.ceil((whole.end - whole.start) / info.num_workers)
            whole.start += info.id * each
            whole.end = min(whole.start + each, whole.end)

        loader = DataLoader(Numbers(0, 10), num_workers=2, worker_init_fn=share)
        assert [int(feed[0, 0]) for feed in loader] == [*range(10)]

    @differs
    def test_one_that_does_not_is_read_once_for_any_number_of_workers(self):
        for count in (0, 2):
            loader = DataLoader(Numbers(0, 5), 2, num_workers=count)
            assert [feed.ravel().tolist() for feed in loader] == [[0, 1], [2, 3], [4]]

    @differs
    def test_one_that_says_its_length_gives_the_loader_one(self):
        class Sized(Numbers):
            def __len__(self):
                return self.end - self.start

        assert len(DataLoader(Sized(0, 5), 2)) == 3


class TestEndsAndErrors:
    @differs
    @workers
    def test_an_error_keeps_its_type_and_comes_after_the_good_batches(self, workers):
        class Failing(Pictures):
            def __getitem__(self, index):
                if index == 5:
                    raise KeyError(index)
                return index

        feeds = iter(DataLoader(Failing(), 2, num_workers=workers))
        assert [next(feeds).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(KeyError):
            next(feeds)

    @differs
    def test_an_epoch_that_is_left_leaves_no_thread(self):
        loader = DataLoader(range(100), 2)
        before = set(threading.enumerate())
        for _ in range(5):
            for feed in loader:
                assert feed.tolist() == [0, 1]
                break
        for thread in set(threading.enumerate()) - before:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    @differs
    def test_one_seed_deals_the_same_with_any_number_of_workers(self):
        dealt = [
            stream(DataLoader(range(20), 4, shuffle=True, seed=1, num_workers=count))
            for count in (0, 1, 2)
        ]
        assert dealt == [dealt[0]] * 3
