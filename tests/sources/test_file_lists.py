"""`files`: the names of files, in order."""

from pathlib import Path

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


def test_they_are_found_by_number(folder):
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


def test_a_file_that_grows_between_passes_is_told(folder):
    found = jreader.files(f"{folder}/*.txt")
    list(found)
    (folder / "a.txt").write_text("longer than it was")
    with pytest.raises(DamagedData, match="had 5 bytes"):
        list(found)
