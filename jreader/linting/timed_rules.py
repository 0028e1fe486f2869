"""Rules that call and time the functions of a plan: `lint(plan, measure=True)`."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jreader.batches import stack
from jreader.linting.findings import Finding
from jreader.linting.plan_parts import TOGETHER, Fed
from jreader.readers import described, leaves, same_structure
from jreader.workers import xmap_readers
from jreader.workers.gil import holding

_ROUNDS = 3
_FASTER = 3.0  # speed-up that is worth rewriting a function for batches


def scalar_map(fed: Fed) -> Iterator[Finding]:
    """Find a function of samples that accepts whole batches too, and is faster on them."""
    for call, samples in fed.mapped:
        timed = _one_by_one(call.function, samples)
        if timed is None or timed[0] < _FASTER * timed[1]:
            continue
        each, together = (seconds * 1e6 / TOGETHER for seconds in timed)
        yield Finding(
            "scalar-map",
            f"{described(call.function)} gives the same for {TOGETHER} samples at once as one by "
            f"one, and takes {each:.2g} us a sample one by one, {together:.2g} at once.",
            "Map batches: .batch(n).map_batches(fn).",
            call.op.made_at,
        )


def _one_by_one(fn: Callable[..., Any], samples: Sequence[Any]) -> tuple[float, float] | None:
    """Return the seconds for samples one by one, and for all at once; None if results differ."""
    if len(samples) < TOGETHER or not all(isinstance(each, _ARRAYS) for each in leaves(samples)):
        return None
    try:
        whole = stack(samples)
        results = [fn(sample) for sample in copy.deepcopy(samples)]
        at_once, expected = fn(copy.deepcopy(whole)), stack(results)
        if not same_structure(at_once, expected) or not all(
            map(_same_numbers, leaves(at_once), leaves(expected))
        ):
            return None
        one_by_one = _least(lambda given: [fn(each) for each in given], samples)
        return one_by_one, _least(fn, whole)
    except Exception:  # most functions of a sample do not accept a batch
        return None


_ARRAYS = (np.ndarray, np.generic, int, float)


def _same_numbers(here: Any, there: Any) -> bool:
    if np.shape(here) != np.shape(there):
        return False
    return bool(np.allclose(here, there, equal_nan=True))


def _least(fn: Callable[[Any], Any], given: Any) -> float:
    """Return the seconds of a call in thread time: the least of some, to exclude other load."""
    taken = []
    for _ in range(_ROUNDS):
        own = copy.deepcopy(given)  # it may modify its argument
        began = time.thread_time()
        fn(own)
        taken.append(time.thread_time() - began)
    return min(taken)


def held_lock(fed: Fed) -> Iterator[Finding]:
    """Find a function on several threads that never releases the GIL."""
    for call, samples in fed.mapped:
        if call.by != "threads" or call.workers < 2:
            continue
        watched = holding(call.function, [(sample,) for sample in samples])
        if watched is None or not watched.holds_gil:
            continue
        instead = "map(fn, processes={})"
        if isinstance(call.op, xmap_readers):
            instead = "map_samples(fn, reader, processes={})"
        yield Finding(
            "held-lock",
            f"{described(call.function)} holds the GIL for {1 - watched.free:.0%} "
            f"of its time, so {call.workers} threads do hardly more than one.",
            f"Use processes, as in {instead.format(call.workers)}.",
            call.op.made_at,
        )
