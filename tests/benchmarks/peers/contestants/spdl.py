"""SPDL: stages on threads; batches are its items wherever the work allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.peers.contestants.by_hand import mixed, orders, stacked
from tests.benchmarks.peers.jobs import Job, Slow, decode, scaled

PEER, NEEDS = "SPDL", ("spdl", "jax")
Epoch = Callable[[int], Iterator[Any]]


def _placed(builder: Any, threads: int) -> Iterator[Any]:
    import jax

    pipeline = builder.build(num_threads=threads)
    with pipeline.auto_stop():
        for feed in pipeline.get_iterator():
            yield jax.device_put(feed)


def _source(items: Any) -> Any:
    from spdl.pipeline import PipelineBuilder

    return PipelineBuilder().add_source(items)


def rows(job: Job) -> Epoch:
    """add_source(rows of batches).pipe(gather and scale, concurrency=2, in order).add_sink(4)"""

    def gathered(rows: np.ndarray) -> Any:
        return scaled((job.images[rows], job.labels[rows]))

    return _gathered(job, gathered)


def pixels(job: Job) -> Epoch:
    """add_source(rows of batches).pipe(gather, concurrency=2, in order).add_sink(4); device_put"""
    return _gathered(job, lambda rows: (job.images[rows], job.labels[rows]))


def _gathered(job: Job, gathered: Callable[[np.ndarray], Any]) -> Epoch:
    def epoch(number: int) -> Iterator[Any]:
        piped = _source(orders(job, number)).pipe(gathered, concurrency=2, output_order="input")
        return _placed(piped.add_sink(4), 2)

    return epoch


def stream(job: Job) -> Epoch:
    """add_source(lists of B samples, shuffled by hand).pipe(np.stack).add_sink(4); device_put"""
    return lambda _number: _placed(_source(mixed(job)).pipe(stacked).add_sink(4), 1)


def pictures(job: Job) -> Epoch:
    """add_source.pipe(decode, concurrency=2, in order).aggregate(B).pipe(np.stack).add_sink(2)"""
    samples = list(zip(job.images.encoded(), job.labels.tolist(), strict=True))

    def epoch(_number: int) -> Iterator[Any]:
        decoded = _source(samples).pipe(decode, concurrency=2, output_order="input")
        batches = decoded.aggregate(job.batch, drop_last=True)
        return _placed(batches.pipe(stacked).add_sink(2), 3)

    return epoch


def slow(job: Slow) -> Epoch:
    """add_source(source).add_sink(4); device_put"""
    return lambda _number: _placed(_source(job.source()).add_sink(4), 1)


PLAYS = {"a": [rows], "b": [pixels], "c": [stream], "d": [pictures], "e": [slow]}
