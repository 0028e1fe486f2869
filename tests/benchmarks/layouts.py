"""What a batch costs of columns of any layout, beside `column[rows]`, in one run.

    python tests/benchmarks/layouts.py [batches] [rounds]

Rounds are interleaved (rows, batches, rows, ...), because machines are noisy; the ratio is that of
the best rounds. Both hold two batches at a time, as a loop does that feeds a device.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import islice

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import jreader

COUNT = 20_000


def columns(folder):
    """(name, goal, rows of a batch, column)."""
    drawn = np.random.default_rng(0)
    rows = drawn.random((COUNT, 784), np.float32)
    images = drawn.integers(0, 256, (COUNT, 3, 32, 32), np.uint8)
    np.save(f"{folder}/rows.npy", rows)
    np.save(f"{folder}/fortran.npy", np.asfortranarray(rows[:, :100]))
    packed = np.zeros(COUNT, [("label", np.uint8), ("pixels", np.float32, 100)])
    tokens = drawn.integers(0, 50_000, COUNT + 256).astype(np.uint16)
    return [
        ("C", 0.9, 512, rows),
        ("C, images", 0.9, 512, images),
        ("C, large images", 0.9, 64, drawn.integers(0, 256, (2_000, 224, 224, 3), np.uint8)),
        ("read-only", 0.9, 512, np.broadcast_to(rows, rows.shape)),
        ("bytes swapped", 0.9, 512, rows.astype(">f4")),
        ("structured", 0.9, 512, packed),
        ("a mapped file", 0.9, 512, np.load(f"{folder}/rows.npy", mmap_mode="r")),
        ("axes turned, as of CIFAR", 1.2, 512, images.transpose(0, 2, 3, 1)),
        ("Fortran", 1.2, 512, np.asfortranarray(rows[:, :100])),
        ("a mapped Fortran file", 1.2, 512, np.load(f"{folder}/fortran.npy", mmap_mode="r")),
        ("every other row", 1.2, 512, rows[::2]),
        ("every other column", 1.2, 512, rows[:, ::2]),
        ("reversed", 1.2, 512, rows[::-1]),
        ("one row for all", 1.2, 512, np.broadcast_to(rows[0], rows.shape)),
        ("a field of a structure", 1.2, 512, packed["pixels"]),
        ("sliding windows", 1.2, 512, sliding_window_view(tokens, 257)),
    ]


def of_numpy(column, numbers):
    for rows in numbers:
        yield column[rows]


def of_jreader(batches):
    for samples in batches:
        yield samples.columns


def seconds(iterable):
    """To the end of it, with two at a time held."""
    held = [None, None]
    began = time.perf_counter()
    for turn, each in enumerate(iterable):
        held[turn % 2] = each
    return time.perf_counter() - began


def main(batches=30, rounds=15):
    print("| layout | column[rows], us | a batch, us | ratio | goal |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, goal, size, column in columns(folder):
            plan = jreader.batch(
                jreader.shuffle(jreader.arrays(column), seed=0), size, drop_last=True
            )
            many = min(batches, len(plan))
            (routed,) = jreader.readers.indexed(plan.reader).rows(np.arange(many * size))
            numbers = np.split(routed, many)
            times = []
            for _ in range(rounds):
                ours = of_jreader(islice(plan(), many))
                next(
                    ours
                )  # the order of the first 16,384 samples is dealt at once: no copy of rows
                theirs = of_numpy(column, numbers[1:])
                times.append((seconds(theirs), seconds(ours)))
            plain, measured = np.min(times, axis=0) / (many - 1) * 1e6
            print(f"| {name} | {plain:.1f} | {measured:.1f} | {measured / plain:.2f} | {goal} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
