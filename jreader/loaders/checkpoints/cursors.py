"""Cursors: how a loader stores its position, checks a cursor, and which plans a cursor fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from jreader.errors import NotResumable, warn
from jreader.orders import STREAM_VERSION
from jreader.readers import Cursor, Plan, Position
from jreader.readers.credentials import as_shown_now
from jreader.readers.fingerprints import FOUND, HISTORY, READER, STAGE, difference, swapped
from jreader.readers.hashing import text_hash
from jreader.readers.messages import Refusal, described

FORMAT = 2
_NEEDED = {*Cursor.__annotations__}
_OF_SAMPLES = ("ops", "data", "functions", "layouts", "values")
REMOVED = "removed: "
"""Prefix of the plan's line that names removed samples."""
_SHOWN = ("epoch", "step", "samples", "position", "digest", "skipped")
_WHAT_TO_DO = "Resume with the pipeline that wrote it, or start over, without at=."


class State(str):
    """A cursor as JSON; has `decode`, since Grain's checkpoint handler takes states for bytes."""

    __slots__ = ()

    def decode(self) -> str:
        """Return the plain text."""
        return str(self)


def beginning(epoch: int) -> Cursor:
    """Return the cursor at the beginning of an epoch.

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


def skipping(cursor: Cursor, steps: Any, size: int | str) -> Cursor:
    """Return the cursor with more steps skipped.

    >>> skipping(beginning(0), range(3, 5), size=64)["skipped"]
    [[3, 5, 64]]

    Args:
        cursor: A cursor.
        steps: A range of steps with a stride of 1; None for no more.
        size: Samples per step, or a text of their sizes; 0 if positions count batches.

    Raises:
        TypeError: `steps` is not such a range.
        NotResumable: The cursor skips later steps, which had another size.
    """
    known = cursor["skipped"] if steps is None else _more_skipped(cursor, steps, size)
    for low, high, before in known:
        if high > cursor["step"] and before != size:
            raise NotResumable(
                f"this cursor leaves out the steps from {low} to {high - 1}, of {before} samples "
                f"each, and here a step has {size}, so they would be other samples. Resume with "
                "the sizes of that run; or give skip_steps= again, in steps of this loader "
                "(range(0) for none), which replaces them."
            )
    return {**cursor, "skipped": known}


def _more_skipped(cursor: Cursor, steps: Any, size: int | str) -> list[list[Any]]:
    if not isinstance(steps, range) or steps.step != 1 or steps.start < 0:
        raise TypeError(
            f"skip_steps needs a range of steps to leave out, as range(300, 310), not {steps!r}."
        )
    added = [[steps.start, steps.stop, size]] if steps else []
    replaced = [part for part in cursor["skipped"] if part[1] > cursor["step"] and part[2] != size]
    return sorted([part for part in cursor["skipped"] if part not in replaced + added] + added)


class Scattered(list[Any]):
    """The positions of all lanes, some of them old: other processes know the current ones."""

    __slots__ = ("others",)
    others: Callable[[], Iterable[tuple[int, Position]]]  # numbers of lanes, and positions


def gathered(position: Position) -> Position:
    """Return the position in a cursor, with the positions of lanes on all processes."""
    batches = position[2] if isinstance(position, tuple) else None
    if not isinstance(batches, Scattered):
        return position
    of_all = {**dict(enumerate(batches)), **dict(batches.others())}
    return (*position[:2], tuple(of_all.values()), *position[3:])


def sealed(cursor: Cursor) -> Cursor:
    """Return the cursor as users get it: complete, and with a hash of all its parts in `check`.

    >>> sealed(beginning(2))["check"] == sealed(beginning(3))["check"]
    False

    Raises:
        NotResumable: The pass cannot be resumed, or JSON cannot store its position.
    """
    cursor = {**cursor, "position": gathered(cursor["position"])}
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
    """Return the cursor if it is complete and of this version.

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
            f"this is not a cursor: {described(cursor)}.{seen} Give feeds.cursor, "
            "feeds.get_state() or loader.state_dict() of an earlier run, unchanged. If you saved "
            "it as JSON, pass the dict: json.loads(text)."
        )
    _check_parts(cursor)
    try:
        whole = cursor["check"] == _check_of(cursor)
    except (TypeError, ValueError, RecursionError):  # not from JSON
        whole = False
    if not whole:
        parts = ", ".join(f"{name} {cursor[name]!r}" for name in _SHOWN)
        raise ValueError(
            f"this cursor was changed after it was written: its parts ({parts}, and its plan) do "
            f"not match its check, {cursor['check']!r}. Give one whole cursor, as feeds.cursor or "
            "loader.state_dict() gave it; it may have been through JSON."
        )
    return cast("Cursor", {name: cursor[name] for name in Cursor.__annotations__})


