"""Schedules of mixtures: which source each turn of a pass is of, where weights change, and the end.

A schedule is a row of pieces. In a piece the weights stay, and its first turn begins a block; each
source goes on after the samples that it gave in the pieces before. So every turn is still found in
closed form (`orders.turns`).

The run of turns in which a piece ends is `settled`: it has the same order in every epoch. So what
each source has given before a piece, and the length of the whole, are the same numbers in every
epoch, and known before a seed is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from jreader.orders.turns import LAST_TURN, RUN, Number, Turns
from jreader.readers.joined_columns import parted

Stop = Literal["first", "all", "repeat"]


class Piece(NamedTuple):
    """A part of a mixture in which the weights stay.

    Attributes:
        start: The number of its first turn.
        weights: Whole numbers, one for each source.
        before: How many samples each source has given before.
        settled: The number of the run, counted from `start`, with the same order in every epoch.
    """

    start: int
    weights: tuple[int, ...]
    before: tuple[int, ...]
    settled: int | None = None

    def at(self, turns: Number, path: Sequence[Any]) -> tuple[Number, Number]:
        """Whose each turn is, and the index of the sample in that source."""
        found = _turns_of(self.weights).at(turns - self.start, (*path, self.start), self.settled)
        which, sample = found
        if any(self.before):
            namespace = turns.__array_namespace__()
            given = np.array(self.before) if namespace is np else np.array(self.before, np.int32)
            sample = sample + namespace.asarray(given)[which]
        return which, sample

    def counts(self, turn: int, path: Sequence[Any]) -> tuple[int, ...]:
        """How many samples each source has given before a turn of this piece."""
        turns = _turns_of(self.weights)
        here = turns.counts(turn - self.start, (*path, self.start), self.settled)
        return tuple(map(sum, zip(self.before, here, strict=True)))


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
            that finds the last source so that had not ended before, "repeat" never.
        past: Pieces that are fixed already, the last of which is that of the last turn that was
            given, and of all later ones up to a span that begins later.
    """
    before = (0,) * len(lengths)
    if past:
        latest, before = past[-1], past[-1].before
        later = (span for span in spans if span[0] > latest.start)
        spans = ((latest.start, latest.weights), *later)
    pieces = list(past[:-1])
    for number, (start, weights) in enumerate(spans):
        cut = spans[number + 1][0] - start if number + 1 < len(spans) else None
        piece, end = _ended(Piece(start, weights, before), cut, lengths, stop)
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


def _ended(
    piece: Piece, cut: int | None, lengths: tuple[int | None, ...], stop: Stop
) -> tuple[Piece, int | None]:
    """The piece with its settled run, and the turn at which the mixture ends in it, if it does."""
    last = LAST_TURN // RUN if cut is None else cut // RUN
    settled = None if cut is None else piece._replace(settled=last)
    if stop == "repeat":
        return settled or piece, None
    left = [
        None if length is None else length - given
        for length, given in zip(lengths, piece.before, strict=True)
    ]
    # of sources that were found without a sample before, none is looked for
    runs = _turns_of(piece.weights).found_empty([each and max(each, 0) for each in left])
    wanted = [run for run, each in zip(runs, left, strict=True) if each is None or each >= 0]
    run = (min if stop == "first" else max)(wanted)
    if run > last or run >= LAST_TURN // RUN:
        return settled or piece, None
    piece = piece._replace(settled=run)
    first = piece.start + run * RUN
    which, sample = piece.at(np.arange(first, first + RUN), (0,))
    known = np.array([-1 if length is None else length for length in lengths])
    empty = np.flatnonzero(sample == known[which])
    end = first + int(empty[0] if stop == "first" else empty[-1])
    return piece, None if cut is not None and end >= piece.start + cut else end


@lru_cache(256)
def _turns_of(weights: tuple[int, ...]) -> Turns:
    return Turns(weights)
