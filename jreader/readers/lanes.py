"""Lanes: a stream in a fixed number of parts, each read by itself.

An op that deals its source to lanes (`Lanes`; `jreader.read` is one) is at the bottom of a chain of
ops. These run inside lanes: lane k is the same chain over part k of the source, with its own random
numbers. Lanes end at the first op that looks at the samples of all of them, as `batch` and `chain`
do (`joins_lanes`). `batch` takes some rows of each lane; any other op gets one sample of each lane
in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from jreader.readers.declarations import cached_by_class, names_by
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import Node, Reader, plane_of
from jreader.readers.rewriting import in_epoch_of, rewritten
from jreader.readers.seeds import seeded

T = TypeVar("T")


class Lanes:
    """The definitions of an op that deals its source to lanes.

    Attributes:
        lanes: The number of lanes.
        lane: The number of the lane that a copy of the op reads; None for all.
        owned: Whether it deals blocks of an indexed reader, whose samples keep one order
            (`shuffle`): then a lane is not read by itself, but owns some rows of each batch.
    """

    lanes: int
    lane: int | None = None
    owned: ClassVar[bool] = False

    def of_lane(self, lane: int) -> Node[Any]:
        """Return the op that reads one lane, by its number."""
        raise NotImplementedError

    def in_turn(self, readers: Sequence[Reader[T]]) -> Reader[T]:
        """Join lanes into one stream: one sample of each in turn, until all have ended."""
        raise NotImplementedError


@cached_by_class
def joins_lanes(kind: Any) -> bool:
    """Return whether ops of a class look at the samples of all lanes, so that lanes end below them.

    These are ops that select samples by their index, make batches, or read several readers.

    >>> from jreader import batch, firstn, shuffle
    >>> [joins_lanes(op) for op in (batch, firstn, shuffle)]
    [True, True, False]
    """
    selects = kind.moves == "rows" and kind.from_reader == "some"
    makes_batches = kind.unit == "batches" and kind.from_reader != "each"
    return selects or makes_batches or ("readers" in names_by(kind) and kind.in_cursor != "never")


def dealt_below(reader: Reader[Any]) -> Lanes | None:
    """Return the op that deals a plan to lanes, if all ops above it run inside lanes; else None.

    >>> from jreader import batch, filter, read
    >>> lines = read(str.split, lambda: ["a b", "c"], lanes=2)
    >>> dealt_below(filter(str.isalpha, lines)).lanes, dealt_below(batch(lines, 2))
    (2, None)
    """
    selected = 0  # ops that select by index: they join lanes, but do not move owned blocks
    while isinstance(reader, Node):
        if isinstance(reader, Lanes) and (reader.lanes > 1 or not reader.owned):
            return reader if reader.lane is None and (reader.owned or not selected) else None
        if reader.pinned or _ends_lanes(type(reader)) or len(ups := reader.input_readers) != 1:
            return None
        selected += joins_lanes(type(reader))
        (reader,) = ups
    return None


@cached_by_class
def _ends_lanes(kind: Any) -> bool:
    """Return whether ops of a class also end the ownership of blocks: all but those that select."""
    return joins_lanes(kind) and kind.moves != "rows"


def owners_of(reader: Reader[Any]) -> int:
    """Return how many lanes own the blocks of a plan's samples; 1 without owners."""
    dealt = dealt_below(reader)
    found = mapped_rows(seeded(reader, 0)) if dealt and dealt.owned else None
    plane = found and plane_of(found.rows)
    return plane.lanes if plane else 1


def by_lane(size: int, lanes: int, begin: Any) -> Any:
    """Return the samples of a batch in the order of its rows: those of each lane side by side.

    >>> by_lane(6, 3, 0), by_lane(6, 3, 1)
    (array([0, 3, 1, 4, 2, 5]), array([2, 5, 0, 3, 1, 4]))

    Args:
        size: The number of samples in the batch; `lanes` divides it.
        lanes: The number of lanes that own blocks; 1 keeps the order of samples.
        begin: The index of its first sample; it may be traced.
    """
    row, each = np.arange(size), size // lanes
    return (row // each - begin) % lanes + row % each * lanes


def of_lane(reader: Reader[T], lane: int) -> Reader[T]:
    """Return what one lane reads: the same plan over its part of the source, with its own numbers.

    The number of the lane is folded into the epoch of its random ops. What is below the op that
    deals, such as the order of files, is the same for all lanes.

    >>> from jreader import read
    >>> lines = read(str.split, lambda: ["a b", "c"], lanes=2)
    >>> list(of_lane(lines, 0)()), list(of_lane(lines, 1)())
    (['a', 'b'], ['c'])
    """

    def part(node: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        if isinstance(node, Lanes) and not node.owned:
            return node.of_lane(lane)
        return in_epoch_of(node, lane)

    return rewritten(reader, part)


def in_turn(reader: Reader[T]) -> Reader[T] | None:
    """Return a plan in lanes as one stream that takes a sample of each in turn; else None."""
    dealt = dealt_below(reader)
    if dealt is None or dealt.owned:
        return None
    return dealt.in_turn([of_lane(reader, lane) for lane in range(dealt.lanes)])
