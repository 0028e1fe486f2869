"""Plans over samples that are written while they are read, as `cache(reader, path)` does it.

`filter(fn, reader, keep=path)` writes which samples it keeps. Until all are written, the plan is a
stream; a plan that is made later finds samples by their index. Both have one order, since an op
whose order needs all samples has them written before it begins (`written_first`). A position
belongs to one of the two, and says to which (`plan_at`): a run resumes as a stream
where it was one, though the samples are indexed by now, and by index where it was indexed, though
they have to be written once more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, TypeVar, cast

from jreader.errors import assigned
from jreader.readers.nodes import lazy_length, length, ops_of, plane_of
from jreader.readers.passes import Position
from jreader.readers.rewriting import rewritten

R = TypeVar("R")

IN_ORDER = "in order"
"""What a position begins with that is of a stream, and would be an index later."""


_STORES = attrgetter("stores")  # each pass asks, so no generator asks for it
_writing_off = ContextVar("looks", default=False)


def without_writing() -> AbstractContextManager[None]:
    """Has nothing written inside the block, where plans that write first are streams.

    What an object keeps of such a plan is to be thrown away afterwards.
    """
    return assigned(_writing_off, value=True)


def writing_allowed() -> bool:
    """Whether passes that begin here may write."""
    return not _writing_off.get()


def any_stores(reader: Any) -> bool:
    """Whether a plan has an op that is indexed only once its samples are written."""
    return any(map(_STORES, ops_of(reader)))


def written_first(reader: R, *, known: bool = True) -> R:
    """The plan that writes what is missing before it begins, and so is indexed.

    Args:
        reader: Any reader.
        known: Whether to do so also where the number of samples is known in advance.
    """

    def first(node: Any) -> Any:
        if node.stores and node.from_reader == "some":  # how many are left is known of none
            return node.changed({"first": True, "reader": written_first(node.reader)})
        asked = node.stores and (known or lazy_length(node.reader) or length(node.reader) is None)
        return {"first": True} if asked else {}

    return _rewritten(reader, first) if any_stores(reader) else reader


def streamed(reader: R) -> R:
    """The plan that hands samples over while they are written, whether or not they are by now."""
    ops: list[Any] = ops_of(cast("Any", reader))
    # earlier releases wrote nothing first, and had caches alone
    if all(op.first and op.from_reader == "all" for op in ops if op.stores):
        return unwritten(reader)
    return _rewritten(reader, lambda op: {"whole": False} if op.stores and not op.first else {})


def unwritten(reader: R) -> R:
    """The plan as it is where nothing is written: its lines are the same in every process."""
    if not any_stores(reader):
        return reader
    return _rewritten(reader, lambda node: {"first": False, "whole": False} if node.stores else {})


def plan_at(reader: R, at: Position) -> R:
    """The plan that a position is of: a stream or indexed, as it was when it gave the position."""
    if at is None or not any_stores(reader):
        return reader
    if isinstance(at, int):
        return written_first(reader)
    return streamed(reader) if _is_in_order(at) or plane_of(cast("Any", reader)) else reader


def _rewritten(reader: R, change: Callable[[Any], Any]) -> R:
    return cast("R", rewritten(cast("Any", reader), change, pinned=True))


def _is_in_order(at: Position) -> bool:
    return at == IN_ORDER or (isinstance(at, (list, tuple)) and any(map(_is_in_order, at)))
