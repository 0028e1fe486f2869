"""`report(loader)`: find the stage that limits the epoch, and what to change."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from math import inf
from socket import gethostname
from typing import Any

import jax

from jreader.errors import check_number, check_seconds
from jreader.loaders import DataLoader
from jreader.loaders.queries.stats import Stats
from jreader.measuring.advice import advice_for, place, stage_in_words
from jreader.measuring.bars import StageBar, bars
from jreader.measuring.fleet import Fleet, exchanged
from jreader.measuring.probing import Measured, Name, Probed, probe
from jreader.measuring.verdicts import counted_data, counted_step, counted_wait, limit_of, stages_of
from jreader.workers.executor_map import workers_of

_MIN_FEEDS = 4  # feeds of a loop: the first one includes the setup
_MIN_IDLE_FEEDS = 8  # the fewest feeds after the first of a loop that does nothing
_MIN_SECONDS = 0.1  # the shortest time to read some again after it


@dataclass(frozen=True)
class Report:
    """The stage that limits a loader's epoch: a verdict, advice, and the times behind them.

    `str(report)` is the whole report as text; a notebook shows it with bars.

    >>> import time
    >>> import jreader
    >>> loader = jreader.Pipeline(lambda: range(64)).batch(8).load()
    >>> for feed in loader:
    ...     time.sleep(0.1)  # a step that takes its time
    >>> found = jreader.report(loader)
    >>> found.limit, found.function
    ('step', '')
    >>> found.verdict.startswith("The step limits the epoch, not the data")
    True

    Attributes:
        limit: The limiting stage: "source", "map", "map_batches", "collate", "transfer",
            "on_device", "capacity" or "step".
        function: The name of its function, or of the op that reads; "" for a stage of the loader.
        where: The file and line of that function, or op; "" for a stage of the loader.
        waiting: The share of a step, from feed to feed, that the loop waits.
        advice: What to change.
        stages: The time of each stage per feed, in the order of the data flow.
        stats: The counters (`loader.stats()`).
        note: Why the plan was not read again; "" if it was.
        arguments: The arguments that the advice asks for, such as {"threads": 16} of a map, or
            {"capacity": 8} of `load`; {} where it asks for another change.
        fleet: Which process of several the others wait for; None for a report of one.
    """

    limit: Name
    function: str
    where: str
    waiting: float
    advice: str
    stages: tuple[Measured, ...]
    stats: Stats
    note: str = ""
    arguments: dict[str, int] = field(default_factory=dict)
    _named: str = ""
    fleet: Fleet | None = None

    @property
    def verdict(self) -> str:
        """The limit in one sentence, with advice; for a fleet, its slowest process."""
        if self.fleet:
            return str(self.fleet)
        if self.limit == "step":
            return (
                f"The step limits the epoch, not the data: {self.waiting:.0%} of each step waits "
                f"for data; {self.advice}."
            )
        waits = f"{self.waiting:.0%} of each step waits for it"
        if self.limit == "capacity":
            waits = f"{self.waiting:.0%} of each step waits for data"
        if self.waiting < 0.1:
            waits = "the step itself waits for it on the devices"
        named = self._named[0].upper() + self._named[1:] if self._named else self.limit
        return f"{named} limits the epoch: {waits}; {self.advice}."

    def __str__(self) -> str:
        """Return the verdict, and a line for each stage of this process."""
        *stages, waits = self._bars()
        wide = max(len(bar.title) for bar in stages)
        lines = [self.verdict, "", f"{'stage':{wide}}  {'ms a feed':>10}  who does it"]
        for bar in (*stages, waits):
            mark = "  <- limits" if bar.marked else ""
            lines.append(f"{bar.title:{wide}}  {bar.value:10.3f}  {bar.note}{mark}".rstrip())
        lines += [f"{queue}.".capitalize() for queue in self.stats.queues if queue.depths]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    __repr__ = __str__  # what a prompt shows

    def _bars(self) -> list[StageBar]:
        """Return a bar for each stage, as wide as its time, and one for the wait of the loop."""
        limits = (self.limit, self.function, self.where)
        shown = [
            StageBar(
                _stage_title(stage),
                1e3 * stage.seconds,
                _workers_in_words(stage),
                (stage.name, stage.function, stage.where) == limits,
            )
            for stage in self.stages
        ]
        waits = 1e3 * counted_wait(self.stats)
        return [*shown, StageBar("the loop waits", waits, "", marked=False)]

    def _repr_html_(self) -> str:
        """Return the verdict and the bars as HTML."""
        return bars(self.verdict, self._bars(), self.stats.queues[0].depths, self.note)


def _stage_title(stage: Measured) -> str:
    where = place(stage)
    named = f"{stage.name} {stage.function}".strip()
    return f"{named} ({where})" if where else named


def _workers_in_words(stage: Measured) -> str:
    if stage.name == "step":
        return "the loop"
    who = f"{stage.workers} {stage.by}" if stage.by else "one thread"
    if stage.holding is None:
        return who
    return f"{who}, {'holds' if stage.holding.holds_gil else 'releases'} the GIL"


def report(
    loader: DataLoader[Any], *, feeds: int = 8, seconds: float = 2.0, fleet: bool | float = False
) -> Report:
    """Find the stage that limits the epoch, and what to change, after some steps of a real loop.

    >>> import time
    >>> import jreader
    >>> def rows():
    ...     yield from range(1000)
    >>> def slow(number):
    ...     time.sleep(0.002)
    ...     return number
    >>> loader = jreader.Pipeline(rows).map(slow).batch(4).load()
    >>> for feed, _ in zip(loader, range(12)):
    ...     pass  # the step
    >>> found = jreader.report(loader)
    >>> found.limit, found.function, found.waiting > 0.5
    ('map', 'slow', True)
    >>> "since it waits most of the time: `threads=" in str(found)
    True

    The loop's counters (`loader.stats()`) show whether it waits. If it does, `report` reads some
    feeds of the next epoch in a separate pass, without workers or prefetching, times each stage
    alone, and watches whether functions of maps hold the GIL. The loop's own pass is not affected.
    This opens the source and calls your functions again, so do not call it while the loop reads a
    source that can be read only once. Such a source is judged by the counters alone; `report.note`
    says so. Call it while nothing else runs: it raises the interpreter's switch interval for a
    tenth of a second.

    A loop that never waits for its step (it never reads a loss, for example) runs ahead of the
    devices, as far as jax allows: run a few hundred steps before you call it, or wait for each
    step.

    The method is that of Plumber (Kuchnik et al., MLSys 2022): measure the rate of each stage
    alone, and what the epoch would take without it.

    Args:
        loader: A loader from which a loop has received at least 4 feeds.
        feeds: The number of feeds to read again, after a first one.
        seconds: The time after which to stop reading.
        fleet: Whether to find the process that the others wait for, of those that feed the same
            arrays: call it on all after the same step, and all get the same `report.fleet`, which
            names processes that do not answer within 10 s (or a number of seconds instead of True).
            Without effect in a single process.

    Raises:
        TypeError: `loader` is not a loader.
        ValueError: A loop has received too few feeds, or a number is too small.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"jreader.report(loader) needs the loader that a loop iterates, as .load() returns it, "
            f"not {type(loader).__name__}: loader = plan.batch(n).load(); for feed in loader: ..."
        )
    many = check_number("feeds of jreader.report(loader)", feeds, 1)
    longest = check_seconds("seconds of jreader.report(loader)", seconds)
    patience = 10.0 if fleet is True else fleet
    if patience:  # check_seconds returns 0 for "no limit"
        patience = check_seconds("fleet of jreader.report", patience) or inf
    stats = loader.stats()
    if len(stats.steps_ns) < _MIN_FEEDS - 1:
        raise ValueError(
            f"jreader.report(loader) judges by the steps of a loop, and has seen "
            f"{len(stats.steps_ns)} whole ones: run {_MIN_FEEDS} steps or more, as in `for feed in "
            f"loader: step(feed)`, then ask again."
        )
    probed, note = _probed(loader, many, longest)
    stages = stages_of(stats, probed)
    limit = limit_of(stats, stages, loader.tuned.capacity if loader.tuned else loader.capacity)
    wait, step = counted_wait(stats), counted_step(stats)
    slowest = 1e-9 * max(stats.waits_ns[1:])  # without the first wait, which includes the setup
    computes = probed.computes if probed else 1.0
    advice = advice_for(limit, stages, computes, slowest)
    found = Report(
        limit.name,
        limit.function,
        limit.where,
        wait / max(wait + step, 1e-12),
        advice.words,
        tuple(stages),
        stats,
        note,
        advice.arguments,
        stage_in_words(limit),
    )
    run = loader._run  # noqa: SLF001  # nor where its processes post
    if not patience or run.board is None:
        return found
    waits = min(wait, counted_data(stats, stages))
    words = f"{stage_in_words(limit)}; {advice.words}"
    mine = Fleet(run.board.me, gethostname(), words, waits, wait + step)
    return replace(found, fleet=exchanged(run.board, mine, stats.feeds, patience))


