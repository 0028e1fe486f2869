"""Many files have one index together, found once, of which only what changed is found anew."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from jreader import jsonl
from jreader.errors import DamagedData
from jreader.sources.file_checks import States, damaged
from jreader.sources.files.index_cache import FileIndex, save_index
from jreader.sources.files.set_indices import BESIDE, MANY, set_index
from jreader.sources.files.stored_files import files_of

NAMES = [f"{number:03}" for number in range(30)]


@pytest.fixture(autouse=True)
def sets(cache):
    return cache.with_name("sets")


@pytest.fixture
def folder(tmp_path):
    """Files of one to three bytes."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(bytes([number] * (1 + number % 3)))
    return folder


@pytest.fixture
def found():
    """The names of the files that were looked through."""
    return []


@pytest.fixture
def index_of(found):
    def find(file):
        content = file.read(0, file.size)
        if content == b"bad":
            raise damaged(file.path, "letters", "it is bad")
        found.append(Path(file.path).name)
        return list(content)

    def index(folder, names=NAMES, *, asked="", fits=lambda _file, _index: True):
        paths = [f"{folder}/{name}" for name in names]
        seen = States(paths)
        letters = FileIndex("letters", find, fits, asked)
        given = set_index(letters, paths, seen, files_of(paths, seen))
        return [part.tolist() for part in np.split(given.values, given.begins[1:-1])]

    return index


def contents(folder, names=NAMES):
    return [list((folder / name).read_bytes()) for name in names]


def test_an_index_of_many_files_is_one_file_and_found_once(folder, found, index_of, sets):
    assert index_of(folder) == index_of(folder) == contents(folder)
    assert sorted(found) == NAMES
    assert len(list(sets.iterdir())) == 1


def test_only_a_file_that_changed_is_looked_through_again(folder, found, index_of, sets):
    index_of(folder)
    found.clear()
    (folder / "007").write_bytes(b"other")
    os.utime(folder / "011", ns=(0, 0))
    assert index_of(folder) == index_of(folder) == contents(folder)
    assert sorted(found) == ["007", "011"]
    assert len(list(sets.iterdir())) == 1


def test_of_files_that_became_more_or_fewer_only_new_ones_are_looked_through(
    folder, found, index_of
):
    index_of(folder)
    found.clear()
    (folder / "005.5").write_bytes(b"new")
    grown = sorted([*NAMES, "005.5"])
    assert index_of(folder, grown) == contents(folder, grown)
    assert index_of(folder, grown[3:9]) == contents(folder, grown[3:9])
    assert found == ["005.5"]


def test_another_order_and_another_question_have_an_index_of_their_own(folder, found, index_of):
    assert index_of(folder) == index_of(folder, NAMES[::-1])[::-1]
    assert sorted(found) == NAMES
    index_of(folder, asked="other")
    assert len(found) == 2 * len(NAMES)


def test_what_is_not_the_index_of_a_whole_file_is_found_anew_each_time(folder, found, index_of):
    for _ in range(2):
        index_of(folder, fits=lambda file, _index: file.size > 1)
    assert sorted(set(found)) == NAMES
    assert len(found) == len(NAMES) + 10


