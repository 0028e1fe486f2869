"""Data and settings that are likely a mistake: each warns once, with the line to look at."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from jreader import DataLoader, IterableDataset, Pipeline, filter, map_samples, xmap_readers  # noqa: A004  # the field's word
from jreader.cores import usable_cores
from jreader.workers import Processes


class Said(IterableDataset):
    """Some samples, and a length that may be another."""

    def __init__(self, said, given):
        self.said, self.given = said, given

    def __len__(self):
        return self.said

    def __iter__(self):
        return iter(range(self.given))


READ = {
    "a reader": lambda samples: list(Pipeline(samples)),
    "threads": lambda samples: list(Pipeline(samples).map(float, threads=2)),
    "a shuffle of all": lambda samples: list(Pipeline(samples).shuffle(seed=0)),
    "batches": lambda samples: list(Pipeline(samples).batch(2)),
    "a loader": lambda samples: list(Pipeline(samples).batch(1).load()),
    "a data set": lambda samples: list(DataLoader(samples, 2)),
    "processes": lambda samples: list(Pipeline(samples).map(float, processes=1)),
}


@pytest.mark.filterwarnings("ignore:epoch 0 is empty")
@pytest.mark.parametrize("read", READ)
class TestALengthThatIsNotTheNumberOfSamples:
    @pytest.mark.parametrize("given", [0, 3, 7])
    def test_warns_at_the_line_that_reads(self, read, given):
        with pytest.warns(
            UserWarning, match=rf"Said.* says that it has 5 .* gave {given} "
        ) as warned:
            READ[read](Said(5, given))
        assert [each.filename for each in warned if "says that" in str(each.message)] == [__file__]

    def test_is_silent_where_the_length_is_right(self, read):
        READ[read](Said(5, 5))


def test_a_resumed_pass_counts_its_samples_too():
    plan = Pipeline(Said(5, 7)).batch(2).load()
    feeds = iter(plan)
    next(feeds)
    with pytest.warns(UserWarning, match="says that it has 5 samples, and gave 7 "):
        list(plan.epoch(0, at=feeds.cursor))


def test_a_pass_that_ends_early_warns_of_nothing():
    assert list(Pipeline(Said(5, 7)).firstn(5)) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        list(Pipeline(Said(5, 7)).map(lambda n: 1 / (n - 2)))


class TestAFilterThatLeavesNothing:
    def test_warns_at_the_line_that_made_it(self):
        plan = Pipeline(lambda: range(5)).filter(lambda n: n > 9)
        with pytest.warns(
            UserWarning, match=r"filter\(<lambda>.* left none of the samples"
        ) as warned:
            assert list(plan.batch(2)) == []
        (each,) = warned
        assert f"{each.filename}:{each.lineno}" == plan.reader.made_at

    def test_warns_once_however_often_it_is_read(self):
        plan = filter(lambda n: n > 9, lambda: range(5))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            assert [list(plan()) for _ in range(4)] == [[]] * 4
        assert len(warned) == 1

    @pytest.mark.parametrize("count", [0, 5])
    def test_is_silent_where_there_was_nothing_or_some_are_left(self, count):
        assert len(list(filter(lambda n: n < 1, lambda: range(count))())) == min(count, 1)

    def test_is_silent_in_the_rest_of_a_pass(self):
        plan = Pipeline(lambda: range(5)).filter(lambda n: n < 1).batch(1).load(sharding="host")
        feeds = iter(plan)
        next(feeds)
        assert list(plan.epoch(0, at=feeds.cursor)) == []


MANY = {
    "worker processes of a map": (
        "1000 worker processes",
        lambda: map_samples(abs, list, processes=1000),
    ),
    "worker processes of a loader": (
        "1000 worker processes",
        lambda: DataLoader(range(9), num_workers=1000),
    ),
    "worker processes": ("1000 worker processes", lambda: Processes(1000)),
    "threads of a map": ("5000 threads", lambda: map_samples(abs, list, threads=5000)),
    "threads of xmap": ("5000 threads", lambda: xmap_readers(abs, list, 5000, 1)),
}


@pytest.mark.parametrize("many", MANY)
def test_more_workers_than_a_machine_has_use_for_warn(many):
    number, make = MANY[many]
    says = rf"^{number} on {usable_cores()} cores that this program may use: "
    with pytest.warns(UserWarning, match=says) as warned:
        make()
    (each,) = warned
    assert each.filename == __file__


def test_a_common_number_of_workers_is_silent():
    map_samples(abs, list, processes=8)
    map_samples(abs, list, threads=64)
    DataLoader(np.arange(3), num_workers=16)
