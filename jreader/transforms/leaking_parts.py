"""Warn of a train/test split above a shuffle, whose parts get all samples over time.

After `p = rows.shuffle(seed=0); train, test = p[:800], p[800:]`, the parts hold other samples in
each epoch, so `train` soon gets samples that `test` began with. A single part is often intended:
`shuffle(seed=0).firstn(n)` is a random subset per epoch, `shard` the part of a host. Two parts
without a common place are a split. So the first part is recorded, and the second causes the
warning.
"""

from __future__ import annotations

from contextlib import suppress
from math import gcd
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from jreader.errors import warn
from jreader.readers import Node, Reader
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import field_names
from jreader.transforms.sample_rng import keyed

_MAX_NOTED = 16  # parts to remember per plan

_noted: WeakKeyDictionary[Reader[Any], list[tuple[str, Any]]] = WeakKeyDictionary()


def note_part(part: Node[Any]) -> None:
    """Record a part of a shuffled plan; warn if it and an earlier one split the plan."""
    ops = _from_a_shuffle(part)
    if not ops:
        return
    shuffled, places = ops[0], cast("Any", range(ENDLESS))
    for op in ops:
        places = op.chosen_places(places) if hasattr(op, "chosen_places") else places
    if len(places) < 2:  # a single sample, looked at
        return
    spelled = _spelled(ops)
    with suppress(TypeError):  # without weak references, a plan is not remembered
        noted = _noted.setdefault(next(iter(shuffled.input_readers), shuffled), [])
        if any(before == spelled and _disjoint(places, other) for before, other in noted):
            warn(
                f"{part!r} and an earlier part of the same plan split what {spelled} reshuffles "
                f"in each epoch: each part gets samples of the other in the next epoch, so a test "
                f"set is trained on. Split first, as in train, test = rows.split([0.8, 0.2], "
                f"seed=0), and then type train.shuffle(seed=0)."
            )
        noted.append((spelled, places))
        del noted[:-_MAX_NOTED]


def _spelled(ops: list[Node[Any]]) -> str:
    """Return the text of a shuffle, and of the ops above it that change the unit of places."""
    counted = [op for op in ops[1:] if op.unit != "samples" and not op.from_reader]
    return " ".join(
        f"{type(op).__name__}({', '.join(op.written(*op.input_readers))})"
        for op in (ops[0], *counted)
    )


def _from_a_shuffle(part: Node[Any]) -> list[Node[Any]]:
    """Return the ops from the random op that orders the samples up to `part`, or []."""
    ops: list[Node[Any]] = [part]
    while (up := _places_from(ops[-1])) is not None:
        ops.append(up)
        if up.pinned:
            break
        if {"seed", "epoch"} <= {*field_names(up)} and not isinstance(up, keyed):
            return ops[::-1]
    return []


def _places_from(op: Node[Any]) -> Node[Any] | None:
    """Return the op below whose places and order this op preserves, if there is one."""
    ups = op.input_readers
    in_order = hasattr(op, "chosen_places") or isinstance(op, keyed) or op.unit != "samples"
    in_order = in_order or op.from_reader in ("all", "each") or op.in_cursor == "never"
    return ups[0] if in_order and len(ups) == 1 and isinstance(ups[0], Node) else None


def _disjoint(one: Any, other: Any) -> bool:
    """Return whether two ranges or arrays of places are disjoint."""
    if isinstance(one, range):
        one, other = other, one
    if isinstance(one, range):  # then both are
        far: bool = one[-1] < other[0] or other[-1] < one[0]
        return far or (one[0] - other[0]) % gcd(one.step, other.step) > 0
    if not isinstance(other, range):
        return not bool(np.isin(one, other).any())
    inside = (one >= other[0]) & (one <= other[-1]) & ((one - other[0]) % other.step == 0)
    return not bool(inside.any())