def _check_of(cursor: Any) -> str:
    parts = {name: cursor[name] for name in _NEEDED if name != "check"}
    return text_hash(json.dumps(parts, sort_keys=True))


def _check_versions(cursor: Any) -> None:
    for name in ("format", "stream_version"):
        if not _is_plain_number(cursor[name]):
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
            f"depend on the number of samples): resume with the release that wrote it, or start "
            f"over, without at=."
        )


def _check_parts(cursor: Any) -> None:
    plan, skipped, digest = cursor["plan"], cursor["skipped"], cursor["digest"]
    end = digest.rpartition(":")[2] if isinstance(digest, str) else ""
    right = {
        **{name: _is_plain_number(cursor[name]) for name in ("epoch", "step", "samples")},
        "digest": end.removeprefix("-").isdecimal(),
        "skipped": isinstance(skipped, list) and all(map(_is_span, skipped)),
        "plan": isinstance(plan, dict)
        and all(isinstance(plan.get(name), list) for name in Plan.__required_keys__)
        and all(isinstance(plan.get(name, []), list) for name in Plan.__optional_keys__),
    }
    for name, well in right.items():
        if not well:
            raise _damaged(cursor, name)


def _damaged(cursor: Any, name: str) -> ValueError:
    return ValueError(
        f"the {name} of this cursor is damaged: {cursor[name]!r}. Give an earlier cursor, as it "
        f"was written; {_WHAT_TO_DO[0].lower()}{_WHAT_TO_DO[1:]}"
    )


def _is_plain_number(part: Any) -> bool:
    return type(part) is int and part >= 0


def _is_span(part: Any) -> bool:
    if not isinstance(part, (list, tuple)) or len(part) != 3:
        return False
    (*steps, size) = part
    return all(map(_is_plain_number, steps)) and (isinstance(size, str) or _is_plain_number(size))


def kept_lines(plan: Plan) -> list[str]:
    """Return the lines of a plan that must be equal for a run to resume."""
    return _lines_without(plan["ops"], HISTORY)


def weights_line(plan: Plan) -> str | None:
    """Return the line for what a run may change; None if there is none."""
    for line in plan["ops"]:
        if line.startswith(HISTORY):
            return line.removeprefix(HISTORY)
    return None


def names_readers(plan: Plan) -> bool:
    """Return whether a plan has lines for readers that a run may add and drop."""
    return any(line.startswith(READER) for line in plan["ops"])


def plan_hash(plan: Plan) -> str:
    """Return the start of a digest of samples: all that orders samples, and all that makes them.

    >>> plan_hash(beginning(0)["plan"]) == plan_hash(beginning(1)["plan"])
    True
    """
    return text_hash(STREAM_VERSION, _sampled(plan))


def with_plan(cursor: Cursor, plan: Plan) -> Cursor:
    """Return the cursor with the plan that resumes it; its digest shows if samples may differ."""
    runs, _, end = cursor["digest"].rpartition(":")
    written: Any = {**plan, **cursor["plan"]}  # older cursors lack some parts
    if runs and written["ops"] and _sampled(written) != _sampled(plan):
        runs = text_hash(runs, plan_hash(plan))
    return {**cursor, "plan": plan, "digest": f"{runs}:{end}"}


def _sampled(plan: Any) -> list[list[str]]:
    """Return the parts that samples depend on, found by index or read in order."""
    parts: list[list[str]] = []
    for name in _OF_SAMPLES:  # each pass runs this: no generator or comprehension
        parts.append([])
        for line in plan.get(name, ()):
            if not line.startswith((FOUND, STAGE)):
                parts[-1].append(line)
    return parts


_CHANGES = {
    "lock": "the lock of this pipeline is not what it was",
    "data": "the data of this pipeline are not what they were",
    "functions": "a function of this pipeline is not what it was",
    "values": "an argument, or a value that a function holds, is not what it was",
    "feeds": "the feeds of this loader are not made as they were",
}


_ABOVE = f"{READER}~"
_OTHER_LAYOUTS = (
    ": lengths of samples, or names or sizes of files, from which an order follows, were {1}, and "
    "here they are {2}"
)


