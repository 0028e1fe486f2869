"""Changed plans: copies with other fields, ops or epochs that share all the rest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from operator import is_
from typing import Any, TypeVar

import numpy as np

from jreader.readers.declarations import names_by
from jreader.readers.nodes import Node, Reader, trampoline
from jreader.readers.passes import itself

T = TypeVar("T")

_FOLD = 0x9E3779B1  # odd, and large: the (outer, inner) pairs of small epochs do not collide


def rewritten(
    reader: Reader[T],
    change: Callable[[Node[Any]], Mapping[str, Any] | Node[Any]],
    *,
    pinned: bool = False,
) -> Reader[T]:
    """Return a plan with other fields, or other ops, that shares all unchanged parts.

    Args:
        reader: Any reader; a plain function is returned unchanged.
        change: Takes an op of the plan, the topmost first. Returns the fields that change (an empty
            mapping for none), or another op to put in its place.
        pinned: Whether to also change what epochs and draws do not reach (`Node.pinned`).
    """
    made: Reader[T] = trampoline(partial(_rewriting, change, pinned), reader)
    return made


def _rewriting(
    change: Callable[[Node[Any]], Any], pinned: bool, reader: Any
) -> Generator[Any, Any, Any]:
    above: list[tuple[Node[Any], dict[str, Any]]] = []  # a chain needs no recursive walk
    while isinstance(reader, Node):
        changed = change(reader)
        if isinstance(changed, Node):
            reader = changed
            break
        new = dict(changed)
        if reader.pinned and not pinned:
            reader = reader.changed(new)
            break
        only = vars(reader).get("reader")
        if not isinstance(only, Node) or reader.input_readers != (only,):
            reader = yield from parts_changed(reader, new)
            break
        above.append((reader, new))
        reader = only
    for node, new in reversed(above):
        made = node.changed({**new, "reader": reader})
        if not new:
            vars(made)["input_readers"] = (reader,)  # cached: nothing else can have changed
        reader = made
    return reader


def parts_changed(
    node: Node[Any], new: dict[str, Any], asked: Callable[[Any], Any] = itself
) -> Generator[Any, Any, Any]:
    """Return a copy of an op with other readers: it yields the old ones, and is sent the new ones.

    Args:
        node: The op.
        new: Other fields to change as well.
        asked: Makes what is yielded of a reader.
    """
    for name in names_by(type(node)):
        value = getattr(node, name, None)  # a subclass with its own `__init__` may set none
        if isinstance(value, Node):
            (new[name],) = yield [asked(value)]
        elif isinstance(value, tuple) and any(isinstance(part, Node) for part in value):
            parts = yield map(asked, value)
            new[name] = value if all(map(is_, parts, value)) else tuple(parts)
    return node.changed(new)


def in_epoch_of(node: Node[Any], epoch: Any) -> dict[str, Any]:
    """Return the fields that change if an op is in another epoch; none if it has no epoch."""
    before = getattr(node, "epoch", None) if "epoch" in names_by(type(node)) else None
    return {} if before is None else {"epoch": _folded(before, epoch)}


def _folded(before: Any, epoch: Any) -> Any:
    """Fold two epochs, each an int or a jax array, traced or not, into one number.

    Epochs may be inside epochs, and lanes inside an epoch.
    """
    if isinstance(before, int) and isinstance(epoch, int):
        # one word: a trace has no more, and there epoch 2**32 would be epoch 0
        low = (before * _FOLD + epoch) % 2**32
        return low | ((before >> 32) * _FOLD + (epoch >> 32)) % 2**32 << 32
    if any(isinstance(number, int) and number >> 32 for number in (before, epoch)):
        raise ValueError(
            f"epochs that jax traces have 32 bits, and one of {before!r} and {epoch!r} has more: "
            f"give ints below 2**32."
        )
    outer, inner = (
        np.array([number], np.uint32) if isinstance(number, int) else number.astype(np.uint32)
        for number in (before, epoch)
    )
    return (outer * np.uint32(_FOLD) + inner).reshape(
        np.broadcast_shapes(*map(np.shape, (before, epoch)))
    )
