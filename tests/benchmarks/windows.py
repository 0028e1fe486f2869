"""What waits behind one slow sample: how many, and how much memory, on each engine.

    python tests/benchmarks/windows.py [seconds]

Samples of 1 MiB come one after another; one of them takes so many seconds (8), and the 1,399 behind
it are quick. Each engine runs in a process of its own; memory is what its own pages, and those of
its children, grow by. Engines that cannot be imported are left out.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from multiprocessing import get_context

import numpy as np
import psutil

from jreader import Pipeline, map_samples
from jreader.workers.clusters import ray_executor

SAMPLES, SLOW, TAKEN = 4000, 600, 2000
ENGINES = {
    "threads, 2": lambda _: {"threads": 2},
    "processes, 2": lambda _: {"processes": 2},
    "a pool of 2 threads": lambda room: {"executor": room.enter_context(ThreadPoolExecutor(2))},
    "a pool of 2 processes": lambda _: {
        "executor": ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    },
    "Dask, 2": lambda room: {"executor": dask(room)},
    "Ray, 2": lambda _: {"executor": ray()},
}


def dask(room):
    from distributed import Client, LocalCluster  # noqa: PLC0415  # in its own process only

    here = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    cluster = room.enter_context(LocalCluster(**here))
    return room.enter_context(Client(cluster)).get_executor()


def ray():
    import ray as library  # noqa: PLC0415  # likewise

    library.init(num_cpus=2, include_dashboard=False)
    return ray_executor()


def slow_once(seconds):
    def made(sample):
        number, row = sample
        if number == SLOW:
            time.sleep(seconds)
        return number, row + 1

    return made


def weight():
    """Bytes of pages that are not shared, of this process and its children."""
    total, here = 0, psutil.Process()
    for process in (here, *here.children(recursive=True)):
        try:
            told = process.memory_info()
        except psutil.NoSuchProcess:
            continue
        total += told.rss - told.shared
    return total


def measured(engine, seconds):
    """The most samples that were drawn and not yet taken, and the bytes that memory grew by."""
    drawn = taken = most = 0

    def source():
        nonlocal drawn, most
        for number in range(SAMPLES):
            drawn += 1
            most = max(most, drawn - taken)
            yield number, np.full(1 << 20, number % 100, np.uint8)

    with ExitStack() as room:
        plan = map_samples(slow_once(seconds), source, **ENGINES[engine](room))
        before, seen, over = weight(), [0], threading.Event()

        def watch():
            while not over.wait(0.05):
                seen.append(weight())

        watcher = threading.Thread(target=watch)
        watcher.start()
        items = iter(Pipeline(plan))
        for _ in range(TAKEN):
            next(items)
            taken += 1
        over.set()
        watcher.join()
        items.close()
    return most, max(seen) - before


def main(seconds="8", engine=None):
    if engine is not None:
        most, grown = measured(engine, float(seconds))
        print(f"| {engine} | {most} | {grown / 1e6:.0f} |", flush=True)
        return
    print("| engine | samples ahead | MB |\n|---|---|---|", flush=True)
    for name in ENGINES:
        if not name.startswith("Ray") or find_spec("ray"):
            subprocess.run([sys.executable, __file__, seconds, name], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
