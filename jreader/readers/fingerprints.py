"""Fingerprints of plans in cursors: lines that must be equal, and hashes whose change is told.

There is a line for each op that orders or counts samples, with the arguments that do so; a cursor
resumes only if all lines are equal. Ops that give one sample for each of their reader have no line
(`Node.in_cursor`), nor do lines have arguments that change only speed (`declarations.InCursor`).
Functions, and the values of samples that are found by index, have hashes: if they change, a run
resumes with other samples at the same indices, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypedDict, TypeVar

import numpy as np

from jreader.readers.credentials import lasting, name_in_cursor
from jreader.readers.declarations import in_cursor
from jreader.readers.excerpts import SAMPLED, some_bytes, spread
from jreader.readers.growing import unwritten
from jreader.readers.hashing import files_hash, identity, text_hash
from jreader.readers.nodes import (
    Node,
    Reader,
    arguments,
    inputs,
    length,
    ops_of,
    own_pass,
    sources_first,
)
from jreader.readers.passes import Position
from jreader.readers.planes import indexed
from jreader.readers.seeds import seeded
from jreader.readers.trees import branches, leaves

T = TypeVar("T")

TOLD = "told: "
"""What the line begins with that says what a run may change (`Adjustable`)."""

FOUND = "found by place"
"""What the line begins with that says that samples below it are found by their place."""

STAGE = "after batches: "
"""What the line begins with of what a function of feeds holds, which makes no samples."""

_ALWAYS = ("always", "in place")
_MOST = 64  # lines of a plan; more are one hash
_MANY = 32  # ops of a member of which every line is told; of more, a hash of hashes
_LONGEST = 60  # characters of a text
_SHOWN = (bool, int, float, complex, str, bytes, range, np.generic)
_PLAIN = (np.ndarray, list, tuple, dict, set, frozenset)


class Adjustable(Node[T]):
    """An op of which a run may change some arguments where it resumes.

    It may, if no op above counts the samples. A cursor has the history of the arguments.

    Attributes:
        adjustable: The names of the arguments.
    """

    adjustable: ClassVar[tuple[str, ...]] = ()

    def history(self) -> str:
        """What the arguments were up to now, as a text in a cursor."""
        raise NotImplementedError

    def after(self, history: str, index: int) -> Mapping[str, Any]:
        """The fields of this op that change after `index` samples of one with that history."""
        raise NotImplementedError


class Cursor(TypedDict):
    """The place of a training run, as a small dict that JSON keeps exactly.

    Attributes:
        epoch: The epoch that is running, or begins.
        step: How many feeds were handed over, with the skipped ones.
        samples: How many samples of the epoch lie before this place.
        position: The position of the source.
        digest: A hash of the indices that were handed over, in their order, and of the plans that
            they were of (`loaders/checkpoints/cursors.py`).
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


class _FirstParts(TypedDict):
    """The parts of a plan that every cursor has."""

    ops: list[str]
    members: list[str]
    data: list[str]
    functions: list[str]
    feeds: list[str]


class Plan(_FirstParts, total=False):
    """The fingerprint of a plan.

    Attributes:
        ops: A line for each op that orders or counts samples, from the sources up.
        members: For each op of several readers, a hash of them in any order, and in theirs.
        data: For each source, a name and a hash of some rows, of some bytes, or of a function.
        functions: For each function, a name and a hash.
        feeds: How a loader makes feeds of the samples.
        layouts: For each op whose order follows from lengths or names in the data, a hash of all of
            them. Cursors of earlier releases lack it, and the next part.
        values: Arguments of ops that change samples alone, and what functions and data hold that
            their hashes leave out (`hidden_state`).
    """

    layouts: list[str]
    values: list[str]


