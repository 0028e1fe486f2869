"""Data sets that grow and shrink: each epoch reads as many samples as there are when it begins."""

from __future__ import annotations

import json

import numpy as np
import pytest
from steps import stream

import jreader
from jreader import DataLoader, Dataset, NotResumable, Pipeline, ReaderError
from jreader.datasets import (
    BatchSampler,
    ComposeDataset,
    ConcatDataset,
    DistributedBatchSampler,
    RandomSampler,
    SequenceSampler,
    Subset,
)
from jreader.errors import MissingSample

WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Rows(Dataset):
    """Rows that come and go."""

    def __init__(self, n):
        self.rows = list(range(n))

    def __getitem__(self, index):
        return self.rows[index]

    def __len__(self):
        return len(self.rows)


def flat(feeds):
    return [number for feed in feeds for number in np.ravel(feed).tolist()]


SAMPLERS = {
    "in order": lambda rows: {"batch_size": 2},
    "shuffled": lambda rows: {"batch_size": 2, "shuffle": True},
    "with a seed": lambda rows: {"batch_size": 2, "shuffle": True, "seed": 1},
    "a batch sampler": lambda rows: {"batch_sampler": BatchSampler(rows, batch_size=2)},
    "a sampler": lambda rows: {
        "batch_sampler": BatchSampler(sampler=RandomSampler(rows, seed=0), batch_size=2)
    },
    "ranks": lambda rows: {"batch_sampler": DistributedBatchSampler(rows, 2, 1, 0, shuffle=True)},
}


class TestEpochs:
    @WORKERS
    @pytest.mark.parametrize("how", SAMPLERS)
    def test_each_is_as_long_as_the_data_set_is_when_it_begins(self, how, workers):
        rows = Rows(5)
        loader = DataLoader(rows, num_workers=workers, **SAMPLERS[how](rows))
        assert (sorted(flat(loader)), len(loader)) == ([0, 1, 2, 3, 4], 3)
        rows.rows += [5, 6, 7]
        assert (sorted(flat(loader)), len(loader)) == (list(range(8)), 4)
        del rows.rows[3:]
        assert (sorted(flat(loader)), len(loader)) == ([0, 1, 2], 2)

    def test_workers_that_persist_get_what_has_grown(self):
        rows = Rows(3)
        loader = DataLoader(rows, 2, num_workers=2, persistent_workers=True)
        assert flat(loader) == [0, 1, 2]
        rows.rows += [3, 4]
        assert flat(loader) == [0, 1, 2, 3, 4]
        rows.rows[:] = [7, 8, 9]  # as many as there were first
        assert flat(loader) == [7, 8, 9]

    @pytest.mark.parametrize(
        "options", [{}, {"threads": 2}, {"processes": 1}], ids=["alone", "threads", "processes"]
    )
    def test_a_source_is_as_long_as_its_data_are(self, options):
        rows = [0, 1, 2]
        plan = Pipeline(jreader.source(rows)).shuffle(seed=0).map(lambda row: row, **options)
        loader = plan.batch(2).load(drop_last=False)
        assert sorted(plan) == [0, 1, 2]
        assert len(stream(loader)) == 2
        rows += [3, 4]
        assert sorted(plan) == [0, 1, 2, 3, 4]
        assert len(stream(loader)) == 3
        del rows[2:]
        assert sorted(plan) == [0, 1]
        assert len(stream(loader)) == 1

    def test_steps_go_from_epoch_to_epoch_at_the_length_of_now(self):
        rows = Rows(2)
        loader = DataLoader(rows, 1, shuffle=True, seed=3, capacity=0)  # none is read ahead
        seen = []
        for feed in loader.steps(2 + 3):
            seen.append(int(feed[0]))
            if len(seen) == 2:
                rows.rows.append(2)
        assert (sorted(seen[:2]), sorted(seen[2:])) == ([0, 1], [0, 1, 2])

    def test_parts_side_by_side_that_no_longer_match_are_told_when_the_epoch_begins(self):
        one, two = Rows(3), Rows(3)
        loader = DataLoader(ComposeDataset([one, two]), 3)
        assert len(stream(loader)) == 1
        two.rows.append(3)
        with pytest.raises(ValueError, match=r"one length, not \[3, 4\]"):
            stream(loader)

    def test_parts_one_after_another_are_counted_anew(self):
        one, two = Rows(2), Rows(1)
        loader = DataLoader(ConcatDataset([one, two]), 9)
        assert flat(loader) == [0, 1, 0]
        one.rows.append(2)
        assert flat(loader) == [0, 1, 2, 0]

    def test_fewer_than_are_to_be_drawn_is_told_when_the_epoch_begins(self):
        rows = Rows(3)
        sampler = RandomSampler(rows, num_samples=3, seed=0)
        loader = DataLoader(rows, batch_sampler=BatchSampler(sampler=sampler, batch_size=3))
        assert len(stream(loader)) == 1
        rows.rows.pop()
        with pytest.raises(ValueError, match="draw at most 2"):
            stream(loader)

    def test_a_sampler_does_not_take_the_data_along(self):
        sampler = RandomSampler(["long"] * 1000, seed=0)
        assert repr(sampler) == "RandomSampler(data_source=range(0, 1000), seed=0)"
        assert repr(SequenceSampler("abc").data_source) == "range(0, 3)"


