"""Workers have copies of a data set: whose they are, and how long they last."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from steps import stream

import jreader
from jreader import DataLoader, Dataset
from jreader.datasets import TensorDataset


@pytest.mark.slow
def test_workers_know_their_number_and_data_set(tmp_path):
    class Asking(Dataset):
        def __init__(self):
            self.opened = None

        def open(self):
            self.opened = os.getpid()

        def __getitem__(self, index):
            info = jreader.get_worker_info()
            assert info.dataset is self
            assert self.opened == os.getpid()
            return info.id, info.num_workers, info.seed % 1000

        def __len__(self):
            return 12

    def begin(number):
        info = jreader.get_worker_info()
        assert info.id == number
        info.dataset.open()

    loader = DataLoader(Asking(), 1, num_workers=2, worker_init_fn=begin)
    told = [tuple(map(int, map(np.squeeze, feed))) for feed in loader]
    assert {number for number, _, _ in told} <= {0, 1}
    assert {of for _, of, _ in told} == {2}
    assert len({(number, seed) for number, _, seed in told}) <= 2


def test_each_loader_tells_them_of_its_own_data_set():
    """They are the same processes for loaders with as many."""

    class Named(Dataset):
        def __init__(self, name):
            self.name = name

        def __getitem__(self, index):
            return int(jreader.get_worker_info().dataset.name == self.name)

        def __len__(self):
            return 4

    loaders = [DataLoader(Named(name), 2, num_workers=1) for name in ("train", "val")] * 2
    assert [stream(loader) for loader in loaders] == [[[1, 1], [1, 1]]] * 4


def test_a_stream_is_told_that_it_is_alone():
    """So one that shares itself out among torch's workers gives everything."""

    class Shared(jreader.IterableDataset):
        def __iter__(self):
            info = jreader.get_worker_info()
            yield from range(info.id, 10, info.num_workers)

    assert stream(DataLoader(Shared(), 5, num_workers=4)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_data_set_that_changes_is_sent_again_unless_it_persists(persistent):
    dataset = [1, 2, 3, 4]
    loader = DataLoader(dataset, 2, num_workers=2, persistent_workers=persistent)
    assert stream(loader) == [[1, 2], [3, 4]]
    dataset[0] = 10
    assert stream(loader) == [[1 if persistent else 10, 2], [3, 4]]


def test_a_new_loader_begins_anew_also_over_an_equal_data_set(tmp_path):
    class Counting(Dataset):
        def __init__(self):
            self.asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return self.asked

        def __len__(self):
            return 3

    def begin(number):
        (tmp_path / f"{time.perf_counter_ns()}").touch()

    for begun in (1, 2):
        loader = DataLoader(Counting(), 3, num_workers=1, worker_init_fn=begin)
        assert stream(loader) == [[1, 2, 3]]
        assert len(list(tmp_path.iterdir())) == begun


def shared_memory():
    """The bytes of each file of shared memory that this process holds, by its number."""
    sizes = {}
    for each in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:jreader" in str(each.readlink()):
                state = each.stat()
                sizes[state.st_ino] = state.st_size
        except FileNotFoundError:  # that of the listing
            continue
    return sizes


def sizes_since(before):
    """The bytes of those that are new: loaders of other tests may let go of theirs meanwhile."""
    return [size for number, size in shared_memory().items() if number not in before]


def test_a_large_data_set_is_in_shared_memory_once_also_if_it_changes():
    before = shared_memory()
    rows = np.zeros((8, 1 << 18))
    loader = DataLoader(TensorDataset([rows]), 4, num_workers=1)
    held = []
    for epoch in range(5):
        rows[:] = epoch
        assert [float(np.asarray(feed[0]).max()) for feed in loader] == [epoch] * 2
        held.append(len(sizes_since(before)))
    assert held[-1] == held[1], held


def test_one_that_is_not_changed_keeps_what_its_workers_opened(tmp_path):
    class Opening(Dataset):
        def __init__(self):
            self.file = None

        def __getitem__(self, index):
            if self.file is None:
                (tmp_path / f"{os.getpid()} {time.perf_counter_ns()}").touch()
                self.file = True
            return index

        def __len__(self):
            return 8

    loader = DataLoader(Opening(), 2, num_workers=2)
    for _ in range(3):
        assert len(stream(loader)) == 4
    opened = [path.name.split()[0] for path in tmp_path.iterdir()]
    assert len(opened) == len(set(opened)) <= 2


LARGE = 16 << 20


def test_a_large_data_set_is_let_go_with_its_loader_though_the_processes_stay():
    before = shared_memory()
    small = DataLoader([1, 2, 3, 4], 2, num_workers=1)  # it keeps the processes
    held = []
    for value in range(3):
        loader = DataLoader(Where(np.full(LARGE // 8, value)), 2, num_workers=1)
        assert stream(loader)[0][0] == [1, 1]
        held.append(sum(sizes_since(before)))
        assert LARGE <= held[-1] < 1.5 * LARGE, held
        del loader
        assert stream(small) == [[1, 2], [3, 4]]
        held.append(sum(sizes_since(before)))
        assert held[-1] < LARGE // 2, held


class Where(Dataset):
    """Whether a worker has the rows in shared memory, and how many such mappings are large."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 2

    def __getitem__(self, index):
        lines = Path("/proc/self/maps").read_text().splitlines()
        ends = [line.split()[0].split("-") for line in lines if "memfd:jreader" in line]
        maps = [range(int(first, 16), int(end, 16)) for first, end in ends]
        array = isinstance(self.rows, np.ndarray)
        shared = array and any(self.rows.ctypes.data in each for each in maps)
        return int(shared), sum(len(each) >= LARGE for each in maps)


def test_rows_of_a_mapped_file_are_shared_by_workers(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones(LARGE // 8))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    loader = DataLoader(Where(rows), 2, num_workers=1)
    assert stream(loader)[0][0] == [1, 1]


def test_a_worker_lets_go_of_a_pickle_once_it_has_the_objects():
    texts = [bytes(1 << 16) for _ in range(LARGE >> 16)]
    *_, [_, [others]] = stream(DataLoader(Where([]), 1, num_workers=1))  # of other loaders
    *_, [[shared], [large]] = stream(DataLoader(Where(texts), 1, num_workers=1))
    assert shared == 0
    assert large <= others
