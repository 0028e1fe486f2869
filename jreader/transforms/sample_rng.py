"""Random functions of samples: a key for each sample, and a generator for each key.

A key is the seed and (epoch, place in the plan, index of the sample). It depends on nothing else,
so a sample gets the same random numbers on any worker, in any order of work, and after resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from jreader.orders import random_seed
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    counted,
    indexed,
    length,
    lookup_of,
    op,
    start,
)
from jreader.readers.columns import Array, Objects
from jreader.readers.holders import Held
from jreader.readers.keyed import Keyed
from jreader.readers.planes import Plane
from jreader.readers.reading_ahead import OpenedColumns, opened_for_pass
from jreader.readers.seeds import seeded_below

T = TypeVar("T")


@op
class keyed(Node[Keyed]):
    """Pair each sample of `reader` with a key; `map(fn, rng=True)` makes generators of the keys.

    >>> [tuple(pair) for pair in keyed(lambda: "ab", seed=7)()]
    [('a', 7, (0, 1, 0)), ('b', 7, (0, 1, 1))]

    Args:
        reader: Any reader.
        seed: An int, or a jax key; `at_epoch` and `epochs` vary it. None draws one for each pass,
            which can still be resumed.
    """

    reader: Reader[Any]
    seed: Any = random_seed()
    epoch: int = field(default=0, init=False)
    moves = "keys"

    def start(self, at: Position) -> Pass[Keyed]:
        """Start a pass; its position is (index of the next sample, position of `reader`)."""
        done, inner = checked_position(at, (0, None))
        up = start(self.reader, inner)
        seed, epoch, place = self.seed, self.epoch, seeded_below(self)
        samples, count = counted(up.items, done)
        items = (Keyed(sample, seed, (epoch, place, count() - 1)) for sample in samples)
        return Pass(items, lambda: (count(), up.position()), up.close)

    def length(self) -> int | None:
        """Return the length of `reader`."""
        return length(self.reader)

    def lookup(self) -> Callable[[int], Keyed] | None:
        """Find samples as `reader` does; None if the seed is not drawn yet."""
        find, seed, epoch, place = lookup_of(self.reader), self.seed, self.epoch, seeded_below(self)
        if find is None or seed is None:
            return None
        return lambda index: Keyed(find(index), seed, (epoch, place, index))

    def over_rows(self, rows: Reader[Any]) -> Node[Keyed] | None:
        """Return the rows with their keys, found by index; None if the seed is not drawn yet."""
        if self.seed is None:
            return None
        return _keyed_rows(rows, self.seed, self.epoch, seeded_below(self))


@op
class _keyed_rows(Node[Keyed]):
    """The pairs of `keyed` as rows that may be reordered: a key stays with its sample.

    Args:
        reader: An indexed reader.
        seed: The seed of `keyed`.
        epoch: The epoch of `keyed`.
        place: The place of `keyed` in the plan.
    """

    reader: Reader[Any]
    seed: Any
    epoch: int
    place: int

    def plane(self) -> Plane | None:
        """Return a plane with one column, of pairs."""
        up = indexed(self.reader)
        if up is None:
            return None
        pairs = _Pairs(self, up, OpenedColumns(up.columns, []))

        def held(column: int, rows: Array, end: int) -> Held:
            return up.holding(rows, end, column)  # of the columns that the pairs are made from

        return Plane(pairs, up.length, lambda indices: [indices], lanes=up.lanes, held=held)


class _Pairs(Objects):
    """The samples of a plane with their keys, as rows of one column.

    Args:
        op: The op that knows the keys.
        plane: The plane.
        opened: Its columns, perhaps opened for a pass.
    """

    def __init__(self, op: _keyed_rows, plane: Plane, opened: OpenedColumns) -> None:
        self.op, self.plane, self.opened = op, replace(plane, columns=opened.columns), opened
        super().__init__(plane.length, partial(_with_keys, op, self.plane))

    def reading(self, *, in_batches: bool = True) -> _Pairs:
        """Return the column for one pass, if columns of the plane are read in blocks."""
        opened = opened_for_pass(self.plane.columns, in_batches=in_batches)
        return _Pairs(self.op, self.plane, opened) if opened.readings else self

    def prefetch(self, rows: Array) -> None:
        """Announce rows to the columns of the plane."""
        self.opened.prefetch(self.plane.rows(rows))

    def full(self) -> bool:
        """Return whether these columns cannot read that far ahead."""
        return self.opened.full()

    def close(self) -> None:
        """Close these columns."""
        self.opened.close()


def _with_keys(op: _keyed_rows, plane: Plane, rows: Array) -> Iterator[Keyed]:
    """Yield those samples of a plane with their keys."""
    for sample, index in zip(plane.each(rows), rows.tolist(), strict=True):
        yield Keyed(sample, op.seed, (op.epoch, op.place, index))


def generator(seed: int, path: tuple[int, int, int]) -> np.random.Generator:
    """Return the generator of a key.

    >>> generator(7, (0, 1, 5)).integers(100, size=3).tolist()
    [6, 11, 24]
    """
    words = np.random.SeedSequence(seed, spawn_key=path)
    return np.random.Generator(np.random.Philox(words))
