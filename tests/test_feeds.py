"""Feeds: no value changes in silence, and every refusal says which field, sample and value."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from jreader.errors import FeedMismatch, ReaderError
from jreader.feeds import Feeds, cast, data, padded
from jreader.readers import Columns, leaves

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
BOTH = [data("image", [None, 4]), data("label", [None, 1], "int64")]


def without_x64(dtype):
    """What jax makes of a dtype while x64 is off."""
    return np.dtype(NARROW.get(dtype.name, dtype))


def one(values, *shape, dtype="float32", canonical=without_x64):
    """The feed of single field, declared like this."""
    field = data("x", [None, *shape], dtype)
    return Feeds([field], canonical).from_samples([(value,) for value in values])["x"]


def refused(*words, error=FeedMismatch):
    """An error with all these words."""
    return pytest.raises(error, match="(?s)" + "".join(f"(?=.*{word})" for word in words))


class TestDeclaring:
    """`data` refuses what cannot be fed where it is written."""

    def test_a_field_is_declared_as_in_paddle(self):
        field = data(name="image", shape=[None, 784], dtype="float32")
        assert (field.name, field.shape, field.dtype) == ("image", (None, 784), np.float32)

    def test_minus_one_is_any_size_and_equal_fields_are_equal(self):
        assert data("x", (-1, np.int64(3)), int) == data("x", [None, 3], "int64")
        assert len({data("x", (-1,)), data("x")}) == 1

    def test_a_field_can_be_replaced_in_part(self):
        assert replace(data("x", [None, 3]), name="y") == data("y", [None, 3])

    def test_bfloat16_needs_no_import_by_the_user(self):
        script = 'from jreader.feeds import data; print(data("x", [None], "bfloat16").dtype)'
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        assert done.stdout.split() == [b"bfloat16"]

    def test_foreign_byte_order_is_declared_native(self):
        assert data("x", [None], ">i4").dtype == np.dtype("int32")

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ((3,), TypeError, ["a str", "3"]),
            (("",), ValueError, ["not empty"]),
            (("x", 784), TypeError, ["batch axis first", "784"]),
            (("x", "12"), TypeError, ["batch axis first"]),
            (("x", []), ValueError, ["batch axis first"]),
            (("x", [None, 0]), ValueError, ["at least 1", "not 0"]),
            (("x", [None, -2]), ValueError, ["at least 1", "not -2"]),
            (("x", [None, 2.5]), TypeError, ["at least 1", "not 2.5"]),
            (("x", [None, True]), TypeError, ["at least 1", "not True"]),
            (("x", [None], None), TypeError, ["needs a dtype"]),
            (("x", [None], "flaot32"), TypeError, ["'x'", "np.dtype takes", "flaot32"]),
            (("x", [None], str), TypeError, ["'x'", "strings", "device"]),
            (("x", [None], "S5"), TypeError, ["'x'", "strings", "device"]),
            (("x", [None], object), TypeError, ["'x'", "objects", "device"]),
            (("x", [None], "datetime64[s]"), TypeError, ["'x'", "dates", "device"]),
            (("x", [None], [("a", int)]), TypeError, ["'x'", "device"]),
            (("x", [None], np.longdouble), TypeError, ["'x'", "device"]),
        ],
    )
    def test_what_cannot_be_fed_is_refused_when_declared(self, arguments, error, words):
        with refused(*words, error=error):
            data(*arguments)

    @pytest.mark.parametrize(
        ("feed_list", "error", "words"),
        [
            ([], ValueError, ["needs a field"]),
            ({}, ValueError, ["needs a field"]),
            (data("x"), TypeError, ["needs", "not data"]),
            ("image", TypeError, ["needs", "'image'"]),
            (["image"], TypeError, ["each field", "not 'image'"]),
            ([data("x"), data("y"), data("x")], ValueError, ["'x' twice"]),
            ({data("x"): 0, "x": 1}, ValueError, ["'x' twice"]),
            ({"x": 0, "y": "label"}, TypeError, ["places only", "keys only"]),
            ({"x": -1}, ValueError, ["at least 0", "-1"]),
            ({"x": 0.5}, TypeError, ["at least 0", "0.5"]),
            ({"x": None}, TypeError, ["at least 0", "None"]),
            ({data("x"): None}, TypeError, ["at least 0", "None"]),
            ({3: 0}, TypeError, ["each field", "not 3"]),
            ({"": 0}, TypeError, ["each field", "not ''"]),
        ],
    )
    def test_a_feed_list_that_names_no_fields_is_refused_when_built(self, feed_list, error, words):
        with refused(*words, error=error):
            Feeds(feed_list)

    def test_specs_fill_the_batch_size_in(self):
        specs = Feeds(BOTH, without_x64).specs(8)
        assert specs == {"image": ((8, 4), np.float32), "label": ((8, 1), np.int32)}
        assert list(specs) == ["image", "label"]

    @pytest.mark.parametrize("feed_list", [None, {"x": 0}, [data("x", [None, None])]])
    def test_there_are_no_specs_where_only_a_batch_can_tell(self, feed_list):
        assert Feeds(feed_list).specs(8) is None


PLAIN = ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32"]
DTYPES = st.sampled_from([*PLAIN, "float64", ">i4", ">f8"]).map(np.dtype)
COLUMNS = DTYPES.flatmap(lambda dtype: some.arrays(dtype, some.array_shapes(max_dims=3)))


class TestCasting:
    """Integers stay what they were, floats are rounded, and all else is refused."""

    @given(COLUMNS, DTYPES.map(lambda dtype: dtype.newbyteorder("=")))
    def test_a_column_is_cast_with_its_values_or_refused(self, array, dtype):
        if not all(holds(dtype, value) for value in array.ravel().tolist()):
            with pytest.raises(FeedMismatch, match=f"(?s)x holds.*in sample.*{dtype}"):
                cast(array, dtype, "x")
            return
        changed = cast(array, dtype, "x")
        assert (changed.dtype, changed.shape) == (dtype, array.shape)
        assert all(map(same(dtype), array.ravel().tolist(), changed.ravel().tolist()))

    @given(st.lists(st.integers(-(2**70), 2**70) | st.floats() | st.booleans(), min_size=1), DTYPES)
    def test_python_numbers_are_cast_with_their_values_or_refused(self, values, dtype):
        try:
            changed = one(values, dtype=dtype, canonical=lambda dtype: dtype)
        except FeedMismatch:
            return
        assert all(map(same(dtype), values, changed.tolist()))

    def test_the_refusal_names_field_value_sample_and_dtype(self):
        with refused("field 'x'", "4294967296", "sample 1 ", "int32", "jax_enable_x64"):
            one([7, 2**32], dtype="int64")
        assert one([7, 2**32], dtype="int64", canonical=np.dtype).tolist() == [7, 2**32]

    @pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 2.0**31, -1e300])
    def test_a_float_that_is_no_int_of_the_field_is_refused(self, value):
        with refused("field 'x'", "sample 1", "int32"):
            one([1.0, value], dtype="int32")

    def test_a_finite_float_never_becomes_infinite(self):
        with refused("field 'x'", "1e\\+300", "sample 2", "float32"):
            one([np.inf, np.nan, 1e300])
        assert one([np.inf, -np.inf, 1e-300]).tolist() == [np.inf, -np.inf, 0.0]

    def test_what_numpy_rounds_while_it_stacks_is_no_int_any_more(self):
        with refused("field 'x'", "9007199254740992", "int64"):
            one([2**53 + 1, 1.0], dtype="int64", canonical=np.dtype)

    def test_ints_wider_than_any_dtype_are_refused_by_value(self):
        with refused("field 'x'", str(2**70), "sample 1", "wide enough"):
            one([1, 2**70], dtype="int64")

    def test_bools_become_numbers_and_numbers_that_are_0_or_1_bools(self):
        assert one([True, False], dtype="float32").tolist() == [1.0, 0.0]
        assert one([1.0, 0.0], dtype="bool").tolist() == [True, False]
        with refused("field 'x'", "holds 2 ", "bool"):
            one([1, 2], dtype="bool")

    def test_foreign_byte_order_becomes_native(self):
        feed = Feeds(None, without_x64).from_arrays(np.array([1, 2], ">i8"))
        assert feed.dtype == np.dtype("int32")
        assert feed.tolist() == [1, 2]

    def test_complex_numbers_keep_both_parts(self):
        assert one([1j, 2.0], dtype="complex128").dtype == np.complex64
        with refused("field 'x'", "complex", "float32"):
            one([1j])
        with refused("field 'x'", "complex64"):
            one([1j * 1e300], dtype="complex64")

    def test_bfloat16_is_cast_to_and_from(self):
        rounded = one([1.0, 3.0], dtype=jnp.bfloat16)
        assert rounded.dtype == jnp.bfloat16
        assert one(list(rounded), dtype="int32").tolist() == [1, 3]
        with refused("field 'x'", "bfloat16"):
            one([1e39], dtype=jnp.bfloat16)

    def test_what_has_its_dtype_already_is_not_copied(self):
        array = np.zeros((2, 4), np.float32)
        assert Feeds([data("x", [None, 4])]).from_arrays(array)["x"] is array


def holds(dtype, value):
    """Whether the dtype has this value, up to rounding; found by exact arithmetic."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return not np.isfinite(value) or bool(np.isfinite(dtype.type(value)))
    if not np.isfinite(value) or value != int(value):
        return False
    if isinstance(value, float) and abs(value) >= 2**53:
        return False
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo("uint8")
    return limits.min <= value <= (1 if dtype.kind == "b" else limits.max)


