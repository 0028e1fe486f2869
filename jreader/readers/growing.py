"""Plans over samples that are written while they are read, such as `cache(reader, path)`.

`filter(fn, reader, keep=path)` writes which samples it keeps. Until all are written, the plan is a
stream; a plan made later finds samples by index. Both have one order: an op whose order needs all
samples has them written before it begins (`written_first`). A position belongs to one of the two,
and says to which (`plan_at`). So a run that began as a stream resumes as a stream, even if the
samples are indexed by now; and one that began by index resumes by index, even if they must be
written once more.
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
"""The first part of a position in a stream that could by now be an index."""


_STORES = attrgetter("stores")  # an attrgetter, as each pass asks
_writing_off = ContextVar("looks", default=False)


def without_writing() -> AbstractContextManager[None]:
    """Write nothing inside the block, where plans that write first are streams.

    Discard what an object caches of such a plan afterwards.
    """
    return assigned(_writing_off, value=True)


def writing_allowed() -> bool:
    """Return whether passes that begin here may write."""
    return not _writing_off.get()


def any_stores(reader: Any) -> bool:
    """Return whether a plan has an op that is indexed only once its samples are written."""
    return any(map(_STORES, ops_of(reader)))


def written_first(reader: R, *, known: bool = True) -> R:
    """Return the plan that writes what is missing before it begins, so that it is indexed.

    Args:
        reader: Any reader.
        known: Whether to do so even if the number of samples is known in advance.
    """

    def first(node: Any) -> Any:
        if node.stores and node.from_reader == "some":  # none of them knows how many samples remain
            return node.changed({"first": True, "reader": written_first(node.reader)})
        asked = node.stores and (known or lazy_length(node.reader) or length(node.reader) is None)
        return {"first": True} if asked else {}

    return _rewritten(reader, first) if any_stores(reader) else reader


def streamed(reader: R) -> R:
    """Return the plan that hands samples over while they are written, even if they already are."""
    ops: list[Any] = ops_of(cast("Any", reader))
    # earlier releases wrote nothing first, and had only caches
    if all(op.first and op.from_reader == "all" for op in ops if op.stores):
        return unwritten(reader)
    return _rewritten(reader, lambda op: {"whole": False} if op.stores and not op.first else {})


def unwritten(reader: R) -> R:
    """Return the plan as if nothing were written: its lines are the same in every process."""
    if not any_stores(reader):
        return reader
    return _rewritten(reader, lambda node: {"first": False, "whole": False} if node.stores else {})


def plan_at(reader: R, at: Position) -> R:
    """Return the plan of a position: a stream or indexed, as it was when it gave the position."""
    if at is None or not any_stores(reader):
        return reader
    if isinstance(at, int):
        return written_first(reader)
    return streamed(reader) if _is_in_order(at) or plane_of(cast("Any", reader)) else reader


def _rewritten(reader: R, change: Callable[[Any], Any]) -> R:
    return cast("R", rewritten(cast("Any", reader), change, pinned=True))


def _is_in_order(at: Position) -> bool:
    return at == IN_ORDER or (isinstance(at, (list, tuple)) and any(map(_is_in_order, at)))
