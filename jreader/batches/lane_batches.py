"""Batches of a stream in lanes: each lane supplies the same rows of every batch.

When a lane ends before the others, its rows of a batch are empty, and the other rows are the
`valid` ones. `Ends` says what happens to the empty rows. The position has a pair for each lane: how
often it has ended, and the position in it. So it fits any batch size that the number of lanes
divides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from jreader import errors
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    described,
    start,
)
from jreader.readers.columns import Array
from jreader.readers.lanes import Lanes, of_lane
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.trees import Rows

T = TypeVar("T")

Ends: TypeAlias = Literal["drop", "pad", "wrap", "go round"]
"""What happens when a lane runs out of samples. "drop": the pass ends before that batch. "pad": its
rows stay empty until all lanes have ended. "wrap": it restarts, until all have ended. "go round":
it restarts, forever."""


def check_divides(node: Node[Any], size: int, dealt: Lanes) -> None:
    """Raise unless every lane supplies the same number of rows of a batch.

    Raises:
        BatchNotDivisible: The number of lanes does not divide the batch size.
    """
    lanes = dealt.lanes
    if size % lanes == 0:
        return
    below = size - size % lanes
    sizes = f"{below} or {below + lanes}" if below else f"{lanes}"
    fewer = max(number for number in range(1, lanes) if size % number == 0)
    raise errors.BatchNotDivisible(
        f"{type(node).__name__}(..., batch_size={size}) cannot take the same number of rows from "
        f"each of {lanes} lanes of {described(dealt)}: type batch_size={sizes}, or lanes={fewer}."
    )


class _Lane(Generic[T]):
    """One lane of a pass.

    Attributes:
        rounds: How often it has ended.
        fresh: The samples of the last run that are from the first round.
    """

    def __init__(self, reader: Reader[T], at: Position, node: Node[Any], many: int) -> None:
        self.rounds, inner = at
        self._began: Position = at  # until it yields a sample; the same on all processes
        self.fresh = 0
        self._reader, self._node, self._many = reader, node, many
        self._epoch = epoch_of_caller()
        self._open(inner)

    def _open(self, at: Position) -> None:
        self.up = start(self._reader, at).watched(self._node, self._many)

    def run(self) -> list[T]:
        """Draw the next samples of this round: a batch's share, or fewer at the end."""
        self._began = None
        run = list(islice(self.up.items, self._many))
        self.fresh = 0 if self.rounds else len(run)
        return run

    def filled(self, run: list[T], *, wanted: bool) -> list[T]:
        """Fill a run up by restarting the lane as often as needed.

        Raises:
            ReaderError: The lane has no samples, and they are needed.
        """
        while len(run) < self._many:
            self.up.close()
            with in_epoch(self._epoch):
                self._open(None)
            self.rounds += 1
            more = list(islice(self.up.items, self._many - len(run)))
            if not more:
                if not wanted:
                    break
                raise cannot_wrap(self._reader, self._node)
            run += more
        return run

    def position(self) -> Position:
        """Return how often the lane has ended, and the position in it."""
        return (self.rounds, self.up.position()) if self._began is None else tuple(self._began)


def cannot_wrap(lane: Reader[Any], node: Node[Any]) -> errors.ReaderError:
    """Return the error for a lane without samples."""
    return errors.ReaderError(
        f"{lane!r}, one of the lanes of {node!r}, has no samples, so last='wrap' cannot fill its "
        "rows: give last='pad', or fewer lanes, so that each has some."
    )


class LaneBatches(Generic[T]):
    """A pass over the batches of a stream in lanes, or over some rows of each.

    Attributes:
        numbers: The lanes that are read.
        joined: True if another object joins these rows with others, and detects lanes without
            samples.
    """

    joined = False

    def __init__(
        self, node: Any, dealt: Lanes, ends: Ends, at: Position, rows: Array | None = None
    ) -> None:
        """Start at a position.

        Args:
            node: The `batch`.
            dealt: The op that divides its reader into lanes.
            ends: What happens when a lane runs out of samples.
            at: The position; None for the beginning.
            rows: The rows to read; None for all.
        """
        check_divides(node, node.batch_size, dealt)
        self._node = node
        self._ends, self._size, self._each = ends, node.batch_size, node.batch_size // dealt.lanes
        self._places = list(checked_position(at, ((0, None),) * dealt.lanes))
        self._rows = rows
        self.numbers = (
            [*range(dealt.lanes)] if rows is None else np.unique(rows // self._each).tolist()
        )
        self.open()

    def open(self) -> None:
        """Start a pass over each lane."""
        node, places = self._node, self._places
        self._lanes = [
            _Lane(of_lane(node.reader, number), places[number], node, self._each)
            for number in self.numbers
        ]

    def batches(self) -> Pass[Sequence[T]]:
        """Yield the batches, until all lanes have ended."""

        def deal() -> Iterator[Sequence[T]]:
            for made in self.runs():
                if not made.fresh:
                    return
                yield made if made.stacked or made.valid is not None else list(made)

        return Pass(deal(), self.position, self.close)

    def runs(self) -> Iterator[Columns[T]]:
        """Yield batches, or their rows; endless unless `ends` is "drop"."""
        while (runs := self._next_runs()) is not None:
            fresh = self._ends == "go round" or any(lane.fresh for lane in self._lanes)
            if self._ends in ("wrap", "go round") and (fresh or self._rows is not None):
                wanted, pairs = fresh or not self.joined, zip(self._lanes, runs, strict=True)
                runs = [lane.filled(run, wanted=wanted) for lane, run in pairs]
            made = self._batch(runs)
            made.fresh = fresh
            yield made

    def _next_runs(self) -> list[list[T]] | None:
        """Draw the next samples of each lane; None if the pass ends because one has too few."""
        runs = []
        for lane in self._lanes:
            runs.append(lane.run())
            if self._ends == "drop" and len(runs[-1]) < self._each:
                return None
        return runs

    def _batch(self, runs: list[list[T]]) -> Columns[T]:
        samples, many = [sample for run in runs for sample in run], self._size
        if self._rows is None and len(samples) == many:
            return Columns(Rows(samples))
        begins = (number * self._each for number in self.numbers)
        ranges = [np.arange(len(run)) + begin for begin, run in zip(begins, runs, strict=True)]
        valid = np.concatenate(ranges)
        if self._rows is not None:  # a lane may have rows that are not read here
            mine = np.flatnonzero(np.isin(valid, self._rows))
            samples, many = [samples[at] for at in mine.tolist()], len(self._rows)
            valid = np.searchsorted(self._rows, valid[mine])
        lacking = many - len(samples)
        return Columns(Rows(samples), rows=self._size - lacking, valid=valid if lacking else None)

    def any_sample(self) -> T:
        """Return a sample of any lane, which shows the shapes of empty rows.

        Raises:
            ReaderError: None of them has a sample.
        """
        for number in self.numbers:
            up: Pass[T] = start(of_lane(self._node.reader, number))
            try:
                for sample in up.items:
                    return sample
            finally:
                up.close()
        raise errors.ReaderError(
            f"none of the lanes {self.numbers} of {self._node!r} has a sample, and last='pad' "
            "needs one to know the shapes of the rows on this process: give fewer lanes, so that "
            "each has some."
        )

    def position(self) -> Position:
        """Return a pair for each lane: how often it has ended, and the position in it."""
        for number, lane in zip(self.numbers, self._lanes, strict=True):
            self._places[number] = lane.position()
        return tuple(self._places)

    def close(self) -> None:
        """Close all lanes."""
        for lane in self._lanes:
            lane.up.close()
