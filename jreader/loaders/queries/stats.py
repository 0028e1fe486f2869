"""`Stats`: the counters of a loader for its last feeds, as plain data and as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise

from jreader.counters import Counters, Work, snapshot


@dataclass(frozen=True)
class StageStats:
    """The time of one stage for the last feeds.

    Attributes:
        name: "read" (the plan, up to its batches, on the thread that draws), "map" and
            "map_batches" (functions that count for themselves), "collate" (arrays of a feed),
            "transfer" or "on_device" (to the devices, with the functions that run there), "step".
        time_ns: Nanoseconds of work, summed over the workers that did it.
        items: The number of items: feeds; for "map" samples, for "map_batches" batches. Of quick
            feeds (within 0.5 ms), one in eight is timed, later one in 32; it stands for all of them
            in "read" and "collate", and for itself elsewhere.
        bytes: The bytes of those items; None if they are unknown before a feed is read.
        function: The name of the user's function; "" for none.
        made_at: The file and line that made the op; "" for a stage of the loader.
        by: "threads", "processes" or "executor"; "" for the thread that draws.
        workers: The number of parallel workers.
    """

    name: str
    time_ns: int
    items: int
    bytes: int | None = None
    function: str = ""
    made_at: str = ""
    by: str = ""
    workers: int = 1


@dataclass(frozen=True)
class QueueStats:
    """How full a queue was at each request.

    Attributes:
        name: "capacity" (the loader's prefetch queue), or the op of the queue.
        room: Its capacity; None if that changes while it runs.
        depths: The items that were ready at each request, the oldest first.
        made_at: The file and line that made the op.
    """

    name: str
    room: int | None
    depths: tuple[int, ...]
    made_at: str = ""

    @property
    def empty(self) -> float:
        """The share of the requests that found the queue empty."""
        return self.depths.count(0) / len(self.depths) if self.depths else 0.0

    def __str__(self) -> str:
        """Return how often it was empty, in words."""
        name = "prefetch" if self.name == "capacity" else self.name
        return f"the {name} queue was empty {self.empty:.0%} of the time"


@dataclass(frozen=True)
class Stats:
    """The times of a loader's stages for its last feeds, at most 256.

    `dataclasses.asdict` makes plain dicts and tuples of it, for JSON.

    Attributes:
        waits_ns: The loop's wait for each feed, the oldest first.
        steps_ns: The time from each feed to the next request.
        stages: The time of each stage.
        queues: How full the queues were.
        feeds: The number of feeds since the loader was made, in all passes.
        waited_ns: The total wait for these.
    """

    waits_ns: tuple[int, ...]
    steps_ns: tuple[int, ...]
    stages: tuple[StageStats, ...]
    queues: tuple[QueueStats, ...]
    feeds: int = 0
    waited_ns: int = 0

    @property
    def waiting(self) -> float:
        """The share of time that the loop waited for feeds; 0 before the second feed.

        It ignores the first feed of a pass, which includes the setup.
        """
        waited, stepped = sum(self.waits_ns), sum(self.steps_ns)
        return waited / (waited + stepped) if self.steps_ns else 0.0

    def scalars(self, prefix: str = "jreader") -> dict[str, float]:
        """Return the metrics as a flat dict of floats, for W&B, TensorBoard and the like.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([1, 2, 3, 4])).batch(2).load()
        >>> len(list(loader))
        2
        >>> scalars = loader.stats().scalars()
        >>> scalars["jreader/feeds"], "jreader/stage_seconds/read" in scalars
        (2.0, True)

        Args:
            prefix: The prefix of the names; give each loader of a run its own.
        """
        return {
            "/".join([labels.pop("loader"), name.removesuffix("_total"), *labels.values()]): value
            for name, labels, value in measured({prefix: self})
        }

    def prometheus(self, name: str = "loader") -> str:
        r"""Return the metrics in the text format of Prometheus.

        >>> from jreader import Pipeline, arrays
        >>> stats = Pipeline(arrays([1, 2])).batch(2).load().stats()
        >>> print(*stats.prometheus("train").splitlines()[:3], sep="\n")
        # HELP jreader_feeds_total Feeds that loops got.
        # TYPE jreader_feeds_total counter
        jreader_feeds_total{loader="train"} 0.0

        `jreader.observe` gives them to a registry of `prometheus_client`.

        Args:
            name: The value of the label `loader`; give each loader of a program its own.
        """
        return prometheus_text(measured({name: self}))

    def __str__(self) -> str:
        """Return a table: a line for each stage and queue."""
        width = max(len(_title_of_stage(stage)) for stage in self.stages)
        lines = [f"{'stage':{width}}  ms an item    items  workers"]
        for stage in self.stages:
            each = 1e-6 * stage.time_ns / stage.items if stage.items else 0.0
            title = f"{_title_of_stage(stage):{width}}"
            lines.append(f"{title}  {each:10.3f}  {stage.items:7d}  {stage.workers:7d}")
        lines.append(f"the loop waited for feeds {self.waiting:.0%} of the time")
        return "\n".join([*lines, *(str(queue) for queue in self.queues if queue.depths)])


def _title_of_stage(stage: StageStats) -> str:
    return f"{stage.name} {stage.function}".strip()


def stats_of(counters: Counters, *, on_device: bool, capacity: int, equal: bool) -> Stats:
    """Return the counters as `Stats`.

    Args:
        counters: The counters of a loader; they may be counting.
        on_device: Whether feeds run through functions on the devices.
        capacity: The number of feeds that the loader prefetches.
        equal: Whether all feeds have as many bytes as the first one, on this host.
    """
    steps = snapshot(counters.steps)
    waits, away = [], []
    for one, other in pairwise(steps):
        if one is not None and other is not None:
            away.append(other[0] - one[1])
            waits.append(other[1] - other[0])
    assembled, placed = snapshot(counters.assembled), snapshot(counters.placed)

    fed = sum(many for *_, many in assembled)

    def of_feeds(name: str, time: int, items: int) -> StageStats:
        known = counters.feed_bytes if equal else None
        return StageStats(name, time, items, None if known is None else items * known)

    stages = [
        StageStats("read", sum(many * (read - began) for began, read, _, many in assembled), fed),
        *map(_of_work, counters.works),
        of_feeds(
            "collate", sum(many * (stacked - read) for _, read, stacked, many in assembled), fed
        ),
        of_feeds("on_device" if on_device else "transfer", sum(placed), len(placed)),
        StageStats("step", sum(away), len(away)),
    ]
    queues = [
        QueueStats("capacity", capacity, tuple(snapshot(counters.depths))),
        *(_queue(work) for work in counters.works if work.by),
    ]
    return Stats(tuple(waits), tuple(away), tuple(stages), tuple(queues), *counters.given)


def _of_work(work: Work) -> StageStats:
    tasks = snapshot(work.tasks)
    return StageStats(
        "map_batches" if work.op == "map_batches" else "map",
        sum(time for time, _ in tasks),
        sum(items for _, items in tasks),
        None,
        work.function,
        work.made_at,
        work.by,
        work.workers,
    )


def _queue(work: Work) -> QueueStats:
    return QueueStats(work.op, None, tuple(snapshot(work.depths)), work.made_at)


METRICS = {
    "feeds_total": ("counter", "jreader.feeds", "{feed}", "Feeds that loops got."),
    "wait_seconds_total": ("counter", "jreader.wait", "s", "Time that loops waited for feeds."),
    "waiting_ratio": ("gauge", "jreader.waiting", "1", "Share of the time that the loop waits."),
    "stage_seconds": ("gauge", "jreader.stage", "s", "Time that a worker takes for an item."),
}
"""For each metric's name in Prometheus: its kind; its name and unit in OpenTelemetry; and a
description. docs/how_to/watch_a_run.md has a row for each."""


def measured(loaders: Mapping[str, Stats]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield all values of some loaders: the metric's name, its labels, and the value."""
    for loader, stats in loaders.items():
        by, seen = {"loader": loader}, Counter[str]()
        yield "feeds_total", {**by}, float(stats.feeds)
        yield "wait_seconds_total", {**by}, 1e-9 * stats.waited_ns
        yield "waiting_ratio", {**by}, stats.waiting
        for stage in stats.stages:
            seen[title := _title_of_stage(stage)] += 1
            labels = {**by, "stage": f"{title} {seen[title]}" if seen[title] > 1 else title}
            if stage.items:
                yield "stage_seconds", labels, 1e-9 * stage.time_ns / stage.items


def prometheus_text(values: Iterable[tuple[str, dict[str, str], float]]) -> str:
    """Format the values of `measured` as Prometheus reads them."""
    lines = {
        name: [f"# HELP jreader_{name} {about}", f"# TYPE jreader_{name} {kind}"]
        for name, (kind, _, _, about) in METRICS.items()
    }
    for name, labels, value in values:
        pairs = ",".join(f'{key}="{text.translate(_ESCAPED)}"' for key, text in labels.items())
        lines[name].append(f"jreader_{name}{{{pairs}}} {value}")
    return "\n".join([*chain.from_iterable(lines.values()), ""])


_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
