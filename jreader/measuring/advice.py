"""Advice for the limiting stage, with numbers from the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from jreader.cores import usable_cores
from jreader.measuring.probing import Measured

_READY = 32  # feeds: little memory next to a model's
_MOST = 32  # threads of a function that waits
_SLOWER = 1.5  # times slower in processes: its samples are large
_WORDS = {
    "map_batches": (
        "it is called for one batch after another on one thread: type "
        ".map_batches(fn, threads=2), or processes=2 for a loop in Python; if jax can trace "
        "it, load().on_device(fn)"
    ),
    "collate": (
        "samples are stacked one by one: use a source of arrays (jreader.arrays, npy, "
        "tokens), whose batches are gathered as a whole, or make the samples smaller"
    ),
    "transfer": (
        "send fewer bytes: leave images as uint8 and make them float32 on the devices, with "
        "load().on_device(fn)"
    ),
    "on_device": (
        "the step waits for this function on the devices: make it cheaper, or do part of it "
        "on the host, in .map(fn, threads=n)"
    ),
    "step": "no change to the data will make the epoch faster",
}  # what to change, by the stage


class Advice(NamedTuple):
    """An advice.

    Attributes:
        words: The advice, in words that follow a semicolon.
        arguments: The arguments to type, with their values; {} for other advice.
    """

    words: str
    arguments: dict[str, int]


def advice_for(
    limit: Measured, stages: Sequence[Measured], computes: float, longest: float
) -> Advice:
    """Advise how to speed up the limiting stage.

    Args:
        limit: The limiting stage.
        stages: All stages.
        computes: The share of the read in which this program computed.
        longest: The longest wait for a feed, in seconds.
    """
    if limit.filling:
        return Advice(
            "it is below a cache that is still being filled: the next epoch reads from the cache, "
            "so fill it before the run, or keep it from run to run with .cache(path)",
            {},
        )
    if limit.by == "workers":
        more = "add workers with cores of their own, or make it cheaper"
        return Advice(f"the {limit.workers} workers of load(workers=...) run it: {more}", {})
    step = max([1e-6, *(each.seconds for each in stages if each.name == "step")])
    if limit.name == "map" or (limit.name == "map_batches" and limit.by):
        return _of_map(limit, _time_of_others(limit, stages), step)
    if limit.name == "source":
        return _of_source(limit, _time_of_others(limit, stages), computes)
    if limit.name == "capacity":
        return _of_capacity(limit.workers, longest / step)
    return Advice(_WORDS[limit.name], {})


def _time_of_others(limit: Measured, stages: Sequence[Measured]) -> float:
    """Estimate the seconds per feed once the stage runs beside the sequence of the others."""
    others = [each for each in stages if each is not limit]
    one_thread = sum(each.seconds for each in others if not each.by and each.name != "step")
    beside = [each.seconds for each in others if each.by or each.name == "step"]
    return max([one_thread, *beside, 1e-6])


def _of_map(limit: Measured, goal: float, step: float) -> Advice:
    wanted, has = _workers_wanted(limit, goal, step), limit.workers if limit.by else 0
    why = _reason_for(limit)
    if has >= wanted and (not limit.holds or limit.by in ("processes", "executor")):
        return _of_enough(limit, wanted)
    kind = "processes" if limit.holds or limit.by == "processes" else "threads"
    if limit.op in ("filter", "flat_map"):
        words = f"do that work in .map(fn, {kind}={wanted}) before it, {why}"
        return Advice(f"{limit.op} calls it on one thread: {words}", {kind: wanted})
    if limit.holds:
        instead = {"threads": " instead of threads"}.get(limit.by, "")
        return Advice(f"`processes={wanted}`{instead} would help, {why}", {kind: wanted})
    argument = kind
    if limit.op == "xmap_readers":
        argument, kind = "process_num", "threads"  # as Paddle has it
    asked = f"{wanted - has} {'more ' * (has > 0)}{kind}"
    return Advice(f"{asked} would be enough, {why}: `{argument}={wanted}`", {argument: wanted})


def _reason_for(limit: Measured) -> str:
    if limit.waits:
        return "since it waits most of the time"
    return f"since it {'holds' if limit.holds else 'releases'} the GIL"


def _workers_wanted(limit: Measured, goal: float, step: float) -> int:
    """Return the workers that a map needs; waiting threads cost little, so enough for any step."""
    if limit.waits:
        return min(max(2, ceil(limit.alone / step)), _MOST)
    return min(max(2, ceil(limit.alone / goal)), max(usable_cores(), 2))


def _of_enough(limit: Measured, wanted: int) -> Advice:
    """Advise where more workers of the same kind would not help."""
    slower = limit.seconds * min(limit.workers, usable_cores()) / max(limit.alone, 1e-9)
    if limit.by == "processes" and not limit.holds and slower > _SLOWER:
        return Advice(
            f"a call takes {slower:.1f} times as long in processes as in this program: "
            f"`threads={wanted}` instead, since it releases the GIL",
            {"threads": wanted},
        )
    are = "workers" if limit.by == "executor" else limit.by
    cores = "" if limit.waits else ", or give it more cores"
    cheaper = f"make it cheaper, or keep what it makes with .cache(path){cores}"
    return Advice(f"more than its {limit.workers} {are} would not help: {cheaper}", {})


def _of_capacity(capacity: int, steps: float) -> Advice:
    if not capacity:
        return Advice(
            "no feed is ready when the loop asks for one: type load(capacity=2)", {"capacity": 2}
        )
    # enough feeds to cover the longest wait, within bounds
    wanted = max(4 * capacity, min(capacity + ceil(steps), _READY))
    return Advice(
        f"the data are fast enough on average, but arrive unevenly: type load(capacity={wanted})",
        {"capacity": wanted},
    )


def _of_source(limit: Measured, goal: float, computes: float) -> Advice:
    if computes < 0.5:
        wanted = min(max(2, ceil(limit.alone / goal)), _MOST)
        return Advice(
            "it waits most of the time (for a disk, or a network): yield names and read them in "
            f".map(read_one, threads={wanted}), or read several parts at once, as in "
            "jreader.read(parts, lanes); a jreader.Store keeps remote files on the disk",
            {"threads": wanted},
        )
    wanted = max(usable_cores(), 2)
    return Advice(
        "it computes on one thread: yield only names or rows and do the work in .map(fn, "
        f"processes={wanted}), or read in other processes, as in "
        "multiprocess_reader([part, part])",
        {"processes": wanted},
    )


def stage_in_words(stage: Measured) -> str:
    """Describe a stage in words: its kind, its function, and where that is.

    >>> stage_in_words(Measured("map", "decode", "/home/me/train.py:31"))
    'the map `decode` (train.py:31)'
    """
    if stage.name == "step":
        return "the step"
    if stage.name == "capacity":
        return f"the prefetch queue (capacity={stage.workers})"
    what = {
        "map": "map",
        "map_batches": "map_batches",
        "source": "source",
        "collate": "stacking of batches (collate)",
        "transfer": "transfer to the devices",
        "on_device": "work on the devices (on_device)",
    }[stage.name]
    name = f" `{stage.function}`" if stage.function else ""
    return f"the {what}{name}{f' ({place(stage)})' if stage.where else ''}"


def place(stage: Measured) -> str:
    """Return the file, without its folder, and the line; "" if unknown."""
    return stage.where.replace("\\", "/").rpartition("/")[2]
