"""Plans changed: a copy with other fields, or other ops, that shares all the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jreader.readers.nodes import Node, Reader, field_names

T = TypeVar("T")


def rewritten(
    reader: Reader[T], change: Callable[[Node[Any]], Mapping[str, Any] | Node[Any]]
) -> Reader[T]:
    """The same plan with some fields changed, or whole ops; unchanged parts are shared."""
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
