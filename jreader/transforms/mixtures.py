"""`mix`: mix samples of several readers in proportion.

The reader of a turn depends only on the number of the turn, the weights, seed and epoch
(`orders.turns`), never on state. So over indexed readers a mixture is indexed, and over streams a
pass resumes from the number of the turn and the positions of its sources.

Other libraries store the order as a table (Megatron), or round shares so that 200 sources drift
apart, and can end only with the first source that does (Grain).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np

from jreader import errors, orders
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    at_epoch,
    bad_position,
    checked_position,
    counted,
    described,
    epochs,
    indexed,
    length,
    op,
    origin,
    set_fields,
    start,
)
from jreader.readers.columns import Array, Indices
from jreader.readers.compounds import MemberPlanes, makes_samples
from jreader.readers.declarations import check_choice
from jreader.readers.fingerprints import Adjustable
from jreader.readers.growing import written_first
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS, ConcatColumn
from jreader.readers.nodes import ops_of, without_ids
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.planes import Plane
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import seeded_below
from jreader.transforms.caches import cache
from jreader.transforms.mixture_schedules import (
    History,
    Piece,
    Schedule,
    Shares,
    Stop,
    resumed_pieces,
    scheduled,
)
from jreader.transforms.mixture_weights import (
    changes_of,
    named_readers,
    weights_of_lengths,
    whole_weights,
)
from jreader.transforms.selections import extent_of

T = TypeVar("T")

_AT_FIRST, _CHUNK = 64, 4096  # turns to compute at a time for a stream
_NO_LIMIT = 1 << 62
_NONE: Any = object()
_REPEATS = "all", "repeat"  # stop values that restart readers


@op
class mix(Adjustable[T]):
    """Mix the samples of several readers in a fixed proportion, spread evenly.

    Each turn yields one sample from one reader. Turns come in blocks of 64, or in longer ones if
    the rarest reader would otherwise get no turn in a block. In each block, every reader gets its
    share to within one sample. The samples of each reader keep their order. The order of turns
    depends on seed and epoch, not on samples. Shuffle the readers themselves: `mix({"web":
    web.shuffle(seed=0), ...}, seed=0)`.

    >>> web, code = (lambda: "abcdefgh"), (lambda: "12345678")
    >>> "".join(mix({"web": web, "code": code}, weights={"web": 3, "code": 1}, seed=0)())
    '1abcd2ef3gh'

    A mix of indexed readers is indexed: you can shuffle, shard and resume it, and load it on
    several hosts, without first reading through it, however long it is.

    Cost: opens all readers at once, and keeps no samples. The order of turns is computed, so
    resuming finds the turn immediately, and then costs as much as resuming each reader.

    Args:
        readers: A dict of readers by name, or a list of readers; at least one.
        weights: The share of each reader: a dict by name, or a list of numbers, which need not sum
            to 1; 0 for no samples. None for equal shares.
        temperature: Instead of `weights`: shares in proportion to `len(reader) ** (1 /
            temperature)`. 1 gives each reader its share of all samples; higher values give small
            readers more.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws a
            new seed for each pass; resuming that pass restores it.
        stop: When to end. "first": as soon as it is the turn of a reader that has no samples left.
            "all": when every reader has ended once; those that end earlier restart with their next
            epoch. "once": when every reader has ended; readers that have ended are skipped, so
            every sample is yielded once. "repeat": never.
        at: New weights from a given sample of the epoch on, such as {10_000: {"web": 1, "code":
            1}}. Every reader continues where it was.
        source: The name of a field to add to dict samples: the number of the sample's reader, in
            the order of `readers`, as int32.

    Raises:
        TypeError: An argument has the wrong type, or both `weights` and `temperature` are given.
        ValueError: A weight is negative, missing, or for an unknown name; `stop` is not one of the
            values above; or `temperature` is given, and a reader has no known length.
        ReaderError: A reader has no samples (while iterating).
    """

    readers: tuple[Reader[T], ...]
    weights: tuple[int, ...]
    names: tuple[str, ...] | None = argument(default=None, cursor="never")
    seed: Any = None
    stop: Stop = "first"
    at: tuple[tuple[int, tuple[int, ...]], ...] = ()
    source: str | None = argument(default=None, cursor="never")
    epoch: int = field(default=0, init=False)
    past: tuple[Piece, ...] = field(default=(), init=False)  # of a run that had other weights
    planned: str | None = field(
        default=None, init=False
    )  # original weights and `at`, if a run has set others
    restarts: bool = field(default=True, init=False)
    """Whether readers have their own epochs inside the mixture's epoch. They have none if it is
    indexed and ends with its readers, or fills the caches that will make it indexed."""
    adjustable = ("weights", "at")

    def __init__(
        self,
        readers: Mapping[str, Reader[T]] | Sequence[Reader[T]],
        weights: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        temperature: float | None = None,
        seed: Any = None,
        stop: Stop = "first",
        at: Mapping[int, Mapping[str, Any] | Sequence[Any]] | None = None,
        source: str | None = None,
    ) -> None:
        names, several = named_readers(readers)
        if temperature is not None and weights is not None:
            raise TypeError("mix takes weights or temperature, not both: leave one of them out.")
        check_choice(get_args(Stop), "stop of mix", stop)
        if source is not None and not isinstance(source, str):
            raise TypeError(f"source of mix is the name of a new field, not {source!r}.")
        if temperature is None:
            whole = whole_weights(weights, names, len(several))
        else:
            whole = weights_of_lengths(list(map(length, several)), names, temperature)
        # readers' lengths determine the end, and so the order of the turns before it
        filled = tuple(written_first(reader, known=False) for reader in several)
        set_fields(
            self,
            readers=filled,
            restarts=_restarts(stop, filled),
            weights=whole,
            names=names,
            seed=seed if seed is None else orders.as_seed(seed, "mix(readers, weights, seed)"),
            stop=stop,
            at=changes_of(at, names, len(several)),
            source=source,
        )

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (turn, (round, samples of it, position) of each reader).

        Named readers have a dict by name, so that a run may add or drop some.

        A pass may resume with other weights: each reader continues where it is.
        """
        turn, parts = self._parts_of_position(at)
        epoch = epoch_of_caller()
        sources = [
            _Source(reader, part, once=self.stop == "once", restarts=self.restarts)
            for reader, part in zip(self.readers, parts, strict=True)
        ]
        changes = {piece.start for piece in self._schedule().pieces if self.stop == "all"}

        def deal() -> Iterator[T]:
            nonlocal turn
            turns = self._reader_of_turns(turn, sources)
            while (which := next(turns, None)) is not None:
                if turn in changes and self._ends(sources, turn):
                    return
                each = sources[which]
                sample: Any = next(each.items, _NONE)
                if sample is _NONE:
                    if self.stop == "once":
                        each.leave_out(turn)
                        turns = self._reader_of_turns(turn, sources)
                        continue
                    self._check_given(each, which)
                    each.ended = True
                    if self._ends(sources, turn):
                        return
                    each.begin_next(epoch)
                    sample = next(each.items, _NONE)
                    if sample is _NONE:
                        self._check_given(each, which)
                turn += 1
                if self.source is not None:
                    sample = _with_field(self.source, sample, np.int32(which))
                yield sample

        def position() -> Position:
            every = tuple(each.position() for each in sources)
            return turn, dict(zip(self.names, every, strict=True)) if self.names else every

        return Pass(deal(), position, lambda: [each.up.close() for each in sources])

    def _parts_of_position(self, at: Position) -> tuple[int, list[Any]]:
        """Return the turn of a position, and the readers' positions; None for new readers."""
        first = (0, 0, None)
        whole = (0, {} if self.names else (first,) * len(self.readers))
        turn, inner = checked_position(_by_names(at, self.names), whole)
        every = [inner.get(name) for name in self.names] if self.names else inner
        parts = [checked_position(each, first) for each in every]
        most = {"first": 0, "once": 1}.get(self.stop, _NO_LIMIT)
        if any(number > most for number, _, _ in parts):
            raise bad_position(at, whole)
        return turn, parts

    def _reader_of_turns(self, turn: int, sources: list[_Source]) -> Iterator[int]:
        """Yield the number of the reader of each turn, from one on; with "once", up to the end."""
        dropped = [
            (each.left_out, which)
            for which, each in enumerate(sources)
            if each.left_out is not None
        ]
        schedule, path, many = self._schedule(tuple(sorted(dropped))), self._path, _AT_FIRST
        end = schedule.end if self.stop == "once" else None
        while end is None or turn < end:
            last = turn + many if end is None else min(turn + many, end)
            which, _ = schedule.at(np.arange(turn, last), path)
            yield from which.tolist()
            turn, many = last, min(2 * many, _CHUNK)

    def _ends(self, sources: list[_Source], turn: int) -> bool:
        """Return whether the pass ends at a turn at which a source ran out."""
        if self.stop != "all":
            return self.stop == "first"
        pieces = self._schedule().pieces
        begun = sum(piece.start <= turn for piece in pieces)
        return not any(
            piece.weights[which] and not each.ended
            for piece in pieces[begun - 1 :]
            for which, each in enumerate(sources)
        )

    def _check_given(self, each: _Source, which: int) -> None:
        if each.count():
            return
        name = which if self.names is None else repr(self.names[which])
        raise errors.ReaderError(
            f"reader {name} of mix, {described(self.readers[which])}, has no samples, and its turn "
            f"came in {self!r}, made at {self.made_at}: leave it out, or give it some data."
        )

    @property
    def _path(self) -> tuple[Any, ...]:
        # turns that end at an unknown length are the same in all epochs, and so is the key
        return self.seed, 0 if self._unknown else self.epoch, seeded_below(self)

    @property
    def _shares(self) -> Shares:
        lengths = [None if each is None or each >= ENDLESS else each for each in self._extents]
        return Shares(((0, self.weights), *self.at), tuple(lengths), self.stop)

    @property
    def _extents(self) -> list[int | None]:
        return list(map(extent_of, self.readers))

    @property
    def _unknown(self) -> bool:
        """True if the end depends on a reader of unknown length."""
        if self.stop == "repeat":
            return False
        endless = self.stop == "all"
        return any(each is None or (endless and each >= ENDLESS) for each in self._extents)

    def _schedule(self, dropped: tuple[tuple[int, int], ...] = ()) -> Schedule:
        if not isinstance(self.weights, tuple):  # traced
            return Schedule((Piece(0, self.weights, (0,) * len(self.weights)),), None)
        return scheduled(self._shares, self.past, dropped, self._path if dropped else (0,))

    def history(self, *, by_name: bool = True) -> str:
        """Return the history as text: the schedule's pieces, the readers, and a run's changes."""
        known = self._history if by_name else self._history.pieces
        return json.dumps(known, separators=(",", ":"))

    @property
    def _history(self) -> History:
        pieces = self._schedule().pieces
        return History(pieces, self.names, seeded_below(self), self.weights, self.planned)

    def after(self, history: str, index: Callable[[], int]) -> Mapping[str, Any]:
        """Return the old schedule before `index` if it differs; the own weights follow."""
        recorded, now = self._parsed_history(history), self._history
        if (recorded.pieces, recorded.readers) == (now.pieces, now.readers):
            return {}
        if self.planned and recorded[1:] == now[1:]:
            return {"past": recorded.pieces}
        if self.stop == "once":
            raise errors.NotResumable(
                f"weights and readers of mix may change where a run resumes, but not with "
                f"stop='once', where they follow from which readers have ended: resume with those "
                f"it had, in {self!r}, made at {self.made_at}."
            )
        return {"past": resumed_pieces(recorded, index(), self._path, self._shares, self.names)}

    def _parsed_history(self, history: str) -> History:
        """Parse a history; readers without names in it are those of this mixture."""
        recorded = History.of(history)
        if recorded.readers is None:
            recorded = recorded._replace(readers=self.names, seeds=seeded_below(self))
        return recorded

    def by_name(self) -> Mapping[str, Reader[Any]]:
        """Return its readers by name; {} if it was given a list."""
        return dict(zip(self.names or (), self.readers, strict=False))

    def reweighed(self, weights: Any) -> Mapping[str, Any]:
        """Return the fields for other weights, without planned changes."""
        if self.stop == "once":
            raise ValueError(
                f"set_weights(...) cannot change a mix with stop='once', whose weights follow from "
                f"which readers have ended: give {self!r}, made at {self.made_at}, another stop."
            )
        whole = whole_weights(weights, self.names, len(self.readers), "set_weights(weights)")
        planned = self.planned or json.dumps((self.weights, self.at))
        return {"weights": whole, "at": (), "past": (), "planned": planned}

    def steered(self, history: str) -> Mapping[str, Any]:
        """Return the fields for the weights that a run has set, unless the plan changed since."""
        recorded, planned = self._parsed_history(history), json.dumps((self.weights, self.at))
        if self.planned or (recorded.planned, recorded.readers) != (planned, self.names):
            return {}
        return {"weights": recorded.weights, "at": (), "planned": planned}

    def length(self) -> int | None:
        """Return the number of turns; None if there is no end, or a reader's length is unknown."""
        return None if self._unknown else self._schedule().end

    def may_be_endless(self) -> bool | Callable[[list[bool]], bool]:
        """Return how its end depends on its readers' ends: on the first, on all, or never."""
        return self.stop == "repeat" or (all if self.stop == "first" else any)

    def plane(self) -> Plane | None:
        """Return the plane in which each turn leads directly to a sample of a reader."""
        again = self.stop in _REPEATS
        whole = [epochs[T](reader) if again else reader for reader in self.readers]
        planes = [plane for plane in map(indexed, whole) if plane and plane.length]
        if self.seed is None or len(planes) < len(whole):
            return None
        if (found := self._gathered(planes)) is None:
            return None
        columns, rows = found
        schedule, path = self._schedule(), self._path
        end = ENDLESS if schedule.end is None else schedule.end

        def held(column: int, asked: Array, before: int) -> Held:
            members = MemberPlanes(None, planes, [], straight=False)
            given = schedule.counts(before, path)
            turns = partial(schedule.turns_of, path=path)
            return members.held(column, asked, given, turns)

        return _Mixture(columns, end, lambda turns: rows(*schedule.at(turns, path)), held=held)

    def _gathered(
        self, planes: Sequence[Plane]
    ) -> tuple[Any, Callable[[Indices, Indices], list[Indices]]] | None:
        """Return the joined columns of all readers, and a function that routes samples to rows."""
        columns = [plane.columns for plane in planes]
        if all(map(makes_samples, columns)):
            several = MemberPlanes(None, planes, [[0] * len(planes)], straight=False)

            def chosen(which: Indices, sample: Indices) -> list[Indices]:
                (rows,) = several.rows(which, sample)
                return [rows.__array_namespace__().stack([rows, which.astype(rows.dtype)], -1)]

            return ConcatColumn(columns, partial(_with_field, self.source)), chosen
        members = MemberPlanes.of(planes)
        if members is None:
            return None
        if self.source is None:
            return members.columns, members.rows
        if type(members.columns) is not dict or self.source in members.columns:
            return None  # the first sample shows which of the two

        def labelled(which: Indices, sample: Indices) -> list[Indices]:
            return [*members.rows(which, sample), which.astype(sample.dtype)]

        numbers = np.arange(len(planes), dtype=np.int32)
        return {**members.columns, self.source: numbers}, labelled

    def written(self, *but: object) -> Iterator[str]:
        """Yield the readers as given, and the other arguments that differ from their defaults."""
        if but:
            yield from map(described, without_ids(self.readers, [*map(id, but)]))
        else:
            yield self._by_name(map(described, self.readers))
        if len({*self.weights}) > 1:
            yield f"weights={self._by_name(map(str, self.weights))}"
        changes = [f"{turn}: {self._by_name(map(str, weights))}" for turn, weights in self.at]
        at = f"{{{', '.join(changes)}}}"
        for name, default in (("seed", None), ("stop", "first"), ("at", ()), ("source", None)):
            if (value := getattr(self, name)) != default:
                yield f"{name}={at if name == 'at' else repr(value)}"

    def _by_name(self, texts: Iterable[str]) -> str:
        """Format one text per reader as a list, or as a dict by reader name."""
        if self.names is None:
            return f"[{', '.join(texts)}]"
        pairs = zip(self.names, texts, strict=True)
        return f"{{{', '.join(f'{name!r}: {text}' for name, text in pairs)}}}"


