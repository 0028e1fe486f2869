"""What `DataLoader(dataset, ...)` takes, as torch and Paddle call it, and tells of itself."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest
from broken import Stream
from steps import stream, told

import jreader
from jreader import DataLoader, Dataset, Pipeline
from jreader.datasets import BatchSampler, RandomSampler, SequenceSampler, SubsetRandomSampler

FIELDS = [jreader.data("x", [None], "int32")]


class TestSamplers:
    def test_batches_are_of_what_a_sampler_gives(self):
        loader = DataLoader(range(9), 2, sampler=[4, 0, 8])
        assert (stream(loader), stream(loader), len(loader)) == ([[4, 0], [8]], [[4, 0], [8]], 2)
        assert stream(DataLoader(range(9), 2, sampler=[4, 0, 8], drop_last=True)) == [[4, 0]]
        assert stream(DataLoader("abc", batch_size=None, sampler=[2, 0])) == ["c", "a"]

    def test_its_epochs_differ_as_those_of_shuffle(self):
        dealt = DataLoader(range(9), 3, sampler=RandomSampler(range(9), seed=1))
        shuffled = DataLoader(range(9), 3, shuffle=True, seed=1)
        assert [stream(dealt), stream(dealt)] == [stream(shuffled), stream(shuffled)]

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"sampler": [0], "shuffle": True}, ValueError, "sampler has an order.*shuffle out"),
            ({"sampler": [0], "batch_sampler": [[0]]}, ValueError, "not both"),
            ({"sampler": iter([0])}, TypeError, "every epoch reads it"),
            ({"dataset": Stream(4), "sampler": [0]}, ValueError, "sampler of.*needs indices"),
        ],
    )
    def test_what_contradicts_it_is_refused(self, options, error, says):
        with pytest.raises(error, match=says):
            DataLoader(**{"dataset": range(4), **options})


class TestOtherLibraries:
    def test_what_says_what_holds_anyway_is_taken(self):
        loader = DataLoader(
            range(4),
            2,
            shuffle=None,
            generator=None,
            pin_memory=False,
            pin_memory_device="",
            multiprocessing_context=None,
            in_order=True,
            use_shared_memory=True,
            use_buffer_reader=True,
            reader_buffer_size=2,
            prefetch_factor=None,
        )
        assert stream(loader) == [[0, 1], [2, 3]]

    @pytest.mark.parametrize(
        ("option", "says"),
        [
            ({"generator": np.random.default_rng(0)}, "seed="),
            ({"pin_memory": True}, "ahead of the step"),
            ({"pin_memory_device": "cuda"}, "ahead of the step"),
            ({"multiprocessing_context": "fork"}, "never forked"),
            ({"in_order": False}, "for any number of workers"),
            ({"use_shared_memory": False}, "/dev/shm"),
        ],
    )
    def test_what_means_nothing_here_is_refused_with_the_reason(self, option, says):
        (name,) = option
        with pytest.raises(TypeError, match=rf"{name}=.* of DataLoader\(.*{says}.*leave it out"):
            DataLoader(range(4), num_workers=1, **option)

    def test_a_name_that_nobody_knows_is_an_unexpected_keyword(self):
        with pytest.raises(TypeError, match=r"takes no batchsize=: did you mean batch_size=\?"):
            DataLoader(range(4), batchsize=2)

    def test_how_much_is_read_ahead_is_what_was_said(self):
        class Noted(Dataset):
            def __init__(self):
                self.asked = []

            def __getitem__(self, index):
                self.asked.append(index)
                return index

            def __len__(self):
                return 99

        for options, ahead in (
            ({"use_buffer_reader": False}, 0),
            ({"capacity": 0}, 0),
            ({"reader_buffer_size": 20}, 20),
            ({"capacity": 20}, 20),
            ({}, 2),
        ):
            dataset = Noted()
            loader = DataLoader(dataset, 1, **options)
            assert loader.capacity == ahead
            feeds = iter(loader)
            next(feeds)
            feeds.close()
            assert 1 <= len(dataset.asked) <= 1 + 2 * ahead

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"use_buffer_reader": "no"}, TypeError, "use_buffer_reader of .* True or False"),
            ({"reader_buffer_size": -1}, ValueError, "capacity of DataLoader"),
            ({"capacity": 1.5}, TypeError, "capacity of DataLoader"),
            ({"capacity": 5, "reader_buffer_size": 1}, TypeError, "not both"),
            ({"seed": "a"}, TypeError, "seed of DataLoader"),
        ],
    )
    def test_what_says_nothing_is_refused(self, options, error, says):
        with pytest.raises(error, match=says):
            DataLoader(range(4), **options)

    def test_batches_ahead_of_each_worker_are_counted(self, tmp_path):
        class Noted(Dataset):
            def __getitem__(self, index):
                (tmp_path / str(index)).touch()
                return index

            def __len__(self):
                return 400

        loader = DataLoader(Noted(), 1, num_workers=2, prefetch_factor=3, capacity=0)
        assert loader.prefetch_factor == 3
        feeds = iter(loader)
        for place in range(1, 60):
            next(feeds)
            assert len(list(tmp_path.iterdir())) <= place + 2 * 3 + 2
        feeds.close()

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"prefetch_factor": 2}, ValueError),
            ({"prefetch_factor": 0, "num_workers": 1}, ValueError),
            ({"prefetch_factor": 1.5, "num_workers": 1}, TypeError),
        ],
    )
    def test_batches_ahead_of_no_worker_are_refused(self, options, error):
        with pytest.raises(error, match=r"prefetch_factor of DataLoader"):
            DataLoader(range(4), **options)


class TestOrder:
    @pytest.mark.parametrize(
        "given",
        [
            (FIELDS, jax.devices()[:1]),
            (FIELDS,),
            ({"x": 0}, None, True),
            (None, jax.devices()[:1]),
            (None, jax.devices()[0]),
        ],
    )
    def test_paddles_is_told(self, given):
        with pytest.raises(TypeError, match=r"order of Paddle.*feed_list=feed_list, places=places"):
            DataLoader(range(4), *given)

    def test_torchs_is_told(self):
        with pytest.raises(TypeError, match=r"order of torch.*sampler=sampler"):
            DataLoader(range(4), 2, False, SequenceSampler(range(4)))  # noqa: FBT003  # the point


class TestAttributes:
    def test_every_argument_is_one(self):
        taken = set(inspect.signature(DataLoader).parameters) - {"foreign"}
        loader = DataLoader(range(4), 2)
        assert {name for name in taken if hasattr(loader, name)} == taken

    def test_they_are_what_was_given(self):
        def collated(samples):
            return np.array(samples)

        place = jax.devices()[1]
        loader = DataLoader(
            range(9),
            4,
            shuffle=True,
            drop_last=True,
            collate_fn=collated,
            num_workers=2,
            timeout=9,
            persistent_workers=True,
            places=place,
            feed_list=FIELDS,
            return_list=False,
            seed=3,
        )
        given = {
            "dataset": range(9),
            "batch_size": 4,
            "shuffle": True,
            "drop_last": True,
            "collate_fn": collated,
            "num_workers": 2,
            "timeout": 9,
            "worker_init_fn": None,
            "persistent_workers": True,
            "prefetch_factor": None,
            "places": place,
            "feed_list": FIELDS,
            "return_list": False,
            "seed": 3,
            "capacity": 2,
            "tune": False,
        }
        assert {name: getattr(loader, name) for name in given} == given
        assert repr(loader.sampler) == "RandomSampler(data_source=range(0, 9), seed=3)"
        assert isinstance(loader.batch_sampler, BatchSampler)
        assert loader.batch_sampler.drop_last

    def test_samplers_are_those_that_are_read(self):
        sampler = SubsetRandomSampler([1, 2], seed=0)
        assert DataLoader(range(9), sampler=sampler).sampler is sampler
        batches = BatchSampler(sampler=sampler, batch_size=2)
        loader = DataLoader(range(9), batch_sampler=batches)
        assert (loader.batch_sampler, loader.sampler, loader.batch_size) == (batches, sampler, None)
        single = DataLoader(range(9), batch_size=None)
        assert (single.batch_sampler, repr(single.sampler)) == (
            None,
            "SequenceSampler(data_source=range(0, 9))",
        )
        flowing = DataLoader(Stream(4), 2)
        assert (flowing.batch_sampler, flowing.sampler, flowing.batch_size) == (None, None, 2)

    def test_of_loaders_over_generators_too(self):
        loader = DataLoader.from_generator(FIELDS, capacity=4, return_list=True)
        assert (loader.feed_list, loader.capacity, loader.return_list) == (FIELDS, 4, True)
        assert (loader.dataset, loader.places) == (None, None)
        place = jax.devices()[1]
        loader.set_sample_generator(lambda: iter("ab"), 2, places=place)
        assert loader.places is place
        assert Pipeline(lambda: range(4)).batch(2).load(capacity=0).capacity == 0
        with pytest.raises(
            AttributeError, match="this loader has no batch_sampler: it reads no data set"
        ):
            _ = loader.batch_sampler
        assert not hasattr(loader, "num_workers")

    def test_a_loader_made_of_another_has_them(self):
        loader = DataLoader(np.arange(4), 2).on_device(lambda feed: feed + 1)
        assert (loader.batch_size, stream(loader)) == (2, [[1, 2], [3, 4]])

    @pytest.mark.parametrize("name", ["batch_size", "dataset", "sampler", "num_workers", "places"])
    def test_to_write_one_is_an_error_that_says_what_to_do(self, name):
        loader = DataLoader(range(4), 2)
        with pytest.raises(AttributeError, match=rf"{name} of a loader.*make another.*{name}=8"):
            setattr(loader, name, 8)
        assert told(stream(loader)) == [[0, 1], [2, 3]]

    def test_the_next_epoch_can_be_set(self):
        loader = DataLoader(range(9), 9, shuffle=True, seed=0)
        second = stream(loader.epoch(1))
        loader.next_epoch = 1
        assert stream(loader) == second
