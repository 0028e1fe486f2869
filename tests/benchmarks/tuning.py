"""`load(tune=True)` beside the best setting of a sweep by hand; its cost where nothing is gained.

    python -m tests.benchmarks.tuning [seconds to tune] [rounds]

The sweep goes over threads and capacity. What was found is then compared with the best of it, in
one process, turn by turn, because machines are noisy: figures are medians of those turns, and what
counts is their ratio. The tuned loader is compared while it goes on tuning. Where nothing is to be
gained, what is compared is the time of this program's threads on the processor for a feed, in many
short turns: a ratio above 1 is what tuning costs.
"""

from __future__ import annotations

import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader import Pipeline, arrays

PACKED = zlib.compress(np.random.default_rng(0).integers(0, 40, 400_000, np.uint8).tobytes(), 1)
THREADS, CAPACITIES = (1, 2, 4, 8, 16, 32), (2, 8)
TURN = 0.7  # seconds


def forever() -> Iterator[int]:
    yield from range(10**9)


def slow() -> Iterator[int]:
    for number in range(10**9):
        time.sleep(0.0005)
        yield number


def bursty() -> Iterator[int]:
    for number in range(10**9):
        if number % 128 == 0:
            time.sleep(0.06)
        yield number


def waiting(seconds: float) -> Callable[[Any], Any]:
    def wait(sample: Any) -> Any:
        time.sleep(seconds)
        return sample

    return wait


def unpack(sample: int) -> np.ndarray[Any, Any]:
    """C code without the interpreter's lock, as the decoder of a JPEG."""
    return np.frombuffer(zlib.decompress(PACKED), np.uint8)[:64] + np.uint8(sample % 3)


def no_step(_: int) -> None:
    """A loop that is as quick as its data."""


def steady(_: int) -> None:
    time.sleep(0.005)


def uneven(number: int) -> None:
    """Eight quick steps, then a long one."""
    if number % 8 == 0:
        time.sleep(0.08)


@dataclass
class Case:
    """A plan for a number of threads, and the step of its loop."""

    name: str
    plan: Callable[[int], Pipeline[Any]]
    step: Callable[[int], None] = no_step
    gains: bool = True


def mapped(source: Any, fn: Callable[[Any], Any]) -> Callable[[int], Pipeline[Any]]:
    return lambda threads: Pipeline(source).map(fn, threads=threads).batch(16)


ROWS = arrays(x=np.zeros((65_536, 3072), np.uint8))
CASES = [
    Case("map waits 2 ms", mapped(forever, waiting(0.002))),
    Case("map waits 10 ms", mapped(forever, waiting(0.01))),
    Case("C map leaves the lock", mapped(forever, unpack)),
    Case("slow source, map waits 2 ms", mapped(slow, waiting(0.002))),
    Case("bursty source, steady step", mapped(bursty, waiting(0.001)), steady),
    Case("map waits 4 ms, uneven step", mapped(forever, waiting(0.004)), uneven),
    Case("nothing to gain: rows", lambda _: Pipeline(ROWS).batch(64), gains=False),
    Case("nothing to gain: samples", lambda _: Pipeline(forever).batch(64), gains=False),
    Case("nothing to gain: the step", mapped(forever, waiting(0.0002)), steady, gains=False),
]


class Running:
    """A loop over a loader that is run a while at a time."""

    def __init__(self, case: Case, threads: int, **options: Any) -> None:
        self.loader = case.plan(threads).load(**options)
        self.feeds, self.step, self.done = self.loader.steps(), case.step, 0

    def rate(self, seconds: float) -> float:
        """Feeds a second."""
        began, done = time.perf_counter(), self.done
        while time.perf_counter() < began + seconds or self.done < done + 16:
            next(self.feeds)
            self.done += 1
            self.step(self.done)
        return (self.done - done) / (time.perf_counter() - began)

    def cpu(self, feeds: int) -> float:
        """Seconds of the processor for a feed."""
        began = time.process_time()
        for _ in range(feeds):
            next(self.feeds)
            self.done += 1
            self.step(self.done)
        return (time.process_time() - began) / feeds


def best_by_hand(case: Case) -> tuple[int, int]:
    """The threads and the capacity of the quickest setting; the finalists run three times."""

    def rate(setting: tuple[int, int], seconds: float) -> float:
        running = Running(case, setting[0], capacity=setting[1])
        running.rate(0.2)
        found = running.rate(seconds)
        running.feeds.close()
        return found

    settings = [(threads, capacity) for threads in THREADS for capacity in CAPACITIES]
    first = {setting: rate(setting, 0.4) for setting in settings}
    finalists = sorted(settings, key=lambda setting: first[setting])[-3:]
    return max(finalists, key=lambda each: statistics.median(rate(each, TURN) for _ in range(3)))


def compared(one: Running, other: Running, rounds: int) -> tuple[float, float, float]:
    """The median rates of two loops that take turns, and the median ratio of a turn."""
    rates = []
    for turn in range(rounds):
        pair = (one, other) if turn % 2 else (other, one)
        found = {running: running.rate(TURN) for running in pair}
        rates.append((found[one], found[other]))
    firsts, seconds = zip(*rates, strict=True)
    ratio = statistics.median(first / second for first, second in rates)
    return statistics.median(firsts), statistics.median(seconds), ratio


def costs(one: Running, other: Running, rounds: int) -> tuple[float, float, float]:
    """The median microseconds of the processor for a feed of two loops, and their median ratio."""
    found = []
    for turn in range(rounds):
        pair = (one, other) if turn % 2 else (other, one)
        found.append({running: running.cpu(50) for running in pair})
    mine, its = ([each[running] for each in found] for running in (one, other))
    ratio = statistics.median(each[one] / each[other] for each in found)
    return 1e6 * statistics.median(mine), 1e6 * statistics.median(its), ratio


def main(seconds: float = 30.0, rounds: int = 12, only: str = "") -> None:
    """Prints a line for each case."""
    print("| case | by hand | feeds/s, or us | tuned | feeds/s, or us | ratio |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        if only not in case.name:
            continue
        threads, capacity = best_by_hand(case) if case.gains else (2, 2)
        tuned = Running(case, 2, tune=True)
        if case.gains:
            tuned.rate(seconds)
        hand = Running(case, threads, capacity=capacity)
        hand.rate(TURN)
        one, other, ratio = (
            compared(tuned, hand, rounds) if case.gains else costs(tuned, hand, 25 * rounds)
        )
        found = " ".join(line.partition("  #")[0] for line in str(tuned.loader.tuned).splitlines())
        print(
            f"| {case.name} | threads={threads}, capacity={capacity} | {other:.1f} "
            f"| {found} | {one:.1f} | {ratio:.3f} |",
            flush=True,
        )
        tuned.feeds.close()
        hand.feeds.close()


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((float, int, str), sys.argv[1:], strict=False)))
