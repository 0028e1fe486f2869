"""Which numbers random ops draw from: seeds, epochs, and what a pass over `seed=None` draws.

An unseeded plan is resolved when a pass over it starts: `Draws` fills in what its ops wait for, and
is part of the position of that pass, so that it can be resumed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from jreader.readers.nodes import Node, Reader, children, field_names, field_value
from jreader.readers.passes import Position
from jreader.readers.rewriting import rewritten

T = TypeVar("T")


class Draws:
    """The random numbers of one pass: one for all its ops, and one for each that keeps its own.

    Args:
        told: What a pass drew, as its position tells it; None to draw now.
        keep: Whether ops that keep a draw are given theirs to keep; not where nothing is begun.
    """

    def __init__(self, told: Position = None, *, keep: bool = True) -> None:
        first, *kept = told if isinstance(told, (tuple, list)) else (told,)
        self._new, self._keep = first is None, keep
        self._first: int = secrets.randbits(52) if first is None else first
        self._kept: list[int] = kept
        self._unread, self._turns = iter(self._kept), count()
        self._as_told = told

    def seed(self) -> int:
        """The seed of the next op that has none; each op gets another one."""
        return self._first + (next(self._turns) << 64)

    def kept(self, keep: Callable[[int], int]) -> int:
        """The draw of the next op that keeps its first one, for all its passes.

        Args:
            keep: Takes a draw to keep, and gives the one that is kept: an earlier one, if any.
        """
        if self._new:
            self._kept.append(keep(secrets.randbits(52)))
            return self._kept[-1]
        for draw in self._unread:
            if self._keep:
                keep(draw)
            return draw
        return self._first

    @property
    def told(self) -> Position:
        """What was drawn, for the position of the pass."""
        if not self._new:
            return self._as_told
        return (self._first, *self._kept) if self._kept else self._first


def resolved(reader: Reader[T], draws: Draws) -> Reader[T]:
    """The plan with all that waits for a draw filled in, each op differently."""
    return rewritten(reader, lambda node: node.resolved(draws))


def seeded(reader: Reader[T], drawn: Position) -> Reader[T]:
    """The plan with every `seed=None` resolved by what a pass drew; nothing is begun by it."""
    return resolved(reader, Draws(drawn, keep=False))


def waits(reader: Reader[Any]) -> bool:
    """Whether each pass draws anew: its position is then (what was drawn, position)."""
    return isinstance(reader, Node) and _waits(reader, Draws(0, keep=False))


def _waits(node: Node[Any], draws: Draws) -> bool:
    if node.resolved(draws):
        return True
    return not node.pinned and any(_waits(child, draws) for child in children(node))


def varies(node: Node[Any]) -> bool:
    """Whether epochs would vary what a random op below does, and none has reached it."""
    if "seed" in field_names(node) and field_value(node, "epoch", 1) == 0:
        return True
    return not node.pinned and any(map(varies, children(node)))


def seeded_below(node: Node[Any]) -> int:
    """An op's place in its plan: the number of seeded ops from it down to its sources.

    Counted from below, so that an op put on top of a plan does not change the order inside it.
    """
    below = max(map(seeded_below, children(node)), default=0)
    return below + hasattr(node, "seed")
