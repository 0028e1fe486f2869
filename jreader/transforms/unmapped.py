"""Plans without their maps: the rows that functions of samples read."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from jreader.readers import Node, Reader
from jreader.readers.nodes import declares, field_names, unrolled
from jreader.readers.rewriting import parts_changed
from jreader.transforms.sample_rng import keyed


def without_maps(reader: Reader[Any], *, keys: bool = True) -> Reader[Any]:
    """The plan without the ops that make one sample of each, which do not change its order.

    >>> from jreader import arrays, map_readers, shuffle
    >>> without_maps(shuffle(map_readers(abs, arrays([3, 4])), seed=1))
    shuffle(arrays(int64[2]), seed=1)

    Args:
        reader: Any reader.
        keys: Whether to leave out the keys of random maps, too; they stay below a random op, whose
            order depends on how many there are.
    """
    bare: Reader[Any] = unrolled(_without_maps, (reader, keys))
    return bare


def _without_maps(asked: tuple[Any, bool]) -> Generator[Any, Any, Any]:
    reader, keys = asked
    while isinstance(reader, Node) and _is_map(reader, keys):
        (reader,) = reader.input_readers
    if not isinstance(reader, Node) or reader.pinned:
        return reader
    keys = keys and "seed" not in field_names(reader)
    return (yield from parts_changed(reader, {}, lambda up: (up, keys)))


def _is_map(node: Node[Any], keys: bool) -> bool:
    """Whether an op makes one sample of each; with `keys`, also if it is a key of a random map."""
    one_for_one = declares(node, "in_cursor") and node.in_cursor == "never"
    one_for_one = one_for_one and getattr(node, "on_error", "raise") == "raise"
    return (one_for_one or (keys and isinstance(node, keyed))) and len(node.input_readers) == 1
