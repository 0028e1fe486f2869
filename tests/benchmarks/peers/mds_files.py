"""MDS shards beside MosaicML Streaming: samples per CPU second, in one run.

    python -m tests.benchmarks.peers.mds_files [rows] [pairs]

Both read the same shards, which `MDSWriter` wrote, on one process: samples of 512 tokens, a number
and a text, an epoch in order and one shuffled over all. CPU time is that of all threads. A pair is
one epoch of each, and the figure is the median of the ratios of pairs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np


def write(folder: str, rows: int) -> None:
    """Shards of 64 MB at most."""
    from streaming import MDSWriter

    columns = {"tokens": "ndarray:int32:512", "label": "int", "text": "str"}
    rng = np.random.default_rng(0)
    with MDSWriter(columns=columns, out=folder) as out:
        for row in range(rows):
            tokens = rng.integers(0, 50_000, 512, dtype=np.int32)
            out.write({"tokens": tokens, "label": row, "text": f"text {row} " * 5})


def of_streaming(folder: str, *, shuffled: bool) -> Callable[[], Iterable[Any]]:
    """Its data set, iterated as a DataLoader without workers does."""
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=folder, shuffle=shuffled, shuffle_seed=0, batch_size=256)
    return lambda: iter(dataset)


def of_jreader(folder: str, *, shuffled: bool) -> Callable[[], Iterable[Any]]:
    """Samples one by one, as those of Streaming come."""
    from jreader import Pipeline, mds

    plan = Pipeline(mds(folder))
    return plan.shuffle(seed=0) if shuffled else plan


def seconds(epoch: Callable[[], Iterable[Any]], rows: int) -> float:
    """CPU seconds of an epoch, whose labels are all there."""
    began, seen = time.process_time(), 0
    for sample in epoch():
        seen += sample["label"]
    took = time.process_time() - began
    assert seen == rows * (rows - 1) // 2
    return took


def main(rows: int = 40_000, pairs: int = 5) -> None:
    """Prints a line for each order."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "shards"))
        write(path, rows)
        for shuffled in (False, True):
            ours, theirs = (make(path, shuffled=shuffled) for make in (of_jreader, of_streaming))
            took = [(seconds(ours, rows), seconds(theirs, rows)) for _ in range(pairs + 1)][1:]
            mine, others = (median(each) / rows * 1e6 for each in zip(*took, strict=True))
            ratio = median(their / our for our, their in took)
            order = "shuffled" if shuffled else "in order"
            print(f"{order}: jreader {mine:.1f} us, Streaming {others:.1f}: {ratio:.1f} times")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
