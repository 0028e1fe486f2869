"""Fingerprints of plans in cursors: lines that must be equal, and hashes that warn of a change.

Each op that orders or counts samples has a line, with the arguments that do so; a cursor resumes
only if all lines are equal. Ops that give one sample for each of their reader's have no line
(`Node.in_cursor`), and lines leave out arguments that change only speed (`declarations.InCursor`).
Functions, and the values of samples found by index, have hashes: if these change, a run resumes
with other samples at the same indices, and a warning says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, NamedTuple, TypedDict, TypeVar

import numpy as np

from jreader.readers.credentials import lasting, name_in_cursor
from jreader.readers.declarations import in_cursor, names_by
from jreader.readers.epochs import epochs
from jreader.readers.excerpts import SAMPLED, some_bytes, spread
from jreader.readers.growing import unwritten
from jreader.readers.hashing import (
    dtype_text,
    files_hash,
    hashed,
    identity,
    name_in_cursors,
    text_hash,
)
from jreader.readers.nodes import (
    Node,
    Reader,
    arguments,
    length,
    ops_of,
    overridden_pass,
    readers_below,
    sources_first,
)
from jreader.readers.passes import Position
from jreader.readers.planes import indexed
from jreader.readers.seeds import lacks_seed, seeded
from jreader.readers.trees import branches, leaves

T = TypeVar("T")

HISTORY = "told: "
"""Prefix of the line for what a run may change (`Adjustable`)."""

READER = "reader "
"""Prefix of the line for a reader that a run may add, drop or move, by its name."""

FOUND = "found by place"
"""Prefix of the line saying that samples below are found by index."""

STAGE = "after batches: "
"""Prefix of the line for the state of a function of feeds, which makes no samples."""

_ALWAYS = ("always", "in place")
_MAX_LINES = 64  # lines of a plan; those beyond are one hash
_MAX_MEMBER_OPS = 32  # a member with more ops is one hash of their hashes
_MAX_TEXT = 60  # characters of a text
_SHOWN = (NoneType, bool, int, float, complex, str, bytes, range, np.generic)
"""Types of values that a line shows completely."""
_PLAIN = (np.ndarray, list, tuple, dict, set, frozenset)


class Adjustable(Node[T]):
    """An op some of whose arguments may change when a run resumes.

    They may if no op above counts the samples. A cursor has the history of the arguments.

    Attributes:
        adjustable: The names of these arguments.
    """

    adjustable: ClassVar[tuple[str, ...]] = ()

    def history(self, *, by_name: bool = True) -> str:
        """Return the history of the arguments up to now, as text for a cursor.

        Args:
            by_name: Whether the text has the names of readers.
        """
        raise NotImplementedError

    def after(self, history: str, index: Callable[[], int]) -> Mapping[str, Any]:
        """Return the fields that change after `index()` samples of an op with that history."""
        raise NotImplementedError

    def by_name(self) -> Mapping[str, Reader[Any]]:
        """Return its readers by name, if a run may add, drop or move some when it resumes."""
        return {}

    def reweighed(self, weights: Any) -> Mapping[str, Any]:
        """Return the fields of this op that change if a running run gets these weights."""
        raise NotImplementedError

    def steered(self, history: str) -> Mapping[str, Any]:
        """Return the fields that a run has changed so; none if the plan has other arguments."""
        raise NotImplementedError


class Cursor(TypedDict):
    """The position of a training run: a small dict that survives JSON unchanged.

    Attributes:
        epoch: The current epoch; between two epochs, the next one.
        step: The number of feeds that the loop has received, and of those that it skipped.
        samples: The number of samples of the epoch before this position.
        position: The position of the source.
        digest: A hash of the indices that the loop has received, in order, and of their plans
            (`loaders/checkpoints/cursors.py`).
        skipped: The skipped steps, as [first, end, samples per step].
        plan: The fingerprint of the plan.
        format: The version of this dict.
        stream_version: The version of the random orders (`orders.STREAM_VERSION`).
        check: A hash of the other fields, which detects a cursor that was edited (`sealed`).
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
        values: Arguments of ops that change samples only, and the state of functions and data that
            their hashes leave out (`hidden_state`).
        feeds: How a loader makes feeds of the samples.
        layouts: For each op whose order follows from lengths or names in the data, a hash of all of
            them. Cursors of earlier releases lack it, and the next part.
        values: Arguments of ops that change samples alone, and what functions and data hold that
            their hashes leave out (`hidden_state`).
        lock: The name of the plan's lock, if the loader has one (`pipelines/locking.py`).
    """

    layouts: list[str]
    values: list[str]
    lock: list[str]


def fingerprint(
    reader: Reader[Any],
    feeds: Iterable[str] = (),
    stages: Iterable[Callable[..., Any]] = (),
    *,
    by_name: bool = False,
) -> Plan:
    """Return the fingerprint of a plan, equal in every process and on every host.

    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6))).shuffle(seed=1).prefetch(2).batch(2)
    >>> fingerprint(pipeline)["ops"]
    ["arrays(columns={'x': int64[6]})", 'shuffle(buf_size=None, seed=1)', 'found by place: 6']

    Args:
        reader: The plan.
        feeds: Lines that say how feeds are made, with hashes of functions.
        stages: The functions in these lines.
        by_name: Whether readers that a run may add and drop have lines of their own; cursors of
            earlier releases have none.
    """
    op = changeable(reader)
    history = [f"{HISTORY}{op.history(by_name=by_name)}"] if op else []
    in_stages: list[str] = []
    for stage in stages:
        hashed(stage, in_stages)
    facts = _Facts()
    every = [facts[each] for each in sources_first(_inside_pipelines(reader), _below)]
    named = _by_name(reader, op, asked=by_name).values()
    apart = {id(each) for up in named for each in sources_first(up, readers_below)}
    others = [fact for fact in every if id(fact.reader) not in apart]
    values = _lines(every, "values") + [f"{STAGE}{line}" for line in in_stages]
    return Plan(
        ops=[*history, *_long_tail_hashed(_op_lines(unwritten(reader), facts, by_name))],
        members=_long_tail_hashed(_member_lines(every, facts)),
        data=_long_tail_hashed(_lines(every, "data")),
        functions=_long_tail_hashed(_lines(every, "functions")),
        feeds=_long_tail_hashed(feeds),
        layouts=_long_tail_hashed(_layout_lines(others)),
        values=_long_tail_hashed(values + _lines(every, "hidden")),
    )


def _inside_pipelines(reader: Reader[Any]) -> Reader[Any]:
    """Return the reader inside pipelines, which have no lines, but not inside users' subclasses."""
    while isinstance(reader, Node) and type(reader).wrapped is not Node.wrapped:
        kind, inner = type(reader), reader.wrapped()
        if inner is None or names_by(kind, given=True) != ("reader",) or overridden_pass(kind):
            break
        reader = inner
    return reader


