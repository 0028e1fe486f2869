"""Parquet files as one table: rows by number, columns by name, row groups each decoded once."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from arrow_tables import pa, plain, tables
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DamagedData, Pipeline, batch, parquet, shuffle
from jreader.readers import fingerprint, indexed, start

pq = pytest.importorskip("pyarrow.parquet")


def written(folder, *many, group=3, **options):
    """Files of so many rows each, numbered through, and the paths."""
    numbers = np.cumsum([0, *many])
    paths = [folder / f"part-{number}.parquet" for number in range(len(many))]
    for path, first, last in zip(paths, numbers, numbers[1:], strict=False):
        n = np.arange(first, last)
        table = pa.table({"n": n, "half": n / 2, "name": [f"row {each}" for each in n]})
        pq.write_table(table, path, row_group_size=group, **options)
    return paths


def listed(reader):
    return [plain(sample) for sample in reader()]


def numbered(reader):
    return [int(sample["n"]) for sample in reader()]


@examples(50)
@given(data=st.data())
def test_what_pyarrow_writes_is_read_back(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    table = data.draw(tables())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=2)))
    parts = [table[low:high] for low, high in zip([0, *cuts], [*cuts, len(table)], strict=True)]
    for number, part in enumerate(parts):
        size = data.draw(st.integers(1, 5))
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=size)
    reader = parquet(folder)
    expected = table.to_pylist()
    assert listed(reader) == expected
    done = data.draw(st.integers(0, len(table)))
    assert [plain(sample) for sample in start(reader, done).items] == expected[done:]
    order = list(range(len(table)))[::-1]
    assert [plain(each) for each in indexed(reader).take(np.array(order, int))] == expected[::-1]


def test_files_are_one_table_in_the_order_given(tmp_path):
    one, two = written(tmp_path, 5, 4)
    assert numbered(parquet([two, one])) == [5, 6, 7, 8, 0, 1, 2, 3, 4]
    assert numbered(parquet(tmp_path)) == numbered(parquet(f"{tmp_path}/*.parquet")) == [*range(9)]
    assert len(parquet(tmp_path)) == 9


def test_numbers_are_stacked_in_batches_and_samples_with_text_are_listed(tmp_path):
    written(tmp_path, 5, 4)
    batches = [each.columns for each in batch(parquet(tmp_path, ["half", "n"]), 4)()]
    assert [list(each) for each in batches] == [["half", "n"]] * 3
    assert np.concatenate([each["n"] for each in batches]).tolist() == [*range(9)]
    assert next(iter(batch(parquet(tmp_path), 4)()))[1] == {"n": 1, "half": 0.5, "name": "row 1"}


def test_a_single_name_gives_bare_values(tmp_path):
    written(tmp_path, 3)
    assert listed(parquet(tmp_path, "name")) == ["row 0", "row 1", "row 2"]


def test_fields_of_structs_are_named_with_a_point(tmp_path):
    rows = [{"image": {"bytes": b"a", "path": None}, "label": 1}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    reader = parquet(tmp_path, ["label", "image.bytes"])
    assert listed(reader) == [{"label": 1, "image": {"bytes": b"a"}}]
    assert listed(parquet(tmp_path, "image.bytes")) == [b"a"]


def test_a_pass_goes_on_after_any_row(tmp_path):
    written(tmp_path, 5, 0, 4, 1)
    reader = parquet(tmp_path)
    for done in range(11):
        assert [each["n"] for each in start(reader, done).items] == [*range(done, 10)]
    turned = numbered(shuffle(reader, seed=3))
    assert sorted(turned) == [*range(10)]
    assert turned != [*range(10)]


def test_nothing_has_to_be_imported_before(tmp_path, python):
    written(tmp_path, 3)
    script = f"import jreader; print(*jreader.parquet({str(tmp_path)!r}, 'n')())"
    assert python(script).stdout.split() == ["0", "1", "2"]


def test_no_rows_are_a_table(tmp_path):
    written(tmp_path, 0)
    assert listed(parquet(tmp_path)) == []
    assert len(parquet(tmp_path)) == 0


class TestDecoding:
    @pytest.fixture
    def decoded(self, monkeypatch):
        """The row groups that pyarrow was asked for, and the columns."""
        calls, original = [], pq.ParquetFile.read_row_group

        def read_row_group(self, group, columns=None, **options):
            calls.append((group, columns))
            return original(self, group, columns=columns, **options)

        monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
        return calls

    def test_each_row_group_is_decoded_once_in_order(self, tmp_path, decoded):
        written(tmp_path, 90, group=6)
        reader = parquet(tmp_path, ["n"])
        assert numbered(reader) == [*range(90)]
        assert sorted(decoded) == [(group, ["n"]) for group in range(15)]

    def test_each_is_decoded_once_for_batches_that_go_over_its_ends(self, tmp_path, decoded):
        written(tmp_path, 90, group=6)
        assert sum(len(each) for each in batch(parquet(tmp_path), 8)()) == 90
        assert sorted(group for group, _ in decoded) == [*range(15)]

    def test_each_is_decoded_once_an_epoch_where_blocks_are_shuffled(self, tmp_path, decoded):
        written(tmp_path, 45, 30, group=6)
        plan = Pipeline(parquet(tmp_path, "n")).shuffle(seed=0, blocks=3).batch(8)
        for _ in range(2):
            rows = [int(n) for each in plan for n in each.columns]
            assert sorted(rows) == [*range(75)]
            assert rows != [*range(75)]
            assert len(decoded) == 13
            decoded.clear()

    def test_nothing_is_decoded_for_the_length(self, tmp_path, decoded):
        written(tmp_path, 9)
        assert len(parquet(tmp_path)) == 9
        assert decoded == []

    def test_a_pass_from_the_middle_decodes_what_is_left(self, tmp_path, decoded):
        written(tmp_path, 90, group=6)
        assert [each["n"] for each in start(parquet(tmp_path), 60).items] == [*range(60, 90)]
        assert sorted(group for group, _ in decoded) == [*range(10, 15)]


class TestNulls:
    def test_footers_tell_of_them_before_the_first_row(self, tmp_path):
        written(tmp_path, 5)
        table = pa.table({"n": [7, 8, 9, None], "half": [1.0] * 4, "name": ["a"] * 4})
        pq.write_table(table, tmp_path / "part-1.parquet", row_group_size=2)
        with pytest.raises(ValueError, match=r"'n' of .*part-1.parquet is null in row 3,"):
            next(iter(parquet(tmp_path)()))
        assert len(listed(parquet(tmp_path, ["half"]))) == 9
        assert numbered(parquet(tmp_path, nulls={"n": -1}))[5:] == [7, 8, 9, -1]

    def test_those_that_no_footer_tells_are_told_by_the_row_group(self, tmp_path):
        table = pa.table({"n": [[1], [2], [3, None]]})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
        rows = parquet(tmp_path)()
        assert [next(rows)["n"].tolist() for _ in range(2)] == [[1], [2]]
        with pytest.raises(ValueError, match=r"column 'n\[\]' of .*a.parquet is null in row 2"):
            next(rows)

    def test_a_name_that_is_no_column_is_refused(self, tmp_path):
        written(tmp_path, 5)
        with pytest.raises(ValueError, match="names no column that is read: these are 'n'"):
            len(parquet(tmp_path, ["n"], nulls={"half": 0}))


class TestFaults:
    """A good sample before the fault comes first; the error names the file, and where."""

    def test_an_empty_truncated_or_foreign_file(self, tmp_path):
        (path,) = written(tmp_path, 9)
        whole = path.read_bytes()
        for content in (b"", whole[:4], whole[: len(whole) // 2], b"text " * 99):
            path.write_bytes(content)
            with pytest.raises(DamagedData, match=r"part-0.parquet is truncated, or not a Parquet"):
                next(iter(parquet(path)()))

    def test_a_row_group_whose_checksum_does_not_match_is_no_sample(self, tmp_path):
        (path,) = written(tmp_path, 6000, group=1000, write_page_checksum=True, compression="none")
        content = bytearray(path.read_bytes())
        chunk = pq.read_metadata(path).row_group(4).column(0)
        content[chunk.data_page_offset + 200] ^= 1
        path.write_bytes(content)
        rows = parquet(path)()
        assert [next(rows)["n"] for _ in range(4000)] == [*range(4000)]
        with pytest.raises(
            DamagedData, match=r"part-0.parquet .*row group 4, which begins at byte"
        ):
            next(rows)

    def test_a_file_that_vanished_or_was_replaced(self, tmp_path):
        (path,) = written(tmp_path, 9)
        reader = parquet(path)
        assert len(listed(reader)) == 9
        content = path.read_bytes()
        written(tmp_path, 12)
        with pytest.raises(DamagedData, match=r"part-0.parquet had .* bytes, and has"):
            listed(reader)
        path.write_bytes(content)
        assert len(listed(parquet(path))) == 9
        path.unlink()
        with pytest.raises(DamagedData, match=r"part-0.parquet cannot be found any more"):
            listed(reader)

    def test_one_that_is_cut_under_a_pass(self, tmp_path):
        (path,) = written(tmp_path, 9000, group=1000)
        rows = parquet(path)()
        next(rows)
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(DamagedData, match=r"part-0.parquet had .* bytes, and has 5,000 now"):
            list(rows)

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="finds no file"):
            parquet(tmp_path)
        with pytest.raises(FileNotFoundError, match="does not exist"):
            parquet(tmp_path / "a.parquet")

    def test_files_of_other_columns(self, tmp_path):
        written(tmp_path, 5)
        pq.write_table(pa.table({"n": [1.5], "other": [1]}), tmp_path / "part-1.parquet")
        with pytest.raises(
            ValueError,
            match=r"part-1.parquet has other columns than .*part-0.parquet: n is float64, not "
            r"int64, half is missing, not float64, name is missing, not string, other is int64, "
            r"not there",
        ):
            len(parquet(tmp_path))

    def test_files_that_differ_only_in_how_they_store_values_are_one_table(self, tmp_path):
        pq.write_table(pa.table({"s": ["a"]}), tmp_path / "0.parquet")
        coded = pa.table({"s": pa.array(["b"]).dictionary_encode()})
        pq.write_table(coded, tmp_path / "1.parquet")
        assert listed(parquet(tmp_path, "s")) == ["a", "b"]

    @pytest.mark.parametrize(
        ("columns", "error", "says"),
        [
            (["x"], ValueError, "has no column 'x'; its columns are 'n', 'half', 'name'"),
            ("n.x", ValueError, "has no column 'n.x'"),
            ([], ValueError, "needs names of columns"),
            (["n", "n"], ValueError, "the column 'n' twice"),
            (5, TypeError, "needs names of columns, such as"),
            ([5], TypeError, "needs names of columns, such as"),
        ],
    )
    def test_columns_that_are_none(self, tmp_path, columns, error, says):
        written(tmp_path, 5)
        with pytest.raises(error, match=says):
            len(parquet(tmp_path, columns))

    def test_nulls_that_are_no_dict(self, tmp_path):
        written(tmp_path, 5)
        with pytest.raises(
            TypeError, match="needs a dict of columns and what stands for a null in each"
        ):
            parquet(tmp_path, nulls=0)


class TestPlans:
    def test_it_is_shown_as_it_was_written(self, tmp_path):
        (path,) = map(str, written(tmp_path, 5))
        assert repr(parquet(path)) == f"parquet({path!r})"
        assert (
            repr(parquet(path, ["n"], {"n": 0}))
            == f"parquet({path!r}, columns=['n'], nulls={{'n': 0}})"
        )
        assert repr(parquet(path, "n")) == f"parquet({path!r}, columns='n')"

    def test_it_travels_without_what_it_has_read(self, tmp_path):
        written(tmp_path, 9)
        reader = parquet(tmp_path)
        before = len(pickle.dumps(reader))
        expected = listed(reader)
        for dump in (pickle.dumps, cloudpickle.dumps):
            assert len(dump(reader)) < before + 200
            assert listed(pickle.loads(dump(reader))) == expected

    def test_a_cursor_knows_the_files_but_not_the_folder(self, tmp_path):
        one, two = Path(tmp_path, "one"), Path(tmp_path, "two")
        for folder in (one, two):
            folder.mkdir()
            written(folder, 9)
        assert fingerprint(parquet(one)) == fingerprint(parquet(two))
        assert fingerprint(parquet(one)) != fingerprint(parquet(one, "n"))

    def test_a_loader_puts_batches_of_it_on_devices(self, tmp_path):
        written(tmp_path, 8, 8)
        plan = Pipeline(parquet(tmp_path, ["n"])).shuffle(seed=1).batch(8)
        feeds = [np.asarray(feed["n"]) for feed in plan.load()]
        assert sorted(np.concatenate(feeds).tolist()) == [*range(16)]

    def test_workers_are_invisible(self, tmp_path):
        written(tmp_path, 8, 8)
        plan = Pipeline(parquet(tmp_path)).map(plain, processes=1)
        assert list(plan) == listed(parquet(tmp_path))


@pytest.mark.parametrize("kept", [0, 1, 8])
def test_threads_that_decode_at_the_same_time_share_what_was_opened(tmp_path, monkeypatch, kept):
    monkeypatch.setattr("jreader.sources.tables.parquet_files._READERS", kept)
    groups = parquet(written(tmp_path, 30, 30)).columns
    order = np.random.default_rng(0).integers(0, 20, 300).tolist()
    with ThreadPoolExecutor(6) as executor:
        firsts = list(executor.map(lambda group: int(groups.decoded(group).tree["n"][0]), order))
    assert firsts == [3 * group for group in order]


def test_a_table_that_was_read_travels_without_what_it_has_open(tmp_path):
    columns = parquet(written(tmp_path, 5)).columns
    columns.decoded(0)
    travelled = pickle.loads(cloudpickle.dumps(columns))
    assert travelled.decoded(1).tree["n"].tolist() == [3, 4]
