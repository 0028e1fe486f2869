"""`files`: the names of files, in order."""

import os
from pathlib import Path

import numpy as np
import pytest

import jreader
from jreader import DamagedData, Pipeline


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("d")
    return tmp_path


def names(plan):
    return [Path(name).name for name in plan]


def test_the_files_of_a_pattern_are_sorted(folder):
    assert names(jreader.files(f"{folder}/*.txt")) == ["a.txt", "b.txt"]
    assert names(jreader.files(f"{folder}/**/*.txt")) == ["a.txt", "b.txt", "d.txt"]


def test_a_list_keeps_its_order_and_may_hold_patterns(folder):
    given = jreader.files([folder / "c.bin", f"{folder}/*.txt"])
    assert isinstance(given, Pipeline)
    assert names(given) == ["c.bin", "a.txt", "b.txt"]
    assert all(type(name) is str for name in given)


class TestBraces:
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("{1..3}", ["1", "2", "3"]),
            ("{3..1}", ["3", "2", "1"]),
            ("{08..11}", ["08", "09", "10", "11"]),
            ("{9..011}", ["009", "010", "011"]),
            ("{0..10}", [str(n) for n in range(11)]),
            ("{b,a}", ["b", "a"]),
            ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
            ("{a,b{1,2}}", ["a", "b1", "b2"]),
            ("{a,b}*", ["a", "a0", "b"]),
        ],
    )
    def test_they_stand_for_files_in_the_order_in_which_they_are_written(
        self, tmp_path, written, meant
    ):
        some = meant if "*" in written else [*meant, "c", "12"]
        for name in some:
            (tmp_path / f"x-{name}.tar").write_bytes(b"")
        assert names(jreader.files(f"{tmp_path}/x-{written}.tar")) == [f"x-{m}.tar" for m in meant]

    def test_a_file_that_is_missing_is_named(self, folder):
        with pytest.raises(FileNotFoundError, match=r"d\.txt', which does not exist"):
            jreader.files(f"{folder}/{{a,d}}.txt")

    def test_a_file_whose_name_has_them_is_meant_itself(self, folder):
        (folder / "{a,b}.txt").write_text("braces")
        assert names(jreader.files(f"{folder}/{{a,b}}.txt")) == ["{a,b}.txt"]

    def test_they_stand_for_far_files_and_files_of_tokens_too(self, tmp_path):
        fsspec = pytest.importorskip("fsspec")
        for n in range(2):
            fsspec.filesystem("memory").pipe(f"/braces/{n}.txt", b"%d" % n)
            np.array([n], np.uint16).tofile(tmp_path / f"{n}.bin")
        assert list(jreader.jsonl("memory://braces/{0..1}.txt")()) == [0, 1]
        read = jreader.tokens(f"{tmp_path}/{{1..0}}.bin")()
        assert [document.tolist() for document in read] == [[1], [0]]


def test_file_names_are_found_by_number(folder):
    found = jreader.files(f"{folder}/*.txt")
    assert len(found) == 2
    assert names([found[1]]) == ["b.txt"]
    assert sorted(names(found.shuffle(seed=0))) == ["a.txt", "b.txt"]
    assert [len(part) for part in found.batch(2)] == [2]


def test_many_are_shown_by_the_first_and_the_last(folder):
    every = [folder / "a.txt", *[folder / "b.txt"] * 998, folder / "c.bin"]
    first, last = (repr(str(folder / name)) for name in ("a.txt", "c.bin"))
    assert repr(jreader.files(every)) == f"Pipeline(files([{first}, ..., {last}]))"


@pytest.mark.parametrize("given", ["no.txt", "no/*.txt", []])
def test_what_is_not_there_is_refused(given):
    with pytest.raises((FileNotFoundError, TypeError), match=r"files\(paths\)"):
        jreader.files(given)


def test_a_folder_is_no_file(folder):
    with pytest.raises(FileNotFoundError, match="is not a file"):
        jreader.files(folder)


def test_a_name_that_looks_like_a_pattern_is_a_name_where_there_is_such_a_file(folder):
    (folder / "a[1].txt").write_text("")
    assert names(jreader.files(folder / "a[1].txt")) == ["a[1].txt"]


@pytest.mark.parametrize("parts", [None, 2])
def test_a_pass_looks_at_each_file_once_for_any_number_of_lanes(tmp_path, monkeypatch, parts):
    for number in range(64):
        (tmp_path / f"{number:02}.txt").write_text("line")
    looks, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: looks.append(path) or stat(path, *a, **k))
    plan = jreader.files(f"{tmp_path}/*.txt", parts).shuffle(seed=0)

    def opened(file):
        yield file

    def looks_of(lanes):
        looks.clear()
        assert len(list(plan.read(opened, lanes=lanes))) == 64 * (parts or 1)
        return len([path for path in looks if str(path).endswith(".txt")])

    looks_of(64)  # the first one also looks at all of them, to know their sizes
    assert looks_of(64) == looks_of(1) == 64 * (parts or 1)


def test_a_file_that_grows_between_passes_is_told(folder):
    found = jreader.files(f"{folder}/*.txt")
    list(found)
    (folder / "a.txt").write_text("longer than it was")
    with pytest.raises(DamagedData, match="had 5 bytes"):
        list(found)