def check_plan(written: Plan, plan: Plan, *, caching: bool = False) -> None:
    """Compare the plan of a cursor with the plan of a loader.

    It warns if orders and counts are equal, but data, functions or feeds are not: then every index
    is the same, but its sample may differ.

    Args:
        written: The plan of a cursor.
        plan: The plan of a loader.
        caching: Whether it is streamed while its disk cache is incomplete.

    Raises:
        NotResumable: The plans order or count samples differently.
    """
    but = FOUND if caching else HISTORY
    lines = (_lines_of_order(each, but) for each in (written, plan))
    ops, here, same, readers = _by_reader(*lines)
    _refuse_other_lines(ops, here, ", whose line {} is {}; here it is {}")
    if same and (several := swapped(written["members"], plan["members"])):
        raise NotResumable(
            f"this cursor is of another plan: the members of {several} come in another order here. "
            f"{_WHAT_TO_DO}"
        )
    layouts = written.get("layouts", plan["layouts"])  # older cursors lack them
    _refuse_other_lines(layouts, plan["layouts"], _OTHER_LAYOUTS)
    if same:
        _warn_of_changes(written, plan, found=any(line.startswith(FOUND) for line in ops))
    elif any(readers.values()):
        changes = (f"{', '.join(names)} {what}" for what, names in readers.items() if names)
        warn(f"this run resumes with other readers in its mix: {'; '.join(changes)}.")


def _refuse_other_lines(written: list[str], lines: list[str], says: str) -> None:
    """Raise if lines that order or count samples differ between a cursor and the plan."""
    if written != lines:
        change = says.format(*difference(written, lines))
        raise NotResumable(f"this cursor is of another plan{change}. {_WHAT_TO_DO}")


def _by_reader(
    written: list[str], lines: list[str]
) -> tuple[list[str], list[str], bool, dict[str, list[str]]]:
    """Return the lines of shared readers, in one order, and of ops above readers.

    Returns:
        Both, whether the plans have the same readers in the same order, and the readers that only
        one plan has.
    """
    names, known = ([*map(_named_in, each)] for each in (written, lines))
    both = {*names} & {*known, _ABOVE}
    ordered = (sorted(each, key=_named_in) for each in (written, lines))
    ops, here = ([line for line in each if _named_in(line) in both] for each in ordered)
    of_one = {
        "not read any more": sorted({*names} - {*known}),
        "new, and read from the beginning": sorted({*known} - {*names}),
    }
    return ops, here, names == known, of_one


def _named_in(line: str) -> str:
    """Return a line's reader, if a run may add and drop it; else a text that sorts last."""
    return line.partition(": ")[0] if line.startswith(READER) else _ABOVE


def _lines_of_order(plan: Plan, but: str) -> list[str]:
    """Return the lines that must be equal, without those that begin with `but`."""
    return _lines_without(map(as_shown_now, kept_lines(plan)), but)


def _warn_of_changes(written: Plan, plan: Plan, *, found: bool) -> None:
    """Warn of data, functions or feeds that differ from the plan of a cursor.

    Args:
        written: The plan of a cursor.
        plan: The plan of a loader, of the same order.
        found: Whether samples are found by their index.
    """
    follows = (
        "The order is the same, but the samples may differ"
        if found
        else "The run resumes at the same position, but samples, and their number, may differ"
    )
    parts: dict[str, Any] = {"lock": [], **plan}
    for name, what in _CHANGES.items():
        one, other = _comparable({**parts, **written}[name], parts[name])
        if one != other:
            _, before, now = difference(one, other)
            if name == "lock":
                before, now = _others(one, other), _others(other, one)
            warn(
                f"{what} when the cursor was written: {now}, and it was {before} (name and hash; "
                f"another Python version compiles functions to another hash). {follows}."
            )
            return


def _others(lines: list[str], but: list[str]) -> str:
    """Return the entries of a lock that another one lacks."""
    return ", ".join(line for line in lines if line not in but) or "no lock"


def _comparable(written: list[str], lines: list[str]) -> tuple[list[str], list[str]]:
    """Return both lists, without the line of the fields if one of them lacks it.

    A loader without a `feed_list` has the fields of the samples, and its plan does not name them.
    Samples may be removed on resuming, even if none were before.
    """
    if _lines_without(written, REMOVED) == written:
        lines = _lines_without(lines, REMOVED)
    one, other = _lines_without(written, "fields"), _lines_without(lines, "fields")
    return (one, other) if one == written or other == lines else (written, lines)


def _lines_without(lines: Iterable[str], begin: str | tuple[str, ...]) -> list[str]:
    """Return the lines with another beginning."""
    return [line for line in lines if not line.startswith(begin)]