def _below(reader: Reader[Any]) -> tuple[Reader[Any], ...]:
    """Return the readers that a reader reads, inside pipelines."""
    return tuple(map(_inside_pipelines, readers_below(reader)))


def _lines(facts: Iterable[_Fact], part: str) -> list[str]:
    """Return the lines that some facts have for a part."""
    return list(chain.from_iterable(map(attrgetter(part), facts)))


def changeable(reader: Reader[Any], *, held: bool = False) -> Adjustable[Any] | None:
    """Return the op some of whose arguments may change when a run resumes, if any.

    Args:
        reader: The plan.
        held: Whether to include an op whose samples ops above read in order, and hold.
    """
    while isinstance(reader, Node) and not overridden_pass(type(reader)):
        if isinstance(reader, Adjustable):
            return reader
        if len(reader.input_readers) != 1:
            return None
        if reader.in_cursor == "always" and not (held and _reads_once(reader)):
            return None
        (reader,) = reader.input_readers
    return None


def _reads_once(node: Node[Any]) -> bool:
    """Return whether an op reads the samples of its reader in order, once per pass."""
    return not (node.pinned or isinstance(node, epochs) or indexed(seeded(node, 0)))


def with_history(plan: Plan, reader: Reader[Any]) -> Plan:
    """Return the fingerprint with the history of a run's changes to a plan."""
    op = changeable(reader, held=True)
    lines = [line for line in plan["ops"] if not line.startswith(HISTORY)]
    return {**plan, "ops": [f"{HISTORY}{op.history()}", *lines]} if op else plan


