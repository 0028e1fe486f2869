"""A log that is sampled by step, beside a ring buffer by hand: CPU time a step, and the ratio.

    python -m tests.benchmarks.replay [steps] [size]

Each step appends 32 rows of an observation of so many float32 (64), the next one, an action and a
reward, and samples 256: uniformly, or by priorities, which are set anew for what was sampled. By
hand, the ring of 100,000 rows has NumPy's `rng.integers`, and a binary tree of sums. Rounds take
turns, and the least of each counts.
"""

from __future__ import annotations

import sys
import tempfile
import time

import numpy as np

import jreader

APPENDED, SAMPLED, RING, ROUNDS = 32, 256, 100_000, 5


class Ring:
    """A replay buffer as it is written by hand."""

    def __init__(self, example, seed):
        self.arrays = {
            name: np.zeros((RING, *np.shape(each)), np.asarray(each).dtype)
            for name, each in example.items()
        }
        self.random, self.given, self.leaves = np.random.default_rng(seed), 0, 1 << 17
        self.sums = np.zeros(2 * self.leaves)

    def append(self, batch, priorities):
        rows = np.arange(self.given, self.given + len(batch["reward"])) % RING
        for name, each in batch.items():
            self.arrays[name][rows] = each
        self.given += len(rows)
        if priorities:
            self.set_priorities(rows, 1.0)

    def set_priorities(self, rows, values):
        nodes = rows + self.leaves
        self.sums[nodes] = values
        while nodes[0] > 1:
            nodes = nodes // 2
            self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]

    def rows(self, priorities):
        if not priorities:
            return self.random.integers(0, min(self.given, RING), SAMPLED)
        left, nodes = self.random.random(SAMPLED) * self.sums[1], np.ones(SAMPLED, np.int64)
        while nodes[0] < self.leaves:
            nodes = 2 * nodes
            right = left >= self.sums[nodes]
            left -= right * self.sums[nodes]
            nodes += right
        return nodes - self.leaves

    def take(self, rows):
        return {name: each[rows] for name, each in self.arrays.items()}


def by_hand(steps, batch, priorities):
    ring = Ring({name: each[0] for name, each in batch.items()}, 0)
    for _ in range(steps):
        ring.append(batch, priorities)
        rows = ring.rows(priorities)
        sample = ring.take(rows)
        if priorities:
            ring.set_priorities(rows, np.abs(sample["reward"]) + 0.1)


def logged(steps, batch, priorities, folder=None):
    log = jreader.replay(
        {name: each[0] for name, each in batch.items()}, 0, newest=RING, folder=folder
    )
    for step in range(steps):
        log.append(batch)
        rows = log.rows(step, SAMPLED)
        sample = log.take(rows)
        if priorities:
            log.set_priorities(rows, np.abs(sample["reward"]) + 0.1)


def in_files(steps, batch, priorities):
    with tempfile.TemporaryDirectory() as folder:
        logged(steps, batch, priorities, folder)


def main(steps=6000, size=64):
    """Measures all, and prints a table."""
    drawn = np.random.default_rng(1)
    batch = {
        "observation": drawn.normal(size=(APPENDED, size)).astype(np.float32),
        "after": drawn.normal(size=(APPENDED, size)).astype(np.float32),
        "action": drawn.integers(0, 4, APPENDED, dtype=np.int32),
        "reward": drawn.normal(size=APPENDED).astype(np.float32),
    }
    for priorities in (False, True):
        best = {}
        for _ in range(ROUNDS):
            for work in (by_hand, logged, in_files):
                begun = time.process_time()
                work(steps, batch, priorities)
                taken = (time.process_time() - begun) / steps * 1e6
                best[work] = min(best.get(work, taken), taken)
        print("by priorities" if priorities else "uniformly")
        for work, taken in best.items():
            print(f"  {work.__name__:9} {taken:7.1f} µs a step, {taken / best[by_hand]:.2f} x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
