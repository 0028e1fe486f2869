"""Media of Hugging Face's data sets are bytes, however deep, also where only paths are stored."""

from __future__ import annotations

import numpy as np
import pytest
from arrow_tables import pa

from jreader import DamagedData
from jreader.sources.tables.arrow_columns import Nulls, arrow_column
from jreader.sources.tables.huggingface_data import with_media


class Image:
    """As the feature of Hugging Face is called."""


class List:
    def __init__(self, feature):
        self.feature = feature


STORED = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.fixture
def files(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3)
    return {name: {"bytes": None, "path": str(tmp_path / name)} for name in "abc"}


def read(values, kind, feature, **nulls):
    cut = len(values) // 2
    column = pa.chunked_array([values[:cut], values[cut:]], kind)
    rows = arrow_column(with_media(column, feature), "x", Nulls("here", 0, nulls))
    return rows.gather(np.arange(len(values)))


HELD = {"bytes": b"held", "path": "elsewhere.png"}


def test_bytes_are_as_they_are_stored(files):
    assert read([HELD, HELD], STORED, Image()) == [b"held"] * 2
    column = with_media(pa.chunked_array([[HELD]], STORED), Image())
    assert column.type == pa.binary()


def test_files_are_read_where_there_are_no_bytes(files):
    assert read([files["b"], HELD, files["a"]], STORED, Image()) == [b"bbb", b"held", b"aaa"]


@pytest.mark.parametrize("feature", [List(Image()), [Image()]], ids=["List", "list"])
@pytest.mark.parametrize(
    "kind", [pa.list_(STORED), pa.large_list(STORED), pa.list_(STORED, 2)], ids=str
)
def test_lists_of_them_are_lists_of_bytes(files, kind, feature):
    rows = [[files["a"], HELD], [files["c"], files["b"]]]
    assert read(rows, kind, feature) == [[b"aaa", b"held"], [b"ccc", b"bbb"]]


def test_media_in_dicts_are_bytes(files):
    inner = pa.struct({"image": STORED, "n": pa.int64()})
    rows = [[{"image": files["a"], "n": 1}], [], [{"image": HELD, "n": 2}]]
    feature = List({"image": Image(), "n": None})
    assert read(rows, pa.list_(inner), feature) == [
        [{"image": b"aaa", "n": 1}],
        [],
        [{"image": b"held", "n": 2}],
    ]


def test_a_null_is_told_and_none_may_stand_for_it(files):
    rows = [HELD, None, files["a"]]
    with pytest.raises(ValueError, match="column 'x' of here is null in row 1"):
        read(rows, STORED, Image())
    assert read(rows, STORED, Image(), x=None) == [b"held", None, b"aaa"]
    nested = [[HELD, None], [files["a"]]]
    with pytest.raises(ValueError, match=r"column 'x\[\]' of here is null in row 0"):
        read(nested, pa.list_(STORED), List(Image()))
    named = {"x[]": None}
    assert read(nested, pa.list_(STORED), List(Image()), **named) == [[b"held", None], [b"aaa"]]


def test_a_file_that_is_gone_is_named(files, tmp_path):
    (tmp_path / "a").unlink()
    with pytest.raises(DamagedData, match=r"a cannot be found any more"):
        read([files["b"], files["a"]], STORED, Image())


def test_one_of_neither_bytes_nor_a_path_is_told():
    with pytest.raises(DamagedData, match="has neither bytes nor a path"):
        read([HELD, {"bytes": None, "path": None}], STORED, Image())
