"""Resuming a mixture with new weights: what was given stays as it was, and every source goes on.

The place of a sample in an indexed mixture depends on the weights from the beginning on. So a
cursor says what they were (`Adjustable`), and the plan that goes on from it has them up to there.
"""

from __future__ import annotations

from typing import Any

from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.readers import Cursor, Plan, Reader, at_epoch
from jreader.readers.fingerprints import HISTORY, changeable
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import seeded, waits


def weights_line(plan: Plan) -> str | None:
    """What a plan says of what a run may change; None if there is no such thing."""
    lines = (line.removeprefix(HISTORY) for line in plan["ops"] if line.startswith(HISTORY))
    return next(lines, None)


def with_weights_before(batches: Reader[Any], cursor: Cursor, *, endless: bool) -> Reader[Any]:
    """The plan of an epoch from a cursor on, with what the cursor says of the part before it.

    Args:
        batches: The plan of a loader.
        cursor: A cursor of this plan, perhaps with other values of what a run may change.
        endless: Whether the epochs of a loader are parts of one epoch of the plan.
    """
    op, line = changeable(batches), weights_line(cursor["plan"])
    if op is None or cursor["position"] is None or line is None:
        return batches
    drawn, at = batches, EpochPosition.of(cursor).batches
    if waits(batches):
        drawn, at = seeded(batches, at[0]), at[1]
    if not isinstance(at, int):  # a stream: its position says where each source is
        return batches
    now: Any = changeable(at_epoch(drawn, 0 if endless else cursor["epoch"]))
    changes = now.after(line, at)
    return rewritten(batches, lambda node: changes if node is op else {})