class TestWithinAnEpoch:
    @pytest.mark.parametrize(
        "make",
        [
            lambda rows: DataLoader(rows, 1),
            lambda rows: DataLoader(rows, 2),
            lambda rows: DataLoader(Subset(rows, range(9)), 1),
            lambda rows: DataLoader(ConcatDataset([rows]), 1),
            lambda rows: DataLoader(jreader.source(rows), 1),
            lambda rows: Pipeline(jreader.source(rows)).batch(1).load(),
            lambda rows: Pipeline(jreader.source(rows)).map(lambda row: row).batch(1).load(),
        ],
    )
    def test_to_shrink_is_an_error_that_says_so(self, make):
        rows = Rows(9)
        feeds = iter(make(rows))
        next(feeds)
        del rows.rows[1:]
        with pytest.raises(
            MissingSample, match=r"and there are 1: .*between epochs, but not within one"
        ) as told:
            list(feeds)
        assert isinstance(told.value, (IndexError, ReaderError))

    def test_an_index_that_never_was_there_is_named(self):
        with pytest.raises(
            MissingSample, match=r"sample 7 of Rows\(\) .*and there are 3: .*sampler"
        ):
            stream(DataLoader(Rows(3), batch_sampler=[[0], [7]]))

    @WORKERS
    def test_rows_of_arrays_too(self, workers):
        loader = DataLoader(np.arange(3), batch_sampler=[[0], [1, 7]], num_workers=workers)
        with pytest.raises(MissingSample, match=r"sample 7 .*and there are 3"):
            stream(loader)

    def test_an_error_of_a_sample_that_is_there_is_its_own(self):
        class Broken(Rows):
            def __getitem__(self, index):
                raise IndexError("mine")

        with pytest.raises(IndexError, match="mine") as told:
            stream(DataLoader(Broken(3), 1))
        assert type(told.value) is IndexError

    def test_epochs_of_one_pass_have_one_length(self):
        rows = [0, 1, 2]
        numbers = iter(Pipeline(jreader.source(rows)).shuffle(seed=0).epochs(6000))
        for _ in range(3):
            next(numbers)
        rows.append(3)
        with pytest.raises(ReaderError, match=r"3 samples.*now has 4"):
            list(numbers)


class TestRecords:
    def test_rows_of_an_epoch_whose_order_is_no_longer_known_are_not_told(self):
        rows = [0, 1, 2, 3]
        loader = Pipeline(jreader.source(rows)).shuffle(seed=0).batch(2).load()
        feeds = iter(loader)
        first = next(feeds).tolist()
        assert loader.samples(0).rows.tolist() == first
        rows.append(4)
        with pytest.raises(ValueError, match="grown or shrunk since epoch 0 began"):
            loader.samples(0)
        feeds.close()
        assert sorted(loader.samples(0, epoch=1).rows.tolist())


class TestCursors:
    def test_one_within_an_epoch_of_another_length_is_refused(self):
        rows = Rows(6)
        loader = DataLoader(rows, 2, shuffle=True, seed=0)
        feeds = iter(loader)
        next(feeds)
        cursor = json.loads(json.dumps(feeds.cursor))
        feeds.close()
        rows.rows.append(6)
        for again in (loader, DataLoader(rows, 2, shuffle=True, seed=0)):
            with pytest.raises(NotResumable, match=r"Indices\[6\].*here it is .*Indices\[7\]"):
                again.epoch(0, at=cursor)

    def test_one_of_an_epoch_that_began_after_it_grew_goes_on(self):
        def grown(n):
            loader = DataLoader(Rows(n), 2, shuffle=True, seed=0, capacity=0)  # none is read ahead
            return loader, loader.dataset.rows

        loader, rows = grown(4)
        feeds, seen, cursor = loader.steps(2 + 3), [], None
        for feed in feeds:
            seen.append(feed.tolist())
            if len(seen) == 2:
                rows.extend([4, 5])
            if len(seen) == 3:
                cursor = json.loads(json.dumps(feeds.cursor))
                assert json.loads(json.dumps(loader.state_dict())) == cursor
        again, _ = grown(6)
        assert stream(again.steps(5, at=cursor)) == seen[3:]

    def test_one_taken_while_it_grows_is_of_the_epoch_that_it_is_in(self):
        loader = DataLoader(Rows(6), 2, shuffle=True, seed=0)
        feeds = iter(loader)
        first = next(feeds).tolist()
        loader.dataset.rows.append(6)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = stream(feeds)
        again = DataLoader(Rows(6), 2, shuffle=True, seed=0)
        again.load_state_dict(state)
        assert stream(again) == rest
        assert sorted(flat([first, *rest])) == list(range(6))
