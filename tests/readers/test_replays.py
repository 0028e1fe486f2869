"""Plain functions are read again up to a position, with a bar only where that takes long."""

import threading

import pytest
from tqdm import tqdm

from jreader import IterableDataset, NotResumable, Pipeline, start


def numbers():
    return iter(range(40))


def test_what_takes_little_time_shows_no_bar_and_waits_for_no_lock_of_tqdm(capsys):
    rest = []
    with tqdm.get_lock():  # as one that a fork, or an interrupt, left behind
        thread = threading.Thread(target=lambda: rest.extend(start(numbers, 30).items), daemon=True)
        thread.start()
        thread.join(60)
    assert rest == [*range(30, 40)]
    assert capsys.readouterr().err == ""


def test_a_replay_of_too_few_samples_ends_with_the_reason():
    with pytest.raises(
        NotResumable, match=r"cannot resume after sample 50 of .* it gave 40 samples"
    ):
        list(start(numbers, 50).items)


class Stream(IterableDataset):
    """As an `IterableDataset` of another library: its order is that of the epoch that was set."""

    def __init__(self):
        self.epoch = 7

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([self.epoch] * 2)


def test_a_stream_that_has_epochs_gets_the_number_of_the_epoch():
    stream = Stream()
    plan = Pipeline(lambda: stream)
    assert list(plan) == [7, 7]  # as its user has set it
    assert list(plan.epochs(3)) == [0, 0, 1, 1, 2, 2]
    loader = plan.batch(2).load(sharding="host")
    assert [feed.tolist() for _ in range(2) for feed in loader] == [[0, 0], [1, 1]]
