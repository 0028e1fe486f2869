"""What is read of a mapped file that is not in memory: the rows, and not what lies around them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from jreader import Pipeline, arrays, arrow, mix, npy, ragged, tokens

ROWS, WIDTH, ASKED = 1 << 15, 1 << 10, 500
COUNTS = Path("/proc/self/io")


def read_bytes():
    return int(re.search(r"^read_bytes: (\d+)$", COUNTS.read_text(), re.MULTILINE)[1])


def forgotten(path):
    """Has the kernel forget the file; skips where that cannot be, as in memory."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = read_bytes()
        os.pread(file.fileno(), 1 << 12, ROWS * WIDTH * 5 // 11)
        if read_bytes() == before:
            pytest.skip("the file is not read from a disk")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def counted():
    if not COUNTS.exists() or not hasattr(os, "posix_fadvise"):
        pytest.skip("what is read is not counted here")


@pytest.fixture(params=["npy", "arrow"])
def rows(request, tmp_path, counted):
    values = np.zeros((ROWS, WIDTH), np.uint8)
    values[:, 0] = np.arange(ROWS) % 251
    path = tmp_path / f"x.{request.param}"
    if request.param == "npy":
        np.save(path, values)
        return path, npy(path)
    pa = pytest.importorskip("pyarrow")
    column = pa.FixedSizeListArray.from_arrays(values.reshape(-1), WIDTH)
    table = pa.table({"x": column})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS // 4)
    return path, arrow(path, "x")


@pytest.mark.parametrize("size", [1, 50])
def test_of_a_shuffled_file_little_more_than_the_rows_is_read(rows, size):
    path, reader = rows
    plan = Pipeline(reader).shuffle(seed=0)
    batches = iter(plan.batch(size) if size > 1 else plan)
    forgotten(path)
    before = read_bytes()
    for _ in range(ASKED // size):
        np.array(next(batches).columns if size > 1 else next(batches)).sum()
    assert read_bytes() - before < 3 * ASKED * 4096 < ROWS * WIDTH / 5


@pytest.fixture
def documents(tmp_path, counted):
    path = tmp_path / "x.bin"
    np.ones(ROWS * WIDTH // 2, np.uint16).tofile(path)
    offsets = np.arange(0, ROWS * WIDTH // 2 + 1, WIDTH // 2)
    return path, offsets


def windows_of(path):
    return Pipeline(tokens(path)).windows(WIDTH // 2)


def mapped(path, offsets):
    return Pipeline(ragged(np.memmap(path, np.uint16, mode="r"), offsets))


def mixed(path):
    two = [windows_of(path).shuffle(seed=seed) for seed in (0, 1)]
    return Pipeline(mix(two, weights=[1, 1], seed=0))


PLANS = {
    "documents": lambda path, offsets: mapped(path, offsets).shuffle(seed=0),
    "windows of documents": lambda path, offsets: (
        mapped(path, offsets).windows(WIDTH // 2).shuffle(seed=0)
    ),
    "tokens": lambda path, _: windows_of(path).shuffle(seed=0),
    "mix": lambda path, _: mixed(path),
}


@pytest.mark.parametrize("name", PLANS)
def test_of_shuffled_documents_little_more_than_they_are_is_read(documents, name):
    path, offsets = documents
    samples = iter(PLANS[name](path, offsets))
    forgotten(path)
    before = read_bytes()
    assert [int(next(samples).sum()) for _ in range(ASKED)] == [WIDTH // 2] * ASKED
    assert read_bytes() - before < 3 * ASKED * 4096 < ROWS * WIDTH / 5


def test_of_tokens_in_order_more_is_read_ahead_after_a_shuffled_pass(documents):
    path, _ = documents
    plan = windows_of(path)
    shuffled = iter(plan.shuffle(seed=0))
    assert len([next(shuffled) for _ in range(ASKED)]) == ASKED
    forgotten(path)
    samples, jumps = iter(plan), 0
    for _ in range(ASKED):
        now = read_bytes()
        next(samples).sum()
        jumps += read_bytes() > now
    assert jumps < ASKED // 20


def test_of_a_file_in_order_more_is_read_ahead(rows):
    path, reader = rows
    forgotten(path)
    batches = iter(Pipeline(reader).batch(50))
    jumps = 0
    for _ in range(ASKED // 10):
        now = read_bytes()
        next(batches).columns.sum()
        jumps += read_bytes() > now
    assert jumps < ASKED // 20


def pages_waited_for():
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "RUSAGE_THREAD"):
        pytest.skip("they are counted for the whole process")
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


@pytest.mark.parametrize("size", [128, 1024])
def test_rows_of_a_large_batch_are_asked_for_together(size, tmp_path, counted):
    path, values = tmp_path / "x.npy", np.zeros((4096, 1 << 13), np.uint8)
    values[:, 0] = np.arange(len(values)) % 251
    np.save(path, values)
    batches = iter(Pipeline(npy(path)).shuffle(seed=0).batch(size))
    forgotten(path)
    before = pages_waited_for()
    images = next(batches).columns
    assert 0 < pages_waited_for() - before < size / 2
    in_memory = Pipeline(arrays(values)).shuffle(seed=0).batch(size).peek().columns
    assert np.array_equal(images, in_memory)
