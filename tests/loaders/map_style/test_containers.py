"""Samples in containers that are no dicts, lists or tuples: each is collated as it reads."""

from __future__ import annotations

import types
from array import array
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping, Sequence

import jax
import numpy as np
import pytest
from steps import stream, told

import jreader
from jreader import DataLoader, FeedMismatch, Pipeline, stack
from jreader.datasets import collate
from jreader.readers import leaves, map_tree


class Frozen(Mapping):
    """A mapping that only reads."""

    def __init__(self, **fields):
        self._fields_of_mine = fields

    def __getitem__(self, key):
        return self._fields_of_mine[key]

    def __iter__(self):
        return iter(self._fields_of_mine)

    def __len__(self):
        return len(self._fields_of_mine)


class Row(Sequence):
    """A sequence that only reads."""

    def __init__(self, *fields):
        self.fields = fields

    def __getitem__(self, place):
        return self.fields[place]

    def __len__(self):
        return len(self.fields)


MAPPINGS = [
    dict,
    OrderedDict,
    UserDict,
    lambda **fields: defaultdict(int, fields),
    lambda **fields: types.MappingProxyType(fields),
    Frozen,
]
SEQUENCES = [
    lambda *fields: UserList(fields),
    lambda *fields: deque(fields),
    Row,
    lambda *fields: range(fields[0], fields[0] + len(fields)),
]


def samples_of(mapping):
    return [mapping(image=np.full((2, 1100), n), label=n, name=f"{n}") for n in range(4)]


class TestMappings:
    @pytest.mark.parametrize("mapping", MAPPINGS)
    def test_each_is_collated_by_its_keys(self, mapping):
        found = collate(samples_of(mapping))
        assert type(found) is dict
        assert found["image"].shape == (4, 2, 1100)
        assert (found["label"].tolist(), found["name"]) == ([0, 1, 2, 3], ["0", "1", "2", "3"])

    @pytest.mark.parametrize("mapping", [UserDict, Frozen])
    def test_workers_give_the_same(self, mapping):
        alone, apart = (
            stream(DataLoader(samples_of(mapping), 2, num_workers=workers)) for workers in (0, 2)
        )
        assert alone == apart
        assert [feed["label"] for feed in alone] == [[0, 1], [2, 3]]

    def test_keys_that_are_numbers_are_no_samples(self):
        assert told(collate([UserDict({7: 1}), UserDict({7: 2})])) == {7: [1, 2]}

    @pytest.mark.parametrize("mapping", MAPPINGS)
    def test_pipelines_too(self, mapping):
        samples = [mapping(x=n, y=(n, mapping(z=-n))) for n in range(4)]
        (feed,) = Pipeline(lambda: samples).batch(4).load()
        assert told(feed) == {"x": [0, 1, 2, 3], "y": ([0, 1, 2, 3], {"z": [0, -1, -2, -3]})}
        assert told(stack(samples)) == told(feed)

    @pytest.mark.parametrize("mapping", MAPPINGS)
    def test_fields_are_named_by_their_keys(self, mapping):
        samples = [mapping(x=n, y=-n) for n in range(2)]
        fields = [jreader.data("y", [None], "int32"), jreader.data("x", [None], "int32")]
        (feed,) = Pipeline(lambda: samples).batch(2).load(fields)
        assert told(feed) == {"y": [0, -1], "x": [0, 1]}

    def test_what_workers_map_is_what_was_mapped(self):
        def mapped(n):
            return UserDict(image=np.full(9000, n), label=n)

        plan = Pipeline(jreader.arrays(np.arange(4)))
        for options in ({}, {"processes": 1}):
            samples = list(plan.map(mapped, **options))
            assert {type(sample) for sample in samples} == {UserDict}
            (feed,) = plan.map(mapped, **options).batch(4).load()
            assert told(feed["label"]) == [0, 1, 2, 3]

    def test_a_collate_fn_may_give_one(self):
        (feed,) = DataLoader([1, 2], 2, collate_fn=lambda rows: UserDict(x=np.array(rows)))
        assert type(feed) is dict
        assert isinstance(feed["x"], jax.Array)

    def test_columns_may_be_one(self):
        reader = jreader.arrays(UserDict(x=[1, 2], y=[3, 4]))
        assert list(reader()) == [{"x": 1, "y": 3}, {"x": 2, "y": 4}]

    def test_as_trees_they_are_dicts(self):
        assert leaves(UserDict(a=1, b=(2, 3))) == [1, 2, 3]
        assert map_tree(lambda leaf: -leaf, Frozen(a=1, b=(2,))) == {"a": -1, "b": (-2,)}

    def test_other_keys_are_refused_by_name(self):
        with pytest.raises(FeedMismatch, match="one structure"):
            collate([UserDict(a=1), UserDict(a=1, b=2)])

    @pytest.mark.peers
    def test_an_encoding_of_transformers_is_its_fields(self):
        transformers = pytest.importorskip("transformers")
        rows = [transformers.BatchEncoding({"ids": np.arange(3) + n, "n": n}) for n in range(2)]
        (feed,) = DataLoader(rows, 2)
        assert told(feed) == {"ids": [[0, 1, 2], [1, 2, 3]], "n": [0, 1]}


