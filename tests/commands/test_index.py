"""`jreader index` finds ahead what the first start of many files would have to find."""

from __future__ import annotations

import pytest

from jreader import jsonl
from jreader.__main__ import main
from jreader.commands import INDEXED
from jreader.sources.files.set_indices import BESIDE, MANY


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jreader" / "sets"


@pytest.fixture
def lines(tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"{number:03}.jsonl").write_text("1\n2\n")
    return folder


def test_an_index_beside_the_files_is_used(lines, capsys, cache):
    assert main(["index", str(lines)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{MANY} files, {2 * MANY} samples, in ")
    assert second == f"the index is in {lines / BESIDE}"
    (kept,) = (lines / BESIDE).iterdir()
    written = kept.stat().st_mtime_ns
    assert list(jsonl(lines)()) == [1, 2] * MANY
    assert kept.stat().st_mtime_ns == written
    assert not cache.exists()


def test_one_that_was_in_the_cache_folder_is_shared_from_then_on(lines, cache):
    assert main(["index", str(lines), "--cache"]) == 0
    assert len(list(cache.iterdir())) == 1
    assert main(["index", f"{lines}/*.jsonl", "--format", "jsonl"]) == 0
    assert len(list((lines / BESIDE).iterdir())) == 1


def test_names_that_a_shell_has_listed_are_taken(lines, capsys):
    assert main(["index", *map(str, sorted(lines.iterdir()))]) == 0
    assert f"{MANY} files" in capsys.readouterr().out


def test_few_files_need_none(lines, capsys):
    for path in sorted(lines.iterdir())[5:]:
        path.unlink()
    assert main(["index", str(lines)]) == 0
    assert "no index is needed: data sets have one from 256 files on" in capsys.readouterr().out
    assert not (lines / BESIDE).exists()


def test_what_has_no_known_format_is_said_in_one_line(tmp_path, capsys):
    (tmp_path / "a.text").write_text("a")
    assert main(["index", str(tmp_path / "a.text")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot infer the format" in line
    assert "--format and one of parquet, jsonl, tar, tfrecord" in line


def test_a_path_that_does_not_exist_is_said_to(tmp_path, capsys):
    assert main(["index", str(tmp_path / "nothing")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing', which does not exist" in line


def test_a_pattern_tells_the_format_by_the_files_that_fit(lines, capsys):
    assert main(["index", f"{lines}/00*"]) == 0
    assert "10 files, 20 samples" in capsys.readouterr().out


def test_a_folder_without_files_of_known_formats_is_said_with_those(tmp_path, capsys):
    assert main(["index", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "finds no file" in line
    assert ".tfrecord" in line


def test_who_asks_is_not_said_with_the_path(capsys):
    assert main(["index", "https://maria:sesame@host/a.text?sig=hidden"]) == 1
    said = capsys.readouterr().err
    assert "'https://***@host/a.text?***'" in said
    assert "sesame" not in said
    assert "hidden" not in said


def test_a_folder_in_which_nobody_writes_is_said_in_one_line(lines, capsys):
    (lines / BESIDE).write_text("a file where the folder should be")
    assert main(["index", str(lines)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(lines / BESIDE) in line


def test_a_folder_for_it_in_which_nobody_writes_is_said_and_not_taken_for_where_it_is(
    lines, capsys
):
    (lines / BESIDE).symlink_to("/proc/self")
    assert main(["index", str(lines)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(lines / BESIDE) in line


def test_a_damaged_file_is_said_in_one_line_and_the_others_are_kept(lines, capsys):
    (lines / "007.jsonl").write_bytes(b"")
    assert main(["index", str(lines)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "007.jsonl is truncated, or not" in line
    assert len(list((lines / BESIDE).iterdir())) == 1


def test_the_formats_that_are_offered_are_those_that_have_an_index(capsys):
    with pytest.raises(SystemExit):
        main(["index", "--help"])
    assert f"{{{','.join(INDEXED)}}}" in capsys.readouterr().out
