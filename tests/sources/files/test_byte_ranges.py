"""Files are read by ranges, from many threads, with few of them open, and changes are told."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from widths import examples

from jreader.errors import DamagedData
from jreader.sources.files import open_file

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def opened_files():
    return [str(entry.resolve()) for entry in Path("/proc/self/fd").iterdir()]


@examples(60)
@given(content=st.binary(max_size=50), offset=st.integers(0, 50), size=st.integers(0, 50))
@example(content=b"", offset=1, size=0)
def test_a_range_is_that_slice_of_the_file(tmp_path_factory, content, offset, size):
    path = tmp_path_factory.mktemp("ranges") / "a"
    path.write_bytes(content)
    file = open_file(str(path))
    assert file.size == len(content)
    if offset + size <= len(content):
        assert file.read(offset, size) == content[offset : offset + size]
    else:
        with pytest.raises(ValueError, match=f"which has {len(content)} bytes"):
            file.read(offset, size)


@needs_proc
def test_256_of_many_files_are_open_and_those_that_are_dropped_are_closed(tmp_path):
    for number in range(300):
        (tmp_path / str(number)).write_bytes(bytes([number % 256]))
    files = [open_file(str(tmp_path / str(number))) for number in range(300)]

    def opened():
        return sum(path.startswith(str(tmp_path)) for path in opened_files())

    assert opened() == 0
    for _ in range(2):
        assert [file.read(0, 1)[0] for file in files] == [number % 256 for number in range(300)]
        assert opened() == 256
    del files
    assert opened() == 0


def test_threads_read_many_files_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.byte_ranges._OPEN", 3)
    for number in range(20):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 100)
    files = [open_file(str(tmp_path / str(number))) for number in range(20)]
    with ThreadPoolExecutor(8) as executor:
        tasks = [number % 20 for number in range(2000)]
        given = list(executor.map(lambda number: files[number].read(number, 50), tasks))
    assert given == [bytes([number]) * 50 for number in tasks]


def test_a_state_has_a_stamp_of_its_own(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    first = open_file(str(path)).stamp
    assert open_file(str(path)).stamp == first
    os.utime(path, ns=(0, 5))
    second = open_file(str(path)).stamp
    path.write_bytes(b"abcd")
    os.utime(path, ns=(0, 5))
    assert len({first, second, open_file(str(path)).stamp}) == 3


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"other bytes"[: path.stat().st_size])
    os.utime(other, ns=(0, 0))
    other.replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(b"01"), "had 10 bytes, and has 2 now"),
        (lambda path: path.unlink(), "cannot be found any more"),
        (replaced, "was replaced by another file"),
    ],
    ids=["cut", "gone", "replaced"],
)
def test_a_file_that_changed_before_it_was_opened_is_an_error(tmp_path, change, said):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = open_file(str(path))
    change(path)
    with pytest.raises(DamagedData, match=rf"a {said}"):
        file.read(0, 5)


def test_a_file_that_is_cut_while_it_is_open_is_an_error(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = open_file(str(path))
    assert file.read(0, 2) == b"01"
    os.truncate(path, 4)
    assert file.read(0, 4) == b"0123"
    with pytest.raises(DamagedData, match="a had 10 bytes, and has 4 now"):
        file.read(2, 4)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DamagedData, match="none cannot be found"):
        open_file(str(tmp_path / "none"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_reads_files_that_threads_were_opening(tmp_path, python):
    for number in range(40):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 100)
    script = """
    import os, signal, sys, threading
    from jreader.sources.files import byte_ranges, open_file

    byte_ranges._OPEN = 3
    files = [open_file(f"{sys.argv[-1]}/{number}") for number in range(40)]
    over = threading.Event()

    def read():
        while not over.is_set():
            for file in files:
                file.read(0, 1)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        if not (child := os.fork()):
            signal.alarm(60)
            os._exit(any(file.read(0, 1)[0] != number for number, file in enumerate(files)))
        assert os.waitpid(child, 0)[1] == 0
    over.set()
    """
    python(script.replace("sys.argv[-1]", repr(str(tmp_path))))
