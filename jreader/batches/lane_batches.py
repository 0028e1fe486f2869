"""Batches of a stream in lanes: each lane gives the same rows of every batch.

A lane that ends before the others leaves its rows of a batch empty: `Gaps`. What becomes of them is
said by `Ends`. The position has a pair for each lane: how often it has ended, and the position in
it. So it fits any batch size that the lanes divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    described,
    start,
)
from jreader.readers.lanes import Lanes, of_lane
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.planes import Array

T = TypeVar("T")

Ends: TypeAlias = Literal["drop", "pad", "wrap", "go round"]
"""What happens when a lane has no sample left. "drop": the pass ends before that batch. "pad": its
rows stay empty until all lanes have ended. "wrap": it begins again, until all have ended. "go
round": it begins again, for ever."""


class Gaps(list[T]):
    """The samples of a batch of which some rows are empty.

    Attributes:
        rows: The row of each sample.
        size: How many rows the batch has.
    """

    def __init__(self, samples: Sequence[T], rows: Array, size: int) -> None:
        super().__init__(samples)
        self.rows, self.size = rows, size


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
        f"{type(node).__name__}(..., batch_size={size}) cannot take equally many rows of each of "
        f"{lanes} lanes, which were dealt by {described(dealt)}: type batch_size={sizes}, or "
        f"lanes={fewer}."
    )


class _Lane(Generic[T]):
    """One lane of a pass.

    Attributes:
        rounds: How often it has ended.
        fresh: How many samples of the first round the last run has.
    """

    def __init__(self, reader: Reader[T], at: Position, node: Node[Any], many: int) -> None:
        self.rounds, inner = at
        self.fresh = 0
        self._reader, self._node, self._many = reader, node, many
        self._epoch = epoch_of_caller()
        self._open(inner)

    def _open(self, at: Position) -> None:
        self.up = start(self._reader, at).watched(self._node, self._many)

    def run(self) -> list[T]:
        """The next samples of this round, as many as a batch has, or those that are left."""
        run = list(islice(self.up.items, self._many))
        self.fresh = 0 if self.rounds else len(run)
        return run

    def filled(self, run: list[T]) -> list[T]:
        """A run filled up from the beginning of the lane, as often as it takes.

        Raises:
            ReaderError: The lane has no samples.
        """
        while len(run) < self._many:
            self.up.close()
            with in_epoch(self._epoch):
                self._open(None)
            self.rounds += 1
            more = list(islice(self.up.items, self._many - len(run)))
            if not more:
                raise errors.ReaderError(
                    f"{self._reader!r}, one of the lanes of {self._node!r}, has no sample with "
                    f"which last='wrap' could fill its rows up: give last='pad', or fewer lanes, "
                    f"so that each has some."
                )
            run += more
        return run

    def position(self) -> Position:
        return self.rounds, self.up.position()


class LaneBatches(Generic[T]):
    """A pass over the batches of a stream in lanes.

    Attributes:
        numbers: The numbers of the lanes that are read.
    """

    def __init__(self, node: Any, dealt: Lanes, ends: Ends, at: Position) -> None:
        """Begins at a position.

        Args:
            node: The `batch`.
            dealt: The op that deals its reader to lanes.
            ends: What happens when a lane has no sample left.
            at: The position; None for the beginning.
        """
        check_divides(node, node.batch_size, dealt)
        self._ends, self._size, self._each = ends, node.batch_size, node.batch_size // dealt.lanes
        self._places = list(checked_position(at, ((0, None),) * dealt.lanes))
        self.numbers = range(dealt.lanes)
        self._lanes = [
            _Lane(of_lane(node.reader, number), self._places[number], node, self._each)
            for number in self.numbers
        ]

    def batches(self) -> Pass[Sequence[T]]:
        """The pass."""
        return Pass(self._deal(), self.position, self.close)

    def _deal(self) -> Iterator[Sequence[T]]:
        while True:
            runs = []
            for lane in self._lanes:
                run = lane.run()
                if len(run) < self._each and self._ends == "drop":
                    return
                runs.append(run)
            if self._ends != "go round" and not any(lane.fresh for lane in self._lanes):
                return
            if self._ends in ("wrap", "go round"):
                runs = [lane.filled(run) for lane, run in zip(self._lanes, runs, strict=True)]
            yield self._together(runs)

    def _together(self, runs: list[list[T]]) -> Sequence[T]:
        samples = [sample for run in runs for sample in run]
        if len(samples) == self._size:
            return samples
        rows = [
            np.arange(len(run)) + number * self._each
            for number, run in zip(self.numbers, runs, strict=True)
        ]
        return Gaps(samples, np.concatenate(rows), self._size)

    def position(self) -> Position:
        """A pair for each lane: how often it has ended, and the position in it."""
        for number, lane in zip(self.numbers, self._lanes, strict=True):
            self._places[number] = lane.position()
        return tuple(self._places)

    def close(self) -> None:
        """Ends all lanes."""
        for lane in self._lanes:
            lane.up.close()
