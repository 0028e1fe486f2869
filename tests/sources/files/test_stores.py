"""A store gives the same bytes, fetches a block once, and loses or leaves nothing when it fails."""

from __future__ import annotations

import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE, program
from widths import examples

import jreader
from jreader import Store
from jreader.errors import DamagedData
from jreader.readers.fingerprints import fingerprint
from jreader.sources.files import open_file
from jreader.sources.files.block_store import Permit

pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("quick")

CONTENT = random.Random(0).randbytes(100_000)
BLOCK = 1000  # so there are 100


@pytest.fixture
def server(server):
    server.files["data"] = CONTENT
    return server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def opened(server, folder):
    def open_it(limit=1 << 30, name="data"):
        return open_file(f"{server.url}/{name}", Store(folder, limit, block=BLOCK))

    return open_it


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("limit", [1 << 30, 20_000, 1100])
def test_any_range_is_what_the_file_has_there(opened, folder, limit):
    file = opened(limit)

    @examples(60)
    @given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 5000)), max_size=8))
    def law(asked):
        asked = [(low, min(size, len(CONTENT) - low)) for low, size in asked]
        expected = [CONTENT[low : low + size] for low, size in asked]
        assert [file.read(*each) for each in asked] == expected
        assert list(file.read_many(asked)) == expected
        assert not folder.exists() or on_disk(folder) <= limit

    law()


@pytest.mark.parametrize("limit", [1 << 30, 20_000])
def test_any_range_is_what_the_file_has_there_where_threads_read_ahead(opened, monkeypatch, limit):
    monkeypatch.setattr("jreader.sources.files.stored_files._CHUNK", 3000)
    file = opened(limit)

    @examples(30)
    @given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 20_000)), max_size=8))
    def law(asked):
        asked = [(low, min(size, len(CONTENT) - low)) for low, size in asked]
        expected = [CONTENT[low : low + size] for low, size in asked]
        assert [file.read(*each) for each in asked] == expected
        assert list(file.read_many(asked)) == expected

    law()
    assert on_disk(file.store.folder) <= limit


