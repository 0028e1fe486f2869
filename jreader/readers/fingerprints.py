"""Fingerprints of plans in cursors: lines that must be equal, and hashes whose change is told.

There is a line for each op that orders or counts samples, with the arguments that do so; a cursor
resumes only if all lines are equal. Ops that give one sample for each of their reader have no line
(`Node.in_cursor`), nor do lines have arguments that change only speed (`Node.cursor_ignores`).
Functions, and the values of samples that are found by index, have hashes: if they change, a run
resumes with other samples at the same indices, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jreader.readers.hashing import files_hash, hashed, identity, text_hash
from jreader.readers.nodes import Node, Reader, arguments, inputs, length, own_pass
from jreader.readers.passes import Position
from jreader.readers.planes import indexed
from jreader.readers.seeds import seeded
from jreader.readers.trees import branches

TOLD = "told: "
"""What the line begins with that says what a run may change (`Node.told`)."""

FOUND = "found by place"
"""What the line begins with that says that samples below it are found by their place."""

_MOST = 64  # lines of a plan; more are one hash
_LONGEST = 60  # characters of a text
_SHOWN = (bool, int, float, complex, str, bytes, range, np.generic)
_PLAIN = (np.ndarray, list, tuple, dict, set, frozenset)


class Cursor(TypedDict):
    """The place of a training run, as a small dict that JSON keeps exactly.

    Attributes:
        epoch: The epoch that is running, or begins.
        step: How many feeds were handed over, with the skipped ones.
        samples: How many samples of the epoch lie before this place.
        position: The position of the source.
        digest: A hash of the indices that were handed over, in their order (`loaders/cursors.py`).
        skipped: The steps that are left out, as [first, end, samples of a step].
        plan: The fingerprint of the plan.
        format: The version of this dict.
        stream_version: The version of the random orders (`orders.STREAM_VERSION`).
        check: A hash of the rest, so that a cursor that was changed is recognised (`sealed`).
    """

    epoch: int
    step: int
    samples: int
    position: Position
    digest: str
    skipped: list[list[int]]
    plan: Plan
    format: int
    stream_version: int
    check: str


class Plan(TypedDict):
    """The fingerprint of a plan.

    Attributes:
        ops: A line for each op that orders or counts samples, from the sources up.
        members: For each op of several readers, a hash of them in any order, and in theirs.
        data: For each source, a name and a hash of some rows, of some bytes, or of a function.
        functions: For each function, a name and a hash.
        feeds: How a loader makes feeds of the samples.
    """

    ops: list[str]
    members: list[str]
    data: list[str]
    functions: list[str]
    feeds: list[str]


def fingerprint(reader: Reader[Any], feeds: list[str] | None = None) -> Plan:
    """The fingerprint of a plan, equal in every process and on every host.

    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6))).shuffle(seed=1).prefetch(2).batch(2)
    >>> fingerprint(pipeline)["ops"]
    ["arrays(columns={'x': int64[6]})", 'shuffle(buf_size=None, seed=1)', 'found by place: 6']
    """
    op = changeable(reader)
    told = [f"{TOLD}{op.told()}"] if op else []
    return Plan(
        ops=[*told, *_folded(_lines(seeded(reader, 0), reader, op))],
        members=_folded(_members(reader)),
        data=_folded(_data(reader)),
        functions=_folded(_functions(reader)),
        feeds=_folded(feeds or []),
    )


def changeable(reader: Reader[Any]) -> Node[Any] | None:
    """The op of which some fields may change where a run goes on (`Node.cursor_tells`), if any."""
    while isinstance(reader, Node) and own_pass(reader) is None:
        if reader.cursor_tells:
            return reader
        ups = list(inputs(reader))
        if len(ups) != 1 or (reader.in_cursor == "always" and not reader.keeps_indices):
            return None
        (reader,) = ups
    return None


def _folded(said: Iterable[str]) -> list[str]:
    lines = list(said)
    if len(lines) <= _MOST:
        return lines
    rest = lines[_MOST - 1 :]
    return [*lines[: _MOST - 1], f"{len(rest)} more: {text_hash(*rest)}"]


def _lines(
    drawn: Reader[Any],
    reader: Reader[Any],
    told: Node[Any] | None = None,
    *,
    counted: bool = False,
    placed: bool = False,
) -> Iterator[str]:
    """The lines of a reader, from its sources up.

    Args:
        drawn: The same reader with missing seeds filled in, since only then it has a plane.
        reader: As it was written.
        told: The op in it of which some fields have a line of their own.
        counted: Whether an op above counts the samples of this one.
        placed: Whether an op above is indexed, so that the position is its own.
    """
    if not isinstance(reader, Node):
        yield _source(reader)
        return
    plane = None if placed else indexed(drawn)
    ups = list(inputs(reader))
    alone = len(ups) < 2
    own = own_pass(reader) is not None  # of a subclass: it may order and count as it likes
    shown = own or reader.in_cursor == "always" or not alone
    shown = shown or (reader.in_cursor == "counted" and counted)
    counts = own or counted or reader.in_cursor == "always"
    below = zip(inputs(drawn), ups, strict=True)  # type: ignore[arg-type]  # a Node, as `reader` is
    for drawn_up, up in below:
        yield from _lines(drawn_up, up, told, counted=counts, placed=placed or plane is not None)
    for _, value in _arguments(reader):
        for part in _parts(value):
            if hasattr(part, "indices"):
                yield f"{type(part).__name__}(indices={_ordering(part.indices)})"
    if shown:
        several = () if alone else (f"{len(ups)} readers",)
        first = (f"{length(reader)} samples", *several) if own else several
        yield _line(reader, first, reader.cursor_tells if reader is told else ())
    if plane is not None:
        yield f"{FOUND}: {plane.extent}"


def _source(reader: Reader[Any]) -> str:
    """The line of a plain function; its name is with its hash."""
    known = length(reader)
    return "a function" if known is None else f"a function of {known} samples"


def _line(node: Node[Any], first: tuple[str, ...], but: tuple[str, ...] = ()) -> str:
    written, parts = _text if _holds_rows(node) else _ordering, list(first)
    for name, value in _arguments(node):
        if name in but:
            continue
        if name in ("path", "paths"):
            parts.append(f"{name}={_files(value)}")
            if not _holds_rows(node):  # lines are found by their bytes
                parts.append(f"of {files_hash(_several(value))}")
        elif not _is_function(value):
            parts.append(f"{name}={written(value)}")
    if layout := node.layout():
        parts.append(layout)
    if getattr(node, "epoch", 0):  # at_epoch was written into the plan
        parts.append(f"epoch={node.epoch}")  # type: ignore[attr-defined]  # as just seen
    return f"{type(node).__name__}({', '.join(parts)})"


def _holds_rows(node: Node[Any]) -> bool:
    """Whether a source has rows, whose values do not order samples."""
    return not any(True for _ in inputs(node)) and indexed(node) is not None


def _members(reader: Reader[Any]) -> Iterator[str]:
    """For each op, or data set, of several others, hashes that show if two of them were swapped."""
    if not isinstance(reader, Node):
        return
    ups = list(inputs(reader))
    for up in ups:
        yield from _members(up)
    if len(ups) > 1:
        yield _in_order(type(reader), [list(_said(up)) for up in ups])
    for _, value in _arguments(reader):
        for part in _parts(value):
            if len(members := getattr(part, "datasets", ())) > 1:
                yield _in_order(type(part), list(map(identity, members)))


def _in_order(kind: type, members: list[Any]) -> str:
    said = [text_hash(member) for member in members]
    return f"{kind.__name__} of {len(said)}: {text_hash(sorted(said))} {text_hash(said)}"


def _said(reader: Reader[Any]) -> Iterator[str]:
    """Everything that a member has in a fingerprint."""
    if isinstance(reader, Node):
        for up in inputs(reader):
            yield from _said(up)
        yield _line(reader, ())
    yield from _data(reader)
    yield from _functions(reader)


def _data(reader: Reader[Any]) -> Iterator[str]:
    """The sources of a plan: functions, and values that do not order samples."""
    if not isinstance(reader, Node):
        yield hashed(reader)
        return
    ups = list(inputs(reader))
    for up in ups:
        yield from _data(up)
    rows = _holds_rows(reader)
    for name, value in _arguments(reader):
        kind = type(reader).__name__
        if rows and name in ("path", "paths"):
            yield f"{kind} of {files_hash(_several(value))}"
        elif rows and not _is_shown(value):
            yield f"{kind} of {identity(value)}"
        else:
            for part in [*_parts(value)][:1]:
                data = getattr(part, "dataset", part) if _fetches(part) else part
                yield f"{type(data).__name__} of {identity(data)}"


def _functions(reader: Reader[Any]) -> Iterator[str]:
    """The functions of a plan, from its sources up, and objects that may order or count samples."""
    if not isinstance(reader, Node):
        return
    for up in inputs(reader):
        yield from _functions(up)
    if own_pass(reader) is not None:
        yield hashed(reader)  # with all that it keeps
    rows = _holds_rows(reader)
    for _, value in _arguments(reader):
        objects = not rows and reader.in_cursor != "never" and not _is_shown(value)
        for part in _parts(value):
            if _fetches(part) and part.collate_fn is not None:
                yield hashed(part.collate_fn)
        if any(True for _ in _parts(value)) or isinstance(value, _PLAIN):
            continue
        if _is_function(value) or objects:
            yield hashed(value)


def _fetches(part: Any) -> bool:
    return hasattr(part, "collate_fn")


def _parts(value: Any) -> Iterator[Any]:
    """The data sets of jreader in a value, and the objects that fetch from them."""
    if is_dataclass(value) and type(value).__module__.startswith("jreader."):
        yield value
        for field in fields(value):
            inner = getattr(value, field.name)
            for part in inner if isinstance(inner, tuple) else (inner,):
                yield from _parts(part)


def _arguments(node: Node[Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of an op, without readers and those that cursors ignore."""
    for name, value in arguments(node):
        readers = name in ("reader", "readers") or isinstance(value, Node)
        added = value is None and name in node.cursor_adds
        if not readers and not added and name not in node.cursor_ignores:
            yield name, value