def _probed(loader: DataLoader[Any], feeds: int, seconds: float) -> tuple[Probed | None, str]:
    loading = loader._loaded  # noqa: SLF001  # what a loader loads is no business of its users
    try:
        found = probe(loading, loader.next_epoch, feeds, seconds)
    except Exception as error:
        return None, f"The plan could not be read again: {type(error).__name__}: {error}"
    if found and loader.tuned:
        found.move_threads({each.made_at: each.threads for each in loader.tuned.maps})
    if found and (batch_workers := loading.options.workers):
        stacks = loading.named_there is not None
        found.move_to_workers(workers_of(batch_workers.executor), stacks=stacks)
    return found, "" if found else "The plan could not be read again: it gave no feed."


def report_of_idle_loop(loader: DataLoader[Any], seconds: float) -> Report:
    """Loop over a loader's feeds without using them, and report what limits the loop.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> loader = Pipeline(arrays(np.arange(64))).batch(8).load()
    >>> found = report_of_idle_loop(loader, seconds=0.05)
    >>> len(found.stats.steps_ns) >= 8
    True

    Args:
        loader: Any loader.
        seconds: How long to loop, with at least 9 feeds; and how long to read some again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as dropped samples
        stops = time.perf_counter() + seconds
        with loader.steps() as feeds:
            for number, feed in enumerate(feeds):
                jax.block_until_ready(feed)
                if number >= _MIN_IDLE_FEEDS and time.perf_counter() > stops:
                    break
        return report(loader, seconds=max(seconds, _MIN_SECONDS))
