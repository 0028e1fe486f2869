"""Arrow's arrays as columns, whatever their type: their values, or an error for each null."""

from __future__ import annotations

import numpy as np
import pytest
from arrow_tables import TYPES, VALUES, pa, plain, rows_of, tables
from hypothesis import given
from hypothesis import strategies as st

from jreader.errors import DamagedData
from jreader.readers import Plane, leaves
from jreader.readers.joined_columns import ConcatArray
from jreader.readers.ragged import Ragged
from jreader.sources.tables.arrow_columns import ArrowObjects, Nulls, arrow_column, columns_of


def column(values, kind=None, **instead):
    return arrow_column(pa.array(values, kind), "x", Nulls("here", 0, instead))


def samples(columns, rows=None):
    many = leaves(columns)
    rows = np.arange(len(many[0])) if rows is None else rows
    plane = Plane(columns, len(many[0]), lambda indices: [indices] * len(many))
    taken = plane.take(rows)
    one_by_one = list(plane.each(rows))
    assert list(map(plain, taken)) == list(map(plain, one_by_one))
    return list(map(plain, one_by_one))


@given(tables(), st.data())
def test_rows_are_those_of_arrow_whatever_their_type_and_chunks(table, data):
    cut = data.draw(st.integers(0, len(table)))
    parts = pa.concat_tables([table[cut:], table[:cut]])
    expected = rows_of(parts)
    columns = columns_of(parts, Nulls("here"))
    assert samples(columns) == expected
    order = np.array(data.draw(st.permutations(range(len(table)))), int)
    assert samples(columns, order) == [expected[row] for row in order]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_column_of_no_rows_has_the_dtype_of_one_with_rows(kind):
    def spec(rows):
        made = leaves(arrow_column(rows or pa.nulls(0, kind), "x", Nulls("here")))
        return [(type(each), getattr(each, "dtype", None)) for each in made]

    assert spec([]) == spec(pa.array([example(kind)], kind))


def example(kind):
    if pa.types.is_struct(kind):
        return {"x": 1, "y": [2]}
    return {
        **{each: 1 for each in TYPES if pa.types.is_primitive(each)},
        pa.bool_(): True,
        pa.binary(3): b"abc",
        pa.decimal128(9, 2): 1,
        pa.list_(pa.float32(), 3): [1, 2, 3],
        pa.list_(pa.list_(pa.int16(), 2), 2): [[1, 2], [3, 4]],
    }.get(kind, [] if pa.types.is_nested(kind) else b"a" if pa.types.is_binary(kind) else "1")


class TestMemory:
    @pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.timestamp("us")])
    def test_numbers_without_nulls_are_those_of_arrow_itself(self, kind):
        values = pa.array([1, 2, 3], pa.int64()).cast(kind)
        made = arrow_column(values, "x", Nulls("here"))
        assert made.__array_interface__["data"][0] == values.buffers()[1].address
        assert not made.flags.writeable

    def test_lists_are_slices_of_arrows_values(self):
        values = pa.array([[1, 2], [], [3]])
        made = arrow_column(values, "x", Nulls("here"))
        assert isinstance(made, Ragged)
        assert made.values.__array_interface__["data"][0] == values.values.buffers()[1].address

    def test_several_chunks_are_one_column_and_share_the_places_where_they_meet(self):
        table = pa.concat_tables([pa.table({"a": [1, 2], "b": [1.5, 2]})] * 3)
        columns = columns_of(table, Nulls("here"))
        assert all(isinstance(each, ConcatArray) for each in columns.values())
        assert columns["a"].starts is columns["b"].starts


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (pa.timestamp("s"), "M8[s]"),
        (pa.timestamp("ns", "Europe/Berlin"), "M8[ns]"),
        (pa.date32(), "M8[D]"),
        (pa.date64(), "M8[ms]"),
        (pa.time32("ms"), "m8[ms]"),
        (pa.time64("us"), "m8[us]"),
        (pa.duration("ns"), "m8[ns]"),
    ],
)
def test_times_are_those_of_numpy(kind, dtype):
    day = 86_400_000
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    numbers = [0, day, 5 * day][: 1 if pa.types.is_time(kind) else 3]
    if kind == pa.date32():
        numbers = [0, 1, 5]
    made = arrow_column(pa.array(numbers, storage).view(kind), "x", Nulls("here"))
    assert made.dtype == np.dtype(dtype)
    assert made.view(np.int64).tolist() == numbers


