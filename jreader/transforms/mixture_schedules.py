"""Schedules of mixtures: the source of each turn, the changes of weights, and the end.

A schedule is a sequence of pieces. Within a piece, the weights are constant, and its first turn
begins a block; each source continues after the samples that it gave in earlier pieces. So every
turn still has a closed form (`orders.turns`).

The run of turns in which a piece ends is `settled`: it has the same order in every epoch. So the
counts of each source before a piece, and the total length, are the same in every epoch, and known
before a seed is drawn.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from jreader.orders.turns import LAST_TURN, RUN, Array, Number, Turns
from jreader.readers.compounds import routed_by_member
from jreader.readers.joined_columns import by_part

Stop = Literal["first", "all", "once", "repeat"]

_NEVER = LAST_TURN // RUN  # a run that no pass reaches
_NO_END = 1 << 62  # for an unknown end, or a source without an end


class Piece(NamedTuple):
    """A part of a mixture with constant weights.

    Attributes:
        start: The number of its first turn.
        weights: Whole numbers, one per source; 0 for a source without samples here. A traced array
            for the only piece of an endless mixture.
        before: The number of samples that each source gave before.
        settled: The number of the run, counted from `start`, whose order is the same in every
            epoch.
    """

    start: int
    weights: tuple[int, ...]
    before: tuple[int, ...]
    settled: int | None = None

    def at(self, turns: Number, path: Sequence[Any]) -> tuple[Number, Number]:
        """Return the source of each turn, and the index of the sample in it."""
        active, dealt = _turns_of(self.weights)
        which, sample = dealt.at(turns - self.start, (*path, self.start), self.settled)
        if len(active) < len(self.weights):
            which = turns.__array_namespace__().asarray(active.astype(which.dtype))[which]
        if any(self.before):
            namespace = turns.__array_namespace__()
            given = np.array(self.before) if namespace is np else np.array(self.before, np.int32)
            sample = sample + namespace.asarray(given)[which]
        return which, sample

    def counts(self, turn: int, path: Sequence[Any]) -> tuple[int, ...]:
        """Return how many samples each source has given before a turn of this piece."""
        active, dealt = _turns_of(self.weights)
        given = list(self.before)
        here = dealt.counts(turn - self.start, (*path, self.start), self.settled)
        for source, count in zip(active.tolist(), here, strict=True):
            given[source] += count
        return tuple(given)

    def turns_of(self, source: int, samples: Array, path: Sequence[Any]) -> Array:
        """Return the turns in which a source gives these of its samples: the inverse of `at`."""
        active, dealt = _turns_of(self.weights)
        which = np.full(len(samples), active.searchsorted(source))
        samples = samples - self.before[source]
        return self.start + dealt.turns_of(which, samples, (*path, self.start), self.settled)

    def is_settled(self, turn: int) -> bool:
        """Return whether its settled run lies before a turn."""
        return self.settled is not None and self.settled * RUN < turn - self.start


class Schedule(NamedTuple):
    """The pieces of a mixture, and its number of turns.

    Attributes:
        pieces: The pieces in order, each up to the start of the next.
        end: The number of turns; None if there is no end, or it is unknown.
    """

    pieces: tuple[Piece, ...]
    end: int | None

    def at(self, turns: Number, path: Sequence[Any]) -> tuple[Number, Number]:
        """Return the source of each turn, and the index of the sample in it.

        Args:
            turns: Turn numbers from 0: a NumPy or jax array, traced or not.
            path: The parts of the random keys: seed, epoch and place of the op.
        """
        first, *later = self.pieces
        if first.start and bool((turns < first.start).any()):
            raise ValueError(
                f"the samples before number {first.start:,} were dealt when this mix had other "
                f"readers: ask a pipeline with those readers for them."
            )
        if not later:
            return first.at(turns, path)
        namespace = turns.__array_namespace__()
        if namespace is np:
            number: Any = np.searchsorted([piece.start for piece in later], turns, "right")
            which, sample = routed_by_member(
                number, turns, lambda each, some: [*self.pieces[each].at(some, path)], 2
            )
            return which, sample
        which, sample = first.at(turns, path)
        for piece in later:
            if piece.start < 1 << 31:
                mine = turns >= piece.start
                here = piece.at(namespace.where(mine, turns, piece.start), path)
                which, sample = map(namespace.where, (mine, mine), here, (which, sample))
        return which, sample

    def counts(self, turn: int, path: Sequence[Any]) -> tuple[int, ...]:
        """Return how many samples each source has given before a turn."""
        piece = next(each for each in reversed(self.pieces) if each.start <= turn)
        return piece.counts(turn, path)

    def turns_of(self, source: int, samples: Array, path: Sequence[Any]) -> Array:
        """Return the turns in which a source gives these of its samples, all of which it gives."""
        begins = np.array([piece.before[source] for piece in self.pieces])
        turns = np.empty(len(samples), np.int64)
        for number, here in by_part(begins.searchsorted(samples, "right") - 1):
            turns[here] = self.pieces[number].turns_of(source, samples[here], path)
        return turns


class History(NamedTuple):
    """The history of a mixture in a cursor: how it was dealt, and by which arguments.

    Attributes:
        pieces: The pieces of its schedule.
        readers: The names of its readers; None if they have none, or were not written.
        seeds: The number of random ops below it, which is part of its random keys; None if not
            written: then it has not changed.
        weights: The weights from now on.
        planned: Its original weights and changes, as written, if a run has set others.
    """

    pieces: tuple[Piece, ...]
    readers: tuple[str, ...] | None
    seeds: int | None
    weights: tuple[int, ...]
    planned: str | None

    @classmethod
    def of(cls, text: str) -> History:
        """Parse a history from JSON; earlier releases wrote only pieces."""
        parts = json.loads(text)
        if type(parts[0][0]) is int:
            parts = [parts, None, None, parts[-1][1], None]
        every, readers, seeds, weights, planned = parts
        pieces = (Piece(begin, tuple(of), tuple(done), run) for begin, of, done, run in every)
        return cls(tuple(pieces), readers and tuple(readers), seeds, tuple(weights), planned)


class Shares(NamedTuple):
    """The parameters that determine a mixture before any sample is read.

    Attributes:
        spans: Pairs of a turn and the weights from there on; the first from turn 0.
        lengths: The number of samples in each source; None for no end, or an unknown one.
        stop: "first" ends at the first turn whose source has no sample left; "all" at such a turn
            of the last source that had not ended; "repeat" never. With "once", a source that has
            ended is left out from that turn on, until none is left.
    """

    spans: tuple[tuple[int, tuple[int, ...]], ...]
    lengths: tuple[int | None, ...]
    stop: Stop

    @property
    def samples(self) -> Array:
        """The lengths as an array, with a number that no pass reaches for unknown ones."""
        return np.array([_NO_END if each is None else each for each in self.lengths])

    def weights_at(self, turn: int) -> tuple[int, ...]:
        """Return the weights of a turn."""
        return next(weights for start, weights in reversed(self.spans) if start <= turn)


@lru_cache(256)  # plans request it repeatedly
def scheduled(
    shares: Shares,
    past: tuple[Piece, ...] = (),
    dropped: tuple[tuple[int, int], ...] = (),
    path: tuple[Any, ...] = (0,),
) -> Schedule:
    """Compute the schedule: pieces, each up to a change of weights or the end of a source.

    >>> scheduled(Shares(((0, (3, 1)),), (1000, 10), "first")).end
    43
    >>> scheduled(Shares(((0, (3, 1)), (20, (1, 1))), (1000, 10), "first")).end
    31

    Args:
        shares: The parameters of the mixture.
        past: Fixed pieces; the last one has the last turn given, and all later turns up to the next
            span.
        dropped: With "once", the turns at which sources of unknown length ended, and which.
        path: The parts of the random keys, if sources were dropped.
    """
    pieces, unplanned, ended = list(past[:-1]), deque(dropped), set[int]()
    begin = past[-1] if past else Piece(0, shares.weights_at(0), (0,) * len(shares.lengths))
    once = shares.stop == "once"
    start, before, spans = begin.start, begin.before, _spans_from(begin, shares)
    while spans:
        weights = _without(ended, spans[0][1])
        until = spans[1][0] if len(spans) > 1 else None
        if not any(weights) or until == start:
            spans.popleft()  # if nothing is left, the next span begins now
            continue
        piece, end = _piece_and_end(Piece(start, weights, before), until, shares)
        pieces.append(piece)
        gone = _next_exhausted(piece, end, until, unplanned, path) if once else None
        if gone is not None:
            start, source = gone
            ended.add(source)
        elif end is not None or until is None:
            return Schedule(tuple(pieces), end)
        else:
            start = until
        before = piece.counts(start, path)
    return Schedule(tuple(pieces), start)


def _next_exhausted(
    piece: Piece,
    end: int | None,
    until: int | None,
    unplanned: deque[tuple[int, int]],
    path: tuple[Any, ...],
) -> tuple[int, int] | None:
    """Return the turn of a piece at which a source is dropped, and which; None if none is."""
    if unplanned and all(each is None or unplanned[0][0] < each for each in (end, until)):
        return unplanned.popleft()
    return None if end is None else (end, int(piece.at(np.array([end]), path)[0][0]))


def _without(ended: set[int], weights: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([0 if k in ended else each for k, each in enumerate(weights)])


def _spans_from(begin: Piece, shares: Shares) -> deque[tuple[int, tuple[int, ...]]]:
    """Return the spans from the beginning of a piece on, which has its own weights."""
    later = (span for span in shares.spans if span[0] > begin.start)
    return deque([(begin.start, begin.weights), *later])


def resumed_pieces(
    history: History,
    turn: int,
    path: Sequence[Any],
    shares: Shares,
    readers: tuple[str, ...] | None,
) -> tuple[Piece, ...]:
    """Return the `past` of a mixture that resumes with other shares or readers.

    Args:
        history: How the turns so far were dealt.
        turn: The number of turns so far.
        path: The parts of the random keys.
        shares: The parameters from there on.
        readers: The names of its readers from there on; None if they have none.
    """
    done = tuple(piece for piece in history.pieces if piece.start <= turn)
    weights, latest = shares.weights_at(turn), done[-1]
    given = latest.counts(turn, (*path[:2], history.seeds))
    if history.readers != readers:
        return (Piece(turn, weights, _in_order_of(readers, history.readers, given)),)
    if weights == latest.weights:
        now = scheduled(shares, done).pieces[len(done) - 1]
        if now.settled == latest.settled or not (latest.is_settled(turn) or now.is_settled(turn)):
            return done
    begun = (piece for piece in done if piece.start < turn)  # one that begins here is empty
    return (*begun, Piece(turn, weights, given))


def _in_order_of(
    readers: tuple[str, ...] | None, names: tuple[str, ...] | None, given: tuple[int, ...]
) -> tuple[int, ...]:
    """Reorder the counts of samples given from `names` to `readers`; 0 for new readers."""
    known = dict(zip(names or (), given, strict=True))
    return tuple([known.get(name, 0) for name in readers or ()])


def _piece_and_end(piece: Piece, until: int | None, shares: Shares) -> tuple[Piece, int | None]:
    """Add the settled run to a piece; return it, and the turn at which the mixture ends, if any.

    Args:
        piece: The piece.
        until: The turn at which the next piece begins.
        shares: The parameters of the mixture.
    """
    run = _run_of_end(piece, shares)
    if run is None:
        return piece, piece.start
    last = _NEVER if until is None else (until - piece.start) // RUN
    if run > last or run >= _NEVER:
        return piece._replace(settled=None if until is None else last), None
    piece = piece._replace(settled=run)
    first = piece.start + run * RUN
    which, sample = piece.at(np.arange(first, first + RUN), (0,))
    empty = np.flatnonzero(sample == shares.samples[which])
    end = first + int(empty[-1 if shares.stop == "all" else 0])
    return piece, end if until is None or end < until else None


def _run_of_end(piece: Piece, shares: Shares) -> int | None:
    """Return the run of a piece in which the mixture would end; None if all sources have ended."""
    if shares.stop == "repeat":
        return _NEVER
    left = shares.samples - piece.before  # negative for sources that were found empty before
    active, turns = _turns_of(piece.weights)
    if shares.stop == "all":
        waiting = {
            k
            for start, given in shares.spans
            if start > piece.start
            for k in _turns_of(given)[0].tolist()
        }
        if waiting.difference(active.tolist(), np.flatnonzero(left < 0).tolist()):
            return _NEVER
    runs = turns.found_empty(np.maximum(left[active], 0).tolist())
    wanted = [run for run, is_left in zip(runs, left[active] >= 0, strict=True) if is_left]
    return (max if shares.stop == "all" else min)(wanted, default=None)


def _turns_of(weights: Any) -> tuple[Array, Turns]:
    """Return the sources with a share, and their turns; all sources if weights are traced."""
    if not isinstance(weights, tuple):
        return np.arange(len(weights)), Turns.traced(weights)
    return _turns_of_whole(weights)


@lru_cache(256)
def _turns_of_whole(weights: tuple[int, ...]) -> tuple[Array, Turns]:
    active = np.flatnonzero(weights)
    return active, Turns([weights[source] for source in active.tolist()])
