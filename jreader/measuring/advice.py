"""What to change so that a stage limits no more: with numbers, from what was measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import ceil

from jreader.measuring.verdicts import Measured

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MOST = 16  # threads of a function that waits


def advice_for(limit: Measured, stages: Sequence[Measured], capacity: int, computes: float) -> str:
    """What to type, in words that follow a semicolon.

    Args:
        limit: The stage that limits.
        stages: All of them.
        capacity: How many feeds the loader prefetches.
        computes: In which share of the time the plan was read this program computed.
    """
    others = [each.seconds for each in stages if each is not limit]
    goal = max([*others, 1e-6])  # what the epoch takes once this stage is quicker
    if limit.filling:
        return (
            "it is below a cache that is still being filled: the next epoch reads from the cache, "
            "so fill it before the run, or keep it from run to run with .cache(path)"
        )
    if limit.name == "map":
        step = max((each.seconds for each in stages if each.name == "step"), default=0.0)
        return _of_map(limit, goal, max(step, 1e-6))
    if limit.name == "source":
        return _of_source(computes)
    return {
        "map_batches": (
            "it is called for batch after batch on one thread: type .map(fn, threads=2) before "
            ".batch(n) for a function of samples, or load().on_device(fn) for one that jax can "
            "trace"
        ),
        "collate": (
            "samples are stacked one by one: let the source give arrays (jreader.arrays, npy, "
            "tokens), whose batches are gathered as a whole, or smaller samples"
        ),
        "transfer": (
            "send fewer bytes: leave images as uint8 and make them float32 on the devices, with "
            "load().on_device(fn)"
        ),
        "on_device": (
            "the devices work on the feed before the step can: make the function cheaper, or do "
            "part of it on the host, in .map(fn, threads=n)"
        ),
        "capacity": (
            "nothing is ready when the loop comes: type load(capacity=2)"
            if not capacity
            else f"the data are quick enough, but come unevenly: type load(capacity={4 * capacity})"
        ),
        "step": "no change of the data will make the epoch quicker",
    }[limit.name]


def _of_map(limit: Measured, goal: float, step: float) -> str:
    cores = os.cpu_count() or 1
    holds = limit.holding is not None and limit.holding.holds_lock
    waits = limit.holding is not None and limit.holding.computes < 0.5
    if waits and not holds:  # threads that wait cost little: enough for when all else is quick
        goal, most = step, _MOST
    else:
        most = cores
    wanted = min(max(2, ceil(limit.alone / goal)), max(most, 2))
    has = limit.workers if limit.by else 0
    cheaper = "make it cheaper, keep what it makes with .cache(path), or give it more cores"
    if holds:
        if limit.by in ("processes", "executor") and has >= wanted:
            return f"{has} workers are what this machine has: {cheaper}"
        instead = " instead of threads" if limit.by == "threads" else ""
        return f"`processes={wanted}`{instead} would help, since it holds the interpreter's lock"
    if has >= wanted:
        return f"its {has} {limit.by} are all that would help: {cheaper}"
    kind = limit.by if limit.by in ("threads", "processes") else "threads"
    why = "since it waits most of the time" if waits else "since it leaves the interpreter's lock"
    more = _NUMBERS[wanted - has] if wanted - has < len(_NUMBERS) else str(wanted - has)
    asked = f"{more} more {kind}" if has else f"{more} {kind}"
    return f"{asked} would do, {why}: `{kind}={wanted}`"


def _of_source(computes: float) -> str:
    if computes < 0.5:
        return (
            "it waits most of the time (a disk, a network): read several parts at once, as in "
            "jreader.read(parts, lanes) or .map(read_one, threads=8) over their names; far "
            "files are kept on the disk by a jreader.Store"
        )
    return (
        "it computes on one thread: yield names or rows there and do the work in .map(fn, "
        "processes=2), or read in other processes, as in multiprocess_reader([part, part])"
    )


def written(stage: Measured) -> str:
    """The stage in a sentence: what it is, its function, and where that is.

    >>> written(Measured("map", "decode", "/home/me/train.py:31", 0.1, 0.1))
    'the map `decode` (train.py:31)'
    """
    if stage.name == "step":
        return "the step"
    if stage.name == "capacity":
        return f"load(capacity={stage.workers})"
    what = {
        "map": "map",
        "map_batches": "map_batches",
        "source": "source",
        "collate": "collation of batches",
        "transfer": "transfer to the devices",
        "on_device": "work on the devices (on_device)",
    }[stage.name]
    name = f" `{stage.function}`" if stage.function else ""
    return f"the {what}{name}{f' ({place(stage)})' if stage.where else ''}"


def place(stage: Measured) -> str:
    """The file, without its folder, and the line; "" where there is none."""
    return stage.where.replace("\\", "/").rpartition("/")[2]
