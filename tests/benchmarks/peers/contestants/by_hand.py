"""The loop that a user writes with NumPy and jax alone: what everybody is measured against."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from tests.benchmarks.peers.jobs import (
    TOKENS,
    WINDOW,
    Job,
    Mixture,
    Slow,
    Source,
    Windows,
    decode,
    normalised,
    scaled,
)

PEER, NEEDS = "by hand", ("numpy", "jax")
Epoch = Callable[[int], Iterator[Any]]


def orders(job: Job, epoch: int) -> Iterator[np.ndarray]:
    """The rows of each batch of an epoch: NumPy's permutation, cut."""
    order = np.random.default_rng(epoch).permutation(len(job.labels))
    for at in range(0, job.steps * job.batch, job.batch):
        yield order[at : at + job.batch]


def float32(job: Job) -> Epoch:
    """idx = order[i : i + B]; device_put((X[idx] * scale, Y[idx]))"""
    import jax

    def epoch(number: int) -> Iterator[Any]:
        for rows in orders(job, number):
            yield jax.device_put(scaled((job.images[rows], job.labels[rows])))

    return epoch


def uint8_placed(job: Job) -> Epoch:
    """normalise(device_put((X[idx], Y[idx]))), normalise = jit(...)"""
    import jax

    stage = jax.jit(normalised)

    def epoch(number: int) -> Iterator[Any]:
        for rows in orders(job, number):
            yield stage(jax.device_put((job.images[rows], job.labels[rows])))

    return epoch


def uint8_straight(job: Job) -> Epoch:
    """normalise((X[idx], Y[idx])): NumPy arrays straight into the jitted function"""
    import jax

    stage = jax.jit(normalised)

    def epoch(number: int) -> Iterator[Any]:
        for rows in orders(job, number):
            yield stage((job.images[rows], job.labels[rows]))

    return epoch


def pixels(job: Job) -> Epoch:
    """device_put((Z[idx], Y[idx])), Z a memory map"""
    import jax

    def epoch(number: int) -> Iterator[Any]:
        for rows in orders(job, number):
            yield jax.device_put((job.images[rows], job.labels[rows]))

    return epoch


def one_copy(job: Job) -> Epoch:
    """np.copyto(warm, Z[i : i + B]): one copy of the bytes, in order, and no device: a limit"""
    warm = np.zeros_like(job.images[: job.batch])

    def epoch(_number: int) -> Iterator[Any]:
        for at in range(0, job.steps * job.batch, job.batch):
            np.copyto(warm, job.images[at : at + job.batch])
            yield warm, job.labels[at : at + job.batch]

    return epoch


def mixed(job: Job) -> Iterator[list[Any]]:
    """Lists of B samples of the reader, shuffled in windows."""
    samples, left = job.reader(), []
    while window := list(islice(samples, WINDOW)):
        random.shuffle(window)
        left += window
        while len(left) >= job.batch:
            yield left[: job.batch]
            del left[: job.batch]


def stacked(samples: list[Any]) -> Any:
    """Two arrays for a list of samples."""
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels, "int32")


def stream(job: Job) -> Epoch:
    """lists of WINDOW samples, random.shuffle; np.stack of each B of them; device_put"""
    import jax

    return lambda _number: map(jax.device_put, map(stacked, mixed(job)))


def stack(job: Job) -> Callable[[], np.ndarray]:
    """np.stack(rows), 512 rows of 784 bytes"""
    rows = list(job.images)
    return lambda: np.stack(rows)


def pictures(job: Job) -> Epoch:
    """decode one after another; np.stack; device_put"""
    return _decoded(job, map)


def pictures_threads(job: Job) -> Epoch:
    """ThreadPoolExecutor(2), 2 batches of futures ahead, in order; np.stack; device_put"""
    pool = ThreadPoolExecutor(2)

    def ahead(fn: Callable[[Any], Any], samples: Any) -> Iterator[Any]:
        samples = iter(samples)
        futures = deque(pool.submit(fn, each) for each in islice(samples, 2 * job.batch))
        while futures:
            yield futures.popleft().result()
            futures.extend(pool.submit(fn, each) for each in islice(samples, 1))

    return _decoded(job, ahead)


def _decoded(job: Job, mapping: Callable[..., Any]) -> Epoch:
    import jax

    samples = list(zip(job.images.encoded(), job.labels.tolist(), strict=True))

    def epoch(_number: int) -> Iterator[Any]:
        done = iter(mapping(decode, samples))
        while len(held := list(islice(done, job.batch))) == job.batch:
            yield jax.device_put(stacked(held))

    return epoch