def fingerprint(
    reader: Reader[Any], feeds: Iterable[str] = (), stages: Iterable[Callable[..., Any]] = ()
) -> Plan:
    """The fingerprint of a plan, equal in every process and on every host.

    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6))).shuffle(seed=1).prefetch(2).batch(2)
    >>> fingerprint(pipeline)["ops"]
    ["arrays(columns={'x': int64[6]})", 'shuffle(buf_size=None, seed=1)', 'found by place: 6']

    Args:
        reader: The plan.
        feeds: Lines that say how feeds are made, with hashes of functions.
        stages: The functions in these lines.
    """
    op = changeable(reader)
    told = [f"{TOLD}{op.history()}"] if op else []
    hidden: list[str] = []
    for stage in stages:
        _hashed(stage, hidden)
    hidden[:] = [f"{STAGE}{line}" for line in hidden]
    plan, every = unwritten(reader), list(sources_first(reader, _ups))
    known: dict[int, _Said] = {}
    said = [_said(each, known) for each in every]
    hidden += [line for each in said for line in each.hidden]
    return Plan(
        ops=[*told, *_folded(_lines(seeded(plan, 0), plan, changeable(plan)))],
        members=_folded(_members(every, known)),
        data=_folded(line for each in said for line in each.data),
        functions=_folded(line for each in said for line in each.functions),
        feeds=_folded(feeds),
        layouts=_folded(_layouts(every)),
        values=_folded([*_values(every), *hidden]),
    )


def changeable(reader: Reader[Any]) -> Adjustable[Any] | None:
    """The op of which some arguments may change where a run resumes, if any."""
    while isinstance(reader, Node) and own_pass(reader) is None:
        if isinstance(reader, Adjustable):
            return reader
        ups = list(inputs(reader))
        if len(ups) != 1 or reader.in_cursor == "always":
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
    drawn: Reader[Any], reader: Reader[Any], told: Adjustable[Any] | None = None
) -> Iterator[str]:
    """The lines of a reader, from its sources up.

    Args:
        drawn: The same reader with missing seeds filled in, since only then it has a plane.
        reader: As it was written.
        told: The op in it of which some fields have a line of their own.
    """

    def below(met: _Met) -> Iterator[_Met]:
        if isinstance(met.reader, Node):
            counts = met.own or met.counted or met.reader.in_cursor in _ALWAYS
            ups = zip(inputs(met.drawn), inputs(met.reader), strict=True)  # type: ignore[arg-type]  # a Node, as `reader` is
            for drawn_up, up in ups:
                yield _Met(drawn_up, up, counts, met.placed or met.plane is not None)

    for met in sources_first(_Met(drawn, reader), below):
        yield from _lines_of(met, told)


class _Met:
    """A reader of a plan, and what the ops above it make of it.

    Attributes:
        drawn: The reader with missing seeds filled in, since only then it has a plane.
        reader: As it was written.
        counted: Whether an op above counts its samples.
        placed: Whether an op above is indexed, so that the position is its own.
        plane: Its own plane, where that is what a position counts.
        own: Whether it is of a subclass that has a pass of its own, which may order and count.
    """

    def __init__(
        self, drawn: Reader[Any], reader: Reader[Any], counted: bool = False, placed: bool = False
    ) -> None:
        self.drawn, self.reader, self.counted, self.placed = drawn, reader, counted, placed
        self.plane = None if placed else indexed(drawn)
        self.own = own_pass(reader) is not None


def _lines_of(met: _Met, told: Adjustable[Any] | None) -> Iterator[str]:
    """The lines of one reader."""
    reader = met.reader
    if not isinstance(reader, Node):
        yield _source(reader)
        return
    ups = list(inputs(reader))
    alone = len(ups) < 2
    shown = met.own or reader.in_cursor in _ALWAYS or not alone
    shown = shown or (reader.in_cursor == "counted" and met.counted)
    for _, value in _arguments(reader):
        for part in _parts(value):
            if hasattr(part, "indices"):
                yield f"{type(part).__name__}(indices={_ordering(part.indices)})"
    if shown:
        several = () if alone else (f"{len(ups)} readers",)
        first = (f"{length(reader)} samples", *several) if met.own else several
        yield _line(reader, first, told.adjustable if told and told is reader else ())
    if met.plane is not None:
        yield f"{FOUND}: {met.plane.extent}"


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
    if more := node.in_line():
        parts.append(more)
    if getattr(node, "epoch", 0):  # at_epoch was written into the plan
        parts.append(f"epoch={node.epoch}")  # type: ignore[attr-defined]  # as just seen
    return f"{type(node).__name__}({', '.join(parts)})"


