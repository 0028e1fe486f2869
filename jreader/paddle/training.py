"""`train`: the training loop of Paddle's guide, in terms of JAX."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

from jreader import errors
from jreader.feeds import FeedList
from jreader.loaders.device_programs.stages import Feed
from jreader.loaders.loader import DataLoader
from jreader.progress import Bar
from jreader.readers import Reader, described, leaves

S = TypeVar("S")


def train(
    step: Callable[[S, Feed], tuple[S, Any]],
    state: S,
    batch_reader: DataLoader[Feed] | Reader[Any],
    mapping: FeedList | None = None,
    total_pass: int = 1,
    *,
    progress: bool = True,
) -> tuple[S, list[Any]]:
    """Train for `total_pass` epochs: call `state, metrics = step(state, feed)` for every feed.

    The progress bar shows samples per second, and the share of time spent waiting for data.

    >>> step = lambda total, feed: (total + int(feed["x"].sum()), {"rows": len(feed["x"])})
    >>> train(step, 0, lambda: [[(1,), (2,)], [(3,), (4,)]], {"x": 0}, 2, progress=False)
    (20, [{'rows': 2}, {'rows': 2}])

    Args:
        step: Takes the state and a feed; returns the next state and metrics (any tree).
        state: The state for the first step.
        batch_reader: A `DataLoader`, or a reader of batches (lists of samples).
        mapping: The fields, for a reader of batches: a list of `data`, or a mapping from names to
            indices or keys of a sample.
        total_pass: The number of epochs.
        progress: Whether to show a progress bar, in a terminal or notebook.

    Returns:
        The last state, and the metrics of the last step of each epoch (None for an empty one).

    Raises:
        TypeError: An argument is of the wrong kind, or the arguments are in Paddle's order.
        ValueError: `total_pass` is negative.
    """
    if isinstance(state, dict) and isinstance(batch_reader, int):
        raise _in_paddles_order(step, state, batch_reader, mapping)
    errors.check_function("train(step, state, batch_reader)", step)
    if not isinstance(batch_reader, DataLoader):
        errors.check_reader("train(step, state, batch_reader)", batch_reader)
    passes = errors.check_number("total_pass of train", total_pass)
    if isinstance(batch_reader, DataLoader):
        if mapping is not None:
            raise TypeError("train(mapping=...) is for batch readers: a DataLoader has a feed_list")
        loader = batch_reader
    else:
        loader = DataLoader.from_generator(mapping).set_sample_list_generator(batch_reader)
    history, axes = [], loader.batch_axes
    for number in range(passes):
        metrics = None
        with iter(loader) as feeds, _bar(number, passes, progress) as bar:
            began = time.perf_counter()
            for feed in feeds:
                state, metrics = step(state, feed)
                if not bar.off:
                    bar.say(f"waited {feeds.waited / (time.perf_counter() - began):.0%}")
                    bar.add(_rows_of_feed(feed, axes))
        history.append(metrics)
    return state, history


def _in_paddles_order(reader: Any, mapping: Any, size: int, passes: Any) -> TypeError:
    """Return the error for `train(reader, mapping, batch_size, total_pass)`."""
    call = f"batch({described(reader)}, {size}), {mapping}, {1 if passes is None else passes}"
    return TypeError(
        f"train(step, state, batch_reader, mapping, total_pass) needs a step first, as in `state, "
        f"metrics = step(state, feed)`, and the order of Paddle's guide was given: type "
        f"train(step, state, {call})."
    )


def _bar(number: int, passes: int, progress: bool) -> Bar:
    return Bar(f"pass {number + 1}/{passes}", show=progress, stay=True)


def _rows_of_feed(feed: Any, axes: int) -> int:
    shapes = (leaf.shape for leaf in reversed(leaves(feed)) if hasattr(leaf, "shape"))
    return prod(next(shapes, ())[:axes])
