"""Tables of other libraries: their columns keep their names, and rows go by position."""

from __future__ import annotations

import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays, source
from jreader.datasets import ConcatDataset

COLUMNS = {"x": [1.5, 2.5, 3.5], "y": [1, 0, 1], "name": ["a", "b", "c"]}


def tables():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(COLUMNS)
    return {"table": table, "batch": table.to_batches()[0]}


def frames(library):
    return pytest.importorskip(library).DataFrame(COLUMNS)


@pytest.fixture(params=["table", "batch", "pandas", "polars"])
def frame(request):
    return tables()[request.param] if request.param in ("table", "batch") else frames(request.param)


def test_columns_of_a_table_keep_their_names(frame):
    reader = arrays(frame)
    assert [dict(sample) for sample in reader()] == [
        dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)
    ]
    assert reader.columns["x"].dtype == np.float64


def test_a_table_lies_beside_arrays(frame):
    rows = Pipeline(arrays(frame=frame, n=np.arange(3)))
    assert rows[1] == {"frame": {"x": 2.5, "y": 0, "name": "b"}, "n": 1}


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_nulls_of_a_table_are_refused_and_not_made_nan(library):
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    with pytest.raises(ValueError, match="1 nulls, which no array holds"):
        arrays(make({"x": [1, None]}))


def test_a_name_that_two_columns_have_is_refused():
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="several columns of the name 'a'"):
        arrays(pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=["a", "a"]))


def test_a_data_frame_without_names_is_a_matrix():
    pandas = pytest.importorskip("pandas")
    assert arrays(pandas.DataFrame(np.zeros((3, 2)))).columns.shape == (3, 2)


class Labelled:
    """What `source` asks of a pandas Series: rows by label, and by position with `iloc`."""

    def __init__(self, values, index):
        self.values = np.asarray(values)
        self.rows = dict(zip(index, values, strict=True))
        self.iloc = self.values

    def __getitem__(self, label):
        return self.rows[label]

    def __len__(self):
        return len(self.values)

    def to_numpy(self):
        return self.values


@pytest.mark.parametrize("made", [Labelled, "pandas"])
@pytest.mark.parametrize("batched", [False, True])
def test_rows_of_a_series_are_found_by_position_not_by_label(made, batched):
    made = pytest.importorskip("pandas").Series if made == "pandas" else made
    series = made([10, 20, 30], index=[2, 1, 0])
    reader = source(series, batched=batched)
    assert list(reader()) == [10, 20, 30]
    assert np.concatenate([np.asarray(list(b)) for b in Pipeline(reader).batch(2)]).tolist() == [
        10,
        20,
        30,
    ]


REFUSING = {
    "source": source,
    "batched": lambda table: source(table, batched=True),
    "a loader": DataLoader,
    "joined": lambda table: ConcatDataset([table]),
}


@pytest.mark.parametrize("made", REFUSING.values(), ids=REFUSING)
def test_a_table_is_no_data_set_since_its_items_are_columns(frame, made):
    with pytest.raises(TypeError, match=r"has columns: type arrays\(table\)"):
        made(frame)


class Named:
    """A data set that says which columns it has."""

    columns = ("x", "y")

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return {"x": index, "y": -index}


def test_a_data_set_that_names_its_columns_is_one():
    assert list(source(Named())()) == [{"x": 0, "y": 0}, {"x": 1, "y": -1}]
    assert DataLoader(Named(), batch_size=2).peek()["y"].tolist() == [0, -1]
