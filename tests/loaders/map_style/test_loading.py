"""The map-style door: the same engine as the other two, so the same batches."""

from __future__ import annotations

import json
import os
import threading
import time
from itertools import chain

import jax
import numpy as np
import pytest
from broken import Meeting, Stream
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from programs import children
from steps import FIELDS, Step, beginning, pictures, stream, told
from widths import examples

import jreader
from jreader import (
    BatchNotDivisible,
    DataLoader,
    Dataset,
    FeedMismatch,
    IterableDataset,
    NotResumable,
    Pipeline,
    ReaderError,
    train,
)
from jreader.datasets import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    TensorDataset,
)

pytestmark = pytest.mark.usefixtures("by_value")

EIGHT = jax.devices()[:8]
THREE = jax.devices()[:3]


class Noted(Dataset):
    """Rows by index; tells which were asked for."""

    def __init__(self, n):
        self.n, self.asked = n, []

    def __getitem__(self, index):
        self.asked.append(index)
        return {"x": np.full(2, index), "id": index}

    def __len__(self):
        return self.n


sizes = st.tuples(st.integers(0, 30), st.integers(1, 7), st.booleans())


class TestDoors:
    @pytest.mark.filterwarnings("ignore:(this epoch is empty|same-left-out)")
    @given(sizes, st.sampled_from([None, 0, 7]))
    @examples(60)
    @pytest.mark.filterwarnings("ignore:epoch . is empty")
    def test_three_doors_give_the_same_batches(self, size, seed):
        n, batch_size, drop_last = size
        rows = {"x": np.arange(n * 2.0).reshape(n, 2), "id": np.arange(n)}
        samples = list(jreader.arrays(**rows)())
        shuffled = seed is not None
        pipeline = Pipeline(jreader.arrays(**rows))
        pipeline = pipeline.shuffle(seed=seed) if shuffled else pipeline
        batches = pipeline.batch(batch_size, drop_last or None)
        full = n // batch_size
        seeds_door = DataLoader.from_generator().set_sample_generator(pipeline, batch_size)
        jax_door = batches.load()
        loader = DataLoader(samples, batch_size, shuffled, drop_last=drop_last, seed=seed)
        for _epoch in range(2):
            mapped = stream(loader)
            assert len(mapped) == len(loader) == len(batches)
            if full:
                assert mapped[:full] == stream(seeds_door) == stream(jax_door)
            rest = mapped[full:]
            assert [len(feed["id"]) for feed in rest] == [n % batch_size] * len(rest)

    @pytest.mark.parametrize(
        "dataset",
        [
            [(float(n), n) for n in range(10)],
            TensorDataset([np.arange(10.0), np.arange(10)]),
            jreader.arrays(np.arange(10.0), np.arange(10)),
        ],
    )
    def test_every_kind_of_data_set_gives_the_same(self, dataset):
        expected = [
            [[0.0, 1, 2, 3], [0, 1, 2, 3]],
            [[4.0, 5, 6, 7], [4, 5, 6, 7]],
            [[8.0, 9], [8, 9]],
        ]
        assert stream(DataLoader(dataset, 4)) == expected

    def test_a_plan_trains_the_same_through_each_door(self):
        samples = list(pictures(12)())
        mapped = DataLoader(samples, 4, feed_list=FIELDS, return_list=False)
        seeds = DataLoader.from_generator(FIELDS).set_sample_generator(pictures(12), 4)
        losses = [Step().losses(beginning(), loader) for loader in (mapped, seeds)]
        assert losses[0] == losses[1]
        assert len(losses[0]) == 3

    def test_train_takes_it(self):
        loader = DataLoader([(n, f"{n}") for n in range(5)], 2)
        total, history = train(
            lambda state, feed: (state + int(feed[0].sum()), feed[1]), 0, loader, progress=True
        )
        assert (total, history) == (10, [["4"]])


