"""Data and transforms of Grain, by stand-ins for its classes; tests/peers/ has Grain itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jreader import (
    DataLoader,
    Pipeline,
    ReaderError,
    arrays,
    as_function,
    at_epoch,
    chain,
    interleave,
    source,
)

differs = pytest.mark.differs


def of_grain(kind):
    """The class, as if it were one of Grain, which jreader knows by module and name."""
    kind.__module__ = "grain.stand_in"
    return kind


@of_grain
class MapDataset:
    """Epoch e of ten numbers begins with e, and goes on from the last index to the first one."""

    def __init__(self, keep=lambda n: True):
        self.keep = keep

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index < 0:
            raise ValueError("a number below 0")
        epoch, place = divmod(index, 10)
        number = 100 * epoch + (place + epoch) % 10
        return number if self.keep(number) else None


class Dealt(MapDataset):
    """A class of a user's that extends one of Grain."""


def mapped(fn):
    return Pipeline(arrays([*range(8)])).map(fn).batch(2).load()


class Feed:
    def __init__(self, numbers, in_bytes):
        self.numbers, self.in_bytes, self.done = numbers, in_bytes, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.done == len(self.numbers):
            raise StopIteration
        self.done += 1
        self.numbers.read.append(self.done)
        return self.numbers[self.done - 1]

    def get_state(self):
        state = {"next_index": self.done}
        return json.dumps(state).encode() if self.in_bytes else state

    def set_state(self, state):
        assert isinstance(state, bytes) == self.in_bytes
        self.done = (json.loads(state) if self.in_bytes else state)["next_index"]


of_grain(Feed)


class Numbers(list):
    def __init__(self, numbers):
        super().__init__(numbers)
        self.read = []


@of_grain
class IterDataset:
    def __init__(self, numbers, in_bytes=False):
        self.numbers, self.in_bytes = numbers, in_bytes

    def __iter__(self):
        return Feed(self.numbers, self.in_bytes)