def _long_tail_hashed(lines: Iterable[str]) -> list[str]:
    """Return the lines; if there are many, the last ones as one hash."""
    lines = list(lines)
    if len(lines) <= _MAX_LINES:
        return lines
    rest = lines[_MAX_LINES - 1 :]
    return [*lines[: _MAX_LINES - 1], f"{len(rest)} more: {text_hash(*rest)}"]


class _Argument(NamedTuple):
    """An argument of an op that orders or counts samples, and the data sets of jreader in it."""

    name: str
    value: Any
    parts: list[Any]


class _Fact:
    """The entries of one reader in a fingerprint, without those of the readers below.

    Attributes:
        reader: The reader.
        arguments: Its arguments, without readers and those that cursors ignore.
        holds_rows: Whether it is a source of rows, whose values do not order samples.
        values: The lines of arguments that change samples, but not their order.
        data: Its lines of the data of a plan.
        functions: Its lines of the functions of a plan.
        hidden: The state that the hashes in these lines leave out.
        parts: The data sets of jreader in its arguments.
    """

    def __init__(self, reader: Reader[Any]) -> None:
        self.reader = reader
        self.arguments: list[_Argument] = []
        self.parts: list[Any] = []
        self.values: list[str] = []
        self.hidden: list[str] = []
        self.holds_rows = not readers_below(reader) and indexed(reader) is not None
        if not isinstance(reader, Node):
            self.data, self.functions = [hashed(reader, self.hidden)], list[str]()
            return
        for name, value in arguments(reader):
            if name in ("reader", "readers"):
                continue
            does = in_cursor(reader, name, value)
            if does == "values":
                self.values.append(f"{name_in_cursors(type(reader))}({name}={_ordering(value)})")
            elif does == "ordering" and not isinstance(value, Node):
                parts = [] if isinstance(value, _SHOWN) else list(_data_sets(value))
                self.arguments.append(_Argument(name, value, parts))
                self.parts += parts
        self.data = [*_data_lines(self, reader)] if self.arguments else []
        self.functions = [*_function_lines(self, reader)]

    @property
    def subsets(self) -> list[str]:
        """The lines of data sets in its arguments that are subsets of others."""
        return [
            f"{type(part).__name__}(indices={_ordering(part.indices)})"
            for part in self.parts
            if hasattr(part, "indices")
        ]

    @cached_property
    def line(self) -> str:
        """Its line as an op; "" for a function."""
        return _line(self, self.reader) if isinstance(self.reader, Node) else ""


