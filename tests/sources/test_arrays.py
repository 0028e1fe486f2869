"""`arrays` gives the rows of columns that are in memory."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, everything
from seen import canonical

from jreader import Pipeline, arrays, batch, shuffle
from jreader.errors import NotResumable
from jreader.readers import length, op, start
from jreader.sources.columns import Table


class Pair(NamedTuple):
    image: np.ndarray
    label: np.ndarray


@dataclass
class Digit:
    image: np.ndarray
    label: np.ndarray


def test_columns_by_place_give_tuples_and_by_name_dicts():
    images, labels = np.arange(6).reshape(3, 2), [5, 0, 4]
    assert everything(arrays(images, labels)) == [[[0, 1], 5], [[2, 3], 0], [[4, 5], 4]]
    assert type(next(arrays(images, labels)())) is tuple
    assert everything(arrays(image=images, label=labels))[1] == {"image": [2, 3], "label": 0}


def test_one_column_gives_bare_rows():
    assert everything(arrays([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert everything(arrays(["a", "", None])) == ["a", "", None]


@pytest.mark.parametrize("tree", [dict, Pair, Digit])
def test_a_tree_of_columns_gives_samples_of_that_tree(tree):
    reader = arrays(tree(image=np.zeros((2, 3)), label=[7, 8]))
    assert all(type(sample) is tree for sample in reader())
    labels = [s["label"] if tree is dict else s.label for s in reader()]
    assert labels == [7, 8]


def test_trees_of_columns_nest():
    reader = arrays({"views": (np.arange(2), np.arange(2) * 10)}, ["a", "b"])
    assert everything(reader) == [[{"views": [0, 0]}, "a"], [{"views": [1, 10]}, "b"]]


def test_columns_are_read_only_views_of_the_arrays_that_were_given_not_copies():
    images, labels = np.zeros((2, 3)), np.arange(2)
    reader = arrays(images, labels)
    assert reader.columns[0].base is images
    assert reader.columns[1].base is labels
    assert not reader.columns[0].flags.writeable
    assert np.shares_memory(next(reader())[0], images)
    assert set(arrays(image=images).columns) == {"image"}
    assert arrays(images).columns.base is images


def test_rows_of_a_memory_map_are_plain_arrays(tmp_path):
    mapped = np.memmap(tmp_path / "raw", np.uint8, "w+", shape=(3, 4))
    reader = arrays(mapped, mapped)
    assert [type(row) for row in next(reader())] == [np.ndarray] * 2
    assert np.shares_memory(reader.columns[0], mapped)


def test_a_length_is_known_and_any_row_is_a_place_to_go_on():
    reader = arrays(np.arange(4), np.arange(4) * 2)
    assert length(reader) == len(reader) == 4
    assert [start(reader, at).position() for at in range(5)] == [0, 1, 2, 3, 4]
    for each in (reader, arrays([1, 2, 3]), arrays(a=[1, 2], b=["x", "y"]), arrays([])):
        check_resumes_everywhere(each)


def test_a_place_behind_the_last_row_is_refused():
    with pytest.raises(NotResumable, match=r"after sample 4 of int64\[3\]: it has 3 samples"):
        start(arrays([1, 2, 3]), 4)


def test_arrays_are_shown_as_shapes():
    images, labels = np.zeros((9, 28, 28), np.uint8), np.zeros(9, int)
    assert repr(arrays(images, labels)) == "arrays(uint8[9, 28, 28], int64[9])"
    assert repr(arrays(image=images)) == "arrays(image=uint8[9, 28, 28])"
    assert repr(arrays(labels)) == "arrays(int64[9])"
    assert repr(arrays((labels,))) == "arrays((int64[9],))"
    assert repr(arrays({"an image": labels})) == "arrays({'an image': int64[9]})"
    assert repr(arrays(Pair(images, labels))) == (
        "arrays(Pair(image=uint8[9, 28, 28], label=int64[9]))"
    )


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (arrays, TypeError, "not neither: arrays"),
        (lambda: arrays([1], label=[2]), TypeError, "not both: arrays"),
        (lambda: arrays([1, 2], [1, 2, 3]), ValueError, r"int64\[2\] and int64\[3\].* to 2 rows"),
        (lambda: arrays(a=[1, 2], b=[1]), ValueError, "needs columns of one length"),
        (lambda: arrays(7), ValueError, "axis of rows, not 7"),
        (lambda: arrays([1, 2], np.array(3.5)), ValueError, "axis of rows, not 3.5"),
        (lambda: arrays((1, 2, 3)), ValueError, "a tuple is read as several columns"),
        (lambda: arrays(len), ValueError, "axis of rows, not len"),
        (lambda: arrays({}), ValueError, "needs at least one column"),
        (lambda: arrays(()), ValueError, "needs at least one column"),
    ],
)
def test_what_has_no_rows_to_give_is_refused_where_it_was_written(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@given(st.lists(st.integers(0, 9)), st.integers(0, 12))
def test_going_on_at_a_row_is_slicing(rows, at):
    reader = arrays(np.array(rows, int))
    if at <= len(rows):
        assert [int(row) for row in start(reader, at).items] == rows[at:]


def test_a_reader_is_no_column():
    rows = arrays(np.arange(3))
    for wrong in (rows, Pipeline(rows), Pipeline(lambda: "abc")):
        with pytest.raises(TypeError, match="is a reader already"):
            arrays(wrong)
        with pytest.raises(TypeError, match="is a reader already"):
            arrays(x=wrong)


class Rows:
    """Values that are indexed as arrays are, and are none: those of h5py, say."""

    shape, dtype = (9, 2), np.dtype(np.int64)

    def __len__(self):
        return 9

    def __getitem__(self, rows):
        return np.stack([np.asarray(rows), np.asarray(rows) ** 2], -1)


@op
class Foreign(Table):
    @property
    def columns(self):
        return {"x": Rows(), "y": np.arange(9)}


def test_columns_may_be_what_is_indexed_as_arrays_are():
    plan = shuffle(Foreign(), seed=0)
    one_by_one, (whole,) = list(plan()), batch(plan, 9)()
    assert whole.columns["x"].tolist() == [[y, y**2] for y in whole.columns["y"].tolist()]
    assert [canonical(each) for each in whole] == [canonical(each) for each in one_by_one]
