"""Samples and arrays are matched to fields, or refused by field, sample and value."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from calls import functions_called
from fields import IMAGE_AND_LABEL, refused, without_x64
from hypothesis import given
from hypothesis import strategies as st

from jreader.errors import FeedMismatch, ReaderError
from jreader.feeds import Feeds, data
from jreader.readers import Columns, leaves


@dataclass
class Digit:
    label: int
    image: list[float]


class Pair(NamedTuple):
    image: list[float]
    label: int


IMAGE = st.lists(st.floats(-9, 9, width=32), min_size=4, max_size=4)
PAIRS = st.lists(st.tuples(IMAGE, st.integers(-9, 9)), min_size=1, max_size=5)


class TestMatching:
    """Tuples are matched by place, dicts by name, whatever brings them."""

    @given(PAIRS)
    def test_all_spellings_of_a_batch_give_one_feed(self, pairs):
        images, labels = (list(column) for column in zip(*pairs, strict=True))
        arrays = np.array(images), np.array(labels)
        by_name = {"label": arrays[1], "image": arrays[0]}
        feeds = Feeds(IMAGE_AND_LABEL, without_x64)
        spellings = [
            feeds.from_samples(pairs),
            feeds.from_samples(list(map(list, pairs)), lists=True),
            feeds.from_samples([Pair(*pair) for pair in pairs]),
            feeds.from_samples([{"label": label, "image": image} for image, label in pairs]),
            feeds.from_samples([Digit(label, image) for image, label in pairs]),
            feeds.from_samples(Columns(arrays)),
            feeds.from_samples(Columns(by_name)),
            feeds.from_samples(Columns((tuple(arrays[0].T), arrays[1]))),
            feeds.from_arrays((images, labels)),
            feeds.from_arrays(list(arrays)),
            feeds.from_arrays(by_name),
            feeds.from_arrays(Columns(arrays)),
            feeds.from_arrays(tuple(map(jnp.asarray, arrays))),
        ]
        for feed in spellings:
            check_equal(feed, {"image": arrays[0].astype("f4"), "label": arrays[1][:, None]})
            assert feed["label"].dtype == np.int32

    @given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]))
    def test_feeds_have_the_order_of_the_feed_list(self, declared, sampled):
        feeds = Feeds([data(name, dtype="int32") for name in declared])
        feed = feeds.from_samples([{name: ord(name) for name in sampled}])
        assert list(feed) == list(feeds.names) == declared
        assert all(feed[name] == [ord(name)] for name in declared)

    @given(PAIRS)
    def test_a_mapping_takes_columns_twice_and_leaves_others_out(self, pairs):
        feed = Feeds({"b": 1, "a": 1}, without_x64).from_samples(pairs)
        labels = np.array([label for _, label in pairs])
        check_equal(feed, {"b": labels, "a": labels})
        assert list(feed) == ["b", "a"]

    def test_a_mapping_takes_dicts_by_key(self):
        samples = [{"pixels": 1.5, "id": "seven"}]
        check_equal(Feeds({"x": "pixels"}).from_samples(samples), {"x": np.array([1.5])})

    def test_a_mapping_of_declared_fields_checks_them(self):
        feeds = Feeds({data("x", [None, 1], "int64"): 1}, without_x64)
        assert feeds.from_samples([("left out", 3)])["x"].tolist() == [[3]]
        with refused("field 'x'", "0.5"):
            feeds.from_samples([("left out", 0.5)])

    def test_a_mapping_picks_from_arrays_too(self):
        batch = (np.zeros(2), np.array(["left", "out"]))
        check_equal(Feeds({"x": 0, "y": 0}).from_arrays(batch), {"x": batch[0], "y": batch[0]})

    @pytest.mark.parametrize("sample", [(0.5, 7), {"label": 7, "image": 0.5}])
    def test_names_alone_take_tuples_by_position_and_dicts_by_name(self, sample):
        feed = Feeds(["image", "label"]).from_samples([sample, sample])
        check_equal(feed, {"image": np.array([0.5, 0.5]), "label": np.array([7, 7])})
        assert list(feed) == ["image", "label"]

    @pytest.mark.parametrize(
        "feed_list", [[data("x", [None, 2])], {data("x", [None, 2]): 0}, ["x"]]
    )
    def test_a_bare_array_is_the_only_field(self, feed_list):
        feeds = Feeds(feed_list)
        rows = np.arange(6.0).reshape(3, 2)
        for feed in (
            feeds.from_samples(list(rows)),
            feeds.from_samples(Columns(rows)),
            feeds.from_arrays(rows),
        ):
            check_equal(feed, {"x": rows})

    @given(PAIRS)
    def test_without_a_feed_list_feeds_have_the_tree_of_the_samples(self, pairs):
        feeds = Feeds(None, without_x64)
        samples = [{"a": (np.array(image), label)} for image, label in pairs]
        feed = feeds.from_samples(samples)
        again = feeds.from_arrays({"a": tuple(np.array(part) for part in zip(*pairs, strict=True))})
        assert [leaf.dtype for leaf in leaves(feed)] == [np.float32, np.int32]
        assert list(map(np.ndarray.tolist, leaves(feed))) == list(
            map(np.ndarray.tolist, leaves(again))
        )
        assert type(feed["a"]) is tuple
        assert feeds.names is None

    def test_dtypes_are_resolved_where_the_feeds_are_built(self):
        asked = []
        feeds = Feeds(IMAGE_AND_LABEL, lambda dtype: asked.append(dtype) or without_x64(dtype))
        assert asked == [np.float32, np.int64]
        feeds.from_samples([([0] * 4, 7)])
        assert asked == [np.float32, np.int64]


def check_equal(feed, expected):
    assert list(feed) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(feed[name], array)


class TestRefusing:
    """What does not fit the feed_list is refused by name."""

    @pytest.mark.parametrize(
        ("samples", "words"),
        [
            ([([0] * 4, 1), ([0] * 4,)], ["sample 1 ", "1 field", "1, for 'label', is missing"]),
            (
                [([0] * 4, 1, 2)],
                ["sample 0 ", "3 field", r"\[2\] are not in the feed_list", "'image': 0"],
            ),
            ([{"image": [0] * 4}], ["sample 0 ", "for 'label', is missing"]),
            (
                [{"image": [0] * 4, "label": 1, "id": 2}],
                ["sample 0 ", r"\['id'\] are not in the feed_list", "'label': 'label'"],
            ),
            ([([0] * 4, 1), {"image": [0] * 4, "label": 1}], ["one structure", "sample 1 "]),
            ([np.zeros(4)], ["sample 0 ", "'label', is missing"]),
            ([], ["empty batch"]),
            ({"image": [], "label": []}, ["list", "set_batch_generator"]),
            (np.zeros((2, 4)), ["list", "set_batch_generator"]),
            ("samples", ["list", "set_batch_generator"]),
            (Columns((np.zeros((2, 4)),)), ["each sample", "1 field", "'label', is missing"]),
            ([([0] * 4, "seven")], ["field 'label'", "'seven'", "strings", "device"]),
            ([([0] * 4, 7), ([0] * 4, "x")], ["'label'", "'x' in sample 1", "strings", "device"]),
            ([([0] * 4, 7), ([0] * 4, None)], ["'label'", "None in sample 1", "objects", "device"]),
            ([([0] * 4, np.datetime64("2020-01-01"))], ["'label'", "dates", "device"]),
            ([([0] * 4, 1), ([0] * 3, 1)], ["'image' is ragged", r"\(4,\)", r"sample 1.*\(3,\)"]),
            ([([[0, 1], [2]], 1), ([0] * 4, 1)], ["'image' is ragged", "sample 0 has no shape"]),
            ([([[0, 1], [2]], 1)], ["'image' cannot become an array"]),
            ([([0] * 5, 1)], ["field 'image'", r"\[None, 4\]", r"\[1, 5\]"]),
            ([([[0, 0, 0]], 1)], ["field 'image'", r"\[None, 4\]", r"\[1, 1, 3\]"]),
        ],
    )
    def test_a_batch_that_does_not_fit_is_refused(self, samples, words):
        with refused(*words):
            Feeds(IMAGE_AND_LABEL).from_samples(samples)

    def test_a_batch_of_another_size_is_refused_also_after_one_that_fits(self):
        feeds, rows = Feeds([data("x", [4, 2])]), np.zeros((4, 2), np.float32)
        assert feeds.from_samples(Columns({"x": rows}))["x"] is rows
        with refused("'x'", r"\[4, 2\]", r"\[3, 2\]"):
            feeds.from_samples(Columns({"x": rows[:3]}))

    @pytest.mark.parametrize("feeds", [Feeds(), Feeds({"y": "y", "x": "x"}), Feeds({"x": "x"})])
    def test_a_batch_like_one_before_takes_one_call(self, feeds):
        batches = [
            Columns({"x": np.full(8, 1.5, np.float32), "y": np.arange(n, n + 8)}) for n in (0, 1)
        ]
        for batch in batches:
            feed = feeds.from_samples(batch)
            assert list(feed) == list(feeds.names or "xy")
            assert all(feed[name] is batch.columns[name] for name in feed)
        assert len(functions_called(lambda: feeds.from_samples(batches[0]))) == 2

    @pytest.mark.parametrize("feed_list", [None, ["x", "y"], {"y": "y"}])
    def test_batches_like_one_before_are_cast_by_their_own_values(self, feed_list):
        feeds = Feeds(feed_list, lambda dtype: np.dtype(np.int32) if dtype.kind == "i" else dtype)
        for n in range(3):
            fitting = Columns({"x": np.full(8, n, np.float32), "y": np.arange(n, n + 8)})
            feed = feeds.from_samples(fitting)
            assert feed["y"].dtype == np.int32
            assert feed["y"].tolist() == list(range(n, n + 8))
            assert "x" not in feed or feed["x"] is fitting.columns["x"]
            fitting.columns["y"][2] = 2**31 + n
            with refused("field 'y'", f"{2**31 + n} in sample 2"):
                feeds.from_samples(fitting)

    def test_batches_of_other_dtypes_shapes_and_names_are_looked_at_again(self):
        feeds = Feeds([data("x", [4], "float32")])
        for _ in range(2):
            assert feeds.from_samples(Columns({"x": np.zeros(4, np.float32)}))["x"].shape == (4,)
            assert feeds.from_samples(Columns({"x": np.zeros(4)}))["x"].dtype == np.float32
            with pytest.raises(FeedMismatch, match="has the shape"):
                feeds.from_samples(Columns({"x": np.zeros(5, np.float32)}))
            with pytest.raises(FeedMismatch, match="is missing"):
                feeds.from_samples(Columns({"y": np.zeros(4, np.float32)}))

    def test_columns_of_a_kind_of_their_own_are_fed_as_the_arrays_they_are(self):
        class Rows(Columns):
            __slots__ = ()

        rows = np.zeros((4, 2), np.float32)
        for _ in range(2):
            assert Feeds().from_samples(Rows({"x": rows}))["x"] is rows

    def test_what_is_no_plain_tree_becomes_one_each_time(self):
        feeds, batch = Feeds(), Columns(OrderedDict(x=np.zeros(4, np.float32)))
        assert {type(feeds.from_samples(batch)) for _ in range(3)} == {dict}

    def test_kinds_of_batches_are_forgotten_when_there_are_many(self):
        feeds = Feeds()
        for rows in range(1, 600):
            feeds.from_samples(Columns({"x": np.zeros(rows)}))
        assert len(feeds._known) < 300

    @pytest.mark.parametrize("samples", [[[1, 1, 1], [2, 2, 2]], Columns([np.zeros(2)])])
    def test_lists_inside_a_batch_are_ambiguous(self, samples):
        feeds = Feeds([data("x", [None, 3])])
        with refused("ambiguous", "two samples of one field, or two of three fields", "is a list"):
            feeds.from_samples(samples)

    def test_a_list_needs_exactly_as_many_fields_as_the_feed_list(self):
        feeds = Feeds([data("x", [None, 3])])
        assert feeds.from_samples([[[1, 1, 1]], [[2, 2, 2]]], lists=True)["x"].shape == (2, 3)
        with refused("sample 0", "3 field", "not in the feed_list"):
            feeds.from_samples([[1, 1, 1]], lists=True)

    @pytest.mark.parametrize(
        ("feed_list", "sample", "words"),
        [
            ({"x": 2}, (0, 1), ["2 field", "2, for 'x', is missing"]),
            ({"x": 0}, {"y": 0}, ["0, for 'x', is missing", "feed_list={'x': 'y'}, since"]),
            ({"x": "x"}, (0, 1), ["2 field", "'x', for 'x', is missing"]),
        ],
    )
    def test_a_mapping_needs_what_it_takes(self, feed_list, sample, words):
        with refused("sample 0", *words):
            Feeds(feed_list).from_samples([sample])

    @pytest.mark.parametrize(
        ("batch", "words"),
        [
            ((np.zeros((2, 4)),), ["the batch has 1 field", "'label', is missing"]),
            ([np.zeros((2, 4))] * 3, ["the batch has 3 field", "not in the feed_list"]),
            ({"image": np.zeros((2, 4))}, ["the batch", "'label', is missing"]),
            ((np.zeros((2, 4)), np.zeros(3)), ["one length", "'image': 2", "'label': 3"]),
            ((np.zeros((2, 4)), 7), ["field 'label'", "no samples"]),
            ((np.zeros((0, 4)), np.zeros(0)), ["field 'image'", "no samples"]),
            ((np.zeros((2, 5)), np.zeros(2)), ["field 'image'", r"\[2, 5\]"]),
            ((np.zeros((2, 4)), np.array(["a", "b"])), ["'label'", "strings", "device"]),
            ((np.array([[0], [1, 2]], object), np.zeros(2)), ["'image'", r"\[0\]", "objects"]),
            (([[0], [1, 2]], np.zeros(2)), ["'image' is ragged", "sample 1"]),
            ((np.zeros((2, 4)), np.array([0.0, 0.5])), ["'label'", "0.5 in sample 1", "int64"]),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, batch, words):
        with refused(*words):
            Feeds(IMAGE_AND_LABEL).from_arrays(batch)

    @pytest.mark.parametrize(
        ("batch", "words"),
        [
            ({"a": np.zeros(2), "b": np.zeros(3)}, ["one length", "'a': 2", "'b': 3"]),
            ({"a": np.array(["x"])}, ["field 'a'", "strings"]),
            ((np.zeros(1), {"b": np.array([2**40])}), ["field '1.b'", str(2**40), "int32"]),
            (Digit(np.array([2**40]), np.zeros(1)), ["field 'label'", str(2**40), "int32"]),
            (np.array([2**40]), ["the array of samples holds", str(2**40)]),
            ({"a": 3}, ["field 'a'", "no samples"]),
            ((), ["at least one array"]),
        ],
    )
    def test_without_a_feed_list_leaves_are_checked_too(self, batch, words):
        with refused(*words):
            Feeds(None, without_x64).from_arrays(batch)

    def test_a_mismatch_is_a_reader_error_and_a_value_error(self):
        assert issubclass(FeedMismatch, ReaderError)
        assert issubclass(FeedMismatch, ValueError)


_KINDS = st.sampled_from(["i8", "f8", "f4", "u1", ">i4", "U1", "O"])
_ROWS = st.tuples(*[st.sampled_from([2, 2, 3, 0])] * 2)
_NUMBERS = st.tuples(*[st.sampled_from([1, 2**40])] * 2)
_FORMS = st.sampled_from([tuple, list, lambda columns: dict(zip("ab", columns, strict=True))])


@given(
    st.tuples(_KINDS, _KINDS),
    st.lists(st.tuples(_FORMS, _ROWS, _NUMBERS, st.integers(1, 2)), min_size=2, max_size=8),
    st.sampled_from([None, ["a", "b"], {"x": 0}, {"x": "a", "y": "b"}, [data("a", [None], "f4")]]),
)
def test_a_batch_of_arrays_makes_the_feed_that_it_makes_as_the_first_one(kinds, given, fields):
    """Whatever kinds came before: what is remembered of a kind changes no feed, and no error."""

    def made(feeds, batch):
        try:
            feed = feeds.from_arrays(batch)
        except ReaderError as error:
            return str(error)
        return [(type(feed), each.dtype, each.tolist()) for each in leaves(feed)]

    feeds = Feeds(fields, without_x64)
    for form, rows, numbers, axes in given:
        columns = zip(rows, numbers, kinds, strict=True)
        batch = form([np.full((n, 2)[:axes], each).astype(kind) for n, each, kind in columns])
        assert made(feeds, batch) == made(Feeds(fields, without_x64), batch)


def test_a_batch_of_arrays_of_a_kind_that_is_known_is_fed_without_a_look_at_each():
    feeds = Feeds(["image", "label"], without_x64)

    def batch():
        return np.zeros((8, 4), np.float32), np.arange(8, dtype=np.int32)

    first, second = (len(functions_called(partial(feeds.from_arrays, batch()))) for _ in range(2))
    assert second < first / 4


def test_feeding_rows_calls_no_function_for_each_of_them():
    feeds = Feeds([data("image", [None, 784]), data("label", [None, 1], "int64")], without_x64)

    def calls(rows):
        samples = [(row, place) for place, row in enumerate(np.zeros((rows, 784)))]
        return len(functions_called(lambda: feeds.from_samples(samples)))

    assert calls(512) < calls(2) + 100
