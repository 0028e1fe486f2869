"""What it costs to bring sequences to eight devices in a balanced order, beside their own order.

    NPROC=32 python -m tests.benchmarks.long_context [rounds]

The devices are emulated. Every round places a feed of three fields in each way, one after another;
figures are medians of the CPU time of all threads, since helpers of XLA copy, too.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("NPROC", "32")  # fewer threads deadlock inside XLA

import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader.devices import ContextParallel, sharding_placement
from jreader.staging import Staging

ROWS, LENGTH, SHARDS = 8, 32_768, 8
FIELDS = "tokens", "segment_ids", "positions"


def ways():
    """Functions that place a feed, by name."""
    mesh = Mesh(np.array(jax.devices()), ("context",))
    own = NamedSharding(mesh, PartitionSpec(None, "context"))
    put = sharding_placement(own).putter()
    zigzag = ContextParallel(own, "zigzag")
    chunks = zigzag.positions(2 * SHARDS)  # of chunks, as of so many tokens
    positions = zigzag.positions(LENGTH)

    def by_chunks(array):
        return array.reshape(ROWS, 2 * SHARDS, -1)[:, chunks].reshape(ROWS, LENGTH)

    return {
        "own order": put,
        "zigzag": sharding_placement(zigzag).putter(),
        "striped": sharding_placement(ContextParallel(own, "striped")).putter(),
        "zigzag by hand, chunks": lambda feed: put({k: by_chunks(v) for k, v in feed.items()}),
        "zigzag by hand, tokens": lambda feed: put({k: v[:, positions] for k, v in feed.items()}),
    }


def main(rounds=100):
    staged = Staging(ROWS, (LENGTH,), np.dtype(np.int32))
    every, times = ways(), {}
    for _ in range(rounds):
        for name, put in every.items():
            feed = {field: staged(ROWS) for field in FIELDS}
            for array in feed.values():
                array[:] = 1
            began = time.process_time()
            placed = jax.block_until_ready(put(feed))
            times.setdefault(name, []).append(time.process_time() - began)
            del placed
    medians = {name: np.median(each[rounds // 10 :]) for name, each in times.items()}
    print("| order | ms of CPU a feed | ratio |")
    print("|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median * 1e3:.2f} | {median / medians['own order']:.2f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
