"""What a cursor says of its plan: lines to compare, and hashes of what is told if it changed.

A line stands for each op that orders or counts samples, with the arguments that do: a cursor goes
on only where they are equal. Ops that are one for one, at the place of their reader, have none
(`Node.in_cursor`), nor have arguments that say how, not what (`Node.cursor_ignores`). Functions,
and the values of samples that are found by index, have hashes of their own: changed ones give other
samples at the same indices, which is allowed, and told.
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

_MOST = 64  # lines of a plan; more are one hash
_LONGEST = 60  # characters of a text
_SHOWN = (bool, int, float, complex, str, bytes, range, np.generic)
_PLAIN = (np.ndarray, list, tuple, dict, set, frozenset)


class Cursor(TypedDict):
    """Where a training run is: a small dict that JSON keeps exactly.

    Attributes:
        epoch: The epoch that is under way, or begins.
        step: How many feeds were handed over; `skipped` ones count.
        samples: How many samples of the epoch lie before.
        position: Where the source is.
        digest: A hash of the places that were handed over, in their order (`loaders/cursors.py`).
        skipped: The steps that are left out, as [from, up to, samples of a step].
        plan: What orders and counts samples (`readers/fingerprints.py`).
        format: The version of this dict.
        stream_version: That of the orders (`orders.STREAM_VERSION`).
        check: A hash of all the rest, so that a cursor which was changed is known (`sealed`).
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
    """A plan in a cursor.

    Attributes:
        ops: A line for each op that orders or counts samples, from the sources up.
        members: For each op of several readers, a hash of them in any order, and in theirs.
        data: A name and a hash for each source, likewise: of some rows, bytes, or of a function.
        functions: A name and a hash for each function.
        feeds: How a loader makes feeds of the samples.
    """

    ops: list[str]
    members: list[str]
    data: list[str]
    functions: list[str]
    feeds: list[str]


def fingerprint(reader: Reader[Any], feeds: list[str] | None = None) -> Plan:
    """The lines and hashes of a plan, equal in every process and on every host.

    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6))).shuffle(seed=1).prefetch(2).batch(2)
    >>> fingerprint(pipeline)["ops"]
    ["arrays(columns={'x': int64[6]})", 'shuffle(buf_size=None, seed=1)', 'found by place: 6']
    """
    return Plan(
        ops=_folded(_lines(seeded(reader, 0), reader)),
        members=_folded(_members(reader)),
        data=_folded(_data(reader)),
        functions=_folded(_functions(reader)),
        feeds=_folded(feeds or []),
    )


def _folded(said: Iterable[str]) -> list[str]:
    lines = list(said)
    if len(lines) <= _MOST:
        return lines
    rest = lines[_MOST - 1 :]
    return [*lines[: _MOST - 1], f"{len(rest)} more: {text_hash(*rest)}"]


def _lines(
    drawn: Reader[Any], reader: Reader[Any], *, counted: bool = False, placed: bool = False
) -> Iterator[str]:
    """The lines of a reader, from its sources up.

    Args:
        drawn: The same reader with seeds for those that wait for a draw: only it has a plane.
        reader: As it was written.
        counted: Whether an op above counts what this one gives.
        placed: Whether an op above finds its samples by place, and so is what has a position.
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
        yield from _lines(drawn_up, up, counted=counts, placed=placed or plane is not None)
    for _, value in _arguments(reader):
        for part in _parts(value):
            if hasattr(part, "indices"):
                yield f"{type(part).__name__}(indices={_ordering(part.indices)})"
    if shown:
        several = () if alone else (f"{len(ups)} readers",)
        yield _line(reader, (f"{length(reader)} samples", *several) if own else several)
    if plane is not None:
        yield f"found by place: {plane.extent}"


def _source(reader: Reader[Any]) -> str:
    """The line of a plain function, whose name is beside its hash."""
    known = length(reader)
    return "a function" if known is None else f"a function of {known} samples"


def _line(node: Node[Any], first: tuple[str, ...]) -> str:
    written, parts = _text if _holds_rows(node) else _ordering, list(first)
    for name, value in _arguments(node):
        if name in ("path", "paths"):
            parts.append(f"{name}={_files(value)}")
            if not _holds_rows(node):  # lines are found by their bytes
                parts.append(f"of {files_hash(_several(value))}")
        elif not _is_function(value):
            parts.append(f"{name}={written(value)}")
    if getattr(node, "epoch", 0):  # at_epoch was written into the plan
        parts.append(f"epoch={node.epoch}")  # type: ignore[attr-defined]  # as just seen
    return f"{type(node).__name__}({', '.join(parts)})"


def _holds_rows(node: Node[Any]) -> bool:
    """Whether a source is one of rows, whose values order nothing."""
    return not any(True for _ in inputs(node)) and indexed(node) is not None


def _members(reader: Reader[Any]) -> Iterator[str]:
    """Each op, or data set, of several others: whoever swaps two of them has another order."""
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
    """All that there is to say of a member."""
    if isinstance(reader, Node):
        for up in inputs(reader):
            yield from _said(up)
        yield _line(reader, ())
    yield from _data(reader)
    yield from _functions(reader)


def _data(reader: Reader[Any]) -> Iterator[str]:
    """The sources of a plan: functions, and values that order nothing."""
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
    """The functions of a plan, from its sources up, and the objects that ops order or count by."""
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
    """The data sets of ours that a value is made of, and what fetches from them."""
    if is_dataclass(value) and type(value).__module__.startswith("jreader."):
        yield value
        for field in fields(value):
            inner = getattr(value, field.name)
            for part in inner if isinstance(inner, tuple) else (inner,):
                yield from _parts(part)


def _arguments(node: Node[Any]) -> Iterator[tuple[str, Any]]:
    """What was given to an op, but for readers, and what neither orders nor counts."""
    for name, value in arguments(node):
        readers = name in ("reader", "readers") or isinstance(value, Node)
        if not readers and name not in node.cursor_ignores:
            yield name, value


def _is_function(value: object) -> bool:
    return callable(value) and not hasattr(value, "__len__")


def _is_shown(value: object) -> bool:
    """Whether a line says all of a value."""
    return value is None or isinstance(value, _SHOWN)


def _ordering(value: Any) -> str:
    """A value that samples may be ordered or counted by: all that is known of it."""
    return f"{_text(value)} {identity(value)}" if isinstance(value, _PLAIN) else _text(value)


def _text(value: Any) -> str:
    """A value without addresses: arrays by dtype and shape, what has a length by that."""
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
    """Files by name and size: whoever moves them has the same plan."""
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
