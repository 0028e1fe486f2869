"""Data sets of the suites. Worker processes import this: so no jax here, nor pytest."""

from __future__ import annotations

import math

import numpy as np

from jreader import Dataset, IterableDataset, get_worker_info


def picture(index):
    """An image and a label that are the same whenever they are asked for."""
    random = np.random.default_rng(index)
    return random.random(32, "float32"), random.integers(9, size=1)


class Pictures(Dataset):
    def __init__(self, count=100):
        self.count = count

    def __getitem__(self, index):
        return picture(index)

    def __len__(self):
        return self.count


class Batched(Dataset):
    """Eight pictures as one sample."""

    def __getitem__(self, index):
        images, labels = zip(*map(picture, range(index * 8, index * 8 + 8)), strict=True)
        return np.stack(images), np.stack(labels)

    def __len__(self):
        return 12


class Mixed(Dataset):
    """Samples of every structure."""

    def __getitem__(self, index):
        vector = np.full(2, index, "float32")
        return 3.1, "abc", np.full(32, index, "float32"), [1, vector], {"a": 2.0, "b": vector}

    def __len__(self):
        return 16


class Unfinished(Dataset):
    """Has a length, and no samples."""

    def __len__(self):
        return 41


class Stream(IterableDataset):
    """Pictures, one after another."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return map(picture, range(self.count))


class Counting(IterableDataset):
    """Numbers, which are counted before they are read."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        return self.count


class Numbers(IterableDataset):
    """Arrays of one number, from one to another."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        yield from (np.array([n]) for n in range(self.start, self.end))


class Shared(Numbers):
    """Shares itself out among the workers."""

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return super().__iter__()
        each = math.ceil((self.end - self.start) / info.num_workers)
        begin = self.start + info.id * each
        return iter(Numbers(begin, min(begin + each, self.end)))


class Failing(IterableDataset):
    """Cannot be begun."""

    def __iter__(self):
        raise RuntimeError("error in iter")
