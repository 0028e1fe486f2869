"""What a cursor says of its plan: lines to compare, and hashes of functions.

A line stands for each op that orders or counts samples, with the arguments that do: a cursor goes
on only where they are equal. Ops that are one for one, at the place of their reader, have none
(`Node.planned`), nor have arguments that say how, not what (`Node.unplanned`). Functions have
hashes of their own: a changed one gives other samples at the same places, which is allowed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any, TypedDict

from jreader.readers.nodes import Node, Reader, arguments, inputs, length, own_pass, seeded
from jreader.readers.passes import Position
from jreader.readers.planes import ENDLESS, indexed
from jreader.readers.trees import branches

_MOST = 64  # lines of a plan; more are one hash
_LONGEST = 60  # characters of a text


class Cursor(TypedDict):
    """Where a training run is: a small dict that JSON keeps exactly.

    Attributes:
        epoch: The epoch that is under way, or begins.
        step: How many feeds were handed over; `skipped` ones count.
        samples: How many samples of the epoch lie before.
        position: Where the source is.
        digest: A hash of the places that were handed over, in their order (`loaders/cursors.py`).
        skipped: The steps that are left out, as [from, up to].
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
        functions: A name and a hash for each function, likewise.
    """

    ops: list[str]
    functions: list[str]


def fingerprint(reader: Reader[Any]) -> Plan:
    """The lines and hashes of a plan, equal in every process and on every host.

    >>> from jreader import Pipeline, arrays
    >>> import numpy as np
    >>> pipeline = Pipeline(arrays(x=np.arange(6))).shuffle(seed=1).buffered(2).batch(2)
    >>> fingerprint(pipeline)["ops"]
    ["arrays(columns={'x': int64[6]})", 'shuffle(buf_size=None, seed=1)', 'found by place: 6']
    """
    lines, hashes = list(_lines(seeded(reader, 0), reader)), list(_functions(reader))
    return Plan(ops=_folded(lines), functions=_folded(hashes))


def text_hash(*parts: object) -> str:
    """A short hash of what JSON can write.

    >>> text_hash("a", 1) == text_hash("a", 1), len(text_hash())
    (True, 16)
    """
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _folded(lines: list[str]) -> list[str]:
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
    shown = own or reader.planned == "always" or not alone
    shown = shown or (reader.planned == "counted" and counted)
    counts = own or counted or reader.planned == "always"
    below = zip(inputs(drawn), ups, strict=True)  # type: ignore[arg-type]  # a Node, as `reader` is
    for drawn_up, up in below:
        yield from _lines(drawn_up, up, counted=counts, placed=placed or plane is not None)
    if shown:
        several = () if alone else (f"{len(ups)} readers",)
        yield _line(reader, (f"{length(reader)} samples", *several) if own else several)
    if plane is not None:
        end = "no end" if plane.length >= ENDLESS else plane.length
        yield f"found by place: {'as many as steps need' if plane.elastic else end}"


def _source(reader: Reader[Any]) -> str:
    """The line of a plain function, whose name is beside its hash."""
    known = length(reader)
    return "a function" if known is None else f"a function of {known} samples"


def _line(node: Node[Any], first: tuple[str, ...]) -> str:
    parts = list(first)
    for name, value in _arguments(node):
        if not _is_function(value):
            written = _files(value) if name in ("path", "paths") else _text(value)
            parts.append(f"{name}={written}")
    if getattr(node, "epoch", 0):  # at_epoch was written into the plan
        parts.append(f"epoch={node.epoch}")  # type: ignore[attr-defined]  # as just seen
    return f"{type(node).__name__}({', '.join(parts)})"


def _arguments(node: Node[Any]) -> Iterator[tuple[str, Any]]:
    """What was given to an op, but for readers, and what neither orders nor counts."""
    for name, value in arguments(node):
        readers = name in ("reader", "readers") or isinstance(value, Node)
        if not readers and name not in node.unplanned:
            yield name, value


def _is_function(value: object) -> bool:
    return callable(value) and not hasattr(value, "__len__")


def _text(value: Any) -> str:
    """A value without addresses: arrays by dtype and shape, what has a length by that."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return _cut(repr(value))
    if hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    parts = None if isinstance(value, list) else branches(value)
    if parts is not None and len(parts) <= 8:
        inside = (f"{key!r}: {_text(part)}" for key, part in parts.items())
        return f"{{{', '.join(inside)}}}"
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


def _functions(reader: Reader[Any]) -> Iterator[str]:
    """The functions of a plan, from its sources up; sources that are functions too."""
    if not isinstance(reader, Node):
        yield _hashed(reader)
        return
    for up in inputs(reader):
        yield from _functions(up)
    for _, value in _arguments(reader):
        if _is_function(value):
            yield _hashed(value)


def _hashed(function: Callable[..., Any]) -> str:
    named = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{named} {text_hash(*_parts(function))}"


def _parts(function: Any) -> Iterator[Any]:
    """What a function does, as far as it can be told: its code, what it closes over, defaults."""
    if isinstance(function, functools.partial):
        yield from _parts(function.func)
        yield [_text(value) for value in (*function.args, *function.keywords.values())]
        return
    inner = getattr(function, "__func__", function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        kind = function if hasattr(function, "__qualname__") else type(function)
        yield [str(getattr(kind, "__module__", "")), kind.__qualname__]
        call = getattr(kind, "__call__", None)  # noqa: B004  # the method itself, not whether
        if hasattr(call, "__code__"):
            yield from _parts(call)
        return
    yield [inner.__module__, inner.__qualname__, *_code(code)]
    for value in inner.__defaults__ or ():
        yield _text(value)
    for cell in inner.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield _text(value)


def _code(code: CodeType) -> Iterator[Any]:
    """The instructions and names of a function, those inside it included."""
    yield code.co_code.hex()
    yield list(code.co_names)
    yield list(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):
            yield sorted(map(repr, constant))  # the order of a set is that of its process
        else:
            yield repr(constant)
