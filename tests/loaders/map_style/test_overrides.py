"""What a subclass overrides is what the loader reads: no short cut goes round it."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from steps import stream

import jreader
from jreader import DataLoader, Dataset, NotResumable, Pipeline, at_epoch
from jreader.datasets import (
    BatchSampler,
    ComposeDataset,
    ConcatDataset,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from jreader.datasets.fetching import fetch
from jreader.readers import start

WORKERS = pytest.mark.parametrize("workers", [0, 2])

DATASETS = {
    Subset: ([1, 2, 3], [2, 0]),
    ConcatDataset: ([[1, 2], [3]],),
    ComposeDataset: ([[1, 2, 3], [4, 5, 6]],),
    TensorDataset: ([np.arange(3)],),
}


def tenfold(kind):
    """A subclass whose samples are told from those of its parent."""

    class Tenfold(kind):
        def __getitem__(self, index):
            return {"ten": 10 * np.sum(super().__getitem__(index))}

    return Tenfold


class TestDatasets:
    @WORKERS
    @pytest.mark.parametrize("kind", DATASETS)
    def test_getitem_of_a_subclass_is_what_is_loaded(self, kind, workers):
        dataset = tenfold(kind)(*DATASETS[kind])
        expected = [[int(dataset[index]["ten"])] for index in range(len(dataset))]
        loaded = stream(DataLoader(dataset, num_workers=workers))
        assert [feed["ten"] for feed in loaded] == expected

    def test_a_getitem_that_a_class_is_given_later_is_what_is_loaded(self):
        class Scaled(Subset):
            pass

        loader = DataLoader(Scaled([1, 2, 3], [2, 0]))
        assert stream(loader) == [[3], [1]]
        Scaled.__getitem__ = lambda self, index: 10 * self.dataset[self.indices[index]]
        assert stream(loader) == [[30], [10]]

    @pytest.mark.parametrize("kind", DATASETS)
    def test_one_may_be_written_by_the_other(self, kind):
        class Several(tenfold(kind)):
            def __getitems__(self, indices):
                return [self[index] for index in indices]

        dataset = Several(*DATASETS[kind])
        assert [row["ten"] for row in fetch(dataset, [1, 0])] == [
            dataset[1]["ten"],
            dataset[0]["ten"],
        ]

    def test_getitems_of_a_subclass_is_used_where_it_is_the_newer_one(self):
        asked = []

        class Several(Subset):
            def __getitems__(self, indices):
                asked.append(list(indices))
                return super().__getitems__(indices)

        assert stream(DataLoader(Several("abcd", [3, 1]), 2)) == [["d", "b"]]
        assert asked == [[0, 1]]

    def test_a_wrapper_that_hands_on_attributes_is_not_gone_round(self):
        class Wrapped:
            def __init__(self, inner):
                self.inner = inner

            def __getitem__(self, index):
                return -self.inner[index][0]

            def __len__(self):
                return len(self.inner)

            def __getattr__(self, name):
                if name == "inner":
                    raise AttributeError(name)
                return getattr(self.inner, name)

        inner = TensorDataset([np.arange(4)])
        assert stream(DataLoader(Wrapped(inner), 4)) == [[0, -1, -2, -3]]

    def test_a_length_of_a_subclass_is_what_is_read(self):
        class Fewer(Subset):
            def __len__(self):
                return 2

        loader = DataLoader(Fewer("abcd", [3, 2, 1, 0]), 1)
        assert (stream(loader), len(loader)) == ([["d"], ["c"]], 2)

    def test_an_array_of_ones_own_kind_is_asked_row_by_row(self):
        class Negative(np.ndarray):
            def __getitem__(self, index):
                return -np.asarray(self)[index]

        assert stream(DataLoader(np.arange(1, 5).view(Negative), 2)) == [[-1, -2], [-3, -4]]

    def test_a_table_of_ones_own_kind_is_asked_row_by_row(self):
        class Negative(jreader.arrays):
            def __getitem__(self, index):
                return -self.columns[index]

        assert stream(DataLoader(Negative(np.arange(1, 5)), 2)) == [[-1, -2], [-3, -4]]


def backwards(kind):
    """A subclass that deals what its parent deals from the last to the first."""

    class Backwards(kind):
        def __iter__(self):
            return iter(list(super().__iter__())[::-1])

    return Backwards


SAMPLERS = {
    SequenceSampler: (range(7),),
    RandomSampler: (range(7), False, None, 3),
    WeightedRandomSampler: ([1, 2, 3], 7, True, 3),
    SubsetRandomSampler: ([4, 5, 6], 3),
}


class TestSamplers:
    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_iter_of_a_sampler_is_what_is_dealt(self, kind):
        mine, plain = backwards(kind)(*SAMPLERS[kind]), kind(*SAMPLERS[kind])
        for epoch in range(2):
            expected = list(at_epoch(plain, epoch)())[::-1]
            assert list(at_epoch(mine, epoch)) == expected
            assert list(start(at_epoch(mine, epoch)).items) == expected
        expected = list(plain)[::-1]
        assert list(jreader.batch(mine, 20)()) == [expected]
        assert list(BatchSampler(sampler=mine, batch_size=20)) == [expected]
        loader = DataLoader(range(7), batch_sampler=BatchSampler(sampler=mine, batch_size=20))
        assert stream(loader) == [expected]
        assert stream(loader) == [list(at_epoch(plain, 1)())[::-1]]

    def test_without_a_seed_it_draws_for_each_pass_and_resumes(self):
        sampler = backwards(RandomSampler)(range(50))
        assert list(sampler) != list(sampler)
        first = start(sampler)
        head = list(islice(first.items, 20))
        rest = list(start(sampler, json.loads(json.dumps(first.position()))).items)
        assert sorted(head + rest) == list(range(50))

    @pytest.mark.parametrize(
        "sampler",
        [
            backwards(BatchSampler)(range(7), shuffle=True, batch_size=2, seed=1),
            backwards(DistributedBatchSampler)(range(7), 2, 1, 0, shuffle=True),
        ],
    )
    def test_iter_of_a_batch_sampler_is_what_is_loaded(self, sampler):
        (kind,) = type(sampler).__bases__
        options = {"shuffle": True, "batch_size": 2}
        plain = kind(range(7), **options, **({"seed": 1} if kind is BatchSampler else {}))
        loader = DataLoader(range(7), batch_sampler=sampler)
        for epoch in range(2):
            assert stream(loader) == list(at_epoch(plain, epoch)())[::-1]
        assert len(loader) == 4
        assert list(sampler) == list(plain)[::-1]

    def test_it_is_resumed_where_it_was(self):
        loader = DataLoader(range(9), batch_sampler=backwards(BatchSampler)(range(9), batch_size=2))
        feeds = iter(loader)
        head = [next(feeds).tolist(), next(feeds).tolist()]
        cursor = json.loads(json.dumps(feeds.cursor))
        assert head == [[8], [6, 7]]
        assert stream(loader.epoch(0, at=cursor)) == [[4, 5], [2, 3], [0, 1]]

    def test_a_length_of_its_own_is_what_the_loader_tells(self):
        class Two(BatchSampler):
            def __iter__(self):
                return islice(super().__iter__(), 2)

            def __len__(self):
                return 2

        loader = DataLoader(range(9), batch_sampler=Two(range(9), batch_size=2))
        assert (len(loader), stream(loader)) == (2, [[0, 1], [2, 3]])


class TestOps:
    def test_what_a_subclass_of_an_op_is_called_for_is_what_is_read(self):
        class Twice(jreader.shuffle):
            def __call__(self):
                return (2 * number for number in super().__call__())

        twice = Twice(jreader.arrays(np.arange(4)), seed=1)
        expected = [
            2 * int(number) for number in jreader.shuffle(jreader.arrays(np.arange(4)), seed=1)()
        ]
        assert list(twice()) == expected
        assert list(Pipeline(twice).firstn(3)) == expected[:3]
        assert [list(rows) for rows in jreader.batch(twice, 4)()] == [expected]
        assert stream(Pipeline(twice).batch(2).load()) == [expected[:2], expected[2:]]

    def test_a_start_of_its_own_is_not_gone_round_by_the_plane_it_inherits(self):
        class Negative(jreader.arrays):
            def start(self, at):
                return super().start(at).mapped(lambda row: -row)

        negative = Negative(np.arange(1, 5))
        assert list(negative()) == [-1, -2, -3, -4]
        assert [list(rows) for rows in jreader.batch(negative, 2)()] == [[-1, -2], [-3, -4]]

    def test_batches_of_ones_own_are_not_made_anew(self):
        class Last(jreader.batch):
            def __call__(self):
                return (rows[-1:] for rows in super().__call__())

        loader = Pipeline(Last(jreader.arrays(np.arange(6)), 2)).load()
        assert stream(loader) == [[1], [3], [5]]
        assert stream(loader.epoch(0)) == [[1], [3], [5]]


class FromTorch(Sampler[list[int]]):
    """As torch's documentation spells a sampler: no super(), attributes of its own."""

    def __init__(self, data, batch_size):
        self.data = data
        self.batch_size = batch_size

    def __len__(self):
        return (len(self.data) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        order = np.argsort([len(text) for text in self.data], kind="stable")
        for low in range(0, len(order), self.batch_size):
            yield order[low : low + self.batch_size].tolist()


class FromPaddle(Sampler):
    """As Paddle's documentation does."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class Own(BatchSampler):
    """A batch sampler that calls no super()."""

    def __init__(self, dataset, batch_size):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, False

    def __iter__(self):
        for low in range(0, len(self.dataset), self.batch_size):
            yield list(range(low, min(low + self.batch_size, len(self.dataset))))

    def __len__(self):
        return (len(self.dataset) + self.batch_size - 1) // self.batch_size


class TestWithoutSuper:
    def test_a_sampler_of_batches(self):
        texts = ["ccc", "a", "bb"]
        loader = DataLoader(texts, batch_sampler=FromTorch(texts, 2))
        assert (stream(loader), stream(loader), len(loader)) == (
            [["a", "bb"], ["ccc"]],
            [["a", "bb"], ["ccc"]],
            2,
        )

    def test_a_sampler_of_indices(self):
        sampler = BatchSampler(sampler=FromPaddle("abc"), batch_size=2)
        assert (list(sampler), len(sampler)) == ([[0, 1], [2]], 2)
        assert list(BatchSampler(FromPaddle("abc"), batch_size=2)) == [[0, 1], [2]]

    def test_torchs_order_of_arguments_is_known_by_its_number(self):
        for sampler in (FromPaddle("abc"), SequenceSampler("abc"), [0, 1, 2]):
            assert list(BatchSampler(sampler, 2, False)) == [[0, 1], [2]]  # noqa: FBT003  # as there
            assert list(BatchSampler(sampler, 2, True)) == [[0, 1]]  # noqa: FBT003  # as there

    def test_a_batch_sampler(self):
        loader = DataLoader(range(5), batch_sampler=Own(range(5), 2))
        assert (stream(loader), len(loader)) == ([[0, 1], [2, 3], [4]], 3)
        feeds = iter(loader)
        next(feeds)
        cursor = json.loads(json.dumps(feeds.cursor))
        again = DataLoader(range(5), batch_sampler=Own(range(5), 2))
        assert stream(again.epoch(1, at=cursor)) == [[2, 3], [4]]
        assert Own(range(5), 2)

    def test_a_cursor_knows_how_many_they_give_and_what_they_keep(self):
        class Weighted(FromPaddle):
            def __init__(self, n, weight):
                super().__init__(range(n))
                self.weight = weight

        def loader(n, weight):
            sampler = BatchSampler(sampler=Weighted(n, weight), batch_size=2)
            return DataLoader(range(9), batch_sampler=sampler)

        feeds = iter(loader(6, 1))
        next(feeds)
        cursor = json.loads(json.dumps(feeds.cursor))
        assert stream(loader(6, 1).epoch(0, at=cursor)) == [[2, 3], [4, 5]]
        with pytest.raises(NotResumable, match=r"Weighted\(6 samples.*Weighted\(8 samples"):
            loader(8, 1).epoch(0, at=cursor)
        with pytest.warns(UserWarning, match="Weighted"):
            loader(6, 2).epoch(0, at=cursor).close()

    def test_what_they_keep_stays_in_every_epoch_and_is_theirs(self):
        class Counting(FromPaddle):
            seed = None

            def __init__(self, n):
                self.n, self.epoch = n, 5

            def __iter__(self):
                return iter([self.epoch] * self.n)

            def __len__(self):
                return self.n

        loader = DataLoader(range(9), batch_sampler=BatchSampler(sampler=Counting(2), batch_size=2))
        assert [stream(loader), stream(loader)] == [[[5, 5]]] * 2

    def test_samplers_without_super_print(self):
        assert repr(FromPaddle("abc")) == "FromPaddle()"
        assert repr(FromTorch(["a"], 2)) == "FromTorch()"
        assert repr(Own(range(5), 2)) == "Own(batch_size=2)"
        assert "Own(batch_size=2)" in repr(DataLoader(range(5), batch_sampler=Own(range(5), 2)))
        assert DataLoader(range(5), batch_sampler=Own(range(5), 2))._repr_html_()

    def test_a_sampler_that_defines_nothing_says_what_to_define(self):
        class Nothing(Sampler):
            pass

        with pytest.raises(NotImplementedError, match=r"Nothing must define __iter__"):
            list(Nothing())

    def test_a_batch_sampler_itself_does_not_change(self):
        sampler = BatchSampler(range(4), batch_size=2)
        with pytest.raises(AttributeError, match=r"batch_size.*make another"):
            sampler.batch_size = 3
        assert sampler.sampler is sampler.reader


def test_a_data_set_of_ones_own_may_keep_what_it_likes():
    class Mine(Dataset):
        def __init__(self):
            self.rows = [1, 2]

        def __getitem__(self, index):
            return self.rows[index]

        def __len__(self):
            return 2

    assert stream(DataLoader(Mine(), 2)) == [[1, 2]]
