"""Arrow's IPC files as one table: mapped where they lie, in blocks where they are compressed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import jax
import numpy as np
import pytest
from arrow_tables import pa, plain, tables
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DamagedData, Pipeline, arrow, as_function, shuffle
from jreader.readers import fingerprint, indexed, leaves, start
from jreader.sources.tables.table_files import TableBlocks

FORMATS = ["file", "stream"]
IDS = pa.list_(pa.int64())


def write(path, table, form, compression=None, size=3):
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with make(str(path), table.schema, options=options) as out:
        out.write_table(table, max_chunksize=size)
    return path


@pytest.fixture(name="arrow")
def arrow_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(arrow)


def numbers(first, last):
    n = np.arange(first, last)
    names = pa.array([f"row {each}" for each in n], pa.string())
    return pa.table(
        {"n": n, "name": names, "ids": pa.array([[each] * (each % 3) for each in n], IDS)}
    )


def listed(reader):
    return [plain(sample) for sample in reader()]


forms = pytest.mark.parametrize("form", FORMATS)
packed = pytest.mark.parametrize("compression", [None, "zstd"])


@examples(50)
@given(data=st.data())
def test_what_pyarrow_writes_is_read_back(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    table = data.draw(tables())
    compression = data.draw(st.sampled_from([None, "zstd"]))
    coded = any(pa.types.is_dictionary(kind) for kind in table.schema.types)
    form = data.draw(st.sampled_from(["file"] if coded else FORMATS))
    cut = data.draw(st.integers(0, len(table)))
    for number, part in enumerate((table[:cut], table[cut:])):
        size = data.draw(st.integers(1, 5))
        write(folder / f"{number}.arrow", part, form, compression, size)
    reader = arrow(folder)
    expected = table.to_pylist()
    assert listed(reader) == expected
    done = data.draw(st.integers(0, len(table)))
    assert [plain(sample) for sample in start(reader, done).items] == expected[done:]
    order = np.arange(len(table))[::-1]
    assert [plain(sample) for sample in indexed(reader).take(order)] == expected[::-1]


@forms
@packed
def test_files_are_one_table_in_the_order_given(arrow, tmp_path, form, compression):
    one = write(tmp_path / "a.arrow", numbers(0, 7), form, compression)
    two = write(tmp_path / "b.feather", numbers(7, 12), form, compression)
    assert [row["n"] for row in listed(arrow(f"{tmp_path}/"))] == [*range(12)]
    assert [row["n"] for row in listed(arrow([two, one], ["n"]))] == [*range(7, 12), *range(7)]
    assert listed(arrow(f"{tmp_path}/", "name"))[11] == "row 11"
    assert len(arrow(f"{tmp_path}/")) == 12


@forms
@packed
def test_a_pass_goes_on_after_any_row(arrow, tmp_path, form, compression):
    write(tmp_path / "a.arrow", numbers(0, 7), form, compression)
    write(tmp_path / "b.arrow", numbers(7, 7), form, compression)
    write(tmp_path / "c.arrow", numbers(7, 9), form, compression)
    for done in range(10):
        assert [row["n"] for row in start(arrow(f"{tmp_path}/"), done).items] == [*range(done, 9)]
    assert sorted(row["n"] for row in shuffle(arrow(f"{tmp_path}/"), seed=1)()) == [*range(9)]


@forms
def test_numbers_lie_where_they_lie_in_the_file(tmp_path, form):
    write(tmp_path / "a.arrow", numbers(0, 9), form, size=9)
    before = pa.total_allocated_bytes()
    reader = arrow(tmp_path, ["n", "ids"])
    columns = reader.columns
    assert pa.total_allocated_bytes() == before
    assert type(columns["n"]) is np.ndarray
    assert not columns["n"].flags.owndata
    assert columns["ids"].lengths().tolist() == [n % 3 for n in range(9)]


def test_many_files_are_not_open_at_a_time(tmp_path):
    for number in range(30):
        write(tmp_path / f"{number:02}.arrow", numbers(number, number + 1), "stream")
    reader = arrow(tmp_path)
    assert len(reader) == 30
    descriptors = Path("/proc/self/fd")
    opened = [each.resolve() for each in descriptors.iterdir()] if descriptors.exists() else []
    assert not [path for path in opened if path.is_relative_to(tmp_path)]
    assert [row["n"] for row in reader()] == [*range(30)]


@packed
def test_no_rows_are_a_table(arrow, tmp_path, compression):
    write(tmp_path / "a.arrow", numbers(0, 0), "file", compression)
    assert listed(arrow(f"{tmp_path}/")) == []


def test_each_batch_of_a_compressed_file_is_a_block(arrow, tmp_path):
    write(tmp_path / "a.arrow", numbers(0, 7), "file", "zstd")
    write(tmp_path / "b.arrow", numbers(7, 9), "file", "zstd")
    (column,) = leaves(arrow(f"{tmp_path}/").columns)
    assert column.block_starts.tolist() == [0, 3, 6, 7]


@forms
@packed
def test_a_null_is_told_with_its_row_or_filled(arrow, tmp_path, form, compression):
    write(tmp_path / "a.arrow", pa.table({"n": [0, 1, 2, 3, None]}), form, compression)
    with pytest.raises(ValueError, match=r"column 'n' of .*a.arrow is null in row 4"):
        listed(arrow(f"{tmp_path}/"))
    assert listed(arrow(f"{tmp_path}/", "n", {"n": -1})) == [0, 1, 2, 3, -1]
    with pytest.raises(ValueError, match=r"names no column that is read: these are 'n'"):
        listed(arrow(f"{tmp_path}/", nulls={"x": 0}))


class TestFaults:
    @forms
    @packed
    def test_an_empty_truncated_or_foreign_file(self, arrow, tmp_path, form, compression):
        path = write(tmp_path / "a.arrow", numbers(0, 99), form, compression)
        whole = path.read_bytes()
        for content in (b"", whole[:4], whole[: len(whole) // 2], b"text " * 99, whole[:-8]):
            path.write_bytes(content)
            with pytest.raises(DamagedData, match=r"a.arrow is truncated, or not an Arrow file"):
                listed(arrow(path))

    def test_a_stream_that_ends_between_two_batches_is_truncated(self, arrow, tmp_path):
        path = write(tmp_path / "a.arrow", numbers(0, 9), "stream")
        whole = path.read_bytes()
        path.write_bytes(whole[:-8])  # without the mark of the end
        with pytest.raises(DamagedData, match=r"nothing after byte .* says that it ends there"):
            listed(arrow(path))

    def test_a_batch_that_cannot_be_unpacked_comes_after_the_good_ones(self, arrow, tmp_path):
        path = write(tmp_path / "a.arrow", numbers(0, 9000), "file", "zstd", size=1000)
        content = bytearray(path.read_bytes())
        at = content.rindex(b"\x28\xb5\x2f\xfd")  # where the last part begins that zstd wrote
        content[at : at + 4] = b"oops"
        path.write_bytes(content)
        rows = arrow(path)()
        assert [next(rows)["n"] for _ in range(8000)] == [*range(8000)]
        with pytest.raises(DamagedData, match=r"a.arrow .*record batch 8, which begins at byte"):
            next(rows)

    def test_a_file_that_vanished_or_was_replaced(self, tmp_path):
        path = write(tmp_path / "a.arrow", numbers(0, 9), "file")
        reader = arrow(path)
        assert len(listed(reader)) == 9
        write(tmp_path / "b.arrow", numbers(0, 20), "file").replace(path)
        with pytest.raises(DamagedData, match=r"a.arrow had .* bytes, and has"):
            listed(reader)
        path.unlink()
        with pytest.raises(DamagedData, match=r"a.arrow cannot be found any more"):
            listed(reader)

    def test_no_byte_is_read_of_a_file_that_was_cut_while_it_was_opened(
        self, tmp_path, monkeypatch
    ):
        path, opened = write(tmp_path / "a.arrow", numbers(0, 9000), "file"), arrow.tables

        def cut_while_opened(reader):
            files = opened(reader)
            os.truncate(path, 8)
            return files

        monkeypatch.setattr(arrow, "tables", cut_while_opened)
        monkeypatch.setattr(TableBlocks, "whole", lambda _: pytest.fail("this may be a SIGBUS"))
        with pytest.raises(DamagedData, match=r"a.arrow had .* bytes, and has 8"):
            listed(arrow(path))

    def test_files_of_other_columns(self, tmp_path):
        write(tmp_path / "a.arrow", pa.table({"n": [1]}), "file")
        write(tmp_path / "b.arrow", pa.table({"n": [[1]]}), "file")
        says = r"b.arrow has other columns than .*a.arrow: n is int64\[...\], not int64"
        with pytest.raises(ValueError, match=says):
            listed(arrow(f"{tmp_path}/"))

    def test_a_column_that_is_not_there(self, tmp_path):
        path = write(tmp_path / "a.arrow", numbers(0, 2), "file")
        with pytest.raises(ValueError, match=r"a.arrow has no column 'x'; its columns are 'n'"):
            listed(arrow(path, ["x"]))

    def test_a_compressed_stream_with_dictionaries_says_what_to_write(self, tmp_path):
        coded = pa.table({"s": pa.array(["a", "b"]).dictionary_encode()})
        path = write(tmp_path / "a.arrow", coded, "stream", "zstd")
        with pytest.raises(ValueError, match=r"write it in the file format \(pyarrow.ipc.new_file"):
            listed(arrow(path))


class TestPlans:
    def test_it_is_shown_as_it_was_written(self, tmp_path):
        path = str(write(tmp_path / "a.arrow", numbers(0, 2), "file"))
        assert repr(arrow(path)) == f"arrow({path!r})"
        assert repr(arrow(path, "n")) == f"arrow({path!r}, columns='n')"

    def test_it_travels_without_what_it_has_read(self, tmp_path):
        write(tmp_path / "a.arrow", numbers(0, 5), "file")
        reader = arrow(tmp_path)
        before, expected = len(pickle.dumps(reader)), listed(reader)
        assert len(pickle.dumps(reader)) < before + 200
        assert listed(pickle.loads(pickle.dumps(reader))) == expected

    def test_a_cursor_knows_the_files(self, tmp_path):
        write(tmp_path / "a.arrow", numbers(0, 5), "file")
        before = fingerprint(arrow(tmp_path))
        write(tmp_path / "a.arrow", numbers(1, 6), "file")
        assert fingerprint(arrow(tmp_path)) != before

    def test_documents_are_packed_by_their_lengths(self, tmp_path):
        write(tmp_path / "a.arrow", numbers(0, 30), "stream", size=7)
        rows = list(Pipeline(arrow(tmp_path, "ids")).pack(8))
        tokens = [int(t) for row in rows for t in row["tokens"][row["segment_ids"] > 0]]
        assert sorted(tokens) == sorted(n for n in range(30) for _ in range(n % 3))

    def test_numbers_are_put_on_devices_as_a_whole(self, tmp_path):
        write(tmp_path / "a.arrow", numbers(0, 8), "file")
        data, batch_at = as_function(Pipeline(arrow(tmp_path, ["n"])).batch(4))
        assert jax.jit(batch_at)(data, 0, 1)["n"].tolist() == [4, 5, 6, 7]
