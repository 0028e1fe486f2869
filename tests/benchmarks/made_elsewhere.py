"""What `load(workers=...)` costs the program that trains, and that killed workers change nothing.

    python -m tests.benchmarks.made_elsewhere [--engines none,processes,dask,ray] [--workers 2,4]
    python -m tests.benchmarks.made_elsewhere --engines processes --workers 4 --kill 20 --seconds 60

A line for each engine: the CPU time of this program for a feed of 150 KB on the host, of an indexed
plan and of a stream in lanes. With `--kill`, a worker is killed by SIGKILL every so many seconds,
and every feed and cursor has to be that of no workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from jreader import Pipeline, Processes, arrays, source
from jreader.workers.clusters import ray_executor

ROWS, ROW, BATCH, WARM = 64_000, 600, 64, 200  # 600 float32 a row: feeds of 153.6 KB


def wide(sample: Any) -> Any:
    """A row that is computed, and who did it."""
    row = np.full(ROW, sample["n"], np.float32)
    return {"row": np.sqrt(row), "by": np.int32(os.getpid())}


def of_file(number: int) -> Iterator[Any]:
    """A part of the rows, as a stream."""
    for place in range(ROWS // 16):
        yield {"n": np.int32(place * 16 + number)}


PLANS: dict[str, Callable[[], Pipeline[Any]]] = {
    "indexed": lambda: Pipeline(arrays(n=np.arange(ROWS))).map(wide).shuffle(seed=0).batch(BATCH),
    "lanes": lambda: (
        Pipeline(source(range(16)))
        .read(of_file, lanes=8)
        .shuffle(100, seed=0)
        .map(wide)
        .batch(BATCH)
    ),
}


def executor_of(engine: str, workers: int, held: ExitStack) -> Any:
    """The workers; None for none."""
    if engine == "none":
        return None
    if engine == "processes":
        return held.enter_context(Processes(workers))
    if engine == "dask":
        import distributed  # noqa: PLC0415  # where it is installed

        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        held.enter_context(cluster)
        return held.enter_context(distributed.Client(cluster))
    import ray  # noqa: PLC0415  # where it is installed

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    held.callback(ray.shutdown)
    return ray_executor()


def cost(plan: str, workers: Any, feeds: int) -> tuple[float, float]:
    """The milliseconds of CPU of this program, and those that pass, for a feed."""
    loader = PLANS[plan]().load(workers=workers, sharding="host")
    with loader.steps(WARM + feeds) as steps:
        for _ in range(WARM):
            next(steps)
        spent, began = time.process_time(), time.perf_counter()
        for _ in steps:
            pass
        return tuple(
            1e3 * (now - before) / feeds
            for now, before in ((time.process_time(), spent), (time.perf_counter(), began))
        )


def killed(plan: str, workers: Any, every: float, seconds: float) -> tuple[int, int]:
    """How many workers were killed, and feeds compared; raises if one differs."""
    kills = compared = 0
    until = time.monotonic() + seconds
    due = time.monotonic() + every
    here, there = (
        PLANS[plan]().load(sharding="host"),
        PLANS[plan]().load(workers=workers, sharding="host"),
    )
    with here.steps() as plain, there.steps() as made:
        while time.monotonic() < until:
            expected, found = next(plain), next(made)
            assert found["row"].tobytes() == expected["row"].tobytes(), compared
            assert made.cursor == plain.cursor, compared
            compared += 1
            if time.monotonic() > due:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(found["by"][0]), signal.SIGKILL)
                    kills += 1
                due += every
    return kills, compared


def main() -> None:
    """Prints a line for each engine and plan."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", default="none,processes,dask")
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--plans", default="indexed,lanes")
    parser.add_argument("--feeds", type=int, default=1000)
    parser.add_argument("--kill", type=float, default=0, help="seconds between two kills")
    parser.add_argument("--seconds", type=float, default=60, help="of each run with kills")
    asked = parser.parse_args()
    for engine in asked.engines.split(","):
        for many in [0] if engine == "none" else map(int, asked.workers.split(",")):
            for plan in asked.plans.split(","):
                with ExitStack() as held:
                    workers = executor_of(engine, many, held)
                    if asked.kill:
                        kills, compared = killed(plan, workers, asked.kill, asked.seconds)
                        said = f"{kills} killed, {compared} feeds and cursors as without workers"
                    else:
                        cpu, wall = cost(plan, workers, asked.feeds)
                        said = f"{cpu:.3f} ms of CPU a feed, {wall:.2f} ms pass"
                    print(f"{engine} {many or ''}, {plan}: {said}", flush=True)


if __name__ == "__main__":
    main()
