"""What the loader costs, and what it hides: ratios of loops that take turns in one run.

    python tests/benchmarks/loader.py [rounds]

An epoch with the loader against the same epoch by hand. Below 1.1 is the aim. Each pair of loops
takes turns, so that both see the same noise of the machine; the median of the ratios counts.
"""

import os
import statistics
import sys
import time
from functools import partial

os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from jreader import Columns, DataLoader, Pipeline

ROUNDS, STEPS, SLOW = 9, 200, 0.005
FEED = (
    np.random.default_rng(0).random((512, 784), "float32"),
    np.arange(512, dtype="int32").reshape(-1, 1) % 10,
)


def timed(loop):
    began = time.perf_counter()
    loop()
    return time.perf_counter() - began


def compare(name, ours, other, rounds):
    """The ratio of two loops that take turns, after one turn each to warm up."""
    ours(), other()
    pairs = []
    for turn in range(rounds):
        first, second = (ours, other) if turn % 2 else (other, ours)
        times = {first: timed(first)}
        times[second] = timed(second)
        pairs.append((times[ours], times[other]))
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    mine, theirs = (statistics.median(column) / STEPS * 1e6 for column in zip(*pairs, strict=True))
    print(
        f"{name:64} {statistics.median(ratios):5.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})  "
        f"{mine:6.0f} / {theirs:6.0f} us a step"
    )


def slept(_feed):
    """Stands for a device that is awaited."""
    time.sleep(SLOW)


def spin(seconds):
    """A step that computes for about as long, and is awaited."""
    matrix = jnp.ones((256, 256)) / 256

    def chain(count):
        return jax.jit(lambda x: jax.lax.fori_loop(0, count, lambda _, y: y @ matrix, x))

    probe = chain(50)
    probe(matrix).block_until_ready()
    cost = min(timed(lambda: probe(matrix).block_until_ready()) for _ in range(5)) / 50
    run = chain(max(1, int(seconds / cost)))
    return lambda _feed: run(matrix).block_until_ready()


def hidden(name, step, rounds, capacity=2):
    """A slow source beside a slow step: the epoch against the longer of the two by itself."""

    def source():
        for _ in range(STEPS):
            time.sleep(SLOW)
            yield FEED

    loader = DataLoader.from_generator(capacity=capacity).set_batch_generator(source)

    def ours():
        for feed in loader:
            step(feed)

    def longer():
        steps = timed(lambda: [step(None) for _ in range(STEPS)])
        return max(steps, timed(lambda: list(source())))

    ours()
    ratios = [timed(ours) / longer() for _ in range(rounds)]
    ratios.sort()
    print(f"{name:64} {statistics.median(ratios):5.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def mlp():
    """A small training step: state, loss = step(state, feed)."""
    keys = jax.random.split(jax.random.key(0))
    state = [jax.random.normal(keys[0], (784, 64)) / 28, jax.random.normal(keys[1], (64, 10)) / 8]

    def loss(state, feed):
        logits = jax.nn.relu(feed[0] @ state[0]) @ state[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), feed[1], 1).mean()

    @jax.jit
    def step(state, feed):
        value, slopes = jax.value_and_grad(loss)(state, feed)
        return [old - 0.1 * slope for old, slope in zip(state, slopes, strict=True)], value

    return state, step


def free(rounds):
    """A source that costs nothing: the loader against `device_put` by hand, without prefetch."""
    batches = [tuple(array.copy() for array in FEED) for _ in range(STEPS)]
    columns = [Columns(arrays) for arrays in batches]
    state, step = mlp()

    def by_hand(*, copied):
        fresh = (tuple(array.copy() for array in arrays) for arrays in batches)
        return map(jax.device_put, fresh if copied else batches)

    def loops(feeds, *, steps, fetch):
        def loop():
            carried = state
            for feed in feeds():
                if steps:
                    carried, value = step(carried, feed)
                    if fetch:
                        float(value)
            jax.block_until_ready(carried)

        return loop

    for capacity in (2, 4):
        plain = Pipeline(lambda: columns).load(capacity=capacity)
        safe = DataLoader.from_generator(capacity=capacity).set_batch_generator(lambda: batches)
        for name, options in (
            ("an idle consumer", {"steps": False, "fetch": False}),
            ("MLP steps, loss fetched", {"steps": True, "fetch": True}),
            ("MLP steps, nothing fetched", {"steps": True, "fetch": False}),
        ):
            for loader, kind, copied in ((plain, "Columns", False), (safe, "arrays, copied", True)):
                title = f"free source of {kind}: {name}, capacity {capacity}"
                other = partial(by_hand, copied=copied)
                compare(title, loops(loader, **options), loops(other, **options), rounds)


def main(rounds):
    print(f"{'loader against the loop by hand, medians':64} ratio  (spread)")
    hidden("5 ms source, 5 ms step (sleeping)", slept, rounds)
    hidden("5 ms source, 5 ms step (computing)", spin(SLOW), rounds)
    free(rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
