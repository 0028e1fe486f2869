"""CSV as one table: what Python's module writes comes back, in blocks, of one type everywhere."""

from __future__ import annotations

import csv as python_csv
import gzip
import io
import json
import os
import pickle
from itertools import chain, pairwise

import numpy as np
import pytest
from arrow_tables import pa, plain
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends
from widths import examples

import jreader
from jreader import DamagedData, Pipeline, Store, batch, csv, shuffle
from jreader.readers import fingerprint, indexed, start
from jreader.sources.tables import csv_decoding

ANY_TEXT = st.text(
    st.one_of(st.sampled_from(',;"\n\r é0.'), st.characters(exclude_categories=["Cs"])), max_size=6
).filter(lambda text: "\0" not in text)
VALUES = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(allow_nan=False),
    "text": ANY_TEXT,
    "flag": st.booleans(),
}
TYPES = {"whole": int, "real": float, "text": str, "flag": bool}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few records, from files that are read a few bytes at a time."""
    monkeypatch.setattr(csv_decoding, "_BLOCK", 20)
    monkeypatch.setattr(csv_decoding, "_CHUNK", 50)


def content_of(names, rows, **dialect):
    out = io.StringIO(newline="")
    python_csv.writer(out, **dialect).writerows([names, *rows])
    return out.getvalue().encode()


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def listed(reader):
    return [plain(sample) for sample in reader()]


def _fits(kind):
    return lambda number: np.iinfo(kind).min <= number <= np.iinfo(kind).max


def said(path):
    """The samples of a file and what its error says."""
    samples, error = ends(csv(path)())
    return [tuple(plain(sample).values()) for sample in samples], str(error)


class TestRoundTrips:
    @examples(60)
    @given(data=st.data())
    def test_what_python_writes_is_read_back(self, data, tmp_path_factory):
        folder = tmp_path_factory.mktemp("tables")
        kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
        names = [f"{kind} {number}" for number, kind in enumerate(kinds)]
        rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=12))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=2)))
        delimiter = data.draw(st.sampled_from(",;\t|"))
        quoting = data.draw(st.sampled_from([python_csv.QUOTE_MINIMAL, python_csv.QUOTE_ALL]))
        for number, (low, high) in enumerate(pairwise([0, *cuts, len(rows)])):
            content = content_of(names, rows[low:high], delimiter=delimiter, quoting=quoting)
            content = b"\xef\xbb\xbf" * data.draw(st.booleans()) + content
            end = 2 * (data.draw(st.booleans()) and high > low)
            name = f"{number}.csv{data.draw(st.sampled_from(['', '.gz']))}"
            write(folder / name, content[: len(content) - end])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_decoding, "_BLOCK", data.draw(st.integers(1, 40)))
            patch.setattr(csv_decoding, "_CHUNK", data.draw(st.integers(1, 90)))
            types = {name: TYPES[name.split()[0]] for name in names}
            reader = csv(folder, types=types, delimiter=delimiter)
            expected = [dict(zip(names, row, strict=True)) for row in rows]
            assert listed(reader) == expected
            done = data.draw(st.integers(0, len(rows)))
            assert [plain(sample) for sample in start(reader, done).items] == expected[done:]
            turned = np.arange(len(rows))[::-1]
            assert [plain(each) for each in indexed(reader).take(turned)] == expected[::-1]

    @examples(60)
    @given(fields=st.lists(st.lists(st.text('a",\n ', max_size=5), min_size=2, max_size=2)))
    def test_quotes_that_nobody_would_write_mean_what_they_mean_to_python(
        self, fields, tmp_path_factory
    ):
        """Those in the middle of a field, and what comes behind the last one of a field."""
        content = "\n".join(",".join(record) for record in fields)
        rows = [row for row in python_csv.reader(io.StringIO(content, newline="")) if row]
        path = tmp_path_factory.mktemp("quotes") / "a.csv"
        path.write_bytes(content.encode())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_decoding, "_BLOCK", 3)
            patch.setattr(csv_decoding, "_CHUNK", 7)
            samples, error = ends(csv(path, header=["x", "y"], types={"x": str, "y": str})())
        got = [list(sample.values()) for sample in samples]
        assert got == rows[: len(got)]
        if isinstance(error, StopIteration):
            assert got == rows
        elif "a quote is open" in str(error):
            assert len(got) == len(rows) - 1
        else:
            assert len(rows[len(got)]) != 2

    def test_a_field_longer_than_a_block_is_whole(self, tmp_path, small_blocks):
        rows = [["x" * 500, 1], ["y\n" * 300, 2], ["z", 3]]
        path = write(tmp_path / "a.csv", content_of(["text", "n"], rows))
        assert listed(csv(path)) == [{"text": text, "n": n} for text, n in rows]

    def test_lines_that_end_in_any_way_and_empty_ones(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a,b\r\n1,2\n\n\r\n3,4\r5,6")
        assert [tuple(plain(row).values()) for row in csv(path)()] == [(1, 2), (3, 4), (5, 6)]

    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("end", [True, False])
    def test_the_rows_are_the_same_for_each_kind_of_newline(
        self, tmp_path, small_blocks, newline, end
    ):
        rows = [[n, "x" * (n % 3)] for n in range(40)]
        rows[11][1] = rows[30][1] = "a\rb\nc"
        content = content_of(["n", "text"], rows, lineterminator=newline)
        for name in ("a.csv", "b.csv.gz"):
            path = write(
                tmp_path / name, content if end else content.removesuffix(newline.encode())
            )
            assert [tuple(row.values()) for row in listed(csv(path))] == [*map(tuple, rows)]

    def test_a_record_that_cannot_be_read_is_found_where_lines_end_with_cr(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a,b\r1,2\r3\r5,6\r")
        rows, error = said(path)
        assert rows == [(1, 2)]
        assert "record 1, which begins at byte 8: it has 1 fields" in error


class TestTypes:
    def test_they_are_those_that_all_values_of_all_files_have(self, tmp_path, small_blocks):
        write(tmp_path / "a.csv", content_of("xyzt", [[n, n, n, ""] for n in range(20)]))
        write(tmp_path / "b.csv", content_of("xyzt", [[n, n + 0.5, "a", ""] for n in range(20)]))
        first = next(iter(csv(tmp_path)()))
        assert first == {"x": 0, "y": 0.0, "z": "0", "t": ""}
        assert (first["x"].dtype, first["y"].dtype) == (np.int64, np.float64)

    @pytest.mark.parametrize(
        ("one", "other", "dtype"),
        [
            ("1", "1.5", "f8"),
            ("true", "False", "?"),
            ("true", "1", None),
            ("2024-05-06", "2024-05-07 08:09:10", "M8[s]"),
            ("2024-05-06", "2024-05-07 08:09:10.5", "M8[ns]"),
            ("2024-05-06T07:08:09Z", "2024-05-07T08:09:10.5Z", "M8[ns]"),
            ("2024-05-06", "2024-05-07T08:09:10.5Z", None),
            ("10:11:12", "13:14:15", "m8[s]"),
            ("10:11:12", "13", None),
            ("nan", "1", "f8"),
            ("1", str(2**64 - 1), "u8"),
            ("1", str(2**63), "u8"),
            ("-1", str(2**63), None),
            ("1", str(2**64), None),
            ("1.5", str(2**64), "f8"),
            ("inf", "1e300", "f8"),
            (str(-(2**63)), "1", "i8"),
            (str(-(2**63) - 1), "1", None),
        ],
    )
    def test_two_kinds_in_two_blocks_make_the_least_that_has_both(
        self, tmp_path, small_blocks, one, other, dtype
    ):
        for values in ([one, other], [other, one]):
            rows = [[value, "a" * 30] for value in values]
            path = write(tmp_path / "a.csv", content_of("xy", rows))
            read = [row["x"] for row in csv(path)()]
            if dtype is None:
                assert read == values
            else:
                assert {value.dtype for value in read} == {np.dtype(dtype)}

    @given(numbers=st.lists(st.integers(-(2**65), 2**65), min_size=1, max_size=9))
    def test_no_digit_of_a_whole_number_is_lost(self, numbers, tmp_path_factory):
        path = write(
            tmp_path_factory.mktemp("digits") / "a.csv", content_of("x", [[n] for n in numbers])
        )
        read = list(csv(path, "x")())
        assert [int(value) for value in read] == numbers
        fits = [kind for kind in (np.int64, np.uint64) if all(map(_fits(kind), numbers))]
        assert {type(value) for value in read} == {(fits or [str])[0]}

    def test_whole_numbers_among_fractions_are_floats_unless_text_is_asked_for(self, tmp_path):
        path = write(tmp_path / "a.csv", content_of("x", [[2**53 + 1], [0.5]]))
        assert listed(csv(path, "x")) == [float(2**53), 0.5]
        assert listed(csv(path, "x", types={"x": str})) == [str(2**53 + 1), "0.5"]

    def test_a_null_among_numbers_of_64_bits_is_filled(self, tmp_path):
        path = write(tmp_path / "a.csv", content_of("xy", [[2**63, 1], ["", 2], ["NA", 3]]))
        assert listed(csv(path, "x", {"x": 0})) == [2**63, 0, 0]

    def test_what_is_said_is_read(self, tmp_path):
        rows = [["007", 1, 2, "2024-05-06", "3.25"]]
        path = write(tmp_path / "a.csv", content_of("abcde", rows))
        types = {"a": str, "b": np.uint8, "c": "float32", "d": "datetime64[ms]"}
        types["e"] = pa.decimal128(9, 2)
        row = next(iter(csv(path, types=types)()))
        assert (row["a"], row["b"].dtype, row["c"].dtype) == ("007", np.uint8, np.float32)
        assert row["d"].dtype == np.dtype("M8[ms]")
        assert str(row["e"]) == "3.25"

    def test_bytes_need_not_be_text(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a\n\xff\n")
        assert listed(csv(path, types={"a": bytes})) == [{"a": b"\xff"}]

    def test_a_value_of_another_type_is_named_after_those_before_it(self, tmp_path, small_blocks):
        rows = [[n, "a"] for n in range(30)] + [["many", "b"], [31, "c"]]
        path = write(tmp_path / "a.csv", content_of("xy", rows))
        samples, error = ends(csv(path, types={"x": np.int16})())
        assert [sample["x"] for sample in samples] == [*range(30)]
        assert isinstance(error, ValueError)
        place = path.read_bytes().index(b"many")
        assert (
            f"'x' of {path} is read as int16, and in record 30, which begins at byte {place}"
            in (str(error))
        )

    @pytest.mark.parametrize("given", [object, "no type", np.float16, None, [1], complex])
    def test_what_is_no_type(self, tmp_path, given):
        path = write(tmp_path / "a.csv", b"x\n1\n")
        with pytest.raises(TypeError, match="cannot read column 'x' as"):
            csv(path, types={"x": given})

    def test_a_type_of_what_is_no_column(self, tmp_path):
        path = write(tmp_path / "a.csv", b"x\n1\n")
        with pytest.raises(ValueError, match="has no column 'y'; its columns are 'x'"):
            len(csv(path, types={"y": int}))
        with pytest.raises(TypeError, match="needs a dict of the types"):
            csv(path, types=int)


class TestNulls:
    def test_they_are_told_before_the_first_row(self, tmp_path, small_blocks):
        rows = [[n, "NA", n] for n in range(30)] + [["", "", "NA"]]
        path = write(tmp_path / "a.csv", content_of(["n", "text", "m"], rows))
        with pytest.raises(ValueError, match=r"column 'n' of .*a.csv is null in row 30"):
            next(iter(csv(path)()))
        *_, last = csv(path, nulls={"n": -1, "m": 7})()
        assert last == {"n": -1, "text": "", "m": 7}
        assert len(listed(csv(path, ["text"]))) == 31

    def test_a_name_that_is_no_column_is_refused(self, tmp_path):
        path = write(tmp_path / "a.csv", b"x\n1\n")
        with pytest.raises(ValueError, match="names no column that is read: these are 'x'"):
            len(csv(path, nulls={"y": 0}))


class TestColumns:
    def test_some_are_read_in_the_order_they_are_named(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a,b,c\n1,2,3\n")
        assert [list(row) for row in csv(path, ["c", "a"])()] == [["c", "a"]]
        assert listed(csv(path, "b")) == [2]
        assert next(iter(batch(csv(path, ["b"]), 1)())).columns == {"b": np.array([2])}

    def test_files_may_have_them_in_another_order(self, tmp_path):
        write(tmp_path / "0.csv", b"a,b\n1,x\n")
        write(tmp_path / "1.csv", b"b,a\ny,2\n")
        assert listed(csv(tmp_path)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]

    def test_files_of_other_columns_are_refused(self, tmp_path):
        write(tmp_path / "0.csv", b"a,b\n1,x\n")
        write(tmp_path / "1.csv", b"a,c\n1,2\n")
        with pytest.raises(ValueError, match=r"1.csv has other columns than .*'b', which only .*0"):
            len(csv(tmp_path))
        assert listed(csv(tmp_path, ["a"])) == [{"a": 1}, {"a": 1}]

    def test_names_that_are_given(self, tmp_path):
        path = write(tmp_path / "a.csv", b"1;2\n3;4")
        rows = csv(path, header=["x", "y"], delimiter=";")
        assert listed(rows) == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
        assert listed(csv(write(tmp_path / "b.csv", b""), header=["x"])) == []

    @pytest.mark.parametrize(
        ("options", "error", "says"),
        [
            ({"header": False}, TypeError, "needs header=True"),
            ({"header": "x"}, TypeError, "needs header=True"),
            ({"header": ["x", "x"]}, ValueError, "one name twice"),
            ({"delimiter": ""}, ValueError, "one character of ASCII"),
            ({"delimiter": "é"}, ValueError, "one character of ASCII"),
            ({"delimiter": '"'}, ValueError, "one character of ASCII"),
            ({"delimiter": 5}, TypeError, "one character of ASCII"),
            ({"columns": 5}, TypeError, "needs names of columns"),
        ],
    )
    def test_arguments_that_are_none(self, tmp_path, options, error, says):
        path = write(tmp_path / "a.csv", b"x\n1\n")
        with pytest.raises(error, match=says):
            csv(path, **options)


class TestBlocks:
    @pytest.fixture
    def decoded(self, monkeypatch, small_blocks):
        """The blocks that were decoded by passes."""
        from jreader.sources.tables.table_files import TableBlocks  # noqa: PLC0415  # a fixture's

        calls, original = [], TableBlocks.__call__

        def call(self, block):
            calls.append(block)
            return original(self, block)

        monkeypatch.setattr(TableBlocks, "__call__", call)
        return calls

    def numbers(self, folder, many=90):
        for number, part in enumerate(np.array_split(np.arange(many), 2)):
            write(folder / f"{number}.csv", content_of(["n"], part[:, None].tolist()))
        return csv(folder)

    def test_each_is_decoded_once_for_all_passes_where_numbers_fit_in_memory(
        self, tmp_path, decoded
    ):
        reader = self.numbers(tmp_path)
        for plan in (shuffle(reader, seed=0), shuffle(reader, seed=0, blocks=3), reader):
            assert sorted(row["n"] for row in plan()) == [*range(90)]
        assert sorted(decoded) == [*range(max(decoded) + 1)]

    def test_each_is_decoded_once_in_order_and_where_blocks_are_shuffled(
        self, tmp_path, decoded, monkeypatch
    ):
        monkeypatch.setattr("jreader.sources.tables.csv_files._KEPT", 0)
        reader = self.numbers(tmp_path)
        assert [row["n"] for row in reader()] == [*range(90)]
        many = len(decoded)
        assert many > 8
        assert sorted(decoded) == [*range(many)]
        plan = Pipeline(reader).shuffle(seed=0, blocks=3).batch(8)
        for _ in range(2):
            decoded.clear()
            rows = [*chain.from_iterable(each.columns["n"].tolist() for each in plan)]
            assert sorted(rows) == [*range(90)] != rows
            assert sorted(decoded) == [*range(many)]

    def test_a_pass_goes_on_at_any_row(self, tmp_path, small_blocks):
        check_resumes_everywhere(self.numbers(tmp_path, 20))


class TestKept:
    """What was decoded is kept in the cache folder; here also of files that are not large."""

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch, small_blocks):
        monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return tmp_path / "cache" / "jreader" / "csv"

    def test_for_the_same_question_of_the_same_file(self, tmp_path, folder):
        path = tmp_path / "a.csv"
        for time, (content, values) in enumerate([(b"n\n1\n2", [1, 2]), (b"n\n1\na", ["1", "a"])]):
            write(path, content)
            os.utime(path, ns=(0, time))
            for _ in range(2):
                assert listed(csv(path, "n")) == values
            assert listed(csv(path, "n", types={"n": str})) == list(map(str, values))
            assert len(list(folder.iterdir())) == 2

    def test_a_later_run_decodes_nothing(self, tmp_path, folder):
        rows = [[n, "x" * n, n / 2] for n in range(20)]
        path = write(tmp_path / "a.csv", content_of("abc", rows))
        first = listed(csv(path))
        times = path.stat()
        path.write_bytes(path.read_bytes().replace(b"1", b"2"))  # which nobody can notice
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert listed(csv(path)) == first

    def test_a_file_is_decoded_as_another_file_of_the_table_needs_it(self, tmp_path, folder):
        write(tmp_path / "0.csv", content_of("nt", [["007", ""], ["1", "NA"]]))
        write(tmp_path / "1.csv", content_of("nt", [["a", 5]]))
        for _ in range(2):
            assert listed(csv(tmp_path, "n")) == ["007", "1", "a"]
            assert listed(csv(tmp_path, "t", {"t": -1})) == [-1, -1, 5]
            assert listed(csv(tmp_path / "0.csv", "n")) == [7, 1]

    @pytest.mark.parametrize("kept", [0, 100, 500])
    def test_rows_and_orders_do_not_depend_on_what_fits_in_memory(
        self, tmp_path, folder, monkeypatch, kept
    ):
        """Here also where numbers turn out to be fractions, late in a file or in another one."""
        for number, last in enumerate([0.5, 7, 7]):
            values = [*range(30), last]
            write(tmp_path / f"{number}.csv", content_of("nm", [[n, -n] for n in values]))
        plans = csv(tmp_path), shuffle(csv(tmp_path, "n"), seed=0, blocks=3)
        expected = list(map(listed, plans))
        for each in folder.iterdir():
            each.unlink()
        monkeypatch.setattr("jreader.sources.tables.csv_files._KEPT", kept)
        for _ in range(2):
            plans = csv(tmp_path), shuffle(csv(tmp_path, "n"), seed=0, blocks=3)
            assert list(map(listed, plans)) == expected
            assert [plain(n) for n in start(plans[1], 40).items] == expected[1][40:]

    @pytest.mark.parametrize("second", ["larger", "of another type", "with text"])
    def test_tables_join_into_one_indexed_plan_whether_they_stay_in_memory_or_not(
        self, tmp_path, folder, monkeypatch, second
    ):
        monkeypatch.setattr("jreader.sources.tables.csv_files._KEPT", 500)
        rows = {
            "larger": [[n, -n] for n in range(100)],
            "of another type": [[n, n / 2] for n in range(9)],
            "with text": [[n, str(n)] for n in range(8)] + [[8, "eight"]],
        }[second]
        write(tmp_path / "a.csv", content_of("nm", [[n, 0] for n in range(10)]))
        write(tmp_path / "b.csv", content_of("nm", rows))
        parts = csv(tmp_path / "a.csv"), csv(tmp_path / "b.csv")
        expected = [*listed(parts[0]), *listed(parts[1])]
        plan = jreader.chain(*parts)
        assert indexed(plan).length == len(expected)
        assert listed(plan) == expected
        for dealt in (shuffle(plan, seed=0, blocks=4), shuffle(plan, seed=0)):
            once = listed(dealt)
            assert sorted(map(str, once)) == sorted(map(str, expected))
            assert [plain(sample) for sample in start(dealt, 7).items] == once[7:]
        mixed = jreader.mix(dict(zip("ab", parts, strict=True)), seed=0)
        assert indexed(mixed) is not None

    @pytest.mark.parametrize(("characters", "shrinks"), [(1, True), (5000, False)])
    def test_text_is_compressed_there_if_it_shrinks(
        self, tmp_path, folder, monkeypatch, characters, shrinks
    ):
        monkeypatch.setattr(csv_decoding, "_BLOCK", 1 << 20)
        monkeypatch.setattr(csv_decoding, "_CHUNK", 1 << 20)
        codes = np.random.default_rng(0).integers(characters, size=(40, 300)) + 0x4E00
        texts = ["".join(map(chr, row)) for row in codes]
        path = write(tmp_path / "a.csv", content_of("t", [[text] for text in texts]))
        assert listed(csv(path, "t")) == texts
        (kept,) = folder.iterdir()
        assert (kept.stat().st_size < path.stat().st_size) == shrinks

    def test_it_is_decoded_again_where_somebody_clears_the_folder(
        self, tmp_path, folder, monkeypatch
    ):
        monkeypatch.setattr("jreader.sources.tables.csv_files._KEPT", 0)
        path = write(tmp_path / "a.csv", content_of("n", [[n] for n in range(90)]))
        rows = csv(path, "n")()
        assert next(rows) == 0
        for each in folder.iterdir():
            each.unlink()
        assert list(rows) == [*range(1, 90)]

    def test_it_stays_in_memory_where_the_folder_cannot_be_written(self, tmp_path, folder):
        path = write(tmp_path / "a.csv", content_of("n", [[n] for n in range(90)]))
        (tmp_path / "cache").write_bytes(b"no folder")
        with pytest.warns(UserWarning, match=r"a.csv cannot be kept in .* stays in memory: free"):
            assert listed(csv(path, "n")) == [*range(90)]

    def test_a_damaged_file_is_looked_at_again(self, tmp_path, folder):
        path = write(tmp_path / "a.csv", b"n,t\n1,x\n2\n")
        for _ in range(2):
            assert said(path)[0] == [(1, "x")]
        times = path.stat()
        path.write_bytes(b"n,t\n1,x\n2,")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert said(path)[0] == [(1, "x"), (2, "")]


class TestFaults:
    """Good samples before the fault come first; the error names the file, and where."""

    @pytest.mark.parametrize("end", ["csv", "csv.gz"])
    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            (b"5", "it has 1 fields, and there are 2 columns"),
            (b"5,a,b", "it has 3 fields, and there are 2 columns"),
            (b'5,"a', "a quote is open in it, and never closed"),
            (b"5,\xff", "invalid UTF8 data"),
        ],
    )
    def test_a_record_that_cannot_be_read(self, tmp_path, small_blocks, bad, says, end):
        good = b"n,t\n" + b"".join(b"%d,x\n" % n for n in range(20))
        path = write(tmp_path / f"a.{end}", good + bad + b"\n6,b\n7,c\n")
        samples, error = said(path)
        assert samples == [(n, "x") for n in range(20)]
        assert f"{path} is truncated, or not a CSV file" in error
        assert f"record 20, which begins at byte {len(good)}" in error
        assert says in error

    def test_a_quote_that_is_open_for_longer_than_any_record_is_told(
        self, tmp_path, small_blocks, monkeypatch
    ):
        monkeypatch.setattr(csv_decoding, "_LONGEST", 200)
        path = write(tmp_path / "a.csv", b'n,t\n1,x\n2,"y\n' + b"3,z\n" * 5000)
        samples, error = said(path)
        assert samples == [(1, "x")]
        assert "record 1, which begins at byte 8: a quote is open in it, and never closed" in error

    def test_a_gzip_file_that_is_truncated(self, tmp_path):
        rng = np.random.default_rng(0)
        rows = rng.integers(10**9, size=(5000, 2)).tolist()
        path = write(tmp_path / "a.csv.gz", content_of("xy", rows))
        path.write_bytes(path.read_bytes()[:20_000])
        samples, error = said(path)
        assert 1000 < len(samples) < 5000
        assert samples == [tuple(row) for row in rows[: len(samples)]]
        assert f"{path} is truncated, or not a gzip file: record {len(samples):,}" in error

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "it has no header"),
            (b"\xef\xbb\xbf\n1\n", "it has no header"),
            (b"PAR1" * 9, "its first bytes are those of a Parquet file"),
            ("a,b\n1,2\n".encode("utf-16"), r"it begins with the bytes \[ff fe 61"),
            (b'a,"b\n1,2\n', "a quote is open in its header"),
            (b"a,\xff\n1,2\n", "its header"),
        ],
    )
    def test_a_file_that_is_empty_or_foreign(self, tmp_path, content, says):
        path = write(tmp_path / "a.csv", content)
        with pytest.raises(DamagedData, match=f"a.csv is truncated, or not a CSV file: {says}"):
            list(csv(path)())

    def test_a_packed_file_that_is_none(self, tmp_path):
        path = tmp_path / "a.csv.gz"
        path.write_bytes(b"a,b\n1,2\n")
        with pytest.raises(DamagedData, match=r"a.csv.gz is truncated, or not a gzip file"):
            list(csv(path)())

    def test_two_columns_of_one_name(self, tmp_path):
        path = write(tmp_path / "a.csv", b"a,a\n1,2\n")
        with pytest.raises(ValueError, match="several columns of the name 'a'"):
            list(csv(path)())

    def test_a_file_that_vanished_was_replaced_or_cut(self, tmp_path, small_blocks):
        path = write(tmp_path / "a.csv", content_of("x", [[n] for n in range(2000)]))
        reader = csv(path)
        rows = reader()
        next(rows)
        content = path.read_bytes()
        path.write_bytes(content[:100])
        assert len(list(rows)) == 1999  # as they were decoded
        with pytest.raises(DamagedData, match=r"a.csv had .* bytes, and has .* now"):
            listed(reader)
        path.write_bytes(content)
        assert len(listed(reader)) == 2000
        path.unlink()
        with pytest.raises(DamagedData, match=r"a.csv cannot be found any more"):
            listed(reader)

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="finds no file"):
            csv(tmp_path)


class TestPlans:
    def test_it_is_shown_as_it_was_written(self, tmp_path):
        path = str(write(tmp_path / "a.csv", b"x\n1\n"))
        assert repr(csv(path)) == f"csv({path!r})"
        shown = repr(csv(path, ["x"], {"x": 0}, types={"x": int}, delimiter=";", header=["x"]))
        assert shown == (
            f"csv({path!r}, columns=['x'], nulls={{'x': 0}}, types={{'x': 'int64'}}, "
            f"delimiter=';', header=['x'])"
        )

    def test_it_travels_and_its_cursor_knows_how_it_is_read(self, tmp_path):
        path = write(tmp_path / "a.csv", b"x\n1\n")
        reader = csv(path, types={"x": np.int8})
        assert listed(pickle.loads(pickle.dumps(reader))) == listed(reader)
        assert json.dumps(fingerprint(reader)) != json.dumps(fingerprint(csv(path)))

    def test_a_loader_puts_batches_of_it_on_devices(self, tmp_path):
        for number in range(2):
            write(tmp_path / f"{number}.csv", content_of("x", [[n] for n in range(8)]))
        plan = Pipeline(csv(tmp_path)).shuffle(seed=1).batch(8)
        feeds = [np.asarray(feed["x"]) for feed in plan.load()]
        assert sorted(np.concatenate(feeds).tolist()) == sorted([*range(8), *range(8)])

    def test_files_elsewhere_are_read_the_same(self, tmp_path):
        fsspec = pytest.importorskip("fsspec")
        for end in ("csv", "csv.gz"):
            write(tmp_path / f"a.{end}", b"x,y\n1,2\n3,4\n")
            with fsspec.open(f"memory://tables/a.{end}", "wb") as out:
                out.write((tmp_path / f"a.{end}").read_bytes())
            expected = listed(csv(tmp_path / f"a.{end}"))
            assert listed(csv(f"memory://tables/a.{end}")) == expected
            store = Store(tmp_path / "store", limit="10MB")
            for _ in range(2):
                assert listed(csv(f"memory://tables/a.{end}", store=store)) == expected