class TestPasses:
    def test_call_and_iter_and_length(self):
        loader = DataLoader(range(5), 2)
        assert stream(loader()) == stream(iter(loader)) == [[0, 1], [2, 3], [4]]
        assert len(loader) == 3
        assert len(DataLoader(range(5), 2, drop_last=True)) == 2
        assert loader.dataset == range(5)

    def test_next_after_the_end_stays_the_end(self):
        feeds = iter(DataLoader(range(2)))
        list(feeds)
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(feeds)

    def test_epochs_are_dealt_anew_and_found_again(self):
        loader = DataLoader(range(20), 6, shuffle=True, seed=3)
        first, second = stream(loader), stream(loader)
        assert first != second
        assert stream(loader.epoch(1)) == second
        assert sorted(chain(*second)) == list(range(20))

    def test_without_a_seed_epochs_differ_from_run_to_run(self):
        one, two = (DataLoader(range(20), 20, shuffle=True) for _ in range(2))
        assert stream(one) != stream(two)

    def test_no_global_generator_is_asked_or_disturbed(self):
        np.random.seed(0)  # noqa: NPY002  # the point
        before = np.random.get_state()[1].tolist()  # noqa: NPY002  # the point
        expected = stream(DataLoader(range(20), 5, shuffle=True, seed=1))
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002  # the point
        np.random.seed(7)  # noqa: NPY002  # the point
        assert stream(DataLoader(range(20), 5, shuffle=True, seed=1)) == expected

    @pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"num_workers": 2}])
    def test_a_cursor_is_a_place_at_every_position(self, options):
        for seed in (None, 1):
            loader = DataLoader(range(11), 3, shuffle=True, seed=seed, **options)
            whole, cursors = [], []
            with iter(loader) as feeds:
                cursors.append(json.dumps(feeds.cursor))
                for feed in feeds:
                    whole.append(told(feed))
                    cursors.append(json.dumps(feeds.cursor))
            for place, cursor in enumerate(cursors[:-1]):
                again = DataLoader(range(11), 3, shuffle=True, seed=seed, **options)
                again.load_state_dict(json.loads(cursor))
                assert stream(again) == whole[place:]

    def test_resuming_fetches_nothing_again(self):
        loader = DataLoader(Noted(40), 4)
        feeds = iter(loader)
        for _ in range(5):
            next(feeds)
        state = loader.state_dict()
        feeds.close()
        again = DataLoader(Noted(40), 4)
        again.load_state_dict(state)
        assert stream(again)[0]["id"] == [20, 21, 22, 23]
        assert min(again.dataset.asked) == 20

    def test_a_cursor_of_another_batch_size_goes_on_at_the_same_sample(self):
        loader = DataLoader(range(10), 2)
        next(iter(loader))
        other = DataLoader(range(10), 5)
        other.load_state_dict(loader.state_dict())
        assert stream(other) == [[2, 3, 4, 5, 6], [7, 8, 9]]

    def test_a_cursor_of_another_data_set_is_refused(self):
        loader = DataLoader(range(10), 2)
        next(iter(loader))
        with pytest.raises(NotResumable, match=r"Indices\[10\].*here it is .*Indices\[11\]"):
            DataLoader(range(11), 2).load_state_dict(loader.state_dict())

    def test_steps_continue_over_epochs_of_a_stream(self):
        loader = DataLoader(range(5), 2, shuffle=True, seed=0)
        expected = [*stream(loader), *stream(loader)]
        assert stream(loader.steps(6)) == expected

    def test_it_is_peeked_at_without_disturbing(self):
        loader = DataLoader([(n, f"{n}") for n in range(4)], 2, shuffle=True, seed=0)
        assert told(loader.peek()) == told(loader.peek()) == stream(loader.epoch(0))[0]
        assert (loader.next_epoch, loader.element_spec[0].shape) == (0, (2,))
        assert "BatchSampler(RandomSampler(data_source=range(0, 4), seed=0)" in repr(loader)
        assert "fetch(list)" in loader._repr_html_()


