"""Fields are declared as in Paddle, and refused where they are written."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from fields import IMAGE_AND_LABEL, refused, without_x64

from jreader.feeds import Feeds, data


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
            (("x", [None], "S5"), TypeError, ["'x'", "bytes", "images.decode", "device"]),
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
            ("image", TypeError, ["a list of names", "'image'"]),
            (["image", 3], TypeError, ["names of fields", "not 3"]),
            ([data("x"), data("y"), data("x")], ValueError, ["'x' twice"]),
            ({data("x"): 0, "x": 1}, ValueError, ["'x' twice"]),
            ({"x": 0, "y": "label"}, TypeError, ["places only", "keys only"]),
            ({"x": -1}, ValueError, ["at least 0", "-1"]),
            ({"x": 0.5}, TypeError, ["at least 0", "0.5"]),
            ({"x": None}, TypeError, ["at least 0", "None"]),
            ({data("x"): None}, TypeError, ["at least 0", "None"]),
            ({3: 0}, TypeError, ["names of fields", "not 3"]),
            ({"": 0}, TypeError, ["names of fields", "not ''"]),
            ([""], TypeError, ["names of fields", "not ''"]),
        ],
    )
    def test_a_feed_list_that_names_no_fields_is_refused_when_built(self, feed_list, error, words):
        with refused(*words, error=error):
            Feeds(feed_list)

    def test_specs_fill_the_batch_size_in(self):
        specs = Feeds(IMAGE_AND_LABEL, without_x64).specs(8)
        assert specs == {"image": ((8, 4), np.float32), "label": ((8, 1), np.int32)}
        assert list(specs) == ["image", "label"]

    @pytest.mark.parametrize("feed_list", [None, {"x": 0}, [data("x", [None, None])]])
    def test_there_are_no_specs_where_only_a_batch_can_tell(self, feed_list):
        assert Feeds(feed_list).specs(8) is None


def test_feeds_need_no_jax():
    script = "import sys, jreader.feeds; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