class TestMapDataset:
    @pytest.mark.parametrize("kind", [MapDataset, Dealt])
    def test_each_epoch_is_that_of_grain(self, kind):
        data = kind()
        every = [data[n] for n in range(40)]
        assert list(source(data)()) == every[:10]
        assert list(Pipeline(data).epochs(4)) == every
        assert list(at_epoch(Pipeline(data), 3)) == every[30:]
        loader = Pipeline(data).batch(5).load()
        assert [n for feed in loader.steps(8) for n in feed.tolist()] == every
        assert [n for feed in loader.epoch(2) for n in feed.tolist()] == every[20:30]

    def test_it_resumes_at_each_step_of_each_epoch(self):
        loader = Pipeline(MapDataset()).shuffle(seed=1).batch(2).load()
        feeds, cursors, seen = loader.steps(15), [], []
        for feed in feeds:
            cursors.append(json.loads(json.dumps(feeds.cursor)))
            seen.append(feed.tolist())
        again = Pipeline(MapDataset()).shuffle(seed=1).batch(2).load()
        for done, cursor in enumerate(cursors, 1):
            assert [feed.tolist() for feed in again.steps(15, at=cursor)] == seen[done:]
        assert sorted(np.ravel(seen[10:]).tolist()) == sorted(200 + n for n in range(10))

    def test_ops_find_its_samples_by_index_and_not_behind_its_end(self):
        pipeline = Pipeline(MapDataset())
        assert (len(pipeline), pipeline[9], pipeline[-1]) == (10, 9, 9)
        with pytest.raises(IndexError, match="has 10 samples"):
            pipeline[10]
        shares = [list(pipeline.shard(2, index)) for index in range(2)]
        assert shares == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
        assert pipeline.batch(5).load().samples(1, 2).rows.tolist() == [25, 26, 27, 28, 29]

    @pytest.mark.parametrize("join", [chain, interleave])
    def test_several_in_one_plan_are_each_in_that_epoch(self, join):
        loader = Pipeline(join(*[Pipeline(MapDataset())] * 3)).shuffle(seed=1).batch(10).load()
        for epoch in (0, 1, 7):
            seen = np.ravel([feed.tolist() for feed in loader.epoch(epoch)]).tolist()
            assert sorted(seen) == sorted([100 * epoch + n for n in range(10)] * 3)

    def test_a_loader_of_one_order_refuses_it(self):
        for made in (DataLoader, lambda data: DataLoader(data, shuffle=True, seed=0)):
            with pytest.raises(TypeError, match=r"For the epochs of Grain, type Pipeline\(dataset"):
                made(MapDataset())

    @differs
    def test_what_a_filter_of_grain_drops_is_an_error_that_says_what_to_type(self):
        sparse = MapDataset(keep=lambda n: n != 3)
        assert Pipeline(sparse)[4] == 4
        with pytest.raises(ReaderError, match=r"None for row 3 of a MapDataset.*to_iter_dataset"):
            list(Pipeline(sparse))
        with pytest.raises(ReaderError, match="None for row 3"):
            list(Pipeline(sparse).batch(2).load())

    def test_it_is_not_taken_for_data_of_one_order(self, recwarn):
        with pytest.raises(TypeError, match="would give each part other samples in each epoch"):
            Pipeline(MapDataset()).split([0.8, 0.2])
        assert len(list(Pipeline(MapDataset()).batch(4).load())) == 2
        assert not [each for each in recwarn if "is not shuffled" in str(each.message)]

    def test_an_error_of_a_later_epoch_is_that_of_the_data(self):
        def boom(number):
            if number >= 100:
                raise ZeroDivisionError
            return True

        with pytest.raises(ZeroDivisionError):
            list(Pipeline(MapDataset(boom)).epochs(2))

    def test_none_of_other_data_stays_a_sample(self):
        assert list(source([None, 1])()) == [None, 1]

    def test_a_device_does_not_hold_one_epoch_for_all(self):
        with pytest.raises(ValueError, match="makes its rows when they are asked for"):
            Pipeline(MapDataset()).batch(5).load(resident=True)
        with pytest.raises((TypeError, ValueError)):
            as_function(Pipeline(MapDataset()).batch(5))


class TestIterDataset:
    @pytest.mark.parametrize("in_bytes", [False, True])
    def test_it_resumes_by_its_own_state_and_reads_nothing_again(self, in_bytes):
        data = IterDataset(Numbers(range(12)), in_bytes)
        loader = Pipeline(data).batch(2).load(capacity=0)
        feeds, cursors, seen = loader.epoch(0), [], []
        for feed in feeds:
            cursors.append(json.loads(json.dumps(feeds.cursor)))
            seen.append(feed.tolist())
        assert np.ravel(seen).tolist() == [*range(12)]
        for done, cursor in enumerate(cursors, 1):
            again = IterDataset(Numbers(range(12)), in_bytes)
            resumed = Pipeline(again).batch(2).load(capacity=0).epoch(0, at=cursor)
            assert [feed.tolist() for feed in resumed] == seen[done:]
            assert again.numbers.read == [*range(2 * done + 1, 13)]

    def test_what_grain_notes_while_it_reads_is_no_change_of_the_data(self, recwarn):
        data = IterDataset(Numbers(range(12)))
        data.has_child = False
        feeds = Pipeline(data).batch(2).load().epoch(0)
        next(feeds)
        data.has_child = True
        assert len([*Pipeline(data).batch(2).load().epoch(0, at=feeds.cursor)]) == 5
        assert not recwarn

    def test_a_change_of_an_attribute_of_that_name_is_told_of_others(self):
        class Signed:
            def __init__(self, has_child):
                self.has_child = has_child

            def __call__(self, number):
                return number if self.has_child else -number

        feeds = mapped(Signed(has_child=True)).epoch(0)
        next(feeds)
        with pytest.warns(UserWarning, match="not what it was"):
            list(mapped(Signed(has_child=False)).epoch(0, at=feeds.cursor))

    def test_each_epoch_reads_it_from_its_beginning(self):
        data = IterDataset(Numbers(range(3)))
        assert list(Pipeline(data).epochs(2)) == [0, 1, 2, 0, 1, 2]