class TestSequences:
    @pytest.mark.parametrize("sequence", SEQUENCES)
    def test_each_is_collated_by_place(self, sequence):
        found = collate([sequence(0, 1, 2), sequence(3, 4, 5)])
        assert type(found) is list
        assert told(found) == [[0, 3], [1, 4], [2, 5]]

    def test_inside_others_too(self):
        found = collate([{"row": Row("a", UserList([n, 2]))} for n in range(2)])
        assert told(found) == {"row": [["a", "a"], [[0, 1], [2, 2]]]}

    def test_of_other_lengths_they_are_refused_by_name(self):
        with pytest.raises(FeedMismatch, match=r"one structure.*range\(0, 3\)"):
            collate([range(2), range(3)])

    @pytest.mark.parametrize(
        "whole", [bytearray(b"ab"), memoryview(b"ab"), array("i", [97, 98]), np.array([97, 98])]
    )
    def test_what_is_an_array_stays_one(self, whole):
        assert collate([whole, whole]).tolist() == [[97, 98]] * 2


class TestAmbiguousLists:
    """Paddle's guide: [1, 1, 1] is three columns, or one of three numbers; ([1, 1, 1],) says it."""

    BATCHES = ([[1, 1, 1], [2, 2, 2]], [[3, 3, 3], [4, 4, 4]])

    @pytest.mark.parametrize("fields", [None, [jreader.data("x", [None, 3], "int32")]])
    def test_a_list_of_lists_is_refused(self, fields):
        loader = jreader.DataLoader.from_generator(fields)
        loader.set_sample_list_generator(lambda: iter(self.BATCHES))
        with pytest.raises(
            FeedMismatch, match=r"sample 0 of the batch is a list, \[1, 1, 1\].*tup"
        ):
            list(loader)
        with pytest.raises(FeedMismatch, match="is a list"):
            list(Pipeline(lambda: iter([[1, 1, 1], [2, 2, 2]])).batch(2).load(fields))

    def test_tuples_arrays_and_lists_in_tuples_are_not(self):
        for row, expected in (
            (([1, 1, 1],), ([[1, 1], [1, 1], [1, 1]],)),
            ((1, 1), ([1, 1], [1, 1])),
            (np.array([1, 1]), [[1, 1], [1, 1]]),
        ):
            loader = jreader.DataLoader.from_generator()
            loader.set_sample_list_generator(lambda row=row: iter([[row, row]]))
            assert stream(loader) == [expected]

    def test_single_samples_and_data_sets_may_be_lists_of_fields(self):
        loader = jreader.DataLoader.from_generator()
        loader.set_sample_generator(lambda: iter([[1, 2], [3, 4]]), batch_size=2)
        assert stream(loader) == [[[1, 3], [2, 4]]]
        assert stream(DataLoader([[1, 2], [3, 4]], 2)) == [[[1, 3], [2, 4]]]
