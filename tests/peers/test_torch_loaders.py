"""What torch's tests of its loader check, of jreader."""

from __future__ import annotations

import os
import signal
from collections import Counter

import numpy as np
import pytest
from peer_datasets import Counting, Failing, Unfinished
from steps import stream

import jreader
from jreader import DataLoader, Dataset, WorkerDied
from jreader.datasets import SequenceSampler, TensorDataset

differs = pytest.mark.differs
DATA = np.random.default_rng(0).random((100, 2, 3), "float32")
LABELS = np.tile(np.random.default_rng(1).permutation(50), 2)
DATASET = TensorDataset([DATA, LABELS])
workers = pytest.mark.parametrize("workers", [0, 2])
sizes = pytest.mark.parametrize("size", [1, 2, 3, None])


def rows(feeds, size):
    """The samples and labels of all feeds."""
    images, labels = zip(*(map(np.asarray, feed) for feed in feeds), strict=True)
    return (np.stack if size is None else np.concatenate)(images), np.hstack(labels)


class TestOrder:
    @workers
    @sizes
    def test_batches_are_the_rows_in_order(self, size, workers):
        loader = DataLoader(DATASET, size, num_workers=workers)
        feeds = list(loader)
        assert len(feeds) == len(loader) == -(-100 // (size or 1))
        images, labels = rows(feeds, size)
        assert np.array_equal(images, DATA)
        assert np.array_equal(labels, LABELS)

    @workers
    @sizes
    def test_shuffled_samples_come_once_with_their_labels(self, size, workers):
        images, labels = rows(DataLoader(DATASET, size, shuffle=True, num_workers=workers), size)
        places = [int(np.flatnonzero((image == DATA).all((1, 2)))[0]) for image in images]
        assert sorted(places) == [*range(100)] != places
        assert np.array_equal(labels, LABELS[places])

    @pytest.mark.parametrize("size", [8, 16, 32, 64])
    def test_batches_of_several_workers_come_in_order(self, size):
        feeds = stream(DataLoader(range(128), size, num_workers=2, timeout=60))
        assert feeds == [[*range(begin, begin + size)] for begin in range(0, 128, size)]

    @pytest.mark.parametrize("kind", [list, tuple])
    @pytest.mark.parametrize(
        ("dataset", "workers"),
        [(range(20), 0), (range(20), 2), (Counting(20), 0)],
        ids=["indexed", "indexed, by workers", "stream"],
    )
    def test_a_loader_becomes_a_list_or_a_tuple(self, dataset, workers, kind):
        single = kind(DataLoader(dataset, batch_size=None, num_workers=workers))
        assert single == kind(range(20))
        assert {type(sample) for sample in single} == {int}
        pairs = kind(DataLoader(dataset, batch_size=2, num_workers=workers))
        assert [pair.tolist() for pair in pairs] == [[n, n + 1] for n in range(0, 20, 2)]

    def test_loaders_are_iterated_in_turn(self):
        first, second = (iter(DataLoader(range(9), num_workers=count)) for count in (0, 2))
        drawn = [int(next(each)[0]) for each in (first, first, second, second, first, second)]
        assert drawn == [0, 1, 0, 1, 2, 2]


class TestLengths:
    @pytest.mark.parametrize(
        ("size", "drop_last", "length"),
        [(1, False, 10), (1, True, 10), (2, False, 5), (2, True, 5), (3, False, 4), (3, True, 3)],
    )
    @pytest.mark.parametrize("dataset", [range(10), Counting(10)], ids=["indexed", "stream"])
    def test_they_are_the_number_of_feeds(self, dataset, size, drop_last, length):
        loader = DataLoader(dataset, size, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == length

    def test_a_stream_in_sevens_has_a_short_end_or_none(self):
        whole = [[*range(7)], [*range(7, 14)], [*range(14, 20)]]
        assert stream(DataLoader(Counting(20), 7)) == whole
        assert stream(DataLoader(Counting(20), 7, drop_last=True)) == whole[:2]

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_a_data_set_that_grows_before_an_epoch_is_read_whole(self, shuffle):
        dataset = [np.ones(4)] * 4
        loader = DataLoader(dataset, shuffle=shuffle)
        dataset.append(np.ones(4))
        assert len(loader) == len(list(loader)) == 5

    def test_a_stream_that_says_too_short_a_length_is_warned_of(self):
        class Lying(Counting):
            def __len__(self):
                return 5

        with pytest.warns(UserWarning, match="5"):
            assert len(stream(DataLoader(Lying(20), 1))) == 20


class TestArguments:
    @pytest.mark.parametrize(
        "options",
        [{"num_workers": -1}, {"timeout": -1}, {"batch_size": None, "drop_last": True}],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, options):
        with pytest.raises(ValueError, match="DataLoader"):
            DataLoader(DATASET, **options)

    @pytest.mark.parametrize(
        "options",
        [{"shuffle": True}, {"sampler": SequenceSampler(range(20))}, {"batch_sampler": [[3]]}],
        ids=lambda options: next(iter(options)),
    )
    def test_a_stream_takes_no_order(self, options):
        with pytest.raises(ValueError, match=f"{next(iter(options))} of .* needs indices"):
            DataLoader(Counting(20), **options)

    @pytest.mark.parametrize(
        "name", ["batch_size", "sampler", "batch_sampler", "drop_last", "dataset"]
    )
    def test_what_a_loader_was_made_of_is_read_and_not_written(self, name):
        loader = DataLoader(DATASET, 2)
        assert hasattr(loader, name)
        with pytest.raises((AttributeError, ValueError), match=name):
            setattr(loader, name, {})

    def test_a_thousand_workers_are_warned_of(self):
        with pytest.warns(UserWarning, match="1000"):
            DataLoader(DATASET, 2, num_workers=1000)

    @differs
    @pytest.mark.parametrize(
        "options",
        [
            {"multiprocessing_context": "fork"},
            {"generator": object()},
            {"pin_memory": True},
            {"in_order": False},
        ],
        ids=lambda options: next(iter(options)),
    )
    def test_words_that_mean_nothing_here_are_refused_with_the_reason(self, options):
        (name,) = options
        with pytest.raises(TypeError, match=f"{name}=.* means nothing here: .* leave it out"):
            DataLoader(DATASET, num_workers=1, **options)

    @pytest.mark.parametrize(
        "options", [{"pin_memory": False}, {"in_order": True}, {"generator": None}], ids=str
    )
    def test_words_that_say_what_holds_anyway_are_taken(self, options):
        assert len(DataLoader(DATASET, 2, **options)) == 50

    def test_batches_asked_of_workers_ahead_change_no_order(self):
        loader = DataLoader(range(20), 2, num_workers=2, prefetch_factor=3)
        assert stream(loader) == [[n, n + 1] for n in range(0, 20, 2)]

    @differs
    def test_batches_ahead_of_no_worker_are_refused(self):
        with pytest.raises(ValueError, match="prefetch_factor"):
            DataLoader(DATASET, prefetch_factor=2)

    @differs
    @pytest.mark.parametrize("name", ["batch_size", "sampler", "drop_last", "num_workers"])
    def test_no_argument_is_written_afterwards(self, name):
        loader = DataLoader(DATASET, 4)
        with pytest.raises(AttributeError, match=f"{name} of a loader cannot be set"):
            setattr(loader, name, 3)


class TestErrors:
    @workers
    def test_of_a_stream_that_begins_keep_their_message(self, workers):
        with pytest.raises(RuntimeError, match="error in iter"):
            list(DataLoader(Failing(), num_workers=workers))

    def test_of_worker_init_fn_too(self):
        def failing(number):
            raise RuntimeError("error in worker_init_fn")

        with pytest.raises(RuntimeError, match="error in worker_init_fn"):
            list(DataLoader(DATASET, num_workers=2, worker_init_fn=failing))

    @differs
    @workers
    def test_the_first_one_ends_the_pass(self, workers):
        """Torch's iterator goes on, with another error for each batch."""
        feeds = iter(DataLoader(Unfinished(), 2, shuffle=True, num_workers=workers))
        with pytest.raises(NotImplementedError, match="__getitem__"):
            next(feeds)
        assert next(feeds, "over") == "over"

    @pytest.mark.slow
    def test_a_worker_that_crashes_is_an_error_that_says_by_which_signal(self):
        class Crashing(Dataset):
            def __getitem__(self, index):
                os.kill(os.getpid(), signal.SIGSEGV)

            def __len__(self):
                return 10

        with pytest.raises(WorkerDied, match=r"SIGSEGV|-11|signal 11"):
            next(iter(DataLoader(Crashing(), 2, num_workers=1)))

    def test_one_in_the_loop_is_the_users_own_beside_large_batches_of_indices(self):
        def loop():
            for feed in DataLoader(np.zeros((200_000, 0)), 40_960, num_workers=1):
                assert feed.size == 0
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            loop()


class TestShuffledStreams:
    @pytest.mark.parametrize("window", [5, 20, 33])
    def test_a_window_deals_every_epoch_anew_and_by_its_seed(self, window):
        def dealt(seed):
            loader = jreader.Pipeline(Counting(100)).shuffle(window, seed=seed).batch(1).load()
            return [[int(feed[0]) for feed in loader] for _ in range(2)]

        epochs, again, other = dealt(123), dealt(123), dealt(321)
        assert epochs == again != other
        assert epochs[0] != epochs[1]
        assert Counter(epochs[0]) == Counter(other[1]) == Counter(range(100))


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOne:
    @pytest.fixture(scope="class")
    def data(self):
        return pytest.importorskip("torch").utils.data

    @pytest.mark.parametrize("count", [6, 7, 12])
    @pytest.mark.parametrize(
        "options",
        [
            {"batch_size": 3},
            {"batch_size": 3, "drop_last": True},
            {"batch_size": None},
            {"batch_size": 2, "sampler": [5, 0, 3]},
            {"batch_size": 2, "sampler": [5, 0, 3], "drop_last": True},
            {"batch_sampler": [[1, 0], (4,), [2, 3, 5]]},
        ],
        ids=str,
    )
    def test_feeds_and_lengths_are_theirs(self, data, options, count):
        samples = [
            (np.full(3, n, "float32"), {"label": n, "name": str(n)}, [n % 2 == 0, b"raw"])
            for n in range(count)
        ]

        def plain(value):
            if isinstance(value, dict):
                return {key: plain(part) for key, part in value.items()}
            if isinstance(value, (list, tuple)):
                return [plain(part) for part in value]
            return value.tolist() if hasattr(value, "tolist") else value

        ours, theirs = DataLoader(samples, **options), data.DataLoader(samples, **options)
        assert list(map(plain, ours)) == list(map(plain, theirs))
        assert len(ours) == len(theirs)
