"""A sweep of 8 mixtures and 8 seeds in one program, beside 8 loaders, and beside one run.

    python -m tests.benchmarks.sweep [steps] [width]

Each run trains an MLP for so many steps (1,000) of 64 samples, with so many hidden units (32), on a
mixture of three sources. Times are of the second call, after everything is compiled; the last
column is that of the first one, compiling included. Parameters of the runs are compared.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jreader
from jreader import Pipeline, arrays, mix

BATCH, FEATURES, RUNS = 64, 16, 8
drawn = np.random.default_rng(0)
SOURCES = [
    (x := drawn.normal(size=(5000, FEATURES)).astype(np.float32), np.sin(x @ drawn.normal(size=16)))
    for _ in range(3)
]
MIXTURES = drawn.integers(1, 100, (RUNS, 3)).astype(np.int32)


def plan(weights, seed):
    sources = [Pipeline(arrays(x=x, y=y.astype(np.float32))).shuffle(seed=seed) for x, y in SOURCES]
    return Pipeline(mix(sources, weights, seed=seed, stop="repeat")).batch(BATCH)


def parameters(width):
    key = jax.random.key(0)
    return {
        "in": jax.random.normal(key, (FEATURES, width)) / 4,
        "out": jax.random.normal(key, (width,)) / 4,
    }


def updated(state, feed):
    def loss(state):
        return jnp.mean((jnp.tanh(feed["x"] @ state["in"]) @ state["out"] - feed["y"]) ** 2)

    return jax.tree.map(lambda leaf, slope: leaf - 0.05 * slope, state, jax.grad(loss)(state))


step_jitted = jax.jit(updated)


def by_loaders(steps, width, runs):
    """The parameters of runs one after another, each over a loader of its own."""
    ended = []
    for run in range(runs):
        state = parameters(width)
        for feed in plan(MIXTURES[run].tolist(), run).load().steps(steps):
            state = step_jitted(state, feed)
        ended.append(jax.block_until_ready(state))
    return ended


def program(steps, width):
    """A function of seeds and mixtures that trains all runs at once."""
    data, batch_at = jreader.as_function(plan(None, 0))

    def run(data, seed, weights):
        def body(state, number):
            return updated(state, batch_at(data, 0, number, seed, weights)), None

        return jax.lax.scan(body, parameters(width), jnp.arange(steps))[0]

    return partial(jax.jit(jax.vmap(run, (None, 0, 0))), data)


def timed(name, work):
    """Prints wall and CPU seconds of the second call, and wall seconds of the first."""
    begun = time.perf_counter()
    jax.block_until_ready(work())
    first = time.perf_counter() - begun
    wall, cpu = time.perf_counter(), time.process_time()
    result = jax.block_until_ready(work())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:32} wall {wall:7.2f} s  CPU {cpu:7.2f} s  first call {first:7.2f} s", flush=True)
    return result


def main(steps=1000, width=32):
    """Runs the sweep in all ways."""
    train, seeds = program(steps, width), jnp.arange(RUNS)
    timed("one run, by a loader", lambda: by_loaders(steps, width, 1))
    loaded = timed(f"{RUNS} runs, by {RUNS} loaders", lambda: by_loaders(steps, width, RUNS))
    timed("one run, as one program", lambda: train(seeds[:1], MIXTURES[:1]))
    swept = timed(f"{RUNS} runs, as one program", lambda: train(seeds, MIXTURES))
    off = [
        np.abs(np.asarray(swept[name][run]) - np.asarray(state[name])).max()
        for run, state in enumerate(loaded)
        for name in state
    ]
    print(f"parameters of the runs differ by at most {max(off):.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
