"""Seeds of random ops, and the numbers that a pass draws for those without one.

When a pass over a plan with `seed=None` starts, `Draws` fills in the missing seeds. The numbers
drawn are part of the position, so that such a pass can be resumed too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count, repeat
from typing import Any, TypeVar

from jreader.readers.declarations import names_by
from jreader.readers.nodes import Node, Reader, field_names, field_value, ops_of
from jreader.readers.passes import Position, checked_position
from jreader.readers.rewriting import rewritten

T = TypeVar("T")


class Draws:
    """The random numbers of one pass: one for all ops, and one for each op that keeps its own.

    Args:
        drawn: The numbers of an earlier pass, as its position has them (`new` draws others).
        keep: Whether ops that keep a number get it now; False if no pass starts.
    """

    def __init__(self, drawn: Position, *, keep: bool = True) -> None:
        self._first: int
        self._kept: list[int]
        self._first, *self._kept = drawn if isinstance(drawn, (tuple, list)) else (drawn,)
        self._drawn, self._keep, self._is_new = drawn, keep, False
        self._unread, self._turns = iter(self._kept), count()

    @classmethod
    def new(cls) -> Draws:
        """Draw the numbers of a new pass."""
        draws = cls(secrets.randbits(52))
        draws._is_new = True
        return draws

    @classmethod
    def from_position(cls, drawn: Position) -> Draws:
        """Return the numbers of an earlier pass, checked."""
        numbers = drawn if isinstance(drawn, (tuple, list)) else (drawn,)
        checked_position(numbers, (0,) * max(len(numbers), 1))
        return cls(drawn)

    def seed(self) -> int:
        """Return a seed for the next op without one; all seeds differ."""
        return self._first + (next(self._turns) << 64)

    def kept(self, keep: Callable[[int], int]) -> int:
        """Return the number of the next op that keeps one for all passes, such as `cache`.

        Args:
            keep: Takes a number to keep, and returns the one that is kept, perhaps an earlier one.
        """
        if self._is_new:
            self._kept.append(keep(secrets.randbits(52)))
            return self._kept[-1]
        for number in self._unread:
            if self._keep:
                keep(number)
            return number
        return self._first

    @property
    def drawn(self) -> Position:
        """The numbers, as the position of the pass has them."""
        if self._is_new and self._kept:
            return (self._first, *self._kept)
        return self._drawn


def resolved(reader: Reader[T], draws: Draws) -> Reader[T]:
    """Return the plan with all missing seeds filled in."""
    return rewritten(reader, lambda node: node.resolved(draws))


def seeded(reader: Reader[T], drawn: Position) -> Reader[T]:
    """Return the plan with all missing seeds filled in from the numbers that a pass drew."""
    return resolved(reader, Draws(drawn, keep=False)) if lacks_seed(reader) else reader


def lacks_seed(reader: Reader[Any]) -> bool:
    """Return whether a seed is missing, so that each pass draws one (`Draws`)."""
    for op in ops_of(reader, pinned=False):
        may = "seed" in names_by(type(op)) and getattr(op, "seed", 0) is None
        if (may or type(op).resolved is not Node.resolved) and op.resolved(Draws(0, keep=False)):
            return True
    return False


def random_ops(reader: Reader[Any]) -> list[Node[Any]]:
    """Return the ops of a plan that differ between epochs, or between passes.

    >>> from jreader import arrays, cache, shuffle
    >>> dealt = shuffle(arrays([1, 2, 3]), seed=0)
    >>> [len(random_ops(plan)) for plan in (dealt, cache(dealt), arrays([1, 2]))]
    [1, 0, 0]
    """
    return [
        op
        for op in ops_of(reader, pinned=False)
        if ("seed" in field_names(op) and (hasattr(op, "epoch") or field_value(op, "seed") is None))
        or (not op.input_readers and field_value(op, "epoch") is not None)  # Grain's data
    ]


def seeded_below(node: Node[Any]) -> int:
    """Return the place of an op in its plan: the number of random ops from it down to the sources.

    It counts from below, so that an op on top of a plan does not change the order inside.
    """
    most = 0
    left: list[tuple[Reader[Any], int]] = [(node, 0)]
    while left:
        op, above = left.pop()
        if not isinstance(op, Node):
            continue
        above += "seed" in vars(op) or hasattr(type(op), "seed")  # a pipeline renames its fields
        most = max(most, above)
        left += zip(op.input_readers, repeat(above), strict=False)
    return most
