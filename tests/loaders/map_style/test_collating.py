"""What becomes of the samples of a batch: arrays on the device, strings on the host, one tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pytest
from steps import told

from jreader import DataLoader, FeedMismatch, data
from jreader.datasets import TensorDataset, collate


class Pair(NamedTuple):
    image: object
    label: object


@dataclass
class Labelled:
    image: object
    label: object


def only(samples, **options):
    """The one feed of a loader."""
    (feed,) = DataLoader(samples, len(samples), **options)
    return feed


def dtypes(feed):
    return [leaf.dtype.name for leaf in jax.tree.leaves(feed) if isinstance(leaf, jax.Array)]


class TestTrees:
    @pytest.mark.parametrize(
        ("samples", "feed"),
        [
            ([1, 2], [1, 2]),
            ([(1, 2.5), (3, 4.5)], [[1, 3], [2.5, 4.5]]),
            ([[1, 2], [3, 4]], [[1, 3], [2, 4]]),
            ([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], {"x": [1, 2], "y": ["a", "b"]}),
            ([Pair(1, 2), Pair(3, 4)], Pair([1, 3], [2, 4])),
            ([(1, {"k": (2, [3])})] * 2, [[1, 1], {"k": [[2, 2], [[3, 3]]]}]),
            (["a", "b"], ["a", "b"]),
            ([b"a", b"b"], [b"a", b"b"]),
            ([True, False], [True, False]),
            ([1, 2.5], [1.0, 2.5]),
        ],
    )
    def test_each_structure_is_kept(self, samples, feed):
        found = only(samples)
        assert told(found) == feed
        assert type(found) is type(feed) or isinstance(found, jax.Array)

    def test_a_dataclass_is_a_tree(self):
        feed = only([Labelled(1, "a"), Labelled(2, "b")])
        assert isinstance(feed.image, jax.Array)
        assert feed.label == ["a", "b"]

    def test_tuples_stay_tuples_where_lists_are_not_wanted(self):
        feed = only([(1, (2, "a"))] * 2, return_list=False)
        assert type(feed) is type(feed[1]) is tuple
        assert only([(1, (2, "a"))] * 2)[1][1] == ["a", "a"]

    def test_arrays_are_stacked_and_strings_stay_beside_them(self):
        images = [np.full((2, 3), n, np.uint8) for n in range(4)]
        image, name = only([(image, f"{n}") for n, image in enumerate(images)])
        assert isinstance(image, jax.Array)
        assert (image.dtype, image.shape) == (np.uint8, (4, 2, 3))
        assert np.array_equal(image, np.stack(images))
        assert name == ["0", "1", "2", "3"]

    def test_strings_in_columns_become_the_same_lists(self):
        names = np.array(["a", "b"])
        assert only(TensorDataset([names, np.arange(2)]))[0] == ["a", "b"]
        assert only(names) == only(list(names)) == ["a", "b"]

    def test_dates_stay_on_the_host_as_arrays(self):
        days = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
        found = only(list(days))
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, days)

    def test_collate_is_there_for_functions_of_users(self):
        pairs = collate([(np.zeros(2), "a"), (np.ones(2), "b")])
        assert (pairs[0].tolist(), pairs[1]) == ([[0, 0], [1, 1]], ["a", "b"])


class TestDtypes:
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (1, "int32"),
            (1.5, "float32"),
            (True, "bool"),
            (1j, "complex64"),
            (np.uint8(1), "uint8"),
            (np.float16(1), "float16"),
            (np.uint32(1), "uint32"),
            (np.uint64(1), "uint32"),
            (np.int64(1), "int32"),
        ],
    )
    def test_each_is_what_the_device_has(self, value, dtype):
        assert dtypes(only([value, value])) == [dtype]

    def test_64_bits_are_kept_in_x64_mode(self):
        with jax.enable_x64(True):  # noqa: FBT003  # jax's signature
            assert dtypes(only([(1, 1.5)] * 2)) == ["int64", "float64"]

    def test_a_whole_number_that_does_not_fit_is_refused_by_name(self):
        with pytest.raises(FeedMismatch, match=r"field 'id'\['low'\] holds 4294967296 in sample 1"):
            only([{"id": {"low": 1}}, {"id": {"low": 2**32}}])


class TestRefusals:
    @pytest.mark.parametrize(
        ("samples", "says"),
        [
            ([{"x": 1}, {"x": None}], r"a sample\['x'\] is None in sample 1"),
            (
                [(1, np.zeros(2)), (2, np.zeros(3))],
                r"a sample\[1\] is ragged: sample 0 has shape \(2,\)",
            ),
            ([(1, 2), (1, 2, 3)], "sample 0 is .1, 2. and sample 1 is .1, 2, 3."),
            ([{"x": 1}, {"x": 1, "y": 2}], "need one structure"),
            ([{"x": 1, "y": 2}, {"x": 1}], "need one structure"),
            ([[1, 2], [1]], "need one structure"),
            ([1, "a"], "is 1 in sample 0 of a batch, and 'a' in another"),
            (["a", b"a"], "all to strings"),
            ([{1}, {2}], r"is \{1\} in sample 0"),
            ([object(), object()], "which no array can hold"),
            ([(1, 2), 3], "one structure"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_name(self, samples, says):
        with pytest.raises(FeedMismatch, match=says) as caught:
            only(samples)
        assert any("fetch(list)([0, 1])" in note for note in caught.value.__notes__)

    def test_an_empty_batch_is_refused(self):
        with pytest.raises(FeedMismatch, match="empty batch"):
            list(DataLoader([1, 2], batch_sampler=[[0], []]))


class TestFieldLists:
    FIELDS = (data("image", [None, 4]), data("label", [None, 1], "int64"))

    def samples(self):
        return [([[n, n], [n, n]], n) for n in range(3)]

    def test_fields_are_named_cast_and_shaped(self):
        feed = only(self.samples(), feed_list=self.FIELDS, return_list=False)
        assert list(feed) == ["image", "label"]
        assert (feed["image"].shape, feed["image"].dtype) == ((3, 4), np.float32)
        assert told(feed["label"]) == [[0], [1], [2]]

    def test_lists_keep_the_order_of_the_feed_list(self):
        image, label = only(self.samples(), feed_list=self.FIELDS)
        assert (image.shape, label.shape) == ((3, 4), (3, 1))

    def test_a_mapping_leaves_strings_out(self):
        named = [(n, f"{n}") for n in range(3)]
        assert told(only(named, feed_list={"x": 0}, return_list=False)) == {"x": [0, 1, 2]}

    def test_what_a_collate_fn_gives_is_named_too(self):
        def collated(samples):
            return np.ones((len(samples), 4)), np.arange(len(samples))

        feed = only("abc", feed_list=self.FIELDS, return_list=False, collate_fn=collated)
        assert told(feed)["label"] == [[0], [1], [2]]

    def test_a_missing_field_is_refused_by_name(self):
        with pytest.raises(FeedMismatch, match="'label', is missing"):
            only([([[1, 1], [1, 1]],)], feed_list=self.FIELDS)


class TestOwnFunctions:
    def test_arrays_go_to_the_device_and_the_rest_stays(self):
        feed = only([1, 2], collate_fn=lambda samples: {"x": np.array(samples), "n": 2, "s": "a"})
        assert isinstance(feed["x"], jax.Array)
        assert (feed["n"], feed["s"]) == (2, "a")

    def test_strings_and_lists_pass_through(self):
        """Paddle ends the epoch in silence where a batch has no array."""
        assert list(DataLoader([1, 2, 3], 2, collate_fn=lambda samples: samples)) == [[1, 2], [3]]
        assert list(DataLoader([1, 2], 1, collate_fn=str)) == ["[1]", "[2]"]

    def test_none_samples_are_its_to_leave_out(self):
        kept = DataLoader(
            [1, None, 3], 3, collate_fn=lambda samples: np.array([n for n in samples if n])
        )
        assert [feed.tolist() for feed in kept] == [[1, 3]]

    def test_an_array_that_is_filled_anew_is_copied(self):
        room = np.zeros(64, np.float32)
        first = -room.ctypes.data // 4 % 16  # the CPU backend takes what is aligned as it is
        memory = room[first : first + 32]

        def filled(samples):
            memory[:] = samples[0]
            return memory

        feeds = list(DataLoader(range(6), 1, collate_fn=filled))
        assert [float(feed[0]) for feed in feeds] == [0, 1, 2, 3, 4, 5]

    def test_it_takes_a_list_also_of_rows_that_are_gathered(self):
        kinds = []
        list(
            DataLoader(np.arange(4), 2, collate_fn=lambda samples: kinds.append(type(samples)) or 1)
        )
        assert kinds == [list, list]


class TestWithoutBatches:
    def test_each_sample_is_a_feed(self):
        feeds = list(DataLoader([(np.arange(3), 1, "a"), (np.arange(2), 2, "b")], batch_size=None))
        assert [feed[0].tolist() for feed in feeds] == [[0, 1, 2], [0, 1]]
        assert all(isinstance(feed[0], jax.Array) for feed in feeds)
        assert [feed[1:] for feed in feeds] == [[1, "a"], [2, "b"]]

    def test_it_shuffles_where_paddle_ignores_it(self):
        samples = [np.int32(n) for n in range(20)]
        dealt = told(list(DataLoader(samples, batch_size=None, shuffle=True, seed=0)))
        assert sorted(dealt) == list(range(20)) != dealt

    def test_a_collate_fn_takes_one_sample(self):
        loader = DataLoader("ab", batch_size=None, collate_fn=str.upper)
        assert (list(loader), len(loader)) == (["A", "B"], 2)
