"""What several processes read of a stream in lanes, beside one process, where the source waits.

    python -m tests.benchmarks.lanes [batches] [rounds] [milliseconds a sample]

Each process of a `jax.distributed` run reads its lanes, so where samples wait for a disk or a
network, four processes should read nearly four times as much in the same time. The processes are
real, all on this machine; their first batches are not timed. Runs of one, two and four processes
take turns.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from together import processes

LED = 5  # batches
COUNTS = 1, 2, 4
READ = """
import time
from jreader import Pipeline, source

def samples(file):
    for place in range(10_000):
        time.sleep(given["seconds"])
        yield {"file": int(file), "place": place}

plan = Pipeline(source(list(range(16)))).read(samples, lanes=16).batch(16)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
feeds = iter(plan.load(sharding=mesh))
for _ in range(given["led"]):
    next(feeds)
began = time.perf_counter()
for _ in range(given["batches"]):
    feed = next(feeds)
jax.block_until_ready(feed)
say(16 * given["batches"] / (time.perf_counter() - began))
feeds.close()
"""


def rate(count: int, given: dict[str, Any]) -> float:
    """Samples a second that so many processes read together: the slowest of them counts."""
    return min(processes(READ, count, devices=4 // count, given=given))


def main(batches: int = 40, rounds: int = 3, milliseconds: float = 10) -> None:
    """Prints a line for each number of processes."""
    given = {"batches": batches, "led": LED, "seconds": milliseconds / 1000}
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(rounds):
        for count in COUNTS:
            rates[count].append(rate(count, given))
    print("| processes | samples a second | beside one |\n|---|---|---|")
    for count, each in rates.items():
        beside = statistics.median(many / one for many, one in zip(each, rates[1], strict=True))
        print(f"| {count} | {statistics.median(each):,.0f} | {beside:.2f} x |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *map(float, sys.argv[3:]))
