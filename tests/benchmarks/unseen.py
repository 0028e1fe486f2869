"""Verdicts of `jreader.report` on cases that its thresholds were not chosen on.

    python -m tests.benchmarks.unseen [tries]

Each case is run so many times (3) and has a limit that is known by construction. Printed: how often
the report names it, and what else it named. A busy machine misleads some of them; the count is
that of the tries, with none left out.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jreader
from jreader import Pipeline, ragged

ROWS, BATCH = 4000, 8
DOCUMENTS = ragged(np.arange(60_000, dtype=np.int32), np.arange(0, 60_001, 3))


def rows():
    yield from range(ROWS)


def first(sample):
    time.sleep(0.002)
    return sample


def second(sample):
    time.sleep(0.002)
    return sample


def wanted(sample):
    time.sleep(0.002)
    return sample % 4 > 0


def whole(samples):
    time.sleep(0.016)
    return samples


def slow_rows():
    for number in range(ROWS):
        time.sleep(0.002)
        yield number


def late_rows():
    time.sleep(0.6)
    yield from range(ROWS)


def dozing_rows():
    for number in range(ROWS):
        if number % (20 * BATCH) == 0:
            time.sleep(0.2)
        yield number


def large(number):
    return np.full(1_500_000, number % 7, np.uint8)


def ragged_rows():
    for number in range(ROWS // BATCH):
        yield np.zeros((number % 40 + 1, 4), np.float32)


def augmented(feed):
    grown = jnp.ones((300, 300)) * jnp.mean(feed)
    for _ in range(12):
        grown = jnp.tanh(grown @ grown)
    return feed + grown[0, 0]


@jax.jit
def compiled(feed):
    for _ in range(30):
        feed = jnp.tanh(feed) @ jnp.ones((4, 4))
    return feed.sum()


def of(seconds: float) -> Callable[[Any], object]:
    return lambda _feed: time.sleep(seconds)


def jittered(_feed):
    time.sleep(random.uniform(0.005, 0.045))


def awaited(feed):
    jax.block_until_ready(feed)


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], object], set[str]]] = {
    "a slow map_batches": (
        lambda: Pipeline(rows).batch(BATCH).map_batches(whole).load(),
        of(0.004),
        {"map_batches whole"},
    ),
    "two equal slow maps": (
        lambda: Pipeline(rows).map(first).map(second).batch(BATCH).load(),
        of(0.004),
        {"map first", "map second"},
    ),
    "a slow filter": (
        lambda: Pipeline(rows).filter(wanted).batch(BATCH).load(),
        of(0.004),
        {"map wanted"},
    ),
    "a slow source behind a shuffle": (
        lambda: Pipeline(slow_rows).shuffle(64, seed=0).batch(BATCH).load(),
        of(0.004),
        {"source slow_rows"},
    ),
    "a first feed that is slow": (
        lambda: Pipeline(late_rows).batch(BATCH).load(),
        of(0.015),
        {"step "},
    ),
    "a step with jitter": (
        lambda: Pipeline(rows).map(first).batch(4).load(),
        jittered,
        {"step "},
    ),
    "packing": (
        lambda: (
            Pipeline(DOCUMENTS).pack(512, seed=0).map(lambda row: row["tokens"]).batch(BATCH).load()
        ),
        of(0.0),
        {"source pack", "source ragged", "source "},
    ),
    "large samples from processes": (
        lambda: Pipeline(rows).map(large, processes=2).batch(2).load(),
        of(0.0),
        {"map large"},
    ),
    "a slow function on the devices": (
        lambda: (
            Pipeline(jreader.arrays(np.zeros((ROWS, 4), np.float32)))
            .batch(BATCH)
            .load()
            .on_device(jax.jit(augmented))
        ),
        awaited,
        {"on_device "},
    ),
    "a step that compiles anew": (
        lambda: jreader.DataLoader.from_generator().set_batch_generator(ragged_rows),
        lambda feed: compiled(feed).block_until_ready(),
        {"step "},
    ),
    "a prefetch that is full": (
        lambda: Pipeline(rows).map(first).prefetch(64).batch(4).load(),
        of(0.02),
        {"step "},
    ),
    "a source that dozes now and then": (
        lambda: Pipeline(dozing_rows).batch(BATCH).load(),
        of(0.02),
        {"capacity "},
    ),
}


def judged(name: str, steps: int = 40) -> Any:
    make, step, _ = CASES[name]
    loader = make()
    for feed, _ in zip(loader, range(steps), strict=False):
        step(feed)
    return jreader.report(loader)


def main(tries: int) -> None:
    right = 0
    for name, (_, _, known) in CASES.items():
        named = Counter[str]()
        for _ in range(tries):
            found = judged(name)
            named[f"{found.limit} {found.function}"] += 1
        hits = sum(many for told, many in named.items() if told in known)
        right += hits
        print(f"{name:34} {hits} of {tries}  {dict(named)}", flush=True)
        print(f"    {found.verdict}", flush=True)
    print(f"right: {right} of {tries * len(CASES)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
