"""Which stage limits the epoch, of times that a loop counted and a pass of its own measured.

Stages on the thread that draws follow one another, so their times add up; a map on workers runs
beside them, as many times as it has workers, if it does not hold the GIL; the step
runs beside all of it, if the loader looks ahead. What limits is what would save most time if it
were not there.
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
"""The share of waiting below which the step limits."""
_ALIKE = 0.8  # of the step: data that take less would be there in time, if they came evenly
_UNEXPLAINED = 0.8  # of what a loop read: time missing in the second read is the source's


def stages_of(stats: Stats, probed: Probed | None) -> list[Measured]:
    """The stages of a loader in the order that samples pass through them, and the step."""
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
        # in the loop they may have waited for the interpreter, which others held
        place, stacking = 1e-9 * probed.place or place, probed.collate
        collate = replace(stacking.stage, alone=1e-9 * stacking.time)
    stages += [
        collate,
        Measured(last, alone=place),
        Measured("step", alone=counted_step(stats)),
    ]
    return stages


def _of_plan(counted: float, in_processes: Mapping[str, float], probed: Probed) -> list[Measured]:
    """The stages of a plan; untimed work counts as the source's.

    Args:
        counted: Seconds a feed that the loop's pass read.
        in_processes: For the place of each op with processes, seconds of a call in them.
        probed: What the pass of its own measured.
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
    """Seconds a feed that no stage has, of those that a loop and a pass of its own have read."""
    rest = read - sum(stage.alone for stage in stages)
    threaded = any(stage.by for stage in stages)
    if not threaded and counted - read > _UNEXPLAINED * counted:
        rest += counted - read  # it was slower in the loop: a remote file, say
    return rest


def _of_probe(
    probe: Probe, feeds: int, slowest: int, in_processes: Mapping[str, float]
) -> Measured:
    """A stage as it was measured; the function of one that may limit is watched besides."""
    found = None
    if probe.function and probe.samples and 5 * probe.time > slowest:
        found = holding(probe.function, list(probe.samples))
    stage = replace(probe.stage, alone=1e-9 * probe.time / feeds, holding=found)
    if stage.by != "processes" or probe.op is None:
        return stage
    # large samples are slower to make there, where their memory is new each time
    each = in_processes.get(probe.op.made_at, 0.0) * probe.calls / feeds
    return replace(stage, seen=each / stage.workers)


def counted_step(stats: Stats) -> float:
    """Seconds of a step, as the loop had them; the first one, which compiles, is left out."""
    return _steady_mean(stats.steps_ns)


def counted_wait(stats: Stats) -> float:
    """Seconds that the loop waited for a feed."""
    return _steady_mean(stats.waits_ns)


def _steady_mean(times: Sequence[int]) -> float:
    steady = times[1:] if len(times) > 3 else times
    return 1e-9 * sum(steady) / max(len(steady), 1)


def limit_of(stats: Stats, stages: Sequence[Measured], capacity: int) -> Measured:
    """What limits the epoch.

    Args:
        stats: What was counted.
        stages: What `stages_of` returned.
        capacity: How many feeds the loader prefetches.
    """
    *data, step = stages
    wait, away = counted_wait(stats), step.seconds
    slowest = max(data, key=attrgetter("seconds"))
    if wait < WAITS * (wait + away):
        placing = data[-1]
        # what the devices do to a feed is waited for inside the step
        return placing if placing.seconds > 0.5 * away else step
    alone = sum(stage.seconds for stage in data if not stage.by)
    takes = max([alone, *(stage.seconds for stage in data if stage.by)])
    if capacity == 0:
        late = min(takes, away) > slowest.seconds
    else:
        late = max(takes, counted_data(stats, data)) < _ALIKE * away
    return Measured("capacity", workers=capacity) if late else slowest


def counted_data(stats: Stats, data: Sequence[Measured]) -> float:
    """Seconds a feed on the thread that draws, as the loop had them."""
    measured: dict[str, float] = {stage.name: stage.seconds for stage in data}
    return sum(
        min(each, measured.get(name, each))  # the mean includes the first feed, with its setup
        for name, each in _counted_stages(stats).items()
        if name in ("read", "collate", "transfer", "on_device")
    )


def _counted_stages(stats: Stats) -> dict[str, float]:
    """Seconds of an item of each stage, as the loop had them."""
    return {stage.name: 1e-9 * stage.time_ns / stage.items for stage in stats.stages if stage.items}