class TestTypesOfOtherLayouts:
    def test_views_of_lists_are_lists(self):
        rows = [[1, 2], [], [3]]
        assert samples(column(rows, pa.list_view(pa.int64()))) == rows
        assert samples(column([*rows, None], pa.large_list_view(pa.int64()), x=[9])) == [*rows, [9]]

    def test_runs_are_decoded(self):
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
        assert samples(arrow_column(runs, "x", Nulls("here"))) == [7, 7, 8]

    def test_tensors_have_their_shape(self):
        tensors = np.arange(24, dtype=np.int32).reshape(4, 2, 3)
        made = arrow_column(
            pa.FixedShapeTensorArray.from_numpy_ndarray(tensors), "x", Nulls("here")
        )
        np.testing.assert_array_equal(made, tensors)

    def test_slices_of_arrays_are_their_rows(self):
        for rows in ([[1, 2], [3], [4, 5, 6]], [["a"], ["b", "c"], []], [1, 2, 3], ["a", "", "b"]):
            assert samples(arrow_column(pa.array(rows)[1:], "x", Nulls("here"))) == rows[1:]


class TestNulls:
    @pytest.mark.parametrize("kind", TYPES, ids=str)
    def test_a_null_is_an_error_that_names_column_and_row(self, kind):
        value = example(kind)
        table = pa.table({"x": pa.array([value, value, None, value], kind)})
        with pytest.raises(
            ValueError, match=r"column 'x[^']*' of here is null in row 7,"
        ) as caught:
            columns_of(table, Nulls("here", 5))
        assert "nulls={'x" in str(caught.value)

    def test_the_row_counts_over_all_chunks(self):
        chunks = pa.chunked_array([[1, 2], [3, None]])
        with pytest.raises(ValueError, match="null in row 3"):
            arrow_column(chunks, "x", Nulls("here"))

    def test_what_stands_for_it_is_put_there(self):
        assert samples(column([1, None], x=-1)) == [1, -1]
        assert samples(column(["a", None], x="")) == ["a", ""]
        assert samples(column([[1], None], x=[])) == [[1], []]
        assert samples(column([[1, 2], None], pa.list_(pa.int8(), 2), x=[0, 0])) == [[1, 2], [0, 0]]
        assert samples(column([{"y": 1}, None], **{"x.y": 5})) == [{"y": 1}, {"y": 5}]

    def test_text_may_be_none(self):
        assert samples(column(["a", None], x=None)) == ["a", None]

    def test_of_a_number_none_is_no_value(self):
        with pytest.raises(TypeError, match=r"nulls=\{'x': None\}"):
            column([1, None], x=None)

    @pytest.mark.parametrize("rows", [[[1], [], [2, None]], [["a"], [], ["b", None]]])
    def test_one_inside_of_a_list_has_the_row_of_the_list(self, rows):
        with pytest.raises(ValueError, match=r"column 'x\[\]' of here is null in row 2"):
            column(rows)

    def test_one_inside_of_a_list_is_filled_by_its_own_name(self):
        assert samples(column([[1], [2, None]], **{"x[]": 0})) == [[1], [2, 0]]
        assert samples(column([["a", None]], **{"x[]": None})) == [["a", None]]

    def test_one_inside_of_lists_of_structs_is_told(self):
        with pytest.raises(ValueError, match="null in row 1"):
            column([[{"y": 1}], [{"y": 1}, {"y": None}]])
        with pytest.raises(ValueError, match="null in row 1"):
            arrow_column(
                pa.array([[("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int64())),
                "x",
                Nulls("here"),
            )

    CHAT = (
        [{"role": "user", "name": None, "calls": None, "n": 1}],
        [],
        [{"role": "tool", "name": "bob", "calls": [{"arg": "x"}, {"arg": None}], "n": None}],
    )

    def test_one_under_a_key_of_dicts_in_a_list_is_told_with_what_to_type(self):
        said = {}
        for name in ("x[].name", "x[].calls", "x[].n"):
            with pytest.raises(ValueError, match="is null in row") as caught:
                column(self.CHAT, **said)
            assert str(caught.value).startswith(f"column {name!r} of here is null in row")
            assert f"nulls={{{name!r}: None}}" in str(caught.value)
            said[name] = None
        assert samples(column(self.CHAT, **said)) == list(self.CHAT)

    @pytest.mark.parametrize("name", ["x", "x[]"])
    def test_none_stands_for_all_inside_as_well(self, name):
        assert samples(column(self.CHAT, **{name: None})) == list(self.CHAT)
        filled = samples(column([*self.CHAT, None], **{"x": None, "x[].n": 7, "x[].calls": []}))
        assert filled[0] == [{"role": "user", "name": None, "calls": [], "n": 1}]
        assert [each["n"] for each in filled[2]] == [7]
        assert filled[2][0]["calls"] == self.CHAT[2][0]["calls"]
        assert filled[3] is None

    @pytest.mark.parametrize(
        ("kind", "rows", "name", "filled"),
        [
            (pa.list_(pa.string()), [["a", None], [], [None]], "x[]", [["a", ""], [], [""]]),
            (pa.large_list(pa.string()), [["a", None]], "x[]", [["a", ""]]),
            (pa.list_(pa.string(), 2), [["a", None]], "x[]", [["a", ""]]),
            (pa.list_view(pa.string()), [["a", None]], "x[]", [["a", ""]]),
            (pa.list_(pa.list_(pa.string())), [[["a"], [None]]], "x[][]", [[["a"], [""]]]),
            (pa.map_(pa.string(), pa.string()), [[("a", None)]], "x[]", [[("a", "")]]),
            (pa.list_(pa.struct({"y": pa.string()})), [[{"y": None}]], "x[].y", [[{"y": ""}]]),
        ],
        ids=str,
    )
    def test_text_inside_of_lists_is_filled(self, kind, rows, name, filled):
        array = pa.array([rows[0], *rows], kind)[1:]
        assert samples(arrow_column(array, "x", Nulls("here", 0, {name: ""}))) == filled

    def test_what_stands_for_one_inside_fits_or_is_refused(self):
        with pytest.raises(TypeError, match=r"nulls=\{'x\[\]': 5\} is not a value"):
            column([["a", None]], **{"x[]": 5})

    def test_a_value_of_another_type_is_refused(self):
        with pytest.raises(TypeError, match="is not a value of the column, whose values are int64"):
            column([1, None], x="zero")


def test_two_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="several columns of the name 'a'"):
        columns_of(table, Nulls("here"))


def test_a_struct_without_fields_is_refused():
    with pytest.raises(ValueError, match="is a struct with the fields"):
        column([{}], pa.struct([]))


def test_a_tensor_of_another_size_than_its_type_says_is_damaged():
    class Squares(pa.ExtensionType):
        shape = (2, 2)

        def __init__(self):
            super().__init__(pa.list_(pa.list_(pa.int64())), "squares")

        def __arrow_ext_serialize__(self):
            return b""

    whole = pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int64())))
    assert samples(arrow_column(Squares().wrap_array(whole), "x", Nulls("here"))) == [
        [[1, 2], [3, 4]]
    ]
    short = pa.array([[[1, 2], [3]]], pa.list_(pa.list_(pa.int64())))
    with pytest.raises(DamagedData, match="3 values in 1 rows"):
        arrow_column(Squares().wrap_array(short), "x", Nulls("here"))


def test_every_type_has_values():
    assert set(VALUES) == set(TYPES)
    assert isinstance(column(["a"]), ArrowObjects)
