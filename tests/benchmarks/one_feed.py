"""What one feed costs: the Python calls that it takes, loops by hand beside it, and waits.

    python -m tests.benchmarks.one_feed [--turns 15] [--seconds 0.3]
        [--only calls beside counters waits]

Calls are counted on all threads (`sys.setprofile`), so they are the same on every machine; the
resumption of a generator is one. A steady feed is the mean of sixteen, after twenty others. The
loops beside it are those of the benchmark against peers (`peers/contestants`); here both are in one
process and take turns, and the median of the ratios counts: above 1 the loader is faster. Waits are
those of a step that takes 0.2 s, at the beginning of each epoch of a source whose first batch takes
0.09 s. Counters: the processor time of a feed, in blocks of loops with counters and without that
take turns; that of the quickest tenth of the blocks. What is left of them
in the second loop are branches, and rings to which something is added, but which keep nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from jreader import DataLoader, Pipeline, arrays
from jreader.counters import MOST, Counters
from tests.benchmarks.peers import jobs
from tests.benchmarks.peers.contestants import by_hand, jreader

LED, COUNTED = 20, 16  # feeds
STEP, FIRST = 0.2, 0.09  # seconds
ROOT = f"{Path(sys.modules['jreader'].__file__).parent}{os.sep}"


class Calls(list[tuple[str, str]]):
    """The Python functions that were called, each time with its file."""

    @property
    def own(self) -> Calls:
        """Those of jreader."""
        return Calls(call for call in self if call[0].startswith(ROOT))

    @property
    def files(self) -> int:
        """In how many files they are."""
        return len({file for file, _ in self})

    @property
    def changes(self) -> int:
        """How often the file changes, from call to call."""
        return sum(one[0] != other[0] for one, other in pairwise(self))


@contextmanager
def counting() -> Iterator[Callable[[], Calls]]:
    """Counts on this thread, and on those that begin meanwhile: the calls since it was asked."""
    calls = Calls()

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    def since() -> Calls:
        seen = Calls(calls)
        del calls[: len(seen)]
        return seen

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield since
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know


def calls_of(loader: Any, *, other_threads: bool) -> dict[str, tuple[Calls, int]]:
    """The calls of `iter(loader)`, of the first feed, and of steady ones; over how many feeds."""
    with counting() as since:
        next(iter(loader.epoch(0)))  # what is made once is made
        since()
        feeds = iter(loader)
        begun = since()
        next(feeds)
        _settle(other_threads)
        first = since()
        for _ in range(LED):
            next(feeds)
        _settle(other_threads)
        since()
        for _ in range(COUNTED):
            next(feeds)
        _settle(other_threads)
        steady = since()
        feeds.close()
    return {"iter(loader)": (begun, 1), "first feed": (first, 1), "steady": (steady, COUNTED)}


def _settle(other_threads: bool) -> None:
    """Lets threads that look ahead come to rest: they are as many feeds ahead as before."""
    if other_threads:
        time.sleep(0.1)


class Rows:
    """A data set by index."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], index


def loaders() -> Iterator[tuple[str, Any, bool]]:
    """What is counted: its name, the loader, and whether other threads work for it."""
    images, labels = np.zeros((20_000, 64), np.float32), np.arange(20_000, dtype=np.int32)
    rows = Pipeline(arrays(image=images, label=labels)).shuffle(seed=0).batch(64)
    stream = Pipeline(lambda: zip(images, labels, strict=True)).shuffle(1000, seed=0).batch(64)
    for capacity in (0, 2):
        yield f"arrays, capacity {capacity}", rows.load(capacity=capacity), capacity > 0
        yield f"a stream, capacity {capacity}", stream.load(capacity=capacity), capacity > 0
        dataset = DataLoader(Rows(images), 64, shuffle=True, seed=0, capacity=capacity)
        yield f"DataLoader(dataset), capacity {capacity}", dataset, capacity > 0


