"""Find the stage that limits the epoch, from times counted in the loop and measured separately.

Stages on the reading thread run in sequence, so their times add up; a map on workers runs beside
them, in parallel on all workers unless it holds the GIL; the step runs beside all of it if the
loader prefetches. The limit is the stage whose removal would save the most time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from jreader.loaders.queries.stats import Stats
from jreader.measuring.probing import Measured, Probe, Probed
from jreader.workers.gil import holding

WAITS = 0.1
"""The share of waiting below which the step is the limit."""
_ALIKE = 0.8  # of the step: data that take less would arrive in time, if they came evenly
_UNEXPLAINED = 0.8  # of the loop's reading time: time missing in the second read is the source's


def stages_of(stats: Stats, probed: Probed | None) -> list[Measured]:
    """Return the stages of a loader in data-flow order, and the step."""
    counted = _counted_stages(stats)
    last: Any = stats.stages[-2].name  # "transfer" or "on_device"
    place = counted.get(last, 0.0)
    collate = Measured("collate", alone=counted.get("collate", 0.0))
    stages: list[Measured] = []
    if probed is None:
        read = counted.get("read", 0.0)
        stages.append(Measured("source", alone=read))
    else:
        in_processes = {
            stage.made_at: 1e-9 * stage.time_ns / stage.items
            for stage in stats.stages
            if stage.items and stage.by == "processes"
        }
        stages += _of_plan(counted.get("read", 0.0), in_processes, probed)
        # in the loop these may have waited for the GIL, held by others
        place, stacking = 1e-9 * probed.place or place, probed.collate
        collate = replace(stacking.stage, alone=1e-9 * stacking.time)
    stages += [
        collate,
        Measured(last, alone=place),
        Measured("step", alone=counted_step(stats)),
    ]
    return stages


def _of_plan(counted: float, in_processes: Mapping[str, float], probed: Probed) -> list[Measured]:
    """Return the stages of a plan; untimed work counts as the source's.

    Args:
        counted: Seconds per feed that the loop's pass spent reading.
        in_processes: Seconds per call in worker processes, by the line of each op that has them.
        probed: The measurements of the separate pass.
    """
    slowest = max((probe.time for probe in probed.probes), default=0)
    stages = [_of_probe(probe, probed.feeds, slowest, in_processes) for probe in probed.probes]
    rest = _untimed(counted, 1e-9 * probed.read, stages)
    sources = [number for number, stage in enumerate(stages) if stage.name == "source"]
    if len(sources) == 1:
        (only,) = sources
        alone = stages[only].alone + max(rest, 0.0)
        stages[only] = replace(stages[only], alone=alone, holding=None, seen=0.0)
    elif rest > 0:
        stages.insert(0, Measured("source", alone=rest))
    order = ("source", "map", "map_batches")
    return sorted(stages, key=lambda stage: order.index(stage.name))


def _untimed(counted: float, read: float, stages: Sequence[Measured]) -> float:
    """Return the seconds per feed that no stage accounts for, in the loop or in the probe."""
    rest = read - sum(stage.alone for stage in stages)
    threaded = any(stage.by for stage in stages)
    if not threaded and counted - read > _UNEXPLAINED * counted:
        rest += counted - read  # slower in the loop, such as a remote file
    return rest


def _of_probe(
    probe: Probe, feeds: int, slowest: int, in_processes: Mapping[str, float]
) -> Measured:
    """Return a stage with its measured time; watch the function of one that may limit."""
    found = None
    if probe.function and probe.samples and 5 * probe.time > slowest:
        found = holding(probe.function, list(probe.samples))
    stage = replace(probe.stage, alone=1e-9 * probe.time / feeds, holding=found)
    if stage.by != "processes" or probe.op is None:
        return stage
    # large samples are slower to make there, in memory that is always new
    each = in_processes.get(probe.op.made_at, 0.0) * probe.calls / feeds
    return replace(stage, seen=each / stage.workers)


def counted_step(stats: Stats) -> float:
    """Return the seconds per step in the loop, without the first step, which compiles."""
    return _steady_mean(stats.steps_ns)


def counted_wait(stats: Stats) -> float:
    """Return the seconds that the loop waited per feed."""
    return _steady_mean(stats.waits_ns)


def _steady_mean(times: Sequence[int]) -> float:
    steady = times[1:] if len(times) > 3 else times
    return 1e-9 * sum(steady) / max(len(steady), 1)


def limit_of(stats: Stats, stages: Sequence[Measured], capacity: int) -> Measured:
    """Find what limits the epoch.

    Args:
        stats: The loop's counters.
        stages: The result of `stages_of`.
        capacity: The number of feeds that the loader prefetches.
    """
    *data, step = stages
    wait, away = counted_wait(stats), step.seconds
    slowest = max(data, key=attrgetter("seconds"))
    if wait < WAITS * (wait + away):
        placing = data[-1]
        # the step includes the wait for work on the devices
        return placing if placing.seconds > 0.5 * away else step
    alone = sum(stage.seconds for stage in data if not stage.by)
    takes = max([alone, *(stage.seconds for stage in data if stage.by)])
    if capacity == 0:
        late = min(takes, away) > slowest.seconds
    else:
        late = max(takes, counted_data(stats, data)) < _ALIKE * away
    return Measured("capacity", workers=capacity) if late else slowest


def counted_data(stats: Stats, data: Sequence[Measured]) -> float:
    """Return the seconds per feed on the reading thread, as counted in the loop."""
    measured: dict[str, float] = {stage.name: stage.seconds for stage in data}
    return sum(
        min(each, measured.get(name, each))  # the mean includes the first feed, with its setup
        for name, each in _counted_stages(stats).items()
        if name in ("read", "collate", "transfer", "on_device")
    )


def _counted_stages(stats: Stats) -> dict[str, float]:
    """Return the seconds per item of each stage, as counted in the loop."""
    return {stage.name: 1e-9 * stage.time_ns / stage.items for stage in stats.stages if stage.items}