class _Facts:
    """The facts of a plan's readers, each computed once.

    Attributes:
        whole: For some readers, by id, a hash of their entries and those of all readers below.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, _Fact] = {}
        self.whole: dict[int, str] = {}

    def __getitem__(self, reader: Reader[Any]) -> _Fact:
        fact = self._by_id.get(id(reader))
        if fact is None:
            fact = self._by_id[id(reader)] = _Fact(reader)
        return fact


class _PlanNode:
    """A reader of a plan, and how the ops above it use it.

    Attributes:
        drawn: The reader with missing seeds filled in; only then does it have a plane.
        reader: As it was written.
        counted: Whether an op above counts its samples.
        placed: Whether an op above is indexed, so that the position belongs to that op.
        plane: Its own plane, if positions count its samples.
        own: Whether its class overrides the pass, which may then order and count.
    """

    def __init__(
        self, drawn: Reader[Any], reader: Reader[Any], counted: bool = False, placed: bool = False
    ) -> None:
        self.drawn, self.reader, self.counted, self.placed = drawn, reader, counted, placed
        self.plane = None if placed else indexed(drawn)
        self.own = bool(overridden_pass(type(reader)))

    def below(self) -> list[_PlanNode]:
        """Return the readers that it reads."""
        if not isinstance(self.reader, Node):
            return []
        counts = self.own or self.counted or self.reader.in_cursor in _ALWAYS
        placed = self.placed or self.plane is not None
        written = _below(self.reader)
        ups = zip(
            written if self.drawn is self.reader else _below(self.drawn), written, strict=True
        )
        return [_PlanNode(drawn, reader, counts, placed) for drawn, reader in ups]

    def lines(self, fact: _Fact, but: tuple[str, ...]) -> Iterator[str]:
        """Yield its reader's line, without some arguments, if it orders or counts samples."""
        node = self.reader
        if not isinstance(node, Node):
            known = length(node)  # the name is with the hash
            yield "a function" if known is None else f"a function of {known} samples"
            return
        if fact.parts:
            yield from fact.subsets
        several = len(node.input_readers) > 1
        if self.own or several or self._orders_or_counts(node):
            first = [f"{length(node)} samples"] if self.own else []
            first += [f"{len(node.input_readers)} readers"] * (several and "readers" not in but)
            yield _line(fact, node, first, but)
        if self.plane is not None:
            yield f"{FOUND}: {self.plane.extent}"

    def _orders_or_counts(self, node: Node[Any]) -> bool:
        return node.in_cursor in _ALWAYS or (node.in_cursor == "counted" and self.counted)


def _op_lines(plan: Reader[Any], facts: _Facts, by_name: bool) -> Iterator[str]:
    """Yield the lines of a plan, from its sources up."""
    adjusted = changeable(plan)  # some of its fields have their own line
    named = _by_name(plan, adjusted, asked=by_name)
    for name, reader in named.items():
        nodes = [facts[each] for each in sources_first(reader, readers_below)]
        lines = [*_lines_of(reader, facts, None), *_layout_lines(nodes)]
        lines = [line for line in lines if not line.startswith(FOUND)]  # all are, or none
        text = "; ".join(lines) if len(named) <= _MAX_MEMBER_OPS else text_hash(*lines)
        yield f"{READER}{name!r}: {text}"
    yield from _lines_of(plan, facts, adjusted, apart=bool(named))


def _by_name(
    plan: Reader[Any], op: Adjustable[Any] | None, *, asked: bool
) -> Mapping[str, Reader[Any]]:
    """Return the readers that a run may add and drop; none if ops draw seeds, one by one."""
    return op.by_name() if asked and op and not lacks_seed(plan) else {}


def _lines_of(
    plan: Reader[Any], facts: _Facts, adjusted: Adjustable[Any] | None, *, apart: bool = False
) -> Iterator[str]:
    """Yield the lines of a plan, without some arguments of one op (`apart`: and its readers)."""

    def below(met: _PlanNode) -> Sequence[_PlanNode]:
        return () if met.reader is adjusted else met.below()

    drawn, written = seeded(plan, 0), _inside_pipelines(plan)
    top = _PlanNode(written if drawn is plan else _inside_pipelines(drawn), written)
    for met in sources_first(top, below if apart else _PlanNode.below):
        but = adjusted.adjustable if adjusted and adjusted is met.reader else ()
        yield from met.lines(facts[met.reader], (*but, "readers") if apart else but)


def _line(
    fact: _Fact, node: Node[Any], first: Iterable[str] = (), but: tuple[str, ...] = ()
) -> str:
    written, parts = _value_text if fact.holds_rows else _ordering, list(first)
    for name, value, _ in fact.arguments:
        if name in but:
            continue
        if name in ("path", "paths"):
            parts.append(f"{name}={_named_files(value, node.local_sizes())}")
            if not fact.holds_rows:  # lines are found by their bytes
                parts.append(f"of {files_hash(_as_tuple(value))}")
        elif not _is_function(value):
            parts.append(f"{name}={written(value)}")
    if more := node.cursor_extra():
        parts.append(more)
    if epoch := getattr(node, "epoch", 0):  # at_epoch was written into the plan
        parts.append(f"epoch={epoch}")
    return f"{name_in_cursors(type(node))}({', '.join(parts)})"