def slow(job: Slow) -> Epoch:
    """for batch in source: device_put(batch), without looking ahead"""
    import jax

    return lambda _number: map(jax.device_put, job.source())


def step_alone(job: Slow) -> Epoch:
    """the step alone, over batches that were placed before: the limit"""
    import jax

    feeds = [jax.block_until_ready(jax.device_put(batch)) for batch in job.source(0)]
    return lambda _number: iter(feeds)


def any_size(job: Job) -> Epoch:
    """a permutation in memory, source[order[i : i + B]]"""
    source = Source(len(job.labels))

    def epoch(number: int) -> Iterator[Any]:
        return (source[rows] for rows in orders(job, number))

    return epoch


def trained(job: Any) -> Callable[[Any, int], Any]:
    """float32 by hand, device_put, loss fetched at every step"""
    return _trained(job, float32(job), fetch=True)


def trained_uint8(job: Any) -> Callable[[Any, int], Any]:
    """uint8 by hand, NumPy straight into the jitted stage, loss fetched at every step"""
    return _trained(job, uint8_straight(job), fetch=True)


def trained_unfetched(job: Any) -> Callable[[Any, int], Any]:
    """float32 by hand, device_put, no loss fetched"""
    return _trained(job, float32(job), fetch=False)


def trained_placed(job: Any) -> Callable[[Any, int], Any]:
    """batches that were placed before: the step alone, loss fetched: the limit"""
    import jax

    feeds = [jax.block_until_ready(feed) for feed in float32(job)(0)]
    return _trained(job, lambda _number: iter(feeds), fetch=True)


def _trained(job: Any, epoch: Epoch, *, fetch: bool) -> Callable[[Any, int], Any]:
    import jax

    update = jax.jit(job.update)

    def train(state: Any, number: int) -> Any:
        for feed in epoch(number):
            state, loss = update(state, feed)
            if fetch:
                float(loss)
        return state

    return train


def windows(job: Windows) -> Epoch:
    """device_put(np.stack([memmap[i : i + T + 1] for i in a batch of a permutation]))"""
    import jax

    stored = np.memmap(job.path, np.uint16, "r")

    def epoch(number: int) -> Iterator[Any]:
        for rows in orders(job, number):
            begins = (rows * TOKENS).tolist()
            yield jax.device_put(np.stack([stored[at : at + TOKENS + 1] for at in begins]))

    return epoch


def windows_start(job: Job) -> Callable[[], Any]:
    """[np.memmap(path) for each of the files], a permutation of all windows, one batch"""

    def begun() -> Any:
        paths = sorted(job.images.iterdir())
        files = [np.memmap(path, np.uint16, "r") for path in paths]
        each = [(len(file) - 1) // TOKENS for file in files]
        order = np.random.default_rng(0).permutation(sum(each))[: job.batch]
        which, at = np.divmod(order, each[0])
        return np.stack(
            [
                files[file][begin * TOKENS : begin * TOKENS + TOKENS + 1]
                for file, begin in zip(which.tolist(), at.tolist(), strict=True)
            ]
        )

    return begun


def mixture(job: Mixture) -> Epoch:
    """for each batch: a shuffled row of turns, a slice of each source put where its turns are"""
    sources = job.sources()
    turns = np.repeat(np.arange(len(sources)), job.shares)
    many = -(-job.batch // len(turns))

    def epoch(number: int) -> Iterator[Any]:
        generator = np.random.default_rng(number)
        given, which = [0] * len(sources), np.empty(0, int)
        while True:
            while len(which) < job.batch:
                more = generator.permuted(np.tile(turns, (many, 1)), axis=1)
                which = np.concatenate([which, more.ravel()])
            here, which = which[: job.batch], which[job.batch :]
            feed = tuple(np.empty((job.batch, *c.shape[1:]), c.dtype) for c in sources[0])
            for source, columns in enumerate(sources):
                (places,) = np.nonzero(here == source)
                first, last = given[source], given[source] + len(places)
                if last > len(columns[0]):
                    return
                for out, column in zip(feed, columns, strict=True):
                    out[places] = column[first:last]
                given[source] = last
            yield feed

    return epoch


PLAYS = {
    "a": [float32, uint8_placed, uint8_straight],
    "b": [pixels, one_copy],
    "c": [stream],
    "c stack": [stack],
    "d": [pictures, pictures_threads],
    "e": [slow, step_alone],
    "g": [any_size],
    "m": [mixture],
    "t mlp": [trained, trained_uint8, trained_placed],
    "t scan": [trained, trained_unfetched],
    "t devices": [float32],
    "t devices stage": [uint8_straight],
    "w": [windows],
    "w start": [windows_start],
}
MOST = {"g": 1e8}
