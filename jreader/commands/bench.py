"""`jreader bench`: samples per second of each stage of a plan, including all stages before it.

The verdict of `jreader.report` comes last: what limits a loop that does nothing with its feeds.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from jreader.batches import batch, batching
from jreader.commands.named_pipelines import CommandFailed, in_one_line, is_loader, reader_of
from jreader.commands.show import aligned_rows
from jreader.linting.plan_parts import of_batches, prefixes
from jreader.pipelines import Pipeline
from jreader.readers import Reader, described, leaves, start
from jreader.readers.plan_lines import lines_of


def bench(subject: Any, seconds: float = 1.0) -> Iterator[str]:
    """Time passes of a plan, from its source alone to the whole: a line for each, and a verdict.

    Passes run one after another, so the differences between them are the times of the stages;
    samples are read in the plan's own batches. A stage that works ahead on threads or processes may
    take less than nothing. For the verdict, a loop waits for its feeds for this many seconds, and
    then reads some of them again.

    Args:
        subject: A reader or a loader.
        seconds: The time for each stage, which repeats its pass. The first item of each pass is not
            counted: it includes the start-up.

    Raises:
        CommandFailed: There is nothing to read.
    """
    stages = [each for each in prefixes(reader_of(subject)) if not isinstance(each, Pipeline)]
    rows: list[tuple[str, ...]] = [("", "samples/s", "batches/s", "us/sample", "of which here")]
    before, size = 0.0, batching(reader_of(subject)).size
    for stage in reversed(stages):
        batched = of_batches(stage)
        timed = stage if batched or size is None else batch(stage, size)
        name = lines_of(stage)[-1].text if stage is not stages[-1] else described(stage)
        rate = _rate(partial(_pass_items, timed), seconds, axes=int(of_batches(timed)))
        row, before = _rate_row(name, rate, before, batched=batched)
        rows.append(row)
    if is_loader(subject):
        rate = _rate(partial(_feeds, subject), seconds, axes=subject.batch_axes)
        rows.append(_rate_row("load", rate, before, batched=True)[0])
    yield from aligned_rows(rows)
    yield ""
    yield from _verdict(subject, seconds, has_batches=of_batches(reader_of(subject)))


def _verdict(subject: Any, seconds: float, *, has_batches: int) -> Iterator[str]:
    """Find what limits a loop whose step takes no time, and what to change."""
    if not (is_loader(subject) or has_batches):
        yield "no verdict: only a pipeline of batches has one; end it with .batch(32), for example"
        return
    from jreader.measuring.reporting import report_of_idle_loop  # noqa: PLC0415  # it imports jax

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as dropped samples
            loader = subject if is_loader(subject) else Pipeline(subject).load()
            found = report_of_idle_loop(loader, seconds)
    except Exception as error:
        yield f"no verdict: {in_one_line(error)}"
        return
    yield "where the step takes no time (jreader.report):"
    yield found.verdict


class _Rate(NamedTuple):
    """Samples and items counted, and the seconds they took."""

    samples: int
    items: int
    seconds: float


def _rate(begun: Callable[[], Iterator[Any]], seconds: float, axes: int) -> _Rate:
    """Count items of repeated passes, each from its first item on, which includes the start-up.

    Args:
        begun: Starts a pass.
        seconds: When to stop, after at least one pass, or two items of it.
        axes: The number of leading axes of an item that count samples; 0 for one sample.

    Raises:
        CommandFailed: A pass yields nothing.
    """
    samples = items = 0
    taken, stops = 0.0, time.perf_counter() + seconds
    while not items or time.perf_counter() < stops:
        began, before = time.perf_counter(), items
        first = 0
        for number, item in enumerate(begun()):
            rows = math.prod(_leading_axes(item)[:axes])
            samples, items = samples + rows, items + 1
            if not number:
                first, since = rows, time.perf_counter()
            elif time.perf_counter() > stops:
                break
        ended = time.perf_counter()
        if items == before:
            raise CommandFailed("yields nothing: there is nothing to time")
        if items - before > 1:
            samples, items, began = samples - first, items - 1, since
        taken += ended - began
    return _Rate(samples, items, max(taken, 1e-9))


def _rate_row(
    name: str, rate: _Rate, before: float, *, batched: bool
) -> tuple[tuple[str, ...], float]:
    """Return a row of the table, and the microseconds per sample."""
    each = rate.seconds / max(rate.samples, 1) * 1e6
    batches = f"{rate.items / rate.seconds:,.1f}" if batched else ""
    cells = (name, f"{rate.samples / rate.seconds:,.0f}", batches)
    return (*cells, f"{each:,.2f}", f"{each - before:+,.2f}"), each


def _pass_items(stage: Reader[Any]) -> Iterator[Any]:
    with closing(start(stage)) as up:
        yield from up.items


def _feeds(loader: Any) -> Iterator[Any]:
    with loader.epoch(0) as feeds:
        yield from feeds


def _leading_axes(item: Any) -> tuple[int, ...]:
    """Return the leading axes of a batch or a feed, or the length of a list of samples."""
    if isinstance(item, (dict, tuple)):
        item = leaves(item)[0]
    shape: tuple[int, ...] = getattr(item, "shape", None) or ((len(item),) if _sized(item) else ())
    return shape


def _sized(item: Any) -> bool:
    return hasattr(item, "__len__")