class TestWorkers:
    @pytest.mark.usefixtures("held")
    @given(st.integers(0, 30), st.integers(1, 5), st.integers(0, 3))
    @examples(25)
    @pytest.mark.filterwarnings("ignore:epoch . is empty")
    def test_the_stream_is_the_same_for_any_number(self, n, size, seed):
        streams = [
            stream(DataLoader(range(n), size, shuffle=True, seed=seed, num_workers=workers))
            for workers in (0, 1, 2, 4)
        ]
        assert streams == [streams[0]] * 4

    def test_an_iterable_is_read_once_for_any_number(self):
        """In Paddle and torch each worker gives every sample again."""
        for workers in (0, 1, 2, 4):
            assert stream(DataLoader(Stream(5), 2, num_workers=workers)) == [[0, 1], [2, 3], [4]]

    def test_samples_are_fetched_side_by_side(self, tmp_path):
        os.mkfifo(tmp_path / "meeting")
        loader = DataLoader(Meeting(str(tmp_path / "meeting")), 1, num_workers=2)
        assert stream(loader) == [[0], [1]]

    @pytest.mark.parametrize("dataset", [range(40), Stream(40)])
    def test_processes_are_begun_once_each(self, tmp_path, dataset):
        def begin(number):
            (tmp_path / f"{number} {os.getpid()}").touch(exist_ok=False)

        loader = DataLoader(
            dataset, 2, num_workers=3, worker_init_fn=begin, persistent_workers=True
        )
        for _ in range(1 if isinstance(dataset, Stream) else 3):
            assert len(stream(loader)) == 20
        begun = sorted(path.name.split() for path in tmp_path.iterdir())
        assert 1 <= len(begun) <= 3
        assert {int(number) for number, _ in begun} <= {0, 1, 2}
        assert len({pid for _, pid in begun} - {str(os.getpid())}) == len(begun)

    def test_persistent_workers_break_and_iterate_again(self):
        loader = DataLoader(range(12), 2, num_workers=2, persistent_workers=True)
        for _ in range(3):
            for feed in loader:
                assert feed.tolist() == [0, 1]
                break
        before = children()
        ticks, over = [], threading.Event()

        def tick():
            while not over.wait(0.4):
                ticks.append(None)

        (clock := threading.Thread(target=tick)).start()
        between = 0  # epochs that begin and end between two ticks
        for _ in range(60):
            begun_at = len(ticks)
            assert len(stream(loader)) == 6
            between += len(ticks) == begun_at
        over.set()
        clock.join()
        assert between  # Paddle polls for half a second in every epoch: a tick falls into each
        assert not children() - before

    def test_a_step_that_sleeps_is_not_waited_for(self):
        loader = DataLoader(Noted(6), 1)
        for _feed in loader:
            time.sleep(0.05)
        assert sorted(loader.dataset.asked) == list(range(6))


class TestPlaces:
    def test_a_device(self):
        feeds = list(DataLoader(range(5), 2, places=EIGHT[3]))
        assert {feed.device for feed in feeds} == {EIGHT[3]}
        assert stream(feeds) == [[0, 1], [2, 3], [4]]

    def test_each_of_several_gets_a_batch_and_nothing_is_lost(self):
        """Paddle loses every second batch, and its length counts them."""
        loader = DataLoader(
            [{"x": n, "s": f"{n}"} for n in range(11)], 2, drop_last=False, places=THREE
        )
        feeds = list(loader)
        assert len(feeds) == len(loader) == 2
        assert told(feeds[0]["x"]) == [[0, 1], [2, 3], [4, 5]]
        assert told(feeds[1]["x"]) == [[6, 7], [8, 9], [10, 0]]
        assert told(feeds[1]["mask"]) == [[True] * 2, [True] * 2, [True, False]]
        assert feeds[1]["s"] == [["6", "7"], ["8", "9"], ["10"]]
        assert [part.device for part in feeds[0]["x"].addressable_shards] == THREE

    def test_texts_of_all_places_are_kept_where_the_first_has_none(self):
        def collated(numbers):
            return {"x": np.array(numbers), "notes": [f"note {n}" for n in numbers if n >= 2]}

        (feed,) = DataLoader(range(4), 2, places=EIGHT[:2], collate_fn=collated)
        assert feed["notes"] == [[], ["note 2", "note 3"]]

    def test_a_group_that_lacks_batches_is_padded(self):
        feeds = list(DataLoader([(n, "a") for n in range(8)], 2, drop_last=False, places=THREE))
        assert told(feeds[1][0]) == [[6, 7], [0, 0], [0, 0]]
        assert feeds[1][1] == [["a", "a"], [], []]
        assert told(feeds[1][2]) == [[True, True], [False, False], [False, False]]

    def test_or_dropped(self):
        loader = DataLoader(range(11), 2, drop_last=True, places=THREE)
        assert stream(loader) == [[[0, 1], [2, 3], [4, 5]]]
        assert len(loader) == 1
        sampler = BatchSampler(range(11), batch_size=2, drop_last=True)
        assert stream(DataLoader(range(11), batch_sampler=sampler, places=THREE)) == stream(loader)

    def test_a_list_of_one_has_an_axis_for_it(self):
        assert stream(DataLoader(range(3), 2, places=EIGHT[:1])) == [[[0, 1]], [[2]]]

    def test_a_sharding_cuts_each_batch(self):
        sharding = NamedSharding(Mesh(np.array(EIGHT), ("data",)), PartitionSpec("data"))
        loader = DataLoader([{"x": n} for n in range(11)], 8, drop_last=False, places=sharding)
        feeds = list(loader)
        assert len(feeds) == len(loader) == 2
        assert feeds[1]["x"].sharding == feeds[1]["mask"].sharding == sharding
        assert told(feeds[1]["mask"]) == [True] * 3 + [False] * 5
        with pytest.raises(BatchNotDivisible, match="Use a batch size of 8"):
            DataLoader(range(10), 7, places=sharding)

    def test_what_has_no_rows_cannot_be_cut(self):
        with pytest.raises(FeedMismatch, match="one row for each sample"):
            list(DataLoader(["a", "b"], 1, places=THREE))
        with pytest.raises(FeedMismatch, match="one row for each sample"):
            list(DataLoader(range(6), 2, collate_fn=lambda _: np.ones(()), places=THREE))

    def test_a_step_under_pmap_trains(self):
        samples = list(pictures(24)())
        loader = DataLoader(samples, 3, feed_list=FIELDS, return_list=False, places=EIGHT)
        params = loader.replicate(beginning(), "devices")
        assert len(Step("devices").losses(params, loader)) == 1


