"""Indices of files are found once, kept for each state of a file, and never trusted when broken."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from jreader.errors import DamagedData
from jreader.sources.file_checks import damaged
from jreader.sources.files import kept, open_file
from jreader.sources.files.index_cache import FileIndex, in_threads, save_index


@pytest.fixture(autouse=True)
def cache(cache):
    return cache.with_name("letters")


@pytest.fixture
def found():
    """The names of the files whose index was found, not taken from the cache."""
    return []


@pytest.fixture
def index_of(tmp_path, found):
    def find(file):
        found.append(os.path.basename(file.path))  # noqa: PTH119  # a str
        content = file.read(0, file.size)
        return [[place, letter] for place, letter in enumerate(content)]

    def indices(*names, asked="", fits=lambda file, index: len(index) == file.size):
        files = [open_file(str(tmp_path / name)) for name in names]
        letters = FileIndex("letters", find, fits, asked)
        return [each.tolist() for each in kept(letters, files)]

    return indices


def test_an_index_is_found_once(tmp_path, found, index_of, cache):
    (tmp_path / "a").write_bytes(b"\1\2")
    assert index_of("a") == index_of("a") == [[[0, 1], [1, 2]]]
    assert found == ["a"]
    assert len(list(cache.iterdir())) == 1


def test_only_what_is_missing_is_found(tmp_path, found, index_of):
    for number in range(20):
        (tmp_path / str(number)).write_bytes(bytes([number]))
    index_of("3", "7")
    found.clear()
    assert index_of(*map(str, range(20))) == [[[0, number]] for number in range(20)]
    assert sorted(map(int, found)) == [number for number in range(20) if number not in (3, 7)]


def test_each_question_has_its_own(tmp_path, found, index_of, cache):
    (tmp_path / "a").write_bytes(b"\1")
    for asked in ("x", "y", "x"):
        index_of("a", asked=asked)
    assert len(found) == len(list(cache.iterdir())) == 2


def test_a_file_that_changed_has_another_in_place_of_the_old_one(tmp_path, found, index_of, cache):
    (tmp_path / "a").write_bytes(b"\1")
    index_of("a")
    (tmp_path / "a").write_bytes(b"\2")
    os.utime(tmp_path / "a", ns=(0, 0))
    assert index_of("a") == [[[0, 2]]]
    assert len(list(cache.iterdir())) == 1


def test_a_file_that_moved_has_another(tmp_path, found, index_of):
    (tmp_path / "a").write_bytes(b"\1")
    index_of("a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert index_of("b") == [[[0, 1]]]
    assert found == ["a", "b"]


@pytest.mark.parametrize("broken", [b"", b"\x93NUMPY", b"no index", bytes(500)], ids=range(4))
def test_one_that_is_not_whole_is_found_anew(tmp_path, found, index_of, cache, broken):
    (tmp_path / "a").write_bytes(b"\1\2")
    index_of("a")
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    for content in (broken, whole[:-8]):
        path.write_bytes(content)
        assert index_of("a") == [[[0, 1], [1, 2]]]
        assert path.read_bytes() == whole


@pytest.mark.parametrize("files", [["a"], ["a", "b"]], ids=["mapped", "read"])
def test_one_of_which_any_bit_is_another_is_found_anew(tmp_path, found, index_of, cache, files):
    for name in files:
        (tmp_path / name).write_bytes(b"\1\2\3")
    expected = index_of(*files)
    path, *_ = cache.iterdir()
    whole = path.read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        found.clear()
        assert index_of(*files) == expected
        assert len(found) == 1
    assert path.read_bytes() == whole


def test_one_that_does_not_fit_the_file_is_found_anew(tmp_path, found, index_of, cache):
    (tmp_path / "a").write_bytes(b"\1\2")
    index_of("a")
    (path,) = cache.iterdir()
    for wrong in (np.zeros((1, 2), np.int64), np.zeros((2, 2), np.float32), np.int64(7)):
        save_index(path, wrong)
        assert index_of("a") == [[[0, 1], [1, 2]]]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, found, index_of, cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    (tmp_path / "a").write_bytes(b"\1")
    assert index_of("a") == index_of("a") == [[[0, 1]]]
    assert found == ["a", "a"]


def test_small_files_are_read_again_and_have_no_indices(
    tmp_path, found, index_of, cache, monkeypatch
):
    monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 2 * 128)
    (tmp_path / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(b"1" * 255)
    for _ in range(2):
        index_of("small", "large")
    assert found.count("small") == 2
    assert found.count("large") == len(list(cache.iterdir())) == 1


def test_the_folder_is_listed_once_for_many_files(tmp_path, index_of, cache, monkeypatch):
    listings = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listings.append(str(path)) or scandir(path))
    names = [str(number) for number in range(60)]
    for name in names:
        (tmp_path / name).write_bytes(b"12")
    for _ in range(2):
        index_of(*names)
    assert listings == [str(cache)]


def test_indices_that_are_not_read_for_months_are_removed(tmp_path, index_of, cache):
    for name in ("old", "read", "new"):
        (tmp_path / name).write_bytes(b"12")
    index_of("old")
    (old,) = cache.iterdir()
    index_of("read")
    (read,) = {*cache.iterdir()} - {old}
    months = time.time() - 100 * 24 * 3600
    os.utime(old, (months, months))
    os.utime(read, (time.time(), months))
    index_of("new")
    assert read in cache.iterdir()
    assert old not in cache.iterdir()
    assert len(list(cache.iterdir())) == 2


def test_what_is_soon_found_is_not_kept(tmp_path, found, index_of, cache, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 2)
    (tmp_path / "a").write_bytes(b"\1")
    index_of("a")
    assert not cache.exists()


def test_of_a_damaged_file_nothing_is_kept(tmp_path, cache):
    def find(file):
        raise damaged(file.path, "letters", f"it has {file.size} bytes")

    for number in range(30):
        (tmp_path / str(number)).write_bytes(b"\1" * number)
    files = [open_file(str(tmp_path / str(number))) for number in range(30)]
    with pytest.raises(DamagedData, match="0 is truncated, or not letters: it has 0 bytes"):
        kept(FileIndex("letters", find), files)
    assert not cache.exists()


def test_threads_share_the_parts_of_one_file_but_not_those_of_many():
    def named(_task):
        return threading.current_thread().name

    names = in_threads(named, range(4))
    assert all(name.startswith("jreader indices") for name in names)
    inner = in_threads(lambda task: (named(task), in_threads(named, range(4))), range(2))
    assert all(set(each) == {outer} for outer, each in inner)
