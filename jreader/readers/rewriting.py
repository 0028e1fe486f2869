"""Plans changed: a copy with other fields, or other ops, that shares all the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jreader.readers.nodes import Node, Reader, field_names

T = TypeVar("T")


def rewritten(
    reader: Reader[T], change: Callable[[Node[Any]], Mapping[str, Any] | Node[Any]]
) -> Reader[T]:
    """A plan with other fields, or other ops, that shares all parts that do not change.

    Args:
        reader: Any reader; a plain function stays as it is.
        change: Takes an op of the plan, the topmost first. Returns the fields that change (an empty
            mapping for none), or another op to put in its place.
    """
    if not isinstance(reader, Node):
        return reader
    changed = change(reader)
    if isinstance(changed, Node):
        return changed
    new = dict(changed)
    if reader.pinned:
        return reader.changed(new)
    for name, value in [(name, getattr(reader, name)) for name in field_names(reader)]:
        if isinstance(value, Node):
            new[name] = rewritten(value, change)
        elif isinstance(value, tuple) and any(isinstance(part, Node) for part in value):
            new[name] = tuple(rewritten(part, change) for part in value)
            if all(map(lambda a, b: a is b, new[name], value)):
                new[name] = value
    return reader.changed(new)
