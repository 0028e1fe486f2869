"""Schedules of mixtures: which source each turn of a pass is of, where weights change, and the end.

A schedule is a row of pieces. In a piece the weights stay, and its first turn begins a block; each
source goes on after the samples that it gave in the pieces before. So every turn is still found in
closed form (`orders.turns`).

The run of turns in which a piece ends is `settled`: it has the same order in every epoch. So what
each source has given before a piece, and the length of the whole, are the same numbers in every
epoch, and known before a seed is drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from jreader.orders.turns import LAST_TURN, RUN, Array, Number, Turns
from jreader.readers.joined_columns import parted

Stop = Literal["first", "all", "once", "repeat"]

_NEVER = LAST_TURN // RUN  # the number of a run that no pass reaches


class Piece(NamedTuple):
    """A part of a mixture in which the weights stay.

    Attributes:
        start: The number of its first turn.
        weights: Whole numbers, one for each source; 0 for one that gives no samples here.
        before: How many samples each source has given before.
        settled: The number of the run, counted from `start`, with the same order in every epoch.
    """

    start: int
    weights: tuple[int, ...]
    before: tuple[int, ...]
    settled: int | None = None

    def at(self, turns: Number, path: Sequence[Any]) -> tuple[Number, Number]:
        """Whose each turn is, and the index of the sample in that source."""
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
        """How many samples each source has given before a turn of this piece."""
        active, dealt = _turns_of(self.weights)
        given = list(self.before)
        here = dealt.counts(turn - self.start, (*path, self.start), self.settled)
        for source, count in zip(active.tolist(), here, strict=True):
            given[source] += count
        return tuple(given)


class Schedule(NamedTuple):
    """The pieces of a mixture, and how many turns it has.

    Attributes:
        pieces: In order, each up to the start of the next one.
        end: The number of turns; None for no end, or one that is not known.
    """

    pieces: tuple[Piece, ...]
    end: int | None

    def at(self, turns: Number, path: Sequence[Any]) -> tuple[Number, Number]:
        """Whose each turn is, and the index of the sample in that source.

        Args:
            turns: Their numbers, from 0: an array of NumPy or jax, traced or not.
            path: Seed, epoch and place of the op: what makes the keys.
        """
        first, *later = self.pieces
        if not later:
            return first.at(turns, path)
        namespace = turns.__array_namespace__()
        if namespace is np:
            which, sample = np.empty(len(turns), np.int32), np.empty_like(turns)
            starts = np.array([piece.start for piece in later])
            number: Any = np.searchsorted(starts, turns, "right")
            for each, here in parted(number):
                which[here], sample[here] = self.pieces[each].at(turns[here], path)
            return which, sample
        which, sample = first.at(turns, path)
        for piece in later:
            if piece.start < 1 << 31:
                mine = turns >= piece.start
                here = piece.at(namespace.where(mine, turns, piece.start), path)
                which, sample = map(namespace.where, (mine, mine), here, (which, sample))
        return which, sample

    def counts(self, turn: int, path: Sequence[Any]) -> tuple[int, ...]:
        """How many samples each source has given before a turn."""
        piece = next(piece for piece in reversed(self.pieces) if piece.start <= turn)
        return piece.counts(turn, path)


@lru_cache(256)  # plans are asked for it again and again
def scheduled(
    spans: tuple[tuple[int, tuple[int, ...]], ...],
    lengths: tuple[int | None, ...],
    stop: Stop,
    past: tuple[Piece, ...] = (),
    dropped: tuple[tuple[int, int], ...] = (),
    path: tuple[Any, ...] = (),
) -> Schedule:
    """The schedule of a mixture.

    >>> scheduled(((0, (3, 1)),), (1000, 10), "first").end
    43
    >>> scheduled(((0, (3, 1)), (20, (1, 1))), (1000, 10), "first").end
    31

    Args:
        spans: From which turn on there are which weights; the first from 0 on.
        lengths: How many samples each source has; None for no end, or an unknown one.
        stop: "first" ends at the turn that finds its source without a sample, "all" at the one
            that finds the last source so that had not ended before, "repeat" never. With "once" a
            source that has ended is left out from that turn on, until none is left.
        past: Pieces that are fixed already, the last of which is that of the last turn that was
            given, and of all later ones up to a span that begins later.
        dropped: With "once", at which turns sources of no known length have ended, and which.
        path: What makes the keys of the orders, where sources were dropped.
    """
    before = (0,) * len(lengths)
    if past:
        latest, before = past[-1], past[-1].before
        later = (span for span in spans if span[0] > latest.start)
        spans = ((latest.start, latest.weights), *later)
    if stop == "once":
        return _dealt_once(list(spans), lengths, dropped, path)
    pieces = list(past[:-1])
    for number, (start, weights) in enumerate(spans):
        cut = spans[number + 1][0] - start if number + 1 < len(spans) else None
        coming = {k for _, given in spans[number + 1 :] for k, share in enumerate(given) if share}
        piece, end = _piece_and_end(Piece(start, weights, before), cut, lengths, stop, coming)
        pieces.append(piece)
        if end is not None:
            return Schedule(tuple(pieces), end)
        if cut is not None:
            before = piece.counts(start + cut, (0,))
    return Schedule(tuple(pieces), None)


def past_of(
    told: tuple[Piece, ...],
    turn: int,
    path: Sequence[Any],
    spans: tuple[tuple[int, tuple[int, ...]], ...],
    lengths: tuple[int | None, ...],
    stop: Stop,
) -> tuple[Piece, ...]:
    """The `past` of a mixture that goes on with other spans after some turns.

    Args:
        told: The pieces by which those turns were dealt.
        turn: How many they were.
        path: What made the keys of the orders.
        spans: As in `scheduled`.
        lengths: As there.
        stop: As there.
    """
    if told == scheduled(spans, lengths, stop).pieces:
        return ()
    done = tuple(piece for piece in told if piece.start <= turn)
    weights = next(weights for start, weights in reversed(spans) if start <= turn)
    latest = done[-1]
    if weights == latest.weights:
        now = scheduled(spans, lengths, stop, done).pieces[len(done) - 1]
        given = turn - latest.start
        ahead = [each is None or each * RUN >= given for each in (latest.settled, now.settled)]
        if now.settled == latest.settled or all(ahead):
            return done
    return (*done, Piece(turn, weights, latest.counts(turn, path)))


def _dealt_once(
    spans: list[tuple[int, tuple[int, ...]]],
    lengths: tuple[int | None, ...],
    dropped: tuple[tuple[int, int], ...],
    path: Sequence[Any],
) -> Schedule:
    """The schedule that leaves sources out as they end: at each end, another piece begins."""
    pieces: list[Piece] = []
    start, before, known, gone = 0, (0,) * len(lengths), list(dropped), set[int]()
    while spans:
        weights = tuple(0 if k in gone else each for k, each in enumerate(spans[0][1]))
        cut = spans[1][0] - start if len(spans) > 1 else None
        if not any(weights) or cut == 0:
            del spans[0]  # what comes later begins now, if nothing is left before
            continue
        piece, end = _piece_and_end(Piece(start, weights, before), cut, lengths, "first", ())
        pieces.append(piece)
        if (
            known
            and (end is None or known[0][0] < end)
            and (cut is None or known[0][0] < start + cut)
        ):
            start, which = known.pop(0)
            before = piece.counts(start, path)
        elif end is not None:
            start, which = end, int(piece.at(np.array([end]), (0,))[0][0])
            before = piece.counts(start, (0,))
        elif cut is not None:
            start += cut
            before = piece.counts(start, (0,))
            continue
        else:
            return Schedule(tuple(pieces), None)
        gone.add(which)
    return Schedule(tuple(pieces), start)


def _piece_and_end(
    piece: Piece,
    cut: int | None,
    lengths: tuple[int | None, ...],
    stop: Stop,
    later: Collection[int],
) -> tuple[Piece, int | None]:
    """The piece with its settled run, and the turn at which the mixture ends in it, if it does.

    Args:
        piece: The piece.
        cut: How many turns it has, where another one follows.
        lengths: As in `scheduled`.
        stop: As there.
        later: The sources that give samples in later pieces.
    """
    last = _NEVER if cut is None else cut // RUN
    run = _settled(piece, lengths, stop, later)
    if run is None:
        return piece, piece.start
    if run > last or run >= _NEVER:
        return (piece if cut is None else piece._replace(settled=last)), None
    piece = piece._replace(settled=run)
    first = piece.start + run * RUN
    which, sample = piece.at(np.arange(first, first + RUN), (0,))
    known = np.array([-1 if length is None else length for length in lengths])
    empty = np.flatnonzero(sample == known[which])
    end = first + int(empty[0] if stop == "first" else empty[-1])
    return piece, None if cut is not None and end >= piece.start + cut else end


def _settled(
    piece: Piece, lengths: tuple[int | None, ...], stop: Stop, later: Collection[int]
) -> int | None:
    """The run of a piece in which the mixture would end; None if all have ended before."""
    if stop == "repeat":
        return _NEVER
    left = list(map(_left, lengths, piece.before))
    numbers, turns = _turns_of(piece.weights)
    active = numbers.tolist()
    # of sources that were found without a sample before, none is looked for
    unended = {k for k, each in enumerate(left) if each is None or each >= 0}
    if stop == "all" and unended.intersection(later).difference(active):
        return _NEVER
    here = [left[k] for k in active]
    runs = turns.found_empty([each and max(each, 0) for each in here])
    wanted = [run for run, k in zip(runs, active, strict=True) if k in unended]
    if not wanted:
        return None
    return min(wanted) if stop == "first" else max(wanted)


def _left(length: int | None, given: int) -> int | None:
    """How many samples a source has left; below 0 if it was found without one."""
    return None if length is None else length - given


@lru_cache(256)
def _turns_of(weights: tuple[int, ...]) -> tuple[Array, Turns]:
    """The numbers of the sources that have a share, and their turns."""
    active = np.flatnonzero(weights)
    return active, Turns([weights[source] for source in active.tolist()])
