"""Plans that are streamed now and indexed later, once something of theirs is whole.

A position of the streamed plan says so (`IN_ORDER`), and is gone on from as a stream: the order is
the same, but an op above may count in another way. A plan is one or the other all its life.
"""

from __future__ import annotations

from typing import Any, TypeVar

from jreader.readers.nodes import Node, Reader, children
from jreader.readers.passes import Position
from jreader.readers.rewriting import rewritten

T = TypeVar("T")

IN_ORDER = "in order"
"""What a position begins with that is of a stream, and would be an index later."""


def grows(reader: Reader[Any]) -> bool:
    """Whether a plan is indexed only once something of it is whole."""
    if not isinstance(reader, Node):
        return False
    return reader.grows or (not reader.pinned and any(map(grows, children(reader))))


def in_order(reader: Reader[T], at: Position) -> Reader[T]:
    """The plan that a position is of: as it was before it was indexed, if the position says so."""
    if not _is_in_order(at):
        return reader
    return rewritten(reader, lambda node: {"whole": False} if node.grows else {})


def _is_in_order(at: Position) -> bool:
    return at == IN_ORDER or (isinstance(at, (list, tuple)) and any(map(_is_in_order, at)))