class TestSamplers:
    def test_batches_are_what_a_batch_sampler_says(self):
        for sampler in ([[2, 0], [1]], lambda: iter([[2, 0], [1]]), [np.array([2, 0]), (1,)]):
            loader = DataLoader("abc", batch_sampler=sampler)
            assert list(loader) == list(loader) == [["c", "a"], ["b"]]
        assert len(DataLoader("abc", batch_sampler=[[2, 0], [1]])) == 2

    def test_python_whole_numbers_are_asked_for(self):
        dataset = Noted(4)
        list(DataLoader(dataset, batch_sampler=[np.array([2, 0])]))
        assert list(map(type, dataset.asked)) == [int, int]

    def test_ranks_train_on_parts_of_every_epoch(self):
        loaders = [
            DataLoader(
                range(12),
                batch_sampler=DistributedBatchSampler(range(12), 2, 3, rank, shuffle=True),
            )
            for rank in range(3)
        ]
        epochs = []
        for _ in range(2):
            seen = [list(chain(*stream(loader))) for loader in loaders]
            assert sorted(chain(*seen)) == list(range(12))
            epochs.append(seen)
        assert epochs[0] != epochs[1]

    def test_a_sampler_of_a_sampler(self):
        sampler = BatchSampler(RandomSampler(range(9), seed=1), batch_size=4)
        loader = DataLoader(range(9), batch_sampler=sampler)
        assert stream(loader) == list(sampler)
        assert stream(loader) != list(sampler)


class TestStreams:
    def test_a_stream_is_read_in_order(self):
        loader = DataLoader(Stream(5), 2)
        assert stream(loader) == stream(loader) == [[0, 1], [2, 3], [4]]
        assert stream(DataLoader(Stream(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
        assert list(DataLoader(Stream(2), batch_size=None)) == [0, 1]

    def test_a_stream_resumes_at_a_cursor(self):
        loader = DataLoader(Stream(7), 2)
        feeds = iter(loader)
        next(feeds), next(feeds)
        again = DataLoader(Stream(7), 2)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert stream(again) == [[4, 5], [6]]

    def test_its_length_is_a_type_error_that_helps(self):
        with pytest.raises(TypeError, match="an IterableDataset has none"):
            len(DataLoader(Stream(5), 2))


class TestStreamsThatAreIterators:
    """An `IterableDataset` whose `__iter__` returns itself."""

    class Countdown(IterableDataset):
        def __iter__(self):
            self.left = 5
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_one_that_begins_again_is_read_in_each_epoch(self, num_workers):
        loader = DataLoader(self.Countdown(), batch_size=2, num_workers=num_workers)
        epochs = [[feed.tolist() for feed in loader] for _ in range(2)]
        assert epochs == [[[4, 3], [2, 1], [0]]] * 2

    def test_one_that_does_not_begin_again_is_an_error_and_not_an_empty_epoch(self):
        class Once(self.Countdown):
            left = 5

            def __iter__(self):
                return self

        loader = DataLoader(Once(), batch_size=5)
        assert [feed.tolist() for feed in loader] == [[4, 3, 2, 1, 0]]
        with pytest.raises(ReaderError, match="gives its samples only once"):
            list(loader)


def test_a_stream_with_epochs_is_given_the_epoch_of_the_loader():
    class Shuffled(IterableDataset):
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch] * 2)

    loader = DataLoader(Shuffled(), batch_size=2)
    assert [feed.tolist() for _ in range(3) for feed in loader] == [[0, 0], [1, 1], [2, 2]]
