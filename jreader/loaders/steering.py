"""Mixtures whose weights change during a run: new weights, and their history in the cursor.

The step alone decides at which sample of the mixture new weights begin: at the first one that
earlier steps did not get; or, if ops above the mixture hold samples, at the first one that the next
batch does not need. So prefetched feeds are made again, and no sample is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jreader.loaders.checkpoints.cursors import weights_line
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.readers import Cursor, Node, Pass, Position, Reader, at_epoch, described, op, start
from jreader.readers.fingerprints import Adjustable, changeable
from jreader.readers.nodes import field_names
from jreader.readers.plain_functions import in_epoch
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import lacks_seed, seeded
from jreader.transforms.mixture_schedules import History
from jreader.workers.threads import buffered

_SERIAL = {"threads": 0, "processes": 0, "concurrency": 0, "executor": None, "pool": None}


def steered(batches: Reader[Any], cursor: Cursor) -> Reader[Any]:
    """Return a plan with the weights that `set_weights` gave its mixture before a cursor."""
    op, line = _steered_op(batches, cursor)
    return batches if op is None else _weighted(batches, op, op.steered(line))


def reweighed(batches: Reader[Any], cursor: Cursor, weights: Any, *, endless: bool) -> Reader[Any]:
    """Resume a mixture with new weights.

    Args:
        batches: The plan of an epoch, as the cursor resumes it without the new weights.
        cursor: The cursor.
        weights: The new weights.
        endless: Whether the loader's epochs are parts of one epoch of the plan.

    Raises:
        TypeError: No mixture has weights that may change, or `weights` have another form.
        ValueError: A weight is below 0, missing, or for an unknown name.
    """
    op = changeable(batches, held=True)
    if op is None:
        raise TypeError(
            f"set_weights(...) needs a mix whose samples make the batches in their order, and "
            f"{described(batches)} has none, or an op above it finds its samples by their index: "
            'shuffle, shard or pack the readers of the mix instead, as in mix({"web": '
            "web.shuffle(seed=0), ...}, seed=1)."
        )
    fields = op.reweighed(weights)
    if cursor["position"] is not None:
        past = _past_fields(batches, cursor, op.history(), fields, endless=endless)
        fields = {**fields, **past}
    return _weighted(batches, op, fields)


def with_past_weights(batches: Reader[Any], cursor: Cursor, *, endless: bool) -> Reader[Any]:
    """Return the plan of an epoch from a cursor on, with the past that the cursor stores.

    The samples of a mixture depend on its weights since the beginning. So a cursor stores their
    history (`Adjustable`), and the resumed plan uses it up to the cursor: past samples stay the
    same, and every source continues.

    Args:
        batches: The plan of a loader.
        cursor: A cursor of this plan, perhaps with other values that a run may change.
        endless: Whether the loader's epochs are parts of one epoch of the plan.
    """
    op, line = _steered_op(batches, cursor)
    if op is None or cursor["position"] is None:
        return batches
    return _weighted(batches, op, _past_fields(batches, cursor, line, {}, endless=endless))


def _past_fields(
    batches: Reader[Any], cursor: Cursor, history: str, fields: Mapping[str, Any], *, endless: bool
) -> Mapping[str, Any]:
    """Return the fields that keep a mixture's samples before a cursor, with new ones if given."""
    drawn, at = batches, EpochPosition.of(cursor).batches
    epoch = 0 if endless else cursor["epoch"]
    if lacks_seed(batches):
        drawn, at = seeded(batches, at[0]), at[1]
    drawn = at_epoch(drawn, epoch)
    now: Any = changeable(drawn, held=True)

    def begins() -> int:
        with in_epoch(epoch):
            return _first_not_held(drawn, now, at)

    after: Mapping[str, Any] = now.changed(fields).after(history, begins)
    return after


def last_change(cursor: Cursor) -> int:
    """Return the first sample, in its epoch, that has the latest weights."""
    return History.of(weights_line(cursor["plan"]) or "").pieces[-1].start


def _steered_op(batches: Reader[Any], cursor: Cursor) -> tuple[Any, str]:
    """Return the op whose history a cursor has, and the history; None without one."""
    line = weights_line(cursor["plan"])
    return (None, "") if line is None else (changeable(batches, held=True), line)


def _weighted(batches: Reader[Any], op: Node[Any], fields: Mapping[str, Any]) -> Reader[Any]:
    return rewritten(batches, lambda node: fields if node is op else {})


def _first_not_held(batches: Reader[Any], mixture: Adjustable[Any], at: Position) -> int:
    """Return the first sample of a mixture that a pass from a position on may still change.

    Ops that hold samples are read up to the next batch, only on this thread, so that what they hold
    by then depends on the position only.
    """
    if isinstance(at, int) and changeable(batches) is mixture:
        return at
    begun = list[Pass[Any]]()
    held = changeable(batches) is None

    def change(node: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        if node is mixture:
            return _recorded(mixture, begun, held)
        if isinstance(node, buffered):
            return {"size": 0}
        return {name: _SERIAL[name] for name in field_names(node) if name in _SERIAL}

    up = start(rewritten(batches, change), at)
    try:
        if held:
            next(up.items, None)
        turn = begun[-1].position()
    finally:
        up.close()
    return turn if isinstance(turn, int) else int(turn[0])


@op
class _recorded(Node[Any]):
    """A mixture whose passes are recorded.

    Args:
        reader: The mixture.
        begun: The list of its passes.
        reads: Whether it is read; otherwise, a pass has no sample, and stays at its position.
    """

    reader: Reader[Any]
    begun: list[Pass[Any]]
    reads: bool

    def start(self, at: Position) -> Pass[Any]:
        """Begin a pass, and record it."""
        up = start(self.reader, at) if self.reads else Pass(iter(()), lambda: at, lambda: None)
        self.begun.append(up)
        return up
