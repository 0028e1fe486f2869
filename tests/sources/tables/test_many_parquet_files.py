"""Of many Parquet files, one index says what a plan needs of their footers, found once."""

from __future__ import annotations

import os
import pickle

import cloudpickle
import numpy as np
import pytest

from jreader import DamagedData, Pipeline, batch, parquet
from jreader.readers import fingerprint, start
from jreader.sources.files.set_indices import MANY

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FILES = MANY + 20


@pytest.fixture(autouse=True)
def sets(cache):
    return cache.with_name("sets")


def rows_of(number):
    """How many rows a file has: none, or a row group or two."""
    return number % 4


@pytest.fixture
def folder(tmp_path):
    """Files of rows that are numbered through, with a null in a column of one of them."""
    first = 0
    for number in range(FILES):
        n = np.arange(first, first + rows_of(number))
        some = [None if number == 101 else float(each) for each in n]
        table = pa.table(
            {"n": n, "text": [f"row {each}" for each in n], "some": pa.array(some, pa.float64())}
        )
        pq.write_table(table, tmp_path / f"{number:04}.parquet", row_group_size=2)
        first += len(n)
    return tmp_path


@pytest.fixture
def footers(monkeypatch):
    """The files of which pyarrow has read the footer."""
    read, original = [], pq.ParquetFile

    def opened(source, *given, metadata=None, **options):
        if metadata is None:
            read.append(os.path.basename(source.file.path))  # noqa: PTH119  # a str
        return original(source, *given, metadata=metadata, **options)

    monkeypatch.setattr(pq, "ParquetFile", opened)
    return read


def numbered(reader):
    return [int(n) for n in reader()]


TOTAL = sum(map(rows_of, range(FILES)))


def test_rows_are_found_by_number_as_in_few_files(folder):
    assert numbered(parquet(folder, "n")) == [*range(TOTAL)]
    reader = parquet(folder, ["text", "n"])
    assert len(reader) == TOTAL
    for done in (0, 1, 5, TOTAL - 1, TOTAL):
        assert [int(row["n"]) for row in start(reader, done).items] == [*range(done, TOTAL)]
    shuffled = Pipeline(parquet(folder, "n")).shuffle(seed=0, blocks=8).batch(7)
    rows = [int(n) for each in shuffled for n in each.columns]
    assert rows != sorted(rows) == [*range(TOTAL)]


def test_only_footers_of_files_that_are_decoded_are_read_at_the_second_start(folder, footers):
    assert len(parquet(folder, "n")) == TOTAL
    assert len(set(footers)) == FILES
    footers.clear()
    reader = parquet(folder, "n")
    assert len(reader) == TOTAL
    assert [int(n) for n in start(reader, TOTAL - 3).items] == [*range(TOTAL - 3, TOTAL)]
    assert set(footers) == {"0001.parquet", f"{FILES - 1:04}.parquet"}


def test_what_is_wanted_may_be_others_than_before(folder, footers):
    assert len(parquet(folder, ["n"])) == TOTAL
    footers.clear()
    assert batch(parquet(folder, ["text"]), 3)().__next__()[2] == {"text": "row 2"}
    assert len(footers) < FILES // 4  # what is read ahead, by as many threads as have come to it


def test_a_null_in_one_of_them_is_an_error_before_the_first_row(folder):
    for _ in range(2):  # found, and kept
        with pytest.raises(ValueError, match=r"'some' of .*0101.parquet is null in row 0"):
            next(iter(parquet(folder)()))
        filled = parquet(folder, "some", nulls={"some": -1})()
        assert sum(value == -1 for value in filled) == rows_of(101)


def test_nulls_of_one_column_among_hundreds_are_known(tmp_path):
    names = [f"c{number}" for number in range(200)]
    for number in range(MANY):
        rows = {
            name: pa.array([None if (number, name) == (9, "c150") else 1], pa.int8())
            for name in names
        }
        pq.write_table(pa.table(rows), tmp_path / f"{number:04}.parquet")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'c150' of .*0009.parquet is null in row 0"):
            len(parquet(tmp_path, ["c149", "c150"]))
        assert len(parquet(tmp_path, ["c149", "c151"])) == MANY


def test_a_file_of_other_columns_is_refused_and_may_have_more(folder):
    pq.write_table(pa.table({"n": [0.5], "text": ["a"], "more": [1]}), folder / "0200.parquet")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"0200.parquet has other columns .* n is float64"):
            len(parquet(folder, ["n"]))
        assert len(list(parquet(folder, "text")())) == len(parquet(folder, "text"))


def test_a_file_that_was_written_anew_is_read_as_it_is_now(folder):
    before = numbered(parquet(folder, "n"))
    table = pa.table({"n": [-1] * 9, "text": ["a"] * 9, "some": [0.0] * 9})
    pq.write_table(table, folder / "0003.parquet")
    assert numbered(parquet(folder, "n")) == [*before[:3], *[-1] * 9, *before[6:]]


def test_a_file_that_is_replaced_in_a_pass_is_an_error_and_never_a_sample(folder):
    reader = parquet(folder, "n")
    assert len(reader) == TOTAL
    rows = reader()
    assert next(rows) == 0
    table = pa.table({"n": [-1] * 9, "text": ["a"] * 9, "some": [0.0] * 9})
    pq.write_table(table, folder / "0202.parquet")
    seen = []
    with pytest.raises(DamagedData, match=r"0202.parquet had"):
        seen.extend(map(int, rows))
    assert seen == [*range(1, len(seen) + 1)]


def test_a_plan_and_its_columns_travel_without_footers(folder):
    reader = parquet(folder, "n")
    expected = numbered(reader)
    assert len(cloudpickle.dumps(reader)) < 200 * FILES
    travelled = pickle.loads(cloudpickle.dumps(reader.columns))
    assert travelled.decoded(0).tree.tolist() == [0]
    assert numbered(pickle.loads(cloudpickle.dumps(reader))) == expected


def test_the_index_changes_no_cursor(folder, monkeypatch):
    whole = Pipeline(parquet(folder, ["n"])).shuffle(seed=1, blocks=4).batch(3)
    samples, known = [b["n"].tolist() for b in whole.load()], fingerprint(whole)
    monkeypatch.setattr("jreader.sources.tables.parquet_files.MANY", FILES + 1)
    again = Pipeline(parquet(folder, ["n"])).shuffle(seed=1, blocks=4).batch(3)
    assert [b["n"].tolist() for b in again.load()] == samples
    assert fingerprint(again) == known