def _restarts(stop: Stop, readers: Sequence[Reader[Any]]) -> bool:
    below: list[Any] = [op for reader in readers for op in ops_of(reader, pinned=False)]
    return stop in _REPEATS or all(op.first for op in below if op.stores)


def mixed_as_read(reader: Reader[Any]) -> Reader[Any]:
    """Return the plan in which mixtures that are not indexed have the order in which they are read.

    Their readers are in epochs of their own; readers of indexed mixtures are not.
    """

    def folded(node: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        if not isinstance(node, mix) or node.stop in _REPEATS or not node.restarts or indexed(node):
            return {}
        readers = (epochs[Any](mixed_as_read(each), 1) for each in node.readers)
        return node.changed({"readers": tuple(readers)})

    return rewritten(reader, folded)


def sources_of(reader: Reader[Any], indices: Array) -> Array | None:
    """Return the reader of a mixture that each sample comes from: its name, or number.

    >>> from jreader import arrays, shuffle
    >>> web, code = arrays(np.arange(9)), arrays(np.arange(3))
    >>> plan = shuffle(mix({"web": web, "code": code}, [3, 1], seed=0), seed=1)
    >>> sources_of(plan, np.arange(4)).tolist()
    ['web', 'web', 'web', 'code']

    Args:
        reader: An indexed plan.
        indices: The indices of samples.

    Returns:
        An array; None if the samples do not come from a `mix`, even reordered.
    """
    op = origin(reader, "all", "some")
    if not isinstance(op, mix):
        return None

    def named(node: Any) -> Any:
        if isinstance(node, mix):
            return _sources(node)
        return rewritten(node.settled, named, pinned=True) if isinstance(node, cache) else {}

    plane = indexed(rewritten(reader, named, pinned=True))
    return None if plane is None else plane.columns[plane.rows(indices)[0]]


@op
class _sources(Node[Any]):
    """The name or number of the reader of each sample of a mixture."""

    mixed: mix[Any]

    def plane(self) -> Plane | None:
        """Return the plane of the mixture, with one column of names or numbers."""
        mixed, up = self.mixed, self.mixed.plane()
        schedule, path = mixed._schedule(), mixed._path  # noqa: SLF001  # of this module
        names = np.array(mixed.names or range(len(mixed.readers)))
        return up and Plane(names, up.length, lambda turns: [schedule.at(turns, path)[0]])


class _Mixture(Plane):
    """The plane of a mixture; a run may resume with other weights, and so another end."""

    @property
    def extent(self) -> str:
        """The same text for all weights."""
        return "as many as its readers have in proportion"


def _by_names(at: Any, names: tuple[str, ...] | None) -> Position:
    """Convert a position from an earlier release, which listed named readers by place."""
    listed = isinstance(at, (list, tuple)) and len(at) == 2 and isinstance(at[1], (list, tuple))
    if names and listed and len(at[1]) == len(names):
        return at[0], dict(zip(names, at[1], strict=True))
    return at


def _with_field(name: str | None, sample: Any, number: Any) -> Any:
    """Add a field to a sample, or to columns; return it unchanged if the name is None.

    Raises:
        TypeError: It has no named fields.
        ValueError: It has a field of that name.
    """
    if name is None:
        return sample
    if not isinstance(sample, Mapping):
        raise TypeError(
            f"source={name!r} of mix adds a field to samples that are dicts, not "
            f"{described(sample)}: name their fields, as arrays(x=...) does, or leave source out."
        )
    if name in sample:
        raise ValueError(
            f"source={name!r} of mix adds a field, and samples have one of that name: give another "
            f"name."
        )
    return {**sample, name: number}


class _Source:
    """A source of a mixture over streams: consecutive passes over a reader.

    Attributes:
        up: The current pass.
        round: Its number, from 0; each pass is the next epoch of the reader.
        items: Its samples.
        renewed: Whether each pass is an epoch of the reader inside that of the mixture.
        count: Counts the samples given.
        ended: True once a pass has ended.
        left_out: The turn from which it is left out; None before.
    """

    def __init__(
        self, reader: Reader[Any], part: tuple[int, int, Position], *, once: bool, restarts: bool
    ) -> None:
        self.reader, (self.round, given, at) = reader, part
        self.restarts = restarts
        self.ended = self.round > 0
        self.left_out: int | None = None
        self.up: Pass[Any] = Pass(iter(()), lambda: None, lambda: None)
        if once and self.ended:
            self.leave_out(checked_position(at, 0))
        else:
            self._begin(self.round or epoch_of_caller(), at)
        self.items, self.count = counted(self.up.items, given)

    def _begin(self, epoch: int, at: Position = None) -> None:
        with in_epoch(epoch):
            reader = at_epoch(self.reader, self.round) if self.restarts else self.reader
            self.up = start(reader, at)

    def leave_out(self, turn: int) -> None:
        """Leave the source out from a turn on; its position is then that turn."""
        self.up.close()
        self.round, self.ended, self.left_out = 1, True, turn
        self.up = Pass(iter(()), lambda: turn, lambda: None)

    def begin_next(self, epoch: int) -> None:
        """Begin the next pass."""
        self.up.close()
        self.round += 1
        self._begin(epoch or self.round)
        self.items, self.count = counted(self.up.items)

    def position(self) -> Position:
        """Return the number of the pass, the samples given of it, and its position."""
        return self.round, self.count(), self.up.position()
