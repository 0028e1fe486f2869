"""`jsonl` finds lines by number, parses those that are asked for, and names those it cannot."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from files import write
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends, everything
from widths import examples

from jreader import Pipeline, batch, jsonl, shuffle
from jreader.errors import DamagedData
from jreader.readers import indexed

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def write_lines(folder, contents, *, packed):
    end = ".jsonl.gz" if packed else ".jsonl"
    return [
        write(folder / f"{number}{end}", content, packed=packed)
        for number, content in enumerate(contents)
    ]


def test_json_lines_give_values_and_leave_out_blank_lines(tmp_path):
    content = b'\xef\xbb\xbf{"a": [1, 2.5]}\n\n  \t\r\nnull\r\n""\n"gr\xc3\xbcn"\n[]'
    reader = jsonl(*write_lines(tmp_path, [content, b"\n\n", b"7\n\n"], packed=False))
    assert list(reader()) == [{"a": [1, 2.5]}, None, "", "grün", [], 7]
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@examples(40)
@given(values=st.lists(st.none() | st.integers() | st.text() | st.lists(st.booleans())))
def test_any_values_come_back_from_json_lines(tmp_path_factory, values, packed):
    content = "".join(json.dumps(value) + "\n" for value in values).encode() or b"\n"
    reader = jsonl(*write_lines(tmp_path_factory.mktemp("j"), [content, content], packed=packed))
    assert list(reader()) == values + values
    check_resumes_everywhere(reader)


@pytest.mark.parametrize(
    "bad",
    [b"{", b"1 2", b"\xff", b"\x001\x00", b"[" * 100_000],
    ids=["open", "two", "latin-1", "UTF-16", "deep"],
)
def test_a_line_that_is_not_json_is_named_by_its_byte(bad, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"1\n\n" + bad + b"\n2\n")
    items = jsonl(tmp_path / "a.jsonl")()
    assert next(items) == 1
    with pytest.raises(DamagedData, match=r"a\.jsonl is truncated.*line at byte 3 "):
        next(items)


class TestBlankLines:
    """Lines of nothing but white space are no samples, wherever they stand."""

    @examples(100)
    @given(
        lines=st.lists(
            st.sampled_from([b"", b" ", b"\t\r", b"\x0b", b"1", b" 2", b"3 \r", b'"\xc3\xbc"'])
        ),
        part=st.integers(1, 9),
    )
    def test_the_rest_is_what_python_finds(self, tmp_path_factory, lines, part):
        """In parts that are searched alone, of a few bytes."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jreader.sources.json_lines._CHUNK", part)
            path = tmp_path_factory.mktemp("lines") / "a.jsonl"
            path.write_bytes(b"\n".join(lines) or b"\n")
            assert everything(jsonl(path)) == [json.loads(line) for line in lines if line.strip()]

    def test_a_file_of_none_but_blank_lines_has_no_sample(self, tmp_path):
        paths = write_lines(tmp_path, [b"\n", b"\n \n", b"  "], packed=False)
        assert len(jsonl(*paths)) == 0
        assert everything(jsonl(*paths)) == []


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_without_a_byte_is_an_error_behind_the_good_lines(tmp_path, packed):
    (good,) = write_lines(tmp_path, [b"1\n2\n"], packed=packed)
    empty = tmp_path / ("z.jsonl.gz" if packed else "z.jsonl")
    empty.write_bytes(b"")
    says = r"z\.jsonl.* is truncated.*it is empty; leave it out of the paths"
    reader, seen = jsonl(good, empty), []
    with pytest.raises(DamagedData, match=says):
        seen.extend(reader())
    assert seen == ([1, 2] if packed else [])  # plain ones are indexed before the first line
    with pytest.raises(DamagedData, match=says):
        list(jsonl(empty)())


class TestTheIndex:
    def test_any_line_is_found_by_its_number(self, tmp_path):
        paths = write_lines(tmp_path, [b"0\n1\n\n2", b"\n", b'3\n"\xc3\xbc"\n5\n'], packed=False)
        plane = indexed(jsonl(paths))
        assert plane.length == 6
        assert plane.take(np.array([5, 0, 4, 4, 2])) == [5, 0, "\xfc", "\xfc", 2]

    def test_a_shuffle_is_global_and_a_batch_a_list(self, tmp_path):
        paths = write_lines(
            tmp_path, [b"\n".join(b"%d" % n for n in range(low, low + 50)) for low in (0, 50)],
            packed=False,
        )  # fmt: skip
        (first, *_) = batches = list(batch(shuffle(jsonl(paths), seed=0), 10)())
        assert sorted(chain.from_iterable(batches)) == [*range(100)]
        assert first != sorted(first)

    def test_it_is_kept_and_made_anew_for_a_file_that_changed(self, tmp_path, monkeypatch):
        monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        (path,) = write_lines(tmp_path, [b"1\n2\n"], packed=False)
        states = [(b"1\n2\n", [1, 2]), (b"1234", [1234]), (b"[\n]", None)]
        for time, (content, values) in enumerate(states):
            path.write_bytes(content)
            os.utime(path, ns=(0, time))
            for _ in range(2):
                if values is None:
                    with pytest.raises(DamagedData, match="byte 0"):
                        list(jsonl(path)())
                else:
                    assert everything(jsonl(path)) == values
            assert len(list((tmp_path / "cache" / "jreader" / "lines").iterdir())) == 1

    def test_a_value_over_several_lines_is_an_error_of_its_first_line(self, tmp_path):
        (path,) = write_lines(tmp_path, [b"1\n[2,\n3]\n4\n"], packed=False)
        samples, error = ends(jsonl(path)())
        assert samples == [1]
        assert "the line at byte 2 cannot be read" in str(error)

    def test_folders_patterns_and_lists_are_files_in_order(self, tmp_path):
        paths = write_lines(tmp_path, [b"0", b"1", b"2"], packed=False)
        (tmp_path / "notes.txt").write_text("no JSON")
        for given_as in (
            [tmp_path],
            [f"{tmp_path}/*.jsonl"],
            paths,
            [paths],
            [paths[:1], *paths[1:]],
        ):
            assert everything(jsonl(*given_as)) == [0, 1, 2]
        assert repr(jsonl(paths)) == f"jsonl({list(map(str, paths))!r})"

    def test_packed_files_are_streamed(self, tmp_path):
        packed = write_lines(tmp_path, [b"1\n2"], packed=True)
        reader = jsonl(*packed, *write_lines(tmp_path, [b"3"], packed=False))
        assert indexed(reader) is None
        assert reader.length() is None
        assert everything(reader) == [1, 2, 3]
        check_resumes_everywhere(reader)

    def test_a_loader_names_the_files_and_bytes_of_a_step(self, tmp_path):
        paths = write_lines(tmp_path, [b"0\n\n1\n2", b"3\n4"], packed=False)
        loader = Pipeline(jsonl(paths)).batch(5).load(sharding="host")
        assert list(map(tuple, loader.samples(0).files)) == [
            *((str(paths[0]), offset) for offset in (0, 3, 5)),
            *((str(paths[1]), offset) for offset in (0, 2)),
        ]

    @needs_proc
    def test_files_are_closed_when_the_reader_is_dropped(self, tmp_path):
        (path,) = write_lines(tmp_path, [b"1\n2\n"], packed=False)
        reader = jsonl(path)
        items = reader()
        next(items)
        del items, reader
        assert str(path) not in [str(entry.resolve()) for entry in Path("/proc/self/fd").iterdir()]
