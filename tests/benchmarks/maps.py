"""What a parallel map costs per sample, and how far work scales, beside torch in one run.

    python tests/benchmarks/maps.py [rounds]

Rounds are interleaved, because machines are noisy, and a turn waits a while for cores that others
use (on Linux): figures are medians, and what is to be compared is the ratio of two of one table.
Engines and peers that cannot be imported are left out.
"""

from __future__ import annotations

import statistics
import sys
import time
import zlib
from collections import deque
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from jreader import Pipeline, arrays, map_samples, stack
from jreader.workers.clusters import ray_executor
from jreader.workers.processes.executors import Processes

PIXELS = (np.arange(224 * 224 * 3).reshape(224, 224, 3) % 251).astype(np.uint8)
PACKED = zlib.compress(np.random.default_rng(0).permutation(PIXELS.ravel()).tobytes(), 1)


def nothing(sample):
    return sample


def unpack(sample):
    """C code without the interpreter's lock, as the decoder of a JPEG."""
    image = np.frombuffer(zlib.decompress(PACKED), np.uint8).reshape(224, 224, 3)
    return {"image": image.astype(np.float32), "label": sample}


def think(sample):
    """Python code, which holds the lock."""
    total = 0
    sample = int(sample)
    for number in range(60_000):
        total += number ^ sample
    return {"image": np.full((224, 224, 3), total % 251, np.uint8), "label": sample}


def rows(n):
    return lambda: iter(range(n))


def engines(room: ExitStack):
    """Name, samples that are enough, and the arguments that choose it."""
    yield "no workers", 200_000, {}
    yield "threads, 2", 200_000, {"threads": 2}
    room.enter_context(Processes(2)).submit(nothing, 0).result()
    yield "processes, 2", 200_000, {"processes": 2}
    yield "ThreadPoolExecutor(2)", 200_000, {"executor": room.enter_context(ThreadPoolExecutor(2))}
    spawned = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    yield "ProcessPoolExecutor(2)", 200_000, {"executor": room.enter_context(spawned)}
    try:
        from distributed import Client, LocalCluster  # noqa: PLC0415  # where it is installed
    except ModuleNotFoundError:
        pass
    else:
        local = LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        client = room.enter_context(Client(room.enter_context(local)))
        yield "Dask, 2 local workers", 100_000, {"executor": client.get_executor()}
    try:
        import ray  # noqa: PLC0415  # where it is installed
    except ModuleNotFoundError:
        return
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=10**9, log_to_driver=False)
    room.callback(ray.shutdown)
    yield "Ray, 2 local workers", 100_000, {"executor": ray_executor()}


def seconds(iterable):
    began = time.perf_counter()
    deque(iterable, maxlen=0)
    return time.perf_counter() - began


def costs(rounds):
    with ExitStack() as room:
        chosen = list(engines(room))
        seen = {name: [] for name, _, _ in chosen}
        for _ in range(rounds):
            for name, n, given in chosen:
                seen[name].append(seconds(map_samples(nothing, rows(n), **given)()) / n)
    print("| engine | µs a sample, an empty function |\n|---|---|")
    for name, times in seen.items():
        print(f"| {name} | {statistics.median(times) * 1e6:.2f} |")


class Dataset:
    """The same work for torch."""

    def __init__(self, fn, n):
        self.fn, self.n = fn, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.fn(index)


def contestants(fn, n, size):
    """Name, and a reader of the batches of one epoch as stacked arrays; workers are kept."""

    def ours(**given):
        plan = Pipeline(arrays(np.arange(n))).map(fn, **given).batch(size)
        return lambda: map(stack, plan())

    yield "jreader, no workers", ours()
    yield "jreader, 1 thread", ours(threads=1)
    yield "jreader, 2 threads", ours(threads=2)
    yield "jreader, 1 process", ours(processes=1)
    yield "jreader, 2 processes", ours(processes=2)
    try:
        from torch.utils.data import DataLoader  # noqa: PLC0415  # where it is installed
    except ModuleNotFoundError:
        return
    for workers in (0, 1, 2):
        dataset, kept = Dataset(fn, n), bool(workers)
        loader = DataLoader(dataset, size, num_workers=workers, persistent_workers=kept)
        yield f"torch DataLoader, num_workers={workers}", loader.__iter__


def quiet(limit=5.0):
    """Waits until the cores are free, but not for ever."""
    stat, until = Path("/proc/stat"), time.monotonic() + limit

    def ticks():
        counted = np.array(stat.read_text().split("\n", 1)[0].split()[1:], int)
        return counted[3] + counted[4], counted.sum()

    while stat.exists() and time.monotonic() < until:
        before = ticks()
        time.sleep(0.25)
        idle, whole = np.subtract(ticks(), before)
        if idle > 0.9 * whole:
            return


def scaling(rounds, fn, n=512, size=32):
    """Whole epochs: what workers do while others have their turn must not count."""
    readers = list(contestants(fn, n, size))
    seen = {name: [] for name, _ in readers}
    for nth in range(rounds + 1):
        for name, begin in readers:
            quiet()
            took = seconds(begin())
            if nth:  # the first begins the workers
                seen[name].append(took / n)
    print(f"\n| {fn.__name__}: {fn.__doc__} | ms a sample, median | best | x no workers, of both |")
    print("|---|---|---|---|")
    alone = np.array([(statistics.median(times), min(times)) for times in seen.values()])
    for name, (median, best) in zip(seen, alone, strict=True):
        gains = f"{alone[0][0] / median:.2f}, {alone[0][1] / best:.2f}"
        print(f"| {name} | {median * 1e3:.3f} | {best * 1e3:.3f} | {gains} |")


def main(rounds=7):
    scaling(rounds, unpack)
    scaling(rounds, think)
    costs(rounds)  # last: Dask tunes the malloc of processes that are begun after it


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
