"""Starting a pass, at the beginning or at a position, after drawing missing seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

from jreader.errors import NotResumable, assigned, warn
from jreader.readers.growing import plan_at
from jreader.readers.lanes import in_turn
from jreader.readers.located import located, located_errors
from jreader.readers.mapped_rows import maps_last
from jreader.readers.messages import Refusal
from jreader.readers.nodes import (
    Node,
    Reader,
    declares,
    field_value,
    overridden_pass,
    plane_of,
    unit_of,
    unwrapped,
)
from jreader.readers.passes import Pass, Position, checked_position
from jreader.readers.plain_functions import epoch_of_caller
from jreader.readers.replays import replayed
from jreader.readers.seeds import Draws, lacks_seed, random_ops, resolved

T = TypeVar("T")


def start(reader: Reader[T], at: Position = None) -> Pass[T]:
    """Start a pass over `reader`, from the beginning or from a position of an earlier pass.

    A plain function keeps no position: it is read again from its beginning up to the position.

    >>> from jreader import shuffle
    >>> reader = shuffle(lambda: "abcdef", buf_size=3, seed=7)
    >>> first = start(reader)
    >>> head = [next(first.items), next(first.items)]
    >>> rest = start(reader, first.position())
    >>> head + list(rest.items) == list(reader())
    True

    Args:
        reader: Any reader.
        at: A position that `Pass.position` returned, also after JSON; None for the beginning.

    Raises:
        NotResumable: The position is not one of this plan, or of an op that hands samples over in
            order of arrival; or the reader is shorter than it was.
    """
    if isinstance(at, Refusal):
        raise NotResumable(at)
    return _begin(_op_within(reader), at)


def items_of(reader: Node[T]) -> Iterator[T]:
    """Return the items of a pass over an op, from `start` or from a subclass's `__iter__`."""
    name = overridden_pass(type(reader))
    if name != "__iter__":  # a `__call__` of its own has called this, through `super()`
        return native(reader)
    items: Iterator[T] = iter(getattr(reader, name)())
    return items


def native(reader: Node[T]) -> Iterator[T]:
    """Return the items of a pass by an op's `start`, even if a subclass overrides `__iter__`.

    The subclass gets them from `super().__iter__()`.
    """
    if epoch_of_caller() and any(not field_value(op, "epoch", 1) for op in random_ops(reader)):
        warn(
            f"a plain function iterates {reader!r}, made at {reader.made_at}, by itself, so no "
            "epoch reaches it: its shuffles and random maps do the same in every epoch (or, "
            "without a seed, something that no cursor finds again). Type .map(fn), .filter(fn) or "
            ".flat_map(fn) on it instead of the function; if one order is intended, type .cache()."
        )
    inner = _op_within(reader)
    items = _begin(inner, None, inherited=inner is reader).items
    return items if unit_of(reader) == "samples" else _located(reader, items)


def _located(reader: Node[T], items: Iterator[T]) -> Iterator[T]:
    """Yield the items; for batches and rows only, as it slows quick samples by a quarter."""
    with located_errors(reader):
        yield from items


def in_batches(reader: Reader[T], size: int, at: Position) -> Pass[Sequence[T]] | None:
    """Return a pass over runs of `size` samples, if that is cheaper than one by one; else None."""
    reader = unwrapped(plan_at(reader, at))
    if not isinstance(reader, Node):
        return None
    kind = type(reader) if declares(type(reader), "batches") else Node
    up = kind.batches(reader, size, at)
    return None if up is None else _watched(reader, up)


def watching(
    watch: Callable[[Reader[Any], Pass[Any]], Pass[Any]],
) -> AbstractContextManager[None]:
    """Replace each pass that begins inside the block by what `watch` returns for it."""
    return assigned(_watch, watch)


_watch: ContextVar[Callable[[Reader[Any], Pass[Any]], Pass[Any]] | None] = ContextVar(
    "watch", default=None
)


def _watched(reader: Reader[Any], up: Pass[T]) -> Pass[T]:
    watch = _watch.get()
    return up if watch is None else watch(reader, up)


def mapped_last(reader: Reader[T], at: Position) -> Reader[T]:
    """Return the plan as a pass reads it: it maps last, if a position counts samples."""
    mapped = maps_last(reader) if at is None or isinstance(at, int) else None
    return reader if mapped is None else mapped


def _op_within(reader: Reader[T]) -> Reader[T]:
    """Return the op inside pipelines, which would repeat the pass's checks; no plain function.

    Errors of a function name the pipeline.
    """
    inner = unwrapped(reader)
    return inner if isinstance(inner, Node) else reader


def _begin(reader: Reader[T], at: Position, *, inherited: bool = False) -> Pass[T]:
    if not isinstance(reader, Node):
        return _watched(reader, replayed(reader, at))
    reader = plan_at(reader, at)
    if lacks_seed(reader):
        return _drawn(reader, at, inherited=inherited)
    if (together := in_turn(reader)) is not None:
        return _begin(together, at, inherited=inherited)
    if not inherited and (own := overridden_pass(type(reader))):
        return _watched(reader, replayed(getattr(reader, own), at))
    if (mapped := mapped_last(reader, at)) is not reader:
        return _begin(mapped, at)
    try:
        plane = plane_of(reader)
        return _watched(reader, reader.start(at) if plane is None else plane.samples(at))
    except StopIteration as stopped:
        raise RuntimeError(
            f"{reader!r} raised StopIteration when a pass over it was begun"
        ) from stopped
    except Exception as error:
        located(error, reader)
        raise


def _drawn(reader: Node[T], at: Position, *, inherited: bool) -> Pass[T]:
    """Return a pass that draws the missing seeds; its position is (drawn numbers, position)."""
    drawn, inner = checked_position(at, (None, None))
    draws = Draws.new() if at is None else Draws.from_position(drawn)
    up = _begin(resolved(reader, draws), inner, inherited=inherited)
    return Pass(up.items, lambda: (draws.drawn, up.position()), up.close)