def test_what_was_read_before_a_range_that_fails_comes_first(opened, server, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.stored_files._CHUNK", 3000)
    server.mood = lambda method, _name: (
        503 if method == "GET" and "50000-" in server.asked[-1][2] else "good"
    )
    read = opened().read_many([(low, 1000) for low in range(41_000, 100_000, 1000)])
    for low in range(41_000, 50_000, 1000):
        assert next(read) == CONTENT[low : low + 1000]
    with pytest.raises(OSError, match=r"bytes 50,000 to 53,000 of .* could not be read"):
        next(read)
    ended()


def test_a_read_that_ends_early_writes_nothing_more(opened, server, folder, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.stored_files._CHUNK", 1000)
    read = opened().read_many([(low, 1000) for low in range(0, 100_000, 1000)])
    assert next(read) == CONTENT[:1000]
    read.close()
    shutil.rmtree(folder)  # which fails where a block comes in between
    ended()
    assert not folder.exists()


@pytest.mark.parametrize("stopped", [False, True])
def test_what_comes_after_the_stop_is_not_kept(stopped):
    keeping, kept = Permit(), []
    if stopped:
        keeping.stop()
    keeping(lambda: kept.append("a block"))
    assert kept == ([] if stopped else ["a block"])


def ended():
    """Waits for the threads that read ahead."""
    for thread in threading.enumerate():
        if thread.name == "jreader store":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_block_is_fetched_once_by_this_and_later_processes(opened, server):
    for _ in range(2):
        file = opened()
        for _ in range(2):
            assert file.read(500, 3000) == CONTENT[500:3500]
    assert server.tries() == {("data", "bytes=0-3999"): 1}
    assert (file.store.hits, file.store.misses, file.store.fetched) == (8, 0, 0)


def test_neighbours_are_asked_for_at_once_up_to_a_size(opened, server, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.stored_files._REQUEST", 3000)
    file = opened()
    file.read(5000, 1)
    assert file.read(500, 9000) == CONTENT[500:9500]
    spans = [(5000, 5999), (0, 2999), (3000, 4999), (6000, 8999), (9000, 9999)]
    assert server.tries() == {("data", f"bytes={low}-{high}"): 1 for low, high in spans}
    assert file.store.misses == 10


def test_blocks_before_the_one_that_fails_are_kept(opened, server):
    file = opened()
    server.mood = lambda method, _name: (
        503 if method == "GET" and server.asked[-1][2] == "bytes=50000-50999" else "good"
    )
    ranges = [(low, 10) for low in (0, 10_000, 20_000, 50_000)]
    with pytest.raises(OSError, match=r"bytes 50,000 to 51,000 of .* could not be read in 6 tries"):
        list(file.read_many(ranges))
    server.mood = lambda _method, _name: "good"
    assert list(file.read_many(ranges)) == [CONTENT[low : low + 10] for low, _ in ranges]
    assert (file.store.hits, file.store.misses) == (3, 4)


def test_threads_that_want_one_block_fetch_it_once(opened, server):
    file, here = opened(), threading.Barrier(8)

    def read(number):
        here.wait()
        return file.read(100 * number, 100)

    with ThreadPoolExecutor(8) as executor:
        assert b"".join(executor.map(read, range(8))) == CONTENT[:800]
    assert server.tries() == {("data", "bytes=0-999"): 1}


def test_a_block_that_was_kept_since_it_was_looked_for_is_not_fetched(opened, server):
    file = opened()
    assert file.store.piece(file, 0, 0, 100) is None
    assert file.read(500, 10) == CONTENT[500:510]  # as another thread may meanwhile
    assert file.store.fetch(file, [0], lambda keep: keep()) == {0: CONTENT[:BLOCK]}
    assert server.tries() == {("data", "bytes=0-999"): 1}


def test_a_range_beyond_the_end_is_an_error_as_without_a_store(opened):
    with pytest.raises(ValueError, match=r"were asked of .*data, which has 100,000 bytes"):
        opened().read(99_999, 2)


def test_a_file_that_changed_has_other_blocks(opened, server):
    assert opened().read(0, 5000) == CONTENT[:5000]
    server.files["data"] = CONTENT[::-1]
    assert opened().read(0, 5000) == CONTENT[::-1][:5000]


def test_a_file_that_changed_while_it_is_read_is_an_error(opened, server):
    file = opened()
    file.read(0, 10)
    server.files["data"] = CONTENT[::-1]
    with pytest.raises(DamagedData, match="data was replaced by another file"):
        file.read(5000, 10)
    assert file.read(0, 10) == CONTENT[:10]


@pytest.mark.parametrize(
    "broken",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: whole[:50] + bytes([whole[50] ^ 1]) + whole[51:],
        lambda whole: bytes(len(whole)),
        lambda whole: b"something else",
    ],
)
def test_a_block_that_is_not_whole_is_fetched_again(opened, folder, server, broken):
    opened().read(0, 10)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(broken(whole))
    assert opened().read(0, 10) == CONTENT[:10]
    assert path.read_bytes() == whole
    assert len(server.tries()) == 1


def test_the_error_of_the_far_file_is_raised_and_nothing_is_kept(opened, folder, server):
    file = opened()
    server.mood = lambda method, _name: 503 if method == "GET" else "good"
    with pytest.raises(OSError, match="could not be read in 6 tries"):
        file.read(0, 10)
    server.mood = lambda _method, _name: "good"
    assert file.read(0, 10) == CONTENT[:10]


class TestTheLimit:
    def test_is_kept_while_all_is_read(self, opened, folder):
        file = opened(limit=30_000)
        for number in random.Random(2).sample(range(100), 100):
            assert file.read(1000 * number, 1000) == CONTENT[1000 * number : 1000 * (number + 1)]
            assert on_disk(folder) <= 30_000
        assert on_disk(folder) > 28_000

    def test_a_known_order_keeps_what_comes_first(self, opened, folder):
        file = opened(limit=30_000)
        orders = [random.Random(seed).sample(range(100), 100) for seed in range(4)]
        for number, order in enumerate(orders):
            file.announce([(1000 * block, 1000) for block in order])
            file.store.hits = 0
            for block in order:
                file.read(1000 * block, 1000)
            assert file.store.hits == (29 if number else 0)  # as many as there is room for

    def test_blocks_of_other_files_give_way(self, opened, server, folder):
        server.files["other"] = CONTENT[::-1]
        opened(limit=30_000).read(0, 30_000)
        other = opened(limit=30_000, name="other")
        for low in range(0, 60_000, 1000):
            other.read(low, 1000)
        mine = {path.name for path in folder.iterdir()}
        assert len(mine) == 29
        assert {name.partition("-")[0] for name in mine} == {other.name_of(0).partition("-")[0]}

    def test_a_lower_one_of_a_later_run_is_kept_too(self, opened, folder):
        opened(limit=50_000).read(0, 50_000)
        opened(limit=10_000).read(60_000, 1000)
        assert on_disk(folder) <= 10_000

    def test_files_that_are_no_blocks_stay(self, opened, folder):
        folder.mkdir()
        foreign = {
            "notes.txt": b"mine",
            "a.block": bytes(5000),
            f"{'0' * 24}-7.block": b"of this name, but none",
            f"{'1' * 24}-7.block": bytes(30_000),
            ".hidden": b"x",
        }
        for name, content in foreign.items():
            (folder / name).write_bytes(content)
        (folder / "folder").mkdir()
        file = opened(limit=20_000)
        for low in range(0, 100_000, 1000):
            assert file.read(low, 1000) == CONTENT[low : low + 1000]
        for name, content in foreign.items():
            assert (folder / name).read_bytes() == content
        assert (folder / "folder").is_dir()

    def test_what_was_left_half_written_long_ago_is_deleted(self, opened, folder):
        folder.mkdir()
        old, new = (folder / f".{'0' * 24}-7.block.{digit * 16}" for digit in "ab")
        for path in (old, new):
            path.write_bytes(b"half")
        os.utime(old, (0, 0))
        opened().read(0, 10)
        assert not old.exists()
        assert new.exists()


class TestArguments:
    @pytest.mark.parametrize(
        ("limit", "size"),
        [("200GB", 200 * 10**9), ("1.5 TB", 15 * 10**11), ("64MiB", 1 << 26), (10**9, 10**9)],
    )
    def test_sizes_are_numbers_or_texts(self, tmp_path, limit, size):
        assert Store(tmp_path, limit).limit == size

    @pytest.mark.parametrize("limit", ["", "lots", "-3GB", "1.2.3GB", "5 XB"])
    def test_texts_that_are_no_sizes_are_refused(self, tmp_path, limit):
        with pytest.raises(
            ValueError, match=r"needs a number of bytes, or a string such as '200GB'"
        ):
            Store(tmp_path, limit)

    @pytest.mark.parametrize(
        ("arguments", "kind", "said"),
        [
            ((3, "1GB"), TypeError, "needs a folder"),
            (("x", None), TypeError, "limit of Store needs a whole number"),
            (("x", "1MB"), ValueError, "has no room for one block, of 4,194,304 bytes"),
            ((__file__, "1GB"), NotADirectoryError, "needs a folder, not a file"),
        ],
    )
    def test_others_too(self, arguments, kind, said):
        with pytest.raises(kind, match=said):
            Store(*arguments)

    def test_readers_take_nothing_else_for_a_store(self, tmp_path):
        (tmp_path / "a.jsonl").write_text("1")
        with pytest.raises(TypeError, match=r"needs as store= a Store\(folder, limit='200GB'\)"):
            jreader.jsonl(tmp_path / "a.jsonl", store=str(tmp_path))


def test_a_store_travels_without_what_it_has_seen(opened):
    file = opened()
    file.read(0, 5000)
    copy = pickle.loads(pickle.dumps(file.store))
    assert (copy.folder, copy.limit, copy.block) == (file.store.folder, 1 << 30, BLOCK)
    assert copy.misses == 0


def test_a_reader_with_a_store_gives_the_same_samples_and_goes_on_without(server, tmp_path):
    lines = "".join(f'{{"n": {number}}}\n' for number in range(200))
    server.files["a.jsonl"] = lines.encode()
    url = f"{server.url}/a.jsonl"
    kept = jreader.shuffle(jreader.jsonl(url, store=Store(tmp_path, "1MB", block="64kB")), seed=3)
    bare = jreader.shuffle(jreader.jsonl(url), seed=3)
    every = [sample["n"] for sample in bare()]
    assert [sample["n"] for sample in kept()] == every
    assert [each["n"] for each in jreader.start(kept, 70).items] == every[70:]
    assert kept.reader.store.fetched == len(lines)
    assert fingerprint(kept) == fingerprint(bare)


def test_local_files_are_not_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    store = Store(tmp_path / "store")
    assert list(jreader.jsonl(tmp_path / "a.jsonl", store=store)()) == [1, 2]
    assert not (tmp_path / "store").exists()


@contextmanager
def largest_file(size):
    """Every file of this process ends there, as on a disk that is full."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_said_once_and_the_run_goes_on(opened, folder):
    file = opened()
    file.read(0, 2000)
    with largest_file(500), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            for low in range(0, 100_000, 1000):
                assert file.read(low, 1000) == CONTENT[low : low + 1000]
    (said,) = (str(each.message) for each in told)
    assert "cannot keep what was fetched" in said
    assert "File too large" in said
    assert len(list(folder.iterdir())) == 2  # nothing half written is left


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_is_really_full_likewise(server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    try:
        file = open_file(f"{server.url}/data", Store(disk / "store", "1GB", block=8000))
        with pytest.warns(UserWarning, match="No space left on device"):
            assert file.read(0, 100_000) == CONTENT
        assert file.read(0, 100_000) == CONTENT
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_made_is_said_and_the_run_goes_on(server, tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "store", "1GB", block=BLOCK)
    file = open_file(f"{server.url}/data", store)
    with pytest.warns(UserWarning, match="cannot keep what was fetched"):
        assert file.read(0, 5000) == CONTENT[:5000]


READS = """
    import os, random, sys
    from jreader import Store
    from jreader.sources.files import open_file
    def check(url, folder, seed, limit, passes):
        content = random.Random(0).randbytes(100_000)
        file = open_file(url, Store(folder, limit, block=1000))
        drawn = random.Random(seed)
        for _ in range(passes):
            low = drawn.randrange(100_000)
            size = min(drawn.randrange(3000), 100_000 - low)
            assert file.read(low, size) == content[low:low + size], (low, size)
            print("read", flush=True)
"""


def reads(server, folder, seed, limit, passes):
    return f"check({f'{server.url}/data'!r}, {str(folder)!r}, {seed}, {limit}, {passes})"


def test_processes_share_a_store(server, folder):
    """Each may look at the other's blocks only now and then: 6 are a sixteenth of the limit."""
    parts = [READS, reads(server, folder, 1, 50_000, 300)]
    other = [READS, reads(server, folder, 2, 50_000, 300)]
    with program(*parts) as first, program(*other) as second:
        for _ in range(300):
            assert first.says() == second.says() == "read"
        assert first.ends()[0] == second.ends()[0] == 0
    assert on_disk(folder) < 50_000 + 2 * 6 * 1100
    assert len(server.asked) < 2 * 300 * 3


@pytest.mark.slow
def test_processes_that_are_killed_leave_no_wrong_byte_and_no_lock(server, folder):
    drawn = random.Random(5)
    for kill in range(20):
        with program(READS, reads(server, folder, kill, 30_000, 10**6)) as running:
            for _ in range(drawn.randrange(1, 60)):
                assert running.says() == "read"
            running.process.kill()
            assert running.process.wait(PATIENCE) == -signal.SIGKILL
        file = open_file(f"{server.url}/data", Store(folder, 1 << 30, block=BLOCK))
        assert file.read(0, 100_000) == CONTENT
        for path in folder.iterdir():
            if drawn.random() < 0.5 and not path.name.startswith("."):
                path.unlink()  # so that the next one writes again