def _member_lines(every: list[_Fact], facts: _Facts) -> Iterator[str]:
    """Yield, for ops and data sets over several others, hashes that change if two are swapped."""
    for fact in every:
        ups = readers_below(fact.reader)
        if len(ups) > 1:
            yield _member_hashes(type(fact.reader), [_of_member(up, facts) for up in ups])
        for part in fact.parts:
            if len(members := getattr(part, "datasets", ())) > 1:
                yield _member_hashes(type(part), list(map(identity, members)))


def _member_hashes(kind: type, members: list[Any]) -> str:
    hashes = [text_hash(member) for member in members]
    return f"{kind.__name__} of {len(hashes)}: {text_hash(sorted(hashes))} {text_hash(hashes)}"


def _of_member(member: Reader[Any], facts: _Facts) -> Any:
    """Return a member's entries in a fingerprint; for a member of many ops, their hash."""
    if len(ops_of(member, most=_MAX_MEMBER_OPS + 1)) > _MAX_MEMBER_OPS:
        return _hash_of_member(member, facts)
    lines: list[str] = []
    for each in sources_first(member, readers_below):
        below = [facts[up] for up in sources_first(each, readers_below)]
        lines += filter(None, [facts[each].line])
        lines += _lines(below, "data") + _lines(below, "functions")
    return lines


def _hash_of_member(member: Reader[Any], facts: _Facts) -> str:
    whole = facts.whole
    unknown = sources_first(member, lambda up: () if id(up) in whole else readers_below(up))
    for each in unknown:
        if id(each) not in whole:
            fact, below = facts[each], [whole[id(up)] for up in readers_below(each)]
            whole[id(each)] = text_hash(fact.line, *fact.data, *fact.functions, *below)
    return whole[id(member)]


def _layout_lines(every: list[_Fact]) -> Iterator[str]:
    """Yield lines for what orders depend on besides arguments: lengths, or names, in the data."""
    for fact in every:
        node = fact.reader
        if not isinstance(node, Node):
            continue
        if layout := node.layout():
            yield f"{name_in_cursors(type(node))}: {layout}"
        if far := node.remote_sizes():
            yield f"files elsewhere: {_shortened_files(far, len(far), far)}"


def _data_lines(fact: _Fact, node: Node[Any]) -> Iterator[str]:
    """Yield the lines of a source: functions, and values that do not order samples."""
    kind = name_in_cursors(type(node))
    for name, value, parts in fact.arguments:
        if fact.holds_rows and name in ("path", "paths"):
            yield f"{kind} of {files_hash(_as_tuple(value))}"
            if isinstance(value, str) and Path(value).is_dir():
                fact.hidden.append(f"{kind} of {_some_files(node)}")
        elif fact.holds_rows and not isinstance(value, _SHOWN):
            yield f"{kind} of {identity(value, kind, fact.hidden)}"
        elif parts:
            data = parts[0].dataset if hasattr(parts[0], "collate_fn") else parts[0]
            name_of = type(data).__name__
            yield f"{name_of} of {identity(data, name_of, fact.hidden)}"


def _some_files(folder: Node[Any]) -> str:
    """Return a hash of the sizes, and of some bytes, of some files of a folder."""
    (column,) = leaves(folder.columns)  # type: ignore[attr-defined]  # a table
    rows = np.fromiter(spread(len(column), SAMPLED), np.intp)
    paths = [path for path, _ in column.where(rows)]
    return text_hash([*map(_file_size, paths)], some_bytes(paths))


def _function_lines(fact: _Fact, node: Node[Any]) -> Iterator[str]:
    """Yield the lines of an op's functions, and of objects that may order or count samples."""
    if overridden_pass(type(node)):
        yield hashed(node, fact.hidden)  # with all of its state
    orders = not fact.holds_rows and node.in_cursor != "never"
    for _, value, parts in fact.arguments:
        for part in parts:
            if getattr(part, "collate_fn", None) is not None:
                yield hashed(part.collate_fn, fact.hidden)
        if not parts and not isinstance(value, _PLAIN + _SHOWN) and (orders or _is_function(value)):
            yield hashed(value, fact.hidden)