def _holds_rows(node: Node[Any]) -> bool:
    """Whether a source has rows, whose values do not order samples."""
    return not inputs(node) and indexed(node) is not None


def _members(every: list[Reader[Any]], known: dict[int, _Said]) -> Iterator[str]:
    """For each op, or data set, of several others, hashes that show if two of them were swapped."""
    for each in every:
        ups = _ups(each)
        if len(ups) > 1:
            yield _in_order(type(each), [_of_member(up, known) for up in ups])
        for _, value in _arguments(each) if isinstance(each, Node) else ():
            for part in _parts(value):
                if len(members := getattr(part, "datasets", ())) > 1:
                    yield _in_order(type(part), list(map(identity, members)))


def _ups(reader: Reader[Any]) -> list[Reader[Any]]:
    return inputs(reader) if isinstance(reader, Node) else []


def _in_order(kind: type, members: list[Any]) -> str:
    said = [text_hash(member) for member in members]
    return f"{kind.__name__} of {len(said)}: {text_hash(sorted(said))} {text_hash(said)}"


class _Said:
    """What a reader itself, without those that it reads, has in a fingerprint.

    Attributes:
        data: Its lines of the data of a plan.
        functions: Its lines of the functions of a plan.
        hidden: What the hashes in these lines leave out.
        whole: A hash of all that it and those that it reads have; "" if it was not asked for.
    """

    def __init__(self, reader: Reader[Any]) -> None:
        self.reader = reader
        self.hidden: list[str] = []
        self.data = [*_data(reader, self.hidden)]
        self.functions = [*_functions(reader, self.hidden)]
        self.whole = ""

    @cached_property
    def line(self) -> str:
        """Its line as an op; "" for a function."""
        return _line(self.reader, ()) if isinstance(self.reader, Node) else ""


def _said(reader: Reader[Any], known: dict[int, _Said]) -> _Said:
    """What a reader has, found once: `known` has what was found, by the ids of readers."""
    if id(reader) not in known:
        known[id(reader)] = _Said(reader)
    return known[id(reader)]


def _of_member(member: Reader[Any], known: dict[int, _Said]) -> Any:
    """Everything that a member has in a fingerprint; of one of many ops, a hash of it."""
    if len(list(islice(ops_of(member), _MANY + 1))) <= _MANY:
        lines: list[str] = []
        for each in sources_first(member, _ups):
            below = [_said(up, known) for up in sources_first(each, _ups)]
            lines += [line for line in [_said(each, known).line] if line]
            lines += [line for up in below for line in up.data]
            lines += [line for up in below for line in up.functions]
        return lines
    for each in sources_first(member, lambda up: [] if _said(up, known).whole else _ups(up)):
        said = _said(each, known)
        if not said.whole:
            wholes = [_said(up, known).whole for up in _ups(each)]
            said.whole = text_hash(said.line, *said.data, *said.functions, *wholes)
    return _said(member, known).whole


def _layouts(every: list[Reader[Any]]) -> Iterator[str]:
    """What orders follow from besides arguments: all lengths, or names, that an op looks at."""
    for node in every:
        if not isinstance(node, Node):
            continue
        if layout := node.layout():
            yield f"{type(node).__name__}: {layout}"
        if far := node.far_sizes():
            yield f"files elsewhere: {_in_few_words(far, far)}"


def _values(every: list[Reader[Any]]) -> Iterator[str]:
    """The arguments that change samples, but not their order."""
    for node in every:
        if not isinstance(node, Node):
            continue
        for name, value in arguments(node):
            if in_cursor(node, name, value) == "values":
                yield f"{type(node).__name__}({name}={_ordering(value)})"


