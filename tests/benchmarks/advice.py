"""What following the advice of `jreader.report` gains, in each built case whose data limit.

    python -m tests.benchmarks.advice [rounds]

Each case runs a loop, takes its report, and follows it: the numbers are `report.arguments`, and
where the advice is to rewrite the plan, the case holds the plan so rewritten, which is run only if
the advice has the words for it. The two loops then run in turns, in one process (3 rounds). The
gain is the median of the wall time of the first over that of the second; feeds that a pass begins
with are left out. Beside it is the CPU time of this process (not of its workers) over the same
feeds. A case whose verdict or advice is another is told as wrong, and not run.

"slow Python map" and "slow C map" can be 2 times as fast at most on two cores, and no faster where
others keep these busy: then the CPU time that the loop gets is what the gain shows.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jreader
from jreader import Pipeline
from jreader.devices import transfers

ROWS, BATCH, STEPS = 4000, 8, 30
BYTES = np.random.default_rng(0).integers(0, 9, 60_000, np.uint8).tobytes()


def rows():
    yield from range(ROWS)


def waits(number):
    time.sleep(0.002)
    return number


def counts(number):
    limit = time.thread_time() + 0.004
    while time.thread_time() < limit:
        pass
    return number


def packs(number):
    return number + 0 * len(zlib.compress(BYTES, 6))


def slow_rows():
    for number in range(ROWS):
        yield waits(number)


def uneven_rows():
    for number in range(ROWS):
        if number % (10 * BATCH) == 0:
            time.sleep(0.12)
        yield number


class Row:
    """A sample that takes its time to become an array."""

    def __array__(self, dtype=None, copy=None):
        return waits(np.zeros(4, np.float32))


def of_rows():
    yield from [Row() for _ in range(ROWS)]


class Link:
    """`jax.device_put` by way of a link of 10 MB/s."""

    def __init__(self) -> None:
        self.put = jax.device_put

    def __call__(self, x: Any, *given: Any, **named: Any) -> Any:
        time.sleep(sum(leaf.nbytes for leaf in jax.tree.leaves(x)) / 10e6)
        return self.put(x, *given, **named)


PIXELS = np.zeros((BATCH, 32, 32, 3), np.uint8)


def floats():
    for _ in range(ROWS // BATCH):
        yield PIXELS / np.float32(255)


def bytes_of_pixels():
    for _ in range(ROWS // BATCH):
        yield PIXELS


def scaled(feed):
    return feed / jnp.float32(255)


def of_batches(reader: Callable[[], Any]) -> Any:
    return jreader.DataLoader.from_generator().set_batch_generator(reader)


def mixed(**arguments: int) -> Any:
    quick = Pipeline(rows).epochs()
    rare = Pipeline(rows).epochs().map(waits10, **arguments)
    return Pipeline(jreader.mix([quick, rare], [0.75, 0.25], seed=0)).batch(BATCH).load()


def waits10(number):
    time.sleep(0.02)
    return number


def parts(reader: Callable[[], Any], **arguments: int) -> Any:
    """One part is slow; or, rewritten, its names are quick and are read in a map."""
    slow = Pipeline(rows).map(waits, **arguments) if arguments else Pipeline(reader)
    return Pipeline(jreader.compose(Pipeline(rows), slow)).batch(BATCH).load()


@dataclass(frozen=True)
class Case:
    """A loop, and what its advice makes of it.

    Attributes:
        before: Makes the loader.
        limit: What limits it.
        words: Words that the advice must have.
        after: Makes the loader that follows the advice, of `report.arguments`.
        step: Seconds of a step.
    """

    before: Callable[[], Any]
    limit: str
    words: str
    after: Callable[..., Any]
    step: float = 0.003


def mapped(function: Callable[[Any], Any], **arguments: int) -> Any:
    return Pipeline(rows).map(function, **arguments).batch(BATCH).load()


def cases(folder: str) -> dict[str, Case]:
    few = Pipeline(lambda: range(BATCH * 2 * STEPS)).map(waits)

    def filled() -> Any:
        plan = few.cache(Path(folder, "kept"))
        for _ in plan:
            pass
        return plan.batch(BATCH).load()

    return {
        "slow source": Case(
            lambda: Pipeline(slow_rows).batch(BATCH).load(),
            "source",
            ".map(read_one, threads=",
            lambda **numbers: mapped(waits, **numbers),
        ),
        "slow Python map": Case(
            lambda: mapped(counts), "map", "processes=", lambda **numbers: mapped(counts, **numbers)
        ),
        "slow C map": Case(
            lambda: mapped(packs), "map", "threads=", lambda **numbers: mapped(packs, **numbers)
        ),
        "slow collate": Case(
            lambda: Pipeline(of_rows).batch(BATCH).load(),
            "collate",
            "jreader.arrays",
            lambda: Pipeline(jreader.arrays(np.zeros((ROWS, 4), np.float32))).batch(BATCH).load(),
        ),
        "slow transfer": Case(
            lambda: of_batches(floats),
            "transfer",
            "leave images as uint8",
            lambda: of_batches(bytes_of_pixels).on_device(jax.jit(scaled)),
        ),
        "tiny capacity": Case(
            lambda: Pipeline(rows).map(waits).batch(BATCH).load(capacity=0),
            "capacity",
            "load(capacity=",
            lambda **numbers: Pipeline(rows).map(waits).batch(BATCH).load(**numbers),
            0.03,
        ),
        "uneven data": Case(
            lambda: Pipeline(uneven_rows).batch(BATCH).load(capacity=1),
            "capacity",
            "load(capacity=",
            lambda **numbers: Pipeline(uneven_rows).batch(BATCH).load(**numbers),
            0.02,
        ),
        "threads that share the lock": Case(
            lambda: mapped(counts, threads=3),
            "map",
            "processes=",
            lambda **numbers: mapped(counts, **numbers),
        ),
        "cold cache": Case(
            lambda: few.cache().batch(BATCH).load(), "map", "fill it before the run", filled
        ),
        "one slow part": Case(
            lambda: parts(slow_rows),
            "source",
            ".map(read_one, threads=",
            lambda **numbers: parts(slow_rows, **numbers),
        ),
        "unbalanced mix": Case(mixed, "map", "threads=", mixed),
        "slow far file": Case(
            lambda: Pipeline(slow_rows).map(abs).batch(BATCH).load(),
            "source",
            ".map(read_one, threads=",
            lambda **numbers: Pipeline(rows).map(waits, **numbers).map(abs).batch(BATCH).load(),
        ),
    }


def took(loader: Any, step: float) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process, from the third feed on."""
    wall = worked = 0.0
    for number, feed in enumerate(loader.steps(STEPS)):
        jax.block_until_ready(feed)
        if number == 2:
            wall, worked = time.perf_counter(), time.process_time()
        time.sleep(step)
    return time.perf_counter() - wall, time.process_time() - worked


def followed(case: Case, rounds: int) -> str:
    loader = case.before()
    took(loader, case.step)
    found = jreader.report(loader)
    if found.limit != case.limit or case.words not in found.advice:
        return f"WRONG: {found.verdict}"
    after = case.after(**found.arguments)
    pairs = [(took(case.before(), case.step), took(after, case.step)) for _ in range(rounds)]
    gain = median(before[0] / then[0] for before, then in pairs)
    before, then = (median(pair[side][0] for pair in pairs) for side in (0, 1))
    spent = [median(pair[side][1] for pair in pairs) for side in (0, 1)]
    return (
        f"{gain:5.2f} x  {1e3 * before / STEPS:6.1f} -> {1e3 * then / STEPS:5.1f} ms a step, "
        f"CPU {1e3 * spent[0] / STEPS:.1f} -> {1e3 * spent[1] / STEPS:.1f}  {found.arguments}"
    )


def main(rounds: int) -> None:
    jax.device_put = Link()
    transfers._batched_device_put = None  # the call below it, which has no link
    with TemporaryDirectory() as folder:
        for name, case in cases(folder).items():
            print(f"{name:28} {followed(case, rounds)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