def calls() -> None:
    """Prints a table of counts."""
    print(
        "| calls of Python functions | | all | of jreader | its functions | its files | changes |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, loader, other_threads in loaders():
        for when, (seen, over) in calls_of(loader, other_threads=other_threads).items():
            own = seen.own
            print(
                f"| {name} | {when} | {len(seen) / over:.0f} | {len(own) / over:.0f} "
                f"| {len(set(own))} | {own.files} | {own.changes / over:.0f} |",
                flush=True,
            )


BESIDE = {
    "float32 on the host: by hand": ("a", jreader.float32, "by_hand.float32"),
    "uint8 and a stage: by hand, NumPy into the stage": (
        "a",
        jreader.uint8,
        "by_hand.uint8_straight",
    ),
    "uint8 and a stage: by hand, device_put, the stage": (
        "a",
        jreader.uint8,
        "by_hand.uint8_placed",
    ),
    "rows of a source of 1e5, on the host: by hand": (
        "g 1e5",
        jreader.any_size,
        "by_hand.any_size",
    ),
    "float32 on the host: Grain, a source of batches": (
        "a",
        jreader.float32,
        "grain.whole_batches",
    ),
}
COUNTED_LOOPS = {
    "float32 on the host": ("a", jreader.float32),
    "uint8 and a stage": ("a", jreader.uint8),
    "a shuffled stream": ("c", jreader.stream),
}
AGAIN, BLOCK = 8, 32  # feeds of one loop: until it is as before the other's turn, and timed


class Uncounted(Counters):
    """Counters that keep nothing, and read no clock once some feeds have been timed."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.most_skips = sys.maxsize
        for name in ("assembled", "depths", "placed", "steps"):
            setattr(self, name, deque(maxlen=0))

    def continued(self) -> Uncounted:
        """They are those of the next pass, too."""
        return self


def counters(turns: int, size: float) -> None:
    """Prints what a feed costs with counters, and without."""
    print("| us of the processor for a feed | with counters | without | more |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        jobs.prepare(Path(folder), size, ["a", "c"])
        for name, (case, play) in COUNTED_LOOPS.items():
            job = jobs.made(case, Path(folder), size, 1.0)
            loaders = [play(job).__self__ for _ in range(2)]
            loaders[1]._run.counters = Uncounted()
            loops = [loader.steps() for loader in loaders]
            for loop in loops:
                deque(islice(loop, 4 * MOST), maxlen=0)
            times: list[list[float]] = [[], []]
            for turn in range(8 * turns):
                for which in (0, 1) if turn % 2 else (1, 0):
                    deque(islice(loops[which], AGAIN), maxlen=0)
                    began = time.process_time_ns()
                    deque(islice(loops[which], BLOCK), maxlen=0)
                    times[which].append((time.process_time_ns() - began) / BLOCK)
            ours, bare = (statistics.quantiles(each, n=10)[0] / 1000 for each in times)
            print(f"| {name} | {ours:.2f} | {bare:.2f} | {ours / bare - 1:+.1%} |", flush=True)


def beside(turns: int, seconds: float, size: float) -> None:
    """Prints our rate over that of a loop beside it, turn by turn."""
    print("| our rate over that of | median | lowest | highest | us a batch, ours | the other |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        jobs.prepare(Path(folder), size, ["a"])
        for name, (case, ours, other) in BESIDE.items():
            module = other.split(".")[0]
            if module == "grain" and not find_spec("grain"):
                print(f"| {name} | cannot be imported | | | | |")
                continue
            pair = [ours, _play(other)]
            kept = [jobs.made(case, Path(folder), size, seconds) for _ in pair]
            begun = [play(job) for play, job in zip(pair, kept, strict=True)]
            for job, epoch in zip(kept, begun, strict=True):
                job.turn(epoch, 0)
            rates: list[list[float]] = []
            for turn in range(1, turns + 1):
                order = (0, 1) if turn % 2 else (1, 0)
                found = {which: kept[which].turn(begun[which], turn)[case] for which in order}
                rates.append([found[0], found[1]])
            for job in kept:
                assert not job.wrong, job.wrong  # wrong work is nothing to measure
            ratios = sorted(mine / theirs for mine, theirs in rates)
            mine, theirs = (
                1e6 * kept[0].batch / statistics.median(column)
                for column in zip(*rates, strict=True)
            )
            print(
                f"| {name} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} "
                f"| {mine:.0f} | {theirs:.0f} |",
                flush=True,
            )


def _play(name: str) -> Any:
    module, _, play = name.partition(".")
    if module == "by_hand":
        return getattr(by_hand, play)
    from tests.benchmarks.peers.contestants import grain  # noqa: PLC0415  # if it can be imported

    return getattr(grain, play)


def late() -> Iterator[Any]:
    """Rows, the first of which is waited for."""
    time.sleep(FIRST)
    yield from np.zeros((3 * 8, 4), np.float32)


def waits(epochs: int) -> None:
    """Prints how long the step waits for the first feed of each epoch, and for the others."""
    print("| ms that a step waits | epoch by epoch, first feeds | other feeds, the longest |")
    print("|---|---|---|")
    plan = Pipeline(late)
    for name, feeds in {
        "loader.steps()": plan.batch(8).load().steps(3 * epochs),
        "for feed in loader": _again(plan.batch(8).load(), epochs),
        ".epochs(n)": plan.epochs(epochs).batch(8).load().steps(3 * epochs),
    }.items():
        waited = []
        for _ in range(3 * epochs):
            began = time.perf_counter()
            jax.block_until_ready(next(feeds))
            waited.append(1000 * (time.perf_counter() - began))
            time.sleep(STEP)
        firsts = ", ".join(f"{wait:.0f}" for wait in waited[::3])
        others = max(wait for nth, wait in enumerate(waited) if nth % 3)
        print(f"| {name} | {firsts} | {others:.0f} |", flush=True)


def _again(loader: Any, epochs: int) -> Iterator[Any]:
    for _ in range(epochs):
        yield from islice(loader, 3)


def main() -> None:
    """Prints the tables that are asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.one_feed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="the longest of a turn")
    parser.add_argument("--size", type=float, default=1.0, help="a factor of the data")
    parser.add_argument("--epochs", type=int, default=5, help="whose beginnings are waited for")
    parser.add_argument("--only", nargs="*", default=["calls", "beside", "counters", "waits"])
    asked = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    tables = {
        "calls": calls,
        "beside": lambda: beside(asked.turns, asked.seconds, asked.size),
        "counters": lambda: counters(asked.turns, asked.size),
        "waits": lambda: waits(asked.epochs),
    }
    for name in asked.only:
        tables[name]()
        print()


if __name__ == "__main__":
    main()