def _data(reader: Reader[Any], hidden: list[str]) -> Iterator[str]:
    """The lines of a source: functions, and values that do not order samples."""
    if not isinstance(reader, Node):
        yield _hashed(reader, hidden)
        return
    rows = _holds_rows(reader)
    for name, value in _arguments(reader):
        kind = type(reader).__name__
        if rows and name in ("path", "paths"):
            yield f"{kind} of {files_hash(_several(value))}"
            if isinstance(value, str) and Path(value).is_dir():
                hidden.append(f"{kind} of {_some_files(reader)}")
        elif rows and not _is_shown(value):
            yield f"{kind} of {_identity(value, kind, hidden)}"
        else:
            for part in [*_parts(value)][:1]:
                data = getattr(part, "dataset", part) if _fetches(part) else part
                name_of = type(data).__name__
                yield f"{name_of} of {_identity(data, name_of, hidden)}"


def _some_files(folder: Node[Any]) -> str:
    """A hash of the sizes, and of some bytes, of some files of a folder."""
    (column,) = leaves(folder.columns)  # type: ignore[attr-defined]  # a table
    rows = np.fromiter(spread(len(column), SAMPLED), np.intp)
    paths = [path for path, _ in column.where(rows)]
    return text_hash([*map(_size, paths)], some_bytes(paths))


def _functions(reader: Reader[Any], hidden: list[str]) -> Iterator[str]:
    """The lines of the functions of an op, and of objects that may order or count samples."""
    if not isinstance(reader, Node):
        return
    if own_pass(reader) is not None:
        yield _hashed(reader, hidden)  # with all that it keeps
    rows = _holds_rows(reader)
    for _, value in _arguments(reader):
        objects = not rows and reader.in_cursor != "never" and not _is_shown(value)
        for part in _parts(value):
            if _fetches(part) and part.collate_fn is not None:
                yield _hashed(part.collate_fn, hidden)
        if any(True for _ in _parts(value)) or isinstance(value, _PLAIN):
            continue
        if _is_function(value) or objects:
            yield _hashed(value, hidden)


def _hashed(function: Any, hidden: list[str]) -> str:
    """The name of a function and its hash; what the hash leaves out is a line of `hidden`."""
    named = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{named} {_identity(function, named, hidden)}"


def _identity(value: Any, named: str, hidden: list[str]) -> str:
    found: list[str] = []
    made = identity(value, found)
    hidden += [f"in {named} {text_hash(*found)}"] if found else []
    return made


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
        if not readers and in_cursor(node, name, value) == "ordering":
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
    names = _several(paths)
    sizes = [f"{name_in_cursor(path)!r} of {_size(path)} bytes" for path in names]
    return _in_few_words(
        sizes, [f"{Path(lasting(path)).name!r} of {_size(path)} bytes" for path in names]
    )


def _in_few_words(sizes: list[str], hashed_too: list[str]) -> str:
    if len(sizes) <= 2:
        return " and ".join(sizes)
    return f"{len(sizes)} files, {sizes[0]}, ...: {text_hash(*hashed_too)}"


def _several(paths: Any) -> tuple[Any, ...]:
    return paths if isinstance(paths, tuple) else (paths,)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # the pass that reads it will say so
        return 0


def swapped(written: list[str], lines: list[str]) -> str | None:
    """The op whose members come in another order, as the lines of two plans' members say; or None.

    Members that differ in themselves show in other lines, as far as samples depend on them.

    >>> swapped(["chain of 2: 5f 7a"], ["chain of 2: 5f 9c"])
    'chain of 2'
    """
    for before, now in zip(written, lines, strict=False):
        if before != now and before.rpartition(" ")[0] == now.rpartition(" ")[0]:
            return now.partition(":")[0]
    return None


def difference(written: list[str], lines: list[str]) -> tuple[int, str, str]:
    """The number of the first line (from 1) in which two lists differ, and both its versions.

    >>> difference(["a", "b"], ["a"])
    (2, 'b', 'no line')
    """
    most = max(len(written), len(lines))
    pairs = [[*each, *["no line"] * (most - len(each))] for each in (written, lines)]
    index = next(index for index in range(most) if pairs[0][index] != pairs[1][index])
    return index + 1, pairs[0][index], pairs[1][index]