def test_an_index_of_which_any_bit_is_another_is_found_anew(folder, found, index_of, sets):
    expected = index_of(folder)
    (path,) = sets.iterdir()
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        found.clear()
        assert index_of(folder) == expected
        assert len(found) == len(NAMES)
    path.write_bytes(whole[: len(whole) // 2])
    assert index_of(folder) == expected
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "other",
    [[], [0], [-1, 2, 3], [1 << 40, 1], [1, 3, 5, 7, -1], [1, 3, 5, 7, 2, 9], [[1, 2], [3, 4]]],
    ids=str,
)
def test_one_of_another_form_is_found_anew(folder, found, index_of, sets, other):
    """As another version may have written it, and whoever else writes beside the files."""
    expected = index_of(folder)
    (path,) = sets.iterdir()
    for place in (path, path.with_name(f"{path.name.partition('-')[0]}-0.npy")):
        path.unlink()
        save_index(place, np.array(other, np.int64))
        found.clear()
        assert index_of(folder) == expected
        assert sorted(found) == NAMES


def test_an_index_whose_values_are_not_those_of_its_files_is_found_anew(
    folder, found, index_of, sets
):
    expected = index_of(folder)
    (path,) = sets.iterdir()
    written = np.load(path)
    for other in (written[:-1], np.append(written, 7)):
        save_index(path, other)
        found.clear()
        assert index_of(folder) == expected
        assert sorted(found) == NAMES


def test_a_link_that_names_another_folder_has_the_index_of_that_one(folder, found, index_of):
    """Also where all files have one time, as those of archives and images of systems may."""
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    (other / "001").write_bytes(b"go")
    link = folder.with_name("latest")
    for each in (folder, other):
        for path in each.iterdir():
            os.utime(path, ns=(1, 1))
        link.symlink_to(each)
        assert index_of(link) == contents(each)
        link.unlink()


@pytest.mark.parametrize("etags", [True, False])
def test_files_of_a_server_are_told_apart_by_what_is_asked(server, index_of, etags):
    """Two of one size and date, of which the query says which is meant, as `key=` may be."""
    names = ["get?token=a", "get?token=b"]
    server.etags, server.by_query = etags, True
    for name in names:
        server.files[name] = name[-1].encode()
        server.dates[name] = "Mon, 23 Nov 2026 08:00:00 GMT"
    assert index_of(server.url, names) == [[ord("a")], [ord("b")]]
    assert index_of(server.url, names[::-1]) == [[ord("b")], [ord("a")]]


def test_the_first_file_that_is_damaged_is_the_error_and_the_others_are_kept(
    folder, found, index_of
):
    for name in ("004", "020"):
        (folder / name).write_bytes(b"bad")
    with pytest.raises(DamagedData, match="004 is truncated, or not letters: it is bad"):
        index_of(folder)
    (folder / "004").write_bytes(b"good")
    (folder / "020").write_bytes(b"good")
    before = set(found)
    found.clear()
    assert index_of(folder) == contents(folder)
    assert before
    assert sorted(found) == sorted({*NAMES} - before)


class TestBeside:
    """An index in the folder of the files is that of all hosts that read them."""

    def test_it_is_used_if_there_is_a_folder_for_it_wherever_the_files_are_seen(
        self, folder, found, index_of, sets
    ):
        (folder / BESIDE).mkdir()
        index_of(folder)
        assert len(list((folder / BESIDE).iterdir())) == 1
        assert not sets.exists()
        moved = folder.rename(folder.with_name("mounted elsewhere"))
        assert index_of(moved) == contents(moved)
        assert sorted(found) == NAMES

    def test_where_nobody_can_write_it_is_kept_in_the_cache_folder(
        self, folder, found, index_of, sets
    ):
        (folder / BESIDE).symlink_to("/proc/self")
        assert index_of(folder) == index_of(folder) == contents(folder)
        assert sorted(found) == NAMES
        assert len(list(sets.iterdir())) == 1

    def test_one_of_the_cache_folder_that_is_newer_takes_the_place_of_an_old_one(
        self, folder, found, index_of
    ):
        (folder / BESIDE).mkdir()
        index_of(folder)
        (folder / BESIDE).rename(folder / "aside")
        (folder / "007").write_bytes(b"other")
        index_of(folder)
        (folder / "aside").rename(folder / BESIDE)
        (beside,) = (folder / BESIDE).iterdir()
        old = beside.read_bytes()
        found.clear()
        assert index_of(folder) == contents(folder)
        assert found == []
        assert beside.read_bytes() != old


def test_of_one_folder_the_indices_that_were_used_last_are_left(folder, index_of, sets):
    for many in range(1, 15):
        index_of(folder, NAMES[:many])
    assert len(list(sets.iterdir())) == 8


def test_several_that_look_at_the_same_time_are_all_right(folder, index_of, sets):
    with ThreadPoolExecutor(8) as executor:
        every = list(executor.map(lambda _: index_of(folder), range(16)))
    assert every == [contents(folder)] * 16
    assert len(list(sets.iterdir())) == 1


SCRIPT = """
import sys
from jreader import jsonl
print("ready", flush=True)
print(len(jsonl(sys.argv[1])), flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_no_broken_index(tmp_path, sets):
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(3000):
        (folder / f"{number:04}.jsonl").write_text("1\n" * (1 + number % 4))
    for moment in np.linspace(0, 0.6, 12):
        run = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, folder], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout.readline() == "ready\n"
        try:
            run.wait(moment)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
        run.communicate()
        if sets.exists() and moment > 0.3:
            for path in sets.glob("*.npy"):
                path.unlink()
    assert len(jsonl(folder)) == sum(1 + number % 4 for number in range(3000))


class TestLines:
    @pytest.fixture
    def lines(self, tmp_path):
        for number in range(MANY + 9):
            (tmp_path / f"{number:04}.jsonl").write_text(f"{number}\n" * (number % 3 + 1))
        return tmp_path

    def test_many_small_files_are_looked_through_once(self, lines, sets):
        expected = [number for number in range(MANY + 9) for _ in range(number % 3 + 1)]
        assert list(jsonl(lines)()) == expected
        (kept,) = sets.iterdir()
        written = kept.stat().st_mtime_ns
        assert list(jsonl(lines)()) == expected
        assert kept.stat().st_mtime_ns == written

    def test_a_file_that_is_written_anew_is_read_as_it_is_now(self, lines):
        before = list(jsonl(lines)())
        (lines / "0001.jsonl").write_text("7\n8\n")  # as long as it was
        os.utime(lines / "0001.jsonl", ns=(1, 1))
        assert list(jsonl(lines)()) == [before[0], 7, 8, *before[3:]]

    def test_a_file_that_changes_after_it_was_found_is_an_error_and_no_sample(self, lines):
        assert len(jsonl(lines))
        reader = jsonl(lines)  # of which no file is open
        samples = reader()
        next(samples)
        other = lines / "other"
        other.write_text("5\n" * 300)
        other.rename(lines / "0200.jsonl")
        good = list[int]()
        with pytest.raises(DamagedData, match=r"0200.jsonl had .* bytes, and has 600 now"):
            good.extend(samples)
        assert set(good) == {*range(1, 200)}
        with pytest.raises(DamagedData, match=r"0200.jsonl had"):
            reader()

    def test_few_files_are_open_at_a_time(self, lines):
        reader = jsonl(lines)
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert sum(1 for _ in reader()) == len(reader)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 257
