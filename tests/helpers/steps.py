"""A small classifier to train in tests, and the count of what it costs to compile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from seen import through_json

import jreader

WIDTH, CLASSES = 6, 3
FIELDS = [jreader.data("image", [None, WIDTH]), jreader.data("label", [None, 1], "int64")]


def pictures(count: int) -> Callable[[], Iterator[tuple[Any, int]]]:
    """A reader of `count` different pictures with labels."""

    def reader() -> Iterator[tuple[Any, int]]:
        for number in range(count):
            yield np.sin(number + np.arange(WIDTH)), number % CLASSES

    return reader


def beginning() -> dict[str, Any]:
    """Parameters to begin with."""
    weights = np.cos(np.arange(WIDTH * CLASSES)).reshape(WIDTH, CLASSES)
    return {"weights": weights.astype("float32"), "bias": np.zeros(CLASSES, "float32")}


def loss(params: Any, feed: Any) -> Any:
    """The cross entropy of a feed, without the samples that its mask hides."""
    logits = feed["image"] @ params["weights"] + params["bias"]
    right = jax.nn.one_hot(feed["label"][:, 0], CLASSES)
    each = -(right * jax.nn.log_softmax(logits)).sum(-1)
    return each.mean(where=feed.get("mask"))


class Step:
    """`params, loss = step(params, feed)`, under jit or pmap; `traced` counts its traces."""

    def __init__(self, axis: str | None = None) -> None:
        self.traced, self.axis = 0, axis
        mapped = partial(jax.pmap, axis_name=axis, in_axes=(None, 0), out_axes=None)
        self.compiled = mapped(self._step) if axis else jax.jit(self._step)

    def _step(self, params: Any, feed: Any) -> Any:
        self.traced += 1
        value, gradients = jax.value_and_grad(loss)(params, feed)
        if self.axis:
            value, gradients = jax.lax.pmean((value, gradients), self.axis)
        return jax.tree.map(lambda old, slope: old - 0.1 * slope, params, gradients), value

    def __call__(self, params: Any, feed: Any) -> Any:
        return self.compiled(params, feed)

    def losses(self, params: Any, feeds: Iterable[Any]) -> list[float]:
        """The loss of each step; all of them have to be one program."""
        found = []
        with compiled() as programs:
            for feed in feeds:
                params, value = self(params, feed)
                found.append(float(value))
        steps = [program for program in programs if "_step" in program or "_fun" in program]
        assert (len(steps), self.traced) == (1, 1), programs
        return found


@contextmanager
def compiled() -> Iterator[list[str]]:
    """What jax compiles meanwhile."""
    programs: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if message.startswith("Compiling "):
                programs.append(message)

    logger, handler = logging.getLogger("jax"), Listening()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            yield programs
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def told(feed: Any) -> Any:
    """A feed as plain Python values, which compare."""
    return jax.tree.map(lambda array: np.asarray(array).tolist(), feed)


def stream(feeds: Iterable[Any]) -> list[Any]:
    """All feeds as plain Python values."""
    return list(map(told, feeds))


def with_cursors(feeds: Any) -> tuple[list[Any], list[Any]]:
    """All feeds, and the cursors before, between and after them."""
    seen, cursors = [], [through_json(feeds.cursor)]
    for feed in feeds:
        seen.append(told(feed))
        cursors.append(through_json(feeds.cursor))
    return seen, cursors
