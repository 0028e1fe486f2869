"""Samples of every kind that `cache(reader, path)` keeps, and what a kill leaves of its folder."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from seen import canonical

from jreader.sources.stored_rows import reloaded

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many short lives of files

leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    hnp.arrays(
        st.sampled_from(
            [np.uint8, np.float32, ">i4", "datetime64[s]", "<U3", [("a", "i4"), ("b", "f8")]]
        ),
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
        elements={"allow_nan": False},
    ),
)
trees = st.recursive(
    leaf,
    lambda below: st.one_of(
        st.dictionaries(st.text(max_size=2), below, max_size=3),
        st.lists(below, max_size=3),
        st.tuples(below, below),
    ),
    max_leaves=4,
)

KINDS = {
    "ragged field": lambda n: {"n": n, "x": np.arange(n % 5 + 1)},
    "tuple of arrays": lambda n: (n, np.arange(n % 3 + 1), np.zeros((n % 2 + 1, 2))),
    "list": lambda n: list(range(n % 4)),
    "list of arrays": lambda n: [np.arange(n % 4)] * (n % 2 + 1),
    "array": lambda n: np.arange(n % 4 + 1),
    "number": lambda n: n,
    "text": lambda n: "t" * n,
    "number or text": lambda n: n if n < 3 else str(n),
    "dtype that changes": lambda n: np.arange(n, dtype=[np.int32, np.int64][n % 2]),
    "object": lambda n: {n, "x"},
    "tree that changes": lambda n: {"a": n} if n < 2 else {"b": n},
}
COUNT = 8


def as_kept(samples):
    """What a cache gives of some samples, as a list that `==` compares."""
    return [canonical(reloaded(sample)) for sample in samples]


def documents():
    """Documents of 1 to 7 tokens."""
    return (np.arange(n % 7 + 1) + 100 * n for n in range(37))


@contextmanager
def snapshots(folder, into):
    """Copies a folder whenever something of it reaches the disk: all that a kill may leave."""
    taken, synced = [], os.fsync

    def fsync(descriptor):
        synced(descriptor)
        if Path(folder).exists():
            taken.append(Path(into, str(len(taken))))
            shutil.copytree(folder, taken[-1])

    os.fsync = fsync
    try:
        yield taken
    finally:
        os.fsync = synced