def same(dtype):
    """Whether a value is the other: exactly, or rounded to a float dtype."""

    def judge(old, new):
        if dtype.kind != "f":
            return old == new
        if not math.isfinite(old):
            return old == new or (math.isnan(old) and math.isnan(new))
        limits = np.finfo(dtype)
        error = max(abs(old) * float(limits.eps), float(limits.smallest_subnormal))
        return bool(np.isfinite(new)) and abs(old - new) <= error

    return judge


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
        feeds = Feeds(BOTH, without_x64)
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

    @pytest.mark.parametrize("feed_list", [[data("x", [None, 2])], {data("x", [None, 2]): 0}])
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
        feeds = Feeds(BOTH, lambda dtype: asked.append(dtype) or without_x64(dtype))
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
            ([([0] * 4, 1, 2)], ["sample 0 ", "3 field", r"\[2\] are surplus", "'image': 0"]),
            ([{"image": [0] * 4}], ["sample 0 ", "for 'label', is missing"]),
            (
                [{"image": [0] * 4, "label": 1, "id": 2}],
                ["sample 0 ", r"\['id'\] are surplus", "'label': 'label'"],
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
            Feeds(BOTH).from_samples(samples)

    @pytest.mark.parametrize("samples", [[[1, 1, 1], [2, 2, 2]], Columns([np.zeros(2)])])
    def test_lists_inside_a_batch_are_ambiguous(self, samples):
        feeds = Feeds([data("x", [None, 3])])
        with refused("ambiguous", "two samples of one field, or two of three fields", "is a list"):
            feeds.from_samples(samples)

    def test_a_list_needs_exactly_as_many_fields_as_the_feed_list(self):
        feeds = Feeds([data("x", [None, 3])])
        assert feeds.from_samples([[[1, 1, 1]], [[2, 2, 2]]], lists=True)["x"].shape == (2, 3)
        with refused("sample 0", "3 field", "surplus"):
            feeds.from_samples([[1, 1, 1]], lists=True)

    @pytest.mark.parametrize(
        ("feed_list", "sample", "words"),
        [
            ({"x": 2}, (0, 1), ["2 field", "2, for 'x', is missing"]),
            ({"x": 0}, {"x": 0}, ["'x'", "0, for 'x', is missing"]),
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
            ([np.zeros((2, 4))] * 3, ["the batch has 3 field", "surplus"]),
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
            Feeds(BOTH).from_arrays(batch)

    @pytest.mark.parametrize(
        ("batch", "words"),
        [
            ({"a": np.zeros(2), "b": np.zeros(3)}, ["one length", "'a': 2", "'b': 3"]),
            ({"a": np.array(["x"])}, ["field 'a'", "strings"]),
            ((np.zeros(1), {"b": np.array([2**40])}), ["field '1'", str(2**40), "int32"]),
            (Digit(np.array([2**40]), np.zeros(1)), ["leaf 0", str(2**40), "int32"]),
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


class TestShapes:
    """Another rank is reshaped where the elements are as many; another size is not."""

    @pytest.mark.parametrize(
        ("shape", "inner"),
        [((), (1,)), ((1,), ()), ((2, 3), (6,)), ((6,), (2, 3)), ((6,), (1, 2, 3))],
    )
    def test_another_rank_is_reshaped(self, shape, inner):
        rows = np.arange(2 * np.prod(shape, dtype=int)).reshape(2, *shape)
        feed = one(list(rows), *inner)
        assert feed.shape == (2, *inner)
        assert feed.ravel().tolist() == rows.ravel().tolist()

    @pytest.mark.parametrize(
        ("shape", "inner"),
        [((2, 3), (3, 2)), ((2, 3), (7,)), ((6,), (None, 3)), ((2,), (3,))],
    )
    def test_another_size_is_refused(self, shape, inner):
        with refused("field 'x'", "declared"):
            one(list(np.zeros((2, *shape))), *inner)

    def test_an_inner_axis_may_be_of_any_size(self):
        assert one([[1, 2, 3]], None).shape == (1, 3)
        assert one([[[1], [2]]], None, 1).shape == (1, 2, 1)

    def test_a_fixed_batch_axis_is_checked(self):
        feeds = Feeds([data("x", [2])])
        assert feeds.from_samples([(1,), (2,)])["x"].shape == (2,)
        with refused("field 'x'", r"\[2\]", r"\[3\]"):
            feeds.from_samples([(1,), (2,), (3,)])


class TestPadding:
    """Short feeds are filled up with zeros, and the mask tells."""

    @given(st.integers(1, 5), st.integers(0, 5))
    def test_padding_appends_zeros_and_masks_them(self, have, more):
        feed = {"a": np.ones((have, 2), np.float32), "b": (np.ones(have, bool),)}
        longer, mask = padded(feed, have + more)
        assert mask.tolist() == [True] * have + [False] * more
        assert mask.dtype == bool
        for old, new in zip(leaves(feed), leaves(longer), strict=True):
            assert (new.dtype, new.shape) == (old.dtype, (have + more, *old.shape[1:]))
            assert new[:have].tolist() == old.tolist()
            assert not new[have:].any()

    def test_a_feed_that_is_too_long_is_refused(self):
        with refused("3 samples", "padded to 2"):
            padded(np.zeros(3), 2)


def test_feeds_need_no_jax():
    script = "import sys, jreader.feeds; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_feeding_rows_costs_at_most_twice_stacking_and_casting_them():
    samples = [
        (row, place) for place, row in enumerate(np.random.default_rng(0).random((512, 784)))
    ]
    feeds = Feeds([data("image", [None, 784]), data("label", [None, 1], "int64")], without_x64)

    def by_hand():
        images, labels = zip(*samples, strict=True)
        return np.stack(images).astype("float32"), np.stack(labels).astype("int32")

    assert fastest(lambda: feeds.from_samples(samples)) <= 2 * fastest(by_hand)


def fastest(fn, times=30):
    def once():
        began = perf_counter()
        fn()
        return perf_counter() - began

    return min(once() for _ in range(times))