def _is_function(value: object) -> bool:
    return callable(value) and not hasattr(value, "__len__")


def _is_shown(value: object) -> bool:
    """Whether a line shows a value completely."""
    return value is None or isinstance(value, _SHOWN)


def _ordering(value: Any) -> str:
    """A value that may order or count samples: its text, and a hash of containers."""
    return f"{_text(value)} {identity(value)}" if isinstance(value, _PLAIN) else _text(value)


def _text(value: Any) -> str:
    """The text of a value without addresses: arrays as dtype and shape, others by their length."""
    if _is_shown(value):
        return _cut(repr(value))
    if hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    parts = None if isinstance(value, list) else branches(value)
    if parts is not None:
        inside = [f"{key!r}: {_text(part)}" for key, part in parts.items()]
        rest = f", {len(inside) - 8} more: {text_hash(*inside)}" if len(inside) > 8 else ""
        return f"{{{', '.join(inside[:8])}{rest}}}"
    kind = type(value).__qualname__
    try:
        return f"{kind}[{len(value)}]"
    except (TypeError, NotImplementedError):  # it has none
        return kind


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}...{text_hash(text)}"


def _files(paths: Any) -> str:
    """Files by name and size, so that they can be moved."""
    sizes = [f"{Path(path).name!r} of {_size(path)} bytes" for path in _several(paths)]
    if len(sizes) <= 2:
        return " and ".join(sizes)
    return f"{len(sizes)} files, {sizes[0]}, ...: {text_hash(*sizes)}"


def _several(paths: Any) -> tuple[Any, ...]:
    return paths if isinstance(paths, tuple) else (paths,)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # the pass that reads it will say so
        return 0


def difference(written: list[str], lines: list[str]) -> tuple[int, str, str]:
    """The number of the first line (from 1) in which two lists differ, and both its versions.

    >>> difference(["a", "b"], ["a"])
    (2, 'b', 'no line')
    """
    most = max(len(written), len(lines))
    pairs = [[*each, *["no line"] * (most - len(each))] for each in (written, lines)]
    index = next(index for index in range(most) if pairs[0][index] != pairs[1][index])
    return index + 1, pairs[0][index], pairs[1][index]
