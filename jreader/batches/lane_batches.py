"""Batches of a stream in lanes: each lane gives the same rows of every batch.

A lane that ends before the others leaves its rows of a batch empty: those of the others are its
`valid` ones. What becomes of the empty ones is said by `Ends`. The position has a pair for each
lane: how often it has ended, and the position in it. So it fits any batch size that the lanes
divide.
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
"""What happens when a lane has no sample left. "drop": the pass ends before that batch. "pad": its
rows stay empty until all lanes have ended. "wrap": it restarts, until all have ended. "go
round": it restarts, for ever."""


def check_divides(node: Node[Any], size: int, dealt: Lanes) -> None:
    """Raises unless each lane gives equally many rows of a batch.

    Raises:
        BatchNotDivisible: A batch does not have as many rows for each lane.
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
        fresh: How many samples of the first round the last run has.
    """

    def __init__(self, reader: Reader[T], at: Position, node: Node[Any], many: int) -> None:
        self.rounds, inner = at
        self._began: Position = at  # until it has given a sample, on all processes the same
        self.fresh = 0
        self._reader, self._node, self._many = reader, node, many
        self._epoch = epoch_of_caller()
        self._open(inner)

    def _open(self, at: Position) -> None:
        self.up = start(self._reader, at).watched(self._node, self._many)

    def run(self) -> list[T]:
        """The next samples of this round, as many as a batch has, or those that are left."""
        self._began = None
        run = list(islice(self.up.items, self._many))
        self.fresh = 0 if self.rounds else len(run)
        return run

    def filled(self, run: list[T], *, wanted: bool) -> list[T]:
        """A run filled up from the beginning of the lane, as often as it takes.

        Raises:
            ReaderError: The lane has no samples, and they are wanted.
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
        """How often it has ended, and the position in it."""
        return (self.rounds, self.up.position()) if self._began is None else tuple(self._began)


def cannot_wrap(lane: Reader[Any], node: Node[Any]) -> errors.ReaderError:
    """The error for a lane without samples."""
    return errors.ReaderError(
        f"{lane!r}, one of the lanes of {node!r}, has no samples, so last='wrap' cannot fill its "
        "rows: give last='pad', or fewer lanes, so that each has some."
    )


class LaneBatches(Generic[T]):
    """A pass over the batches of a stream in lanes, or over some rows of each.

    Attributes:
        numbers: The numbers of the lanes that are read.
        joined: Whether what joins these rows with others looks for lanes without samples.
    """

    joined = False

    def __init__(
        self, node: Any, dealt: Lanes, ends: Ends, at: Position, rows: Array | None = None
    ) -> None:
        """Begins at a position.

        Args:
            node: The `batch`.
            dealt: The op that deals its reader to lanes.
            ends: What happens when a lane has no sample left.
            at: The position; None for the beginning.
            rows: The rows that are wanted; None for all.
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
        """Begins a pass over each lane."""
        node, places = self._node, self._places
        self._lanes = [
            _Lane(of_lane(node.reader, number), places[number], node, self._each)
            for number in self.numbers
        ]

    def batches(self) -> Pass[Sequence[T]]:
        """The batches, until all lanes have ended."""

        def deal() -> Iterator[Sequence[T]]:
            for made in self.runs():
                if not made.fresh:
                    return
                yield made if made.stacked or made.valid is not None else list(made)

        return Pass(deal(), self.position, self.close)

    def runs(self) -> Iterator[Columns[T]]:
        """One batch after another, or its rows; without an end, unless that is "drop"."""
        while (runs := self._next_runs()) is not None:
            fresh = self._ends == "go round" or any(lane.fresh for lane in self._lanes)
            if self._ends in ("wrap", "go round") and (fresh or self._rows is not None):
                wanted, pairs = fresh or not self.joined, zip(self._lanes, runs, strict=True)
                runs = [lane.filled(run, wanted=wanted) for lane, run in pairs]
            made = self._batch(runs)
            made.fresh = fresh
            yield made

    def _next_runs(self) -> list[list[T]] | None:
        """The next samples of each lane; None if the pass ends with a lane that has too few."""
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
        if self._rows is not None:  # a lane may have rows that are not wanted here
            mine = np.flatnonzero(np.isin(valid, self._rows))
            samples, many = [samples[at] for at in mine.tolist()], len(self._rows)
            valid = np.searchsorted(self._rows, valid[mine])
        lacking = many - len(samples)
        return Columns(Rows(samples), rows=self._size - lacking, valid=valid if lacking else None)

    def any_sample(self) -> T:
        """A sample of one of the lanes, for the shapes of rows that stay empty.

        Raises:
            ReaderError: None of them has any.
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
        """A pair for each lane: how often it has ended, and the position in it."""
        for number, lane in zip(self.numbers, self._lanes, strict=True):
            self._places[number] = lane.position()
        return tuple(self._places)

    def close(self) -> None:
        """Ends all lanes."""
        for lane in self._lanes:
            lane.up.close()
