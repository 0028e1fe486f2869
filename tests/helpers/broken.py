"""Data sets that go wrong. Worker processes import this: so no jax here, nor pytest."""

from __future__ import annotations

import time
from pathlib import Path

from jreader import Dataset, IterableDataset


class OddError(Exception):
    """Cannot be made again from its message."""

    def __init__(self, code, *, where):
        super().__init__(f"{code} at {where}")


class Bad(Dataset):
    """Numbers, but for one."""

    def __init__(self, place, act, n=10):
        self.place, self.act, self.n = place, act, n

    def __getitem__(self, index):
        return self.act() if index == self.place else index

    def __len__(self):
        return self.n


class BadStream(IterableDataset):
    def __iter__(self):
        yield from range(5)
        raise OddError(5, where="the stream")


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from range(self.n)


class Meeting(Dataset):
    """Two samples that are there only if both are asked for at once: the ends of a named pipe."""

    def __init__(self, path):
        self.path = path

    def __getitem__(self, index):
        with Path(self.path).open("rw"[index]):
            return index

    def __len__(self):
        return 2


class Slow(Bad):
    def __getitem__(self, index):
        time.sleep(0.02)
        return index


def failing():
    raise OddError(7, where="the data set")


def stopping():
    raise StopIteration


def leaving():
    raise SystemExit(3)