def _data_sets(value: Any) -> Iterator[Any]:
    """Yield the data sets of jreader in a value, and the objects that fetch from them."""
    if is_dataclass(value) and type(value).__module__.startswith("jreader."):
        yield value
        for field in fields(value):
            inner = getattr(value, field.name)
            for part in inner if isinstance(inner, tuple) else (inner,):
                yield from _data_sets(part)


def _is_function(value: object) -> bool:
    return callable(value) and not hasattr(value, "__len__")


def _ordering(value: Any) -> str:
    """Describe a value that may order or count samples: its text, and a hash for containers."""
    text = _value_text(value)
    return f"{text} {identity(value)}" if isinstance(value, _PLAIN) else text


def _value_text(value: Any) -> str:
    """Return the text of a value without addresses: arrays as dtype and shape, others by length."""
    if isinstance(value, _SHOWN):
        text = repr(value)
        return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 20]}...{text_hash(text)}"
    if hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{dtype_text(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if not isinstance(value, list) and (parts := branches(value)) is not None:
        return _tree_text(parts)
    kind = type(value).__qualname__
    try:
        return f"{kind}[{len(value)}]"
    except (TypeError, NotImplementedError, StopIteration):  # no length, or the pass raises too
        return kind


def _tree_text(parts: Mapping[Any, Any]) -> str:
    inside = [f"{key!r}: {_value_text(part)}" for key, part in parts.items()]
    rest = f", {len(inside) - 8} more: {text_hash(*inside)}" if len(inside) > 8 else ""
    return f"{{{', '.join(inside[:8])}{rest}}}"


def _named_files(paths: Any, sizes: Sequence[int] | None) -> str:
    """Name files by name and size, so that they can be moved."""
    names = _as_tuple(paths)
    each = list(map(_file_size, names)) if sizes is None else sizes[: len(names)]
    first = [
        f"{name_in_cursor(path)!r} of {size} bytes"
        for path, size in zip(names[:2], each, strict=False)
    ]
    lasts = (
        f"{_file_name(lasting(path))!r} of {size} bytes"
        for path, size in zip(names, each, strict=True)
    )
    return _shortened_files(first, len(names), lasts)


def _file_name(path: str) -> str:
    """Return the name of a file without its folders; a Path costs ten times as much."""
    name = path.rpartition("/")[2]
    return name if name not in ("", ".") and os.sep == "/" else Path(path).name


def _shortened_files(sizes: list[str], many: int, hashed_too: Iterable[str]) -> str:
    if many <= 2:
        return " and ".join(sizes)
    return f"{many} files, {sizes[0]}, ...: {text_hash(*hashed_too)}"


def _as_tuple(paths: Any) -> tuple[Any, ...]:
    return paths if isinstance(paths, tuple) else (paths,)


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # the pass that reads it raises
        return 0


def swapped(written: list[str], lines: list[str]) -> str | None:
    """Return the op whose members were reordered, by the member lines of two plans; else None.

    Members that changed themselves show in other lines, as far as samples depend on them.

    >>> swapped(["chain of 2: 5f 7a"], ["chain of 2: 5f 9c"])
    'chain of 2'
    """
    for before, now in zip(written, lines, strict=False):
        if before != now and before.rpartition(" ")[0] == now.rpartition(" ")[0]:
            return now.partition(":")[0]
    return None


def difference(written: list[str], lines: list[str]) -> tuple[int, str, str]:
    """Return the number (from 1) of the first line that differs, and both of its versions.

    >>> difference(["a", "b"], ["a"])
    (2, 'b', 'no line')
    """
    most = max(len(written), len(lines))
    pairs = [[*each, *["no line"] * (most - len(each))] for each in (written, lines)]
    index = next(index for index in range(most) if pairs[0][index] != pairs[1][index])
    return index + 1, pairs[0][index], pairs[1][index]