class Triple:
    def map(self, element):
        return element * 3


class Jitter:
    def random_map(self, element, rng):
        return element + rng.integers(1000)


class Numbered:
    def map_with_index(self, index, element):
        return 100 * index + element


class Even:
    def filter(self, element):
        return element % 2 == 0


class Twice:
    max_fan_out = 2

    def flat_map(self, element):
        return [element, element]


class Batch:
    def __init__(self, batch_size, drop_remainder=False, batch_fn=None):
        self.batch_size, self.drop_remainder = batch_size, drop_remainder
        self.batch_fn = batch_fn


def transform(user, name):
    """A transform of a user's, of a class that extends one of Grain."""
    base = of_grain(type(name, (), {}))
    return type(user.__name__, (user, base), {})()


class TestTransforms:
    numbers = Pipeline(arrays(np.arange(7)))

    @pytest.mark.parametrize(
        ("user", "name", "options", "plain"),
        [
            (Triple, "Map", {}, lambda p: p.map(lambda n: n * 3)),
            (Triple, "Map", {"threads": 2}, lambda p: p.map(lambda n: n * 3)),
            (Even, "Filter", {}, lambda p: p.filter(lambda n: n % 2 == 0)),
            (Twice, "FlatMap", {}, lambda p: p.flat_map(lambda n: [n, n])),
            (
                Jitter,
                "RandomMap",
                {"seed": 5},
                lambda p: p.map(lambda n, rng: n + rng.integers(1000), rng=True, seed=5),
            ),
        ],
        ids=["Map", "threads", "Filter", "FlatMap", "RandomMap"],
    )
    @pytest.mark.parametrize("indexed", [True, False])
    def test_each_is_the_op_of_the_same_meaning(self, user, name, options, plain, indexed):
        reader = self.numbers if indexed else Pipeline(lambda: iter(range(7)))
        piped = reader.pipe(transform(user, name), **options)
        for epoch in range(2):
            assert list(at_epoch(piped, epoch)) == list(at_epoch(plain(reader), epoch))

    @pytest.mark.parametrize("indexed", [True, False])
    def test_an_index_counts_the_samples_of_an_epoch(self, indexed):
        reader = self.numbers if indexed else Pipeline(lambda: iter(range(7)))
        numbered = reader.filter(lambda n: n % 2).pipe(transform(Numbered, "MapWithIndex"))
        assert list(numbered.epochs(2)) == [1, 103, 205] * 2
        assert list(reader.pipe(transform(Numbered, "MapWithIndex"))) == [101 * n for n in range(7)]

    @differs
    @pytest.mark.parametrize("drop", [True, False])
    def test_a_batch_drops_its_remainder_only_if_told(self, drop):
        made = self.numbers.pipe(of_grain(Batch)(3, drop))
        assert [len(samples) for samples in made] == [3, 3] + [1] * (not drop)
        numbers, *mask = np.concatenate([np.atleast_2d(feed) for feed in made.load()], axis=1)
        assert numbers.tolist() == [*range(6)] + [6, 0, 0] * (not drop)
        assert [row.tolist() for row in mask] == [[1] * 7 + [0, 0]] * (not drop)

    def test_a_batch_is_stacked_by_its_own_function_and_mapped_as_a_whole(self):
        summed = of_grain(Batch)(3, batch_fn=lambda samples: np.stack(samples)[:, None])
        made = self.numbers.pipe(summed).pipe(transform(Triple, "Map"))
        assert [batch.columns.tolist() for batch in made] == [
            [[0], [3], [6]],
            [[9], [12], [15]],
            [[18]],
        ]

    @pytest.mark.parametrize("other", [3, [1, 2], MapDataset(), Even()])
    def test_what_is_no_transform_is_refused(self, other):
        with pytest.raises(TypeError, match=r"needs an op, .* or a transform of Grain, not"):
            self.numbers.pipe(other)
