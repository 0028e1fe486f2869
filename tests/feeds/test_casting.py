"""Dtypes, shapes and lengths are changed, and no value in silence."""

from __future__ import annotations

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from fields import one, refused, without_x64
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from jreader.errors import FeedMismatch
from jreader.feeds import Feeds, cast, data, padded
from jreader.feeds.casts import placeable, unplaceable
from jreader.readers import leaves

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

    @pytest.mark.parametrize("dtype", ["int4", "uint4", "int2"])
    def test_small_integers_of_other_libraries_hold_what_they_can(self, dtype):
        limits = ml_dtypes.iinfo(dtype)
        held = [int(limits.min), int(limits.max)]
        assert cast(np.array(held), np.dtype(dtype), "x").tolist() == held
        for value in (held[0] - 1, held[1] + 1, 300):
            with refused(f"x holds {value} in sample 1", dtype):
                cast(np.array([0, value]), np.dtype(dtype), "x")

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

    def test_numbers_of_devices_are_told_from_all_else(self):
        small = [getattr(ml_dtypes, name) for name in ("bfloat16", "int4", "float8_e4m3fnuz")]
        on_devices = [*PLAIN, "float64", ">f4", "complex64", "complex128", "l", "q", "Q", *small]
        assert all(placeable(np.zeros(2, dtype)) for dtype in on_devices)
        rows = np.dtype([("x", int)])
        others = [*"USOgG", "M8[s]", "m8[s]", "V3", rows, (np.record, rows)]
        assert not any(placeable(np.zeros(2, dtype)) for dtype in others)

    def test_strings_of_a_dtype_that_cannot_be_hashed_stay_on_the_host(self):
        dtype = np.dtypes.StringDType(na_object=[])
        assert not placeable(np.array(["a"], dtype))
        assert "cannot live on a device" in str(unplaceable(dtype))

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
