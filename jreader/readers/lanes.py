"""Lanes: a stream in a fixed number of parts, each of which is read by itself.

An op that deals its source to lanes (`Lanes`; `jreader.read` is one) stands at the bottom of a
chain of ops. These run inside lanes: lane k is the same chain over part k of the source, with
random numbers of its own. Lanes end at the first op that looks at the samples of all of them, as
`batch` and `chain` do (`joins_lanes`). `batch` takes some rows of each lane; any other op gets
one sample of each lane in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from jreader.readers.declarations import names_by
from jreader.readers.nodes import Node, Reader
from jreader.readers.rewriting import in_epoch_of, rewritten

T = TypeVar("T")


class Lanes:
    """What an op defines that deals its source to lanes.

    Attributes:
        lanes: How many lanes there are.
        lane: The number of the lane that a copy of the op reads; None for all.
    """

    lanes: int
    lane: int | None

    def of_lane(self, lane: int) -> Node[Any]:
        """The op that reads one lane, by its number."""
        raise NotImplementedError

    def in_turn(self, readers: Sequence[Reader[T]]) -> Reader[T]:
        """The samples of all lanes as one stream: one of each in turn, until all have ended."""
        raise NotImplementedError


@lru_cache(256)
def joins_lanes(kind: Any) -> bool:
    """Whether ops of a class look at the samples of all lanes, so that lanes end below them.

    These are ops that select samples by their index, make batches, or read several readers.

    >>> from jreader import batch, firstn, shuffle
    >>> [joins_lanes(op) for op in (batch, firstn, shuffle)]
    [True, True, False]
    """
    selects = kind.moves == "rows" and kind.from_reader == "some"
    makes_batches = kind.unit == "batches" and kind.from_reader != "each"
    return selects or makes_batches or ("readers" in names_by(kind) and kind.in_cursor != "never")


def dealt_below(reader: Reader[Any]) -> Lanes | None:
    """The op that deals a plan to lanes, if all ops above it run inside lanes; else None.

    >>> from jreader import batch, filter, read
    >>> lines = read(str.split, lambda: ["a b", "c"], lanes=2)
    >>> dealt_below(filter(str.isalpha, lines)).lanes, dealt_below(batch(lines, 2))
    (2, None)
    """
    while isinstance(reader, Node):
        if isinstance(reader, Lanes):
            return reader if reader.lane is None else None
        kind: Any = type(reader)
        if joins_lanes(kind) or reader.pinned or len(ups := reader.input_readers) != 1:
            return None
        (reader,) = ups
    return None


def of_lane(reader: Reader[T], lane: int) -> Reader[T]:
    """What one lane reads: the same plan over its part of the source, by its own numbers.

    Its random ops are in an epoch that the number of the lane is folded into. What lies below the
    op that deals, such as the order of files, is the same for all lanes.

    >>> from jreader import read
    >>> lines = read(str.split, lambda: ["a b", "c"], lanes=2)
    >>> list(of_lane(lines, 0)()), list(of_lane(lines, 1)())
    (['a', 'b'], ['c'])
    """

    def part(node: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        return node.of_lane(lane) if isinstance(node, Lanes) else in_epoch_of(node, lane)

    return rewritten(reader, part)


def in_turn(reader: Reader[T]) -> Reader[T] | None:
    """A plan in lanes as one stream, of which each sample is of the next lane; else None."""
    dealt = dealt_below(reader)
    if dealt is None:
        return None
    return dealt.in_turn([of_lane(reader, lane) for lane in range(dealt.lanes)])
