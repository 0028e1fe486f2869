"""Cursors: what a loader stores of its position, how it checks one, and which plans it fits."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from jreader.errors import NotResumable, warn
from jreader.orders import STREAM_VERSION
from jreader.readers import Cursor, Plan, Position, checked_position
from jreader.readers.fingerprints import FOUND, TOLD, difference
from jreader.readers.hashing import text_hash
from jreader.readers.messages import Refusal

FORMAT = 2
_NEEDED = {*Cursor.__annotations__}
_SHOWN = ("epoch", "step", "samples", "position", "digest", "skipped")
_ANEW = "Resume with the pipeline that wrote it, or begin anew, without at=."


def beginning(epoch: int) -> Cursor:
    """The cursor of the beginning of an epoch.

    >>> beginning(2)["epoch"], beginning(2)["position"]
    (2, None)
    """
    return Cursor(
        epoch=epoch,
        step=0,
        samples=0,
        position=None,
        digest=":0",
        skipped=[],
        plan=Plan(ops=[], members=[], data=[], functions=[], feeds=[]),
        format=FORMAT,
        stream_version=STREAM_VERSION,
        check="",
    )


class EpochPosition(NamedTuple):
    """The position of an epoch: the field `position` of a cursor.

    Attributes:
        rows: The rows of a full batch; None before the first one.
        size: The samples per batch, if the position counts samples; else None.
        batches: The position of the reader of batches (`Pass.position`).
        steps: How many steps of the epoch are done.
    """

    rows: int | None
    size: int | None
    batches: Position
    steps: int

    @classmethod
    def of(cls, position: Position) -> EpochPosition | None:
        """The position of a cursor as a named tuple; None at the beginning of an epoch.

        >>> EpochPosition.of([64, 64, 640, 10]).steps
        10

        Raises:
            NotResumable: It is not a position of a loader.
        """
        return None if position is None else cls(*checked_position(position, (None, None, None, 0)))

    @classmethod
    def steps_of(cls, cursor: Cursor) -> int:
        """How many steps of its epoch are done at a cursor."""
        position = cls.of(cursor["position"])
        return position.steps if position else 0


class Progress(NamedTuple):
    """The position of a pass in its epoch, as the pass notes it for each feed.

    Attributes:
        began: The cursor that the pass began at.
        samples: How many samples of the epoch are done.
        runs: A hash of where the runs of consecutive samples begin (`host_feeds.Trail`).
        end: The index in the epoch at which the last run ends.
        rows: As in `EpochPosition`, like those that follow.
        size: As there.
        batches: As there.
        steps: As there.
    """

    began: Cursor
    samples: int
    runs: str
    end: int
    rows: int | None
    size: int | None
    batches: Position
    steps: int

    def cursor(self) -> Cursor:
        """The cursor of this position."""
        began = self.began
        return {
            **began,
            "step": began["step"] + self.steps - EpochPosition.steps_of(began),
            "samples": self.samples,
            "position": (self.rows, self.size, self.batches, self.steps),
            "digest": f"{self.runs}:{self.end}",
            "check": "",  # made when it is handed out
        }


class RunPosition:
    """The position of a run, which a loader still has when its iterator is gone.

    Attributes:
        progress: The fields of a `Progress`, which a pass sets after each feed; None before the
            pass has begun.
    """

    def __init__(self, cursor: Cursor) -> None:
        """Begins at a cursor."""
        self.stand(cursor)

    def stand(self, cursor: Cursor) -> None:
        """Moves to a cursor, at which no pass has begun yet."""
        self._cursor: Cursor = cursor
        self.progress: tuple[Any, ...] | None = None

    @property
    def cursor(self) -> Cursor:
        """The cursor, made now and not for each feed, since a loop asks for few of them."""
        return self._cursor if self.progress is None else Progress(*self.progress).cursor()

    @property
    def began(self) -> Cursor:
        """The cursor at which its epoch was begun, or resumed."""
        return self._cursor if self.progress is None else Progress(*self.progress).began


def skipping(cursor: Cursor, steps: Any, size: int) -> Cursor:
    """The cursor, with more steps that are left out.

    >>> skipping(beginning(0), range(3, 5), size=64)["skipped"]
    [[3, 5, 64]]

    Args:
        cursor: A cursor.
        steps: A range of steps with a stride of 1; None for no more.
        size: Samples per step; 0 if positions count batches.

    Raises:
        TypeError: `steps` is not such a range.
        NotResumable: The cursor leaves out later steps that had another size.
    """
    known = cursor["skipped"]
    if steps is not None:
        if not isinstance(steps, range) or steps.step != 1 or steps.start < 0:
            raise TypeError(
                f"skip_steps needs a range of steps to leave out, as range(300, 310), not "
                f"{steps!r}."
            )
        added = [[steps.start, steps.stop, size]] if steps else []
        behind = [part for part in known if part[1] <= cursor["step"] or part[2] == size]
        known = sorted([part for part in behind if part not in added] + added)
    for low, high, before in known:
        if high > cursor["step"] and before != size:
            raise NotResumable(
                f"this cursor leaves out the steps from {low} to {high - 1}, of {before} samples "
                f"each, and here a step has {size}, so they would be other samples. Resume with "
                "the sizes of that run; or give skip_steps= again, in steps of this loader "
                "(range(0) for none), which replaces them."
            )
    return {**cursor, "skipped": known}


def sealed(cursor: Cursor) -> Cursor:
    """The cursor as users get it: with a hash of all its parts in `check`.

    >>> sealed(beginning(2))["check"] == sealed(beginning(3))["check"]
    False

    Raises:
        NotResumable: The pass cannot be resumed, or JSON cannot store its position.
    """
    _check_kept(cursor["position"])
    return {**cursor, "check": _check_of(cursor)}


def _check_kept(part: Position) -> None:
    if isinstance(part, Refusal):
        raise NotResumable(part)
    if isinstance(part, dict) and all(isinstance(key, str) for key in part):
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for inner in part:
            _check_kept(inner)
    elif part is not None and not isinstance(part, (bool, int, float, str)):
        raise NotResumable(
            f"this pass has no cursor: a source gave {part!r} as its position, or a part of it, "
            "and JSON does not keep that as it is. Positions are None, numbers, strings, and lists "
            "and dicts of them, with strings as keys: type int(...) around a number of NumPy."
        )


def checked(cursor: Any) -> Cursor:
    """The cursor, once it is known to be whole and of this version.

    Raises:
        ValueError: It is not a cursor, or was changed after it was written.
        NotResumable: Another version wrote it.
    """
    lacks = _NEEDED.difference(cursor) if isinstance(cursor, dict) else _NEEDED
    if not lacks - {"check"}:
        _check_versions(cursor)
    if lacks:
        seen = f" It lacks {sorted(lacks)}." if isinstance(cursor, dict) else ""
        raise ValueError(
            f"this is not a cursor: {cursor!r}.{seen} Give feeds.cursor or loader.state_dict() of "
            "an earlier run, unchanged; it may have been through JSON."
        )
    _check_parts(cursor)
    try:
        whole = cursor["check"] == _check_of(cursor)
    except (TypeError, ValueError, RecursionError):  # not what JSON gives
        whole = False
    if not whole:
        parts = ", ".join(f"{name} {cursor[name]!r}" for name in _SHOWN)
        raise ValueError(
            f"this cursor was changed after it was written: its parts ({parts}, and its plan) do "
            f"not match its check, {cursor['check']!r}. Give one whole cursor, as feeds.cursor or "
            "loader.state_dict() gave it; it may have been through JSON."
        )
    known: Any = {name: cursor[name] for name in Cursor.__annotations__}
    read: Cursor = known
    return read


def _check_of(cursor: Any) -> str:
    parts = {name: cursor[name] for name in _NEEDED if name != "check"}
    return text_hash(json.dumps(parts, sort_keys=True))


def _check_versions(cursor: Any) -> None:
    for name in ("format", "stream_version"):
        if not _is_number(cursor[name]):
            raise _damaged(cursor, name)
    form, stream = cursor["format"], cursor["stream_version"]
    if form > FORMAT:
        raise NotResumable(
            f"this cursor has format {form}, and this jreader knows {FORMAT}: a newer release "
            f"wrote it. Update jreader (pip install -U jreader), and resume with that."
        )
    if stream != STREAM_VERSION or form != FORMAT:
        raise NotResumable(
            f"this cursor has format {form} and stream version {stream}, and this jreader has "
            f"version {STREAM_VERSION}, which reads samples in other orders (since version 2, they "
            f"depend on the number of samples): resume with the release that wrote it, or begin "
            f"anew, without at=."
        )


def _check_parts(cursor: Any) -> None:
    plan, skipped, digest = cursor["plan"], cursor["skipped"], cursor["digest"]
    end = digest.rpartition(":")[2] if isinstance(digest, str) else ""
    right = {
        **{name: _is_number(cursor[name]) for name in ("epoch", "step", "samples")},
        "digest": end.removeprefix("-").isdecimal(),
        "skipped": isinstance(skipped, list) and all(map(_is_span, skipped)),
        "plan": isinstance(plan, dict)
        and all(isinstance(plan.get(name), list) for name in Plan.__annotations__),
    }
    for name, well in right.items():
        if not well:
            raise _damaged(cursor, name)


def _damaged(cursor: Any, name: str) -> ValueError:
    return ValueError(
        f"the {name} of this cursor is damaged: {cursor[name]!r}. Give an earlier cursor, as it "
        f"was written; {_ANEW[0].lower()}{_ANEW[1:]}"
    )


def _is_number(part: Any) -> bool:
    return type(part) is int and part >= 0


def _is_span(part: Any) -> bool:
    return isinstance(part, (list, tuple)) and len(part) == 3 and all(map(_is_number, part))


def kept_lines(plan: Plan) -> list[str]:
    """The lines of a plan that have to be equal for a run to go on."""
    return [line for line in plan["ops"] if not line.startswith(TOLD)]


_TOLD = {
    "data": "the data of this pipeline are not what they were",
    "functions": "a function of this pipeline is not what it was",
    "feeds": "the feeds of this loader are not made as they were",
}


def check_plan(written: Plan, plan: Plan, *, grows: bool = False) -> None:
    """Compares the plan of a cursor with the plan of a loader.

    It warns if orders and counts are equal, but data, functions or feeds are not: then every index
    stays, and its sample may differ.

    Args:
        written: The plan of a cursor.
        plan: The plan of a loader.
        grows: Whether it is streamed until something of it is whole, and indexed then.

    Raises:
        NotResumable: The plans order or count samples differently.
    """
    ops, here = kept_lines(written), kept_lines(plan)
    if grows:
        ops, here = ([line for line in each if not line.startswith(FOUND)] for each in (ops, here))
    if ops != here:
        number, before, now = difference(ops, here)
        raise NotResumable(
            f"this cursor is of another plan, whose line {number} is {before}; here it is {now}. "
            f"{_ANEW}"
        )
    for before, now in zip(written["members"], plan["members"], strict=False):
        if before != now and before.rpartition(" ")[0] == now.rpartition(" ")[0]:
            raise NotResumable(
                f"this cursor is of another plan: the members of {now.partition(':')[0]} come in "
                f"another order here. {_ANEW}"
            )
    for name, what in _TOLD.items():
        one, other = _comparable(written[name], plan[name])  # type: ignore[literal-required]  # its names
        if one != other:
            _, before, now = difference(one, other)
            warn(
                f"{what} when the cursor was written: {now}, and it was {before} (name and hash; "
                "another Python version compiles functions to another hash). The order is the "
                "same, but the samples may differ."
            )
            return


def _comparable(written: list[str], lines: list[str]) -> tuple[list[str], list[str]]:
    """Both lists, without the line of the fields if one of them has no such line.

    A loader without a `feed_list` has the fields of the samples, and its plan does not name them.
    """
    both = all(any(line.startswith("fields") for line in each) for each in (written, lines))
    one, other = (
        [line for line in each if both or not line.startswith("fields")]
        for each in (written, lines)
    )
    return one, other
