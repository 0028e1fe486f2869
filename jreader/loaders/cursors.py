"""Cursors: where a run begins, what it has handed over, and which cursors go on here."""

from __future__ import annotations

import warnings
from typing import Any

from jreader.errors import NotResumable, check_number
from jreader.orders import STREAM_VERSION
from jreader.readers import Cursor, Plan, Position
from jreader.readers.fingerprints import text_hash

FORMAT = 1
_NEEDED = {*Cursor.__annotations__}
_ANEW = "Resume with the pipeline that wrote it, or begin anew, without at=."


def beginning(epoch: int) -> Cursor:
    """The cursor of an epoch of which nothing was read.

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
        plan=Plan(ops=[], functions=[]),
        format=FORMAT,
        stream_version=STREAM_VERSION,
    )


class Trail:
    """What a pass hands over of its epoch, and a hash of it.

    Places that follow one another are one run, whatever batches they came in: the hash is of where
    runs begin, beside where the last one ends. So it does not depend on batch sizes, hosts or
    devices, and costs a comparison a step.

    >>> small, large = (Trail(beginning(0), drawn=None) for _ in range(2))
    >>> small.add(32), small.add(32), large.add(64)
    (None, None, None)
    >>> small.digest == large.digest, small.samples
    (True, 64)

    Attributes:
        samples: How many samples of the epoch lie behind.
    """

    def __init__(self, cursor: Cursor, drawn: int | None) -> None:
        """Goes on where a cursor says; `drawn` is what an unseeded plan drew for this epoch."""
        self.samples = cursor["samples"]
        runs, _, end = cursor["digest"].rpartition(":")
        self._runs, self._end = runs or text_hash(STREAM_VERSION, cursor["plan"]["ops"]), int(end)
        self._about = (cursor["epoch"], drawn)
        if cursor["position"] is None:
            self._runs, self._end = text_hash(self._runs, self._end), -1

    @property
    def digest(self) -> str:
        """The hash of the runs, and where the last one ends."""
        return f"{self._runs}:{self._end}"

    def add(self, count: int) -> None:
        """Hands over the next samples."""
        if self.samples != self._end:
            self._runs = text_hash(self._runs, self._end, *self._about, self.samples)
        self.samples += count
        self._end = self.samples

    def leave_out(self, count: int) -> None:
        """Passes over the next samples."""
        self.samples += count


def skipping(cursor: Cursor, steps: Any) -> Cursor:
    """The cursor, with some more steps that are left out.

    >>> skipping(beginning(0), range(3, 5))["skipped"]
    [[3, 5]]

    Raises:
        TypeError: `steps` is no range of steps, one by one.
    """
    if steps is None:
        return cursor
    if not isinstance(steps, range) or steps.step != 1 or steps.start < 0:
        raise TypeError(
            f"skip_steps needs a range of steps to leave out, as range(300, 310), not {steps!r}."
        )
    added = [[steps.start, steps.stop]] if steps else []
    known = [part for part in cursor["skipped"] if part not in added]
    return {**cursor, "skipped": sorted(known + added)}


def checked(cursor: Any, plan: Plan | None = None) -> Cursor:
    """A cursor, refused where it is none, damaged, of another version, or of another plan.

    Raises:
        ValueError: It is no cursor, or its parts contradict one another.
        TypeError: A part is of the wrong kind.
        NotResumable: It is of another plan or version.
    """
    if not isinstance(cursor, dict) or (missing := _NEEDED - set(cursor)):
        lacks = f" It lacks {sorted(missing)}." if isinstance(cursor, dict) else ""
        raise ValueError(
            f"this is no cursor: {cursor!r}.{lacks} Give feeds.cursor or loader.state_dict() of an "
            f"earlier run, as it was, also after JSON."
        )
    _check_versions(cursor)
    for name in ("epoch", "step", "samples"):
        check_number(f"the {name} of a cursor", cursor[name])
    _check_position(cursor["position"], cursor["position"])
    _check_parts(cursor)
    _check_together(cursor)
    if plan is not None:
        _check_plan(cursor["plan"], plan)
    known: Any = {name: cursor[name] for name in Cursor.__annotations__}
    whole: Cursor = known
    return whole


def _check_versions(cursor: Any) -> None:
    form = check_number("the format of a cursor", cursor["format"], 1)
    if form > FORMAT:
        raise NotResumable(
            f"this cursor has format {form}, and this jreader knows {FORMAT}: a newer release "
            f"wrote it. Update jreader (pip install -U jreader), and resume with that."
        )
    stream = check_number("the stream_version of a cursor", cursor["stream_version"], 1)
    if stream != STREAM_VERSION:
        raise NotResumable(
            f"this cursor is of stream version {stream}, and this jreader deals version "
            f"{STREAM_VERSION}, in other orders: resume with the release that wrote it."
        )


def _check_position(part: Position, whole: Position) -> None:
    if isinstance(part, (list, tuple)):
        for inner in part:
            _check_position(inner, whole)
    elif part is not None and not isinstance(part, (bool, str)):
        check_number(f"each part of the position of a cursor, {whole!r},", part)


def _check_parts(cursor: Any) -> None:
    plan, skipped, digest = cursor["plan"], cursor["skipped"], cursor["digest"]
    end = digest.rpartition(":")[2] if isinstance(digest, str) else ""
    whole = {
        "digest": end.removeprefix("-").isdecimal(),
        "skipped": isinstance(skipped, list) and all(map(_is_span, skipped)),
        "plan": isinstance(plan, dict)
        and all(isinstance(plan.get(name), list) for name in ("ops", "functions")),
    }
    for name, right in whole.items():
        if not right:
            raise ValueError(
                f"the {name} of this cursor is damaged: {cursor[name]!r}. Give an earlier cursor, "
                f"as it was written; {_ANEW[0].lower()}{_ANEW[1:]}"
            )


def _is_span(part: Any) -> bool:
    numbers = isinstance(part, (list, tuple)) and len(part) == 2
    return numbers and all(type(each) is int and each >= 0 for each in part)


def _check_together(cursor: Any) -> None:
    epoch, step, samples = cursor["epoch"], cursor["step"], cursor["samples"]
    begun = cursor["position"] is not None
    if (samples and not (begun and step)) or (step and not samples and not epoch):
        raise ValueError(
            f"this cursor contradicts itself: epoch {epoch}, step {step}, {samples} samples of the "
            f"epoch, position {cursor['position']!r}. Its parts are of different moments: give "
            f"one cursor as a whole."
        )


def _check_plan(written: Plan, plan: Plan) -> None:
    """Refuses other ops; other functions give other samples at the same places, as is told."""
    if written["ops"] != plan["ops"]:
        number, before, now = difference(written["ops"], plan["ops"])
        raise NotResumable(
            f"this cursor is of another plan, whose line {number} is {before}; here it is {now}. "
            f"{_ANEW}"
        )
    if written["functions"] != plan["functions"]:
        _, before, now = difference(written["functions"], plan["functions"])
        warnings.warn(
            f"a function of this pipeline is not what it was when the cursor was written: {now}, "
            f"and it was {before} (name and hash; another Python version compiles to another "
            f"hash). The places are the same, the samples may differ.",
            stacklevel=4,
        )


def difference(written: list[str], lines: list[str]) -> tuple[int, str, str]:
    """Where two lists differ first, counted from 1, and both lines there.

    >>> difference(["a", "b"], ["a"])
    (2, 'b', 'no line')
    """
    most = max(len(written), len(lines))
    pairs = [[*each, *["no line"] * (most - len(each))] for each in (written, lines)]
    place = next(place for place in range(most) if pairs[0][place] != pairs[1][place])
    return place + 1, pairs[0][place], pairs[1][place]
