"""What the rules ask of plans: their ops, lengths that cost nothing, the first samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jreader.batches import batch, map_batches
from jreader.readers import Node, Reader, indexed, leaves, length, origin, start
from jreader.readers.nodes import inputs, unread
from jreader.readers.seeds import seeded
from jreader.readers.trees import Columns
from jreader.transforms import chain, compose, firstn, interleave, map_readers
from jreader.transforms.sample_rng import keyed
from jreader.workers import map_samples, xmap_readers


@dataclass(frozen=True)
class Fed:
    """A plan, and what a loader makes of it.

    Attributes:
        plan: The reader of the samples or batches.
        axes: How many leading axes of a feed count samples.
        loses: Whether a short last batch is left out although nobody said so.
        keeps: Whether a short last batch is handed on as it is.
        first: Gives the first feed on the host; None where there is no loader.
        shapes: Gives the shapes of all feeds of an epoch, likewise.
    """

    plan: Reader[Any]
    axes: int = 1
    loses: bool = False
    keeps: bool = False
    first: Callable[[], Any] | None = None
    shapes: Callable[[], list[Any]] | None = None


def nodes(reader: Reader[Any]) -> Iterator[Node[Any]]:
    """The ops of a plan, from its last one down to its sources.

    >>> from jreader import batch, shuffle
    >>> [type(op).__name__ for op in nodes(batch(shuffle(lambda: "abc", 3), 2))]
    ['batch', 'shuffle']
    """
    if isinstance(reader, Node):
        yield reader
        for part in inputs(reader):
            yield from nodes(part)


def of_batches(reader: Reader[Any]) -> bool:
    """Whether a reader says that it gives batches."""
    return getattr(origin(reader, "all", "some"), "unit", "samples") == "batches"


def is_mapped(op: Node[Any]) -> bool:
    """Whether each item of an op is made of one of its reader, or is that, in whatever order."""
    return bool(op.from_reader) or op.in_cursor == "never" or isinstance(op, (batch, keyed))


def mixes(op: Node[Any]) -> bool:
    """Whether the items of an op are those of its readers, taken together."""
    return isinstance(op, (chain, compose, interleave))


def known_length(reader: Reader[Any]) -> int | None:
    """The length of a plan, where it is there without reading or computing an order; else None."""
    every = nodes(reader)
    if unread(reader) or not all(is_mapped(op) or mixes(op) or not [*inputs(op)] for op in every):
        return None
    try:
        return length(reader)
    except Exception:  # of a user's __len__: whoever needs it will see it
        return None


def function_of(op: Node[Any]) -> Callable[..., Any] | None:
    """The user's function of an op that maps the items of one reader; else None."""
    if isinstance(op, map_readers):
        return op.func if len(op.readers) == 1 else None
    if isinstance(op, xmap_readers):
        return op.mapper
    return op.fn if isinstance(op, (map_samples, map_batches)) else None


def last_function(reader: Reader[Any]) -> Node[Any] | None:
    """The last op that calls a function; None if there is none."""
    return next((op for op in nodes(reader) if function_of(op) is not None), None)


def prefixes(reader: Reader[Any]) -> Iterator[Reader[Any]]:
    """The plan, what it maps, what that maps, and so on, down to where samples are made."""
    yield reader
    while isinstance(reader, Node) and is_mapped(reader) and len(ups := [*inputs(reader)]) == 1:
        (reader,) = ups
        yield reader


def peeked(reader: Reader[Any], most: int = 1) -> list[Any]:
    """The first items of a reader, by a pass of its own."""
    some = start(firstn(reader, most))
    try:
        return list(some.items)
    finally:
        some.close()


def columns_of(reader: Reader[Any]) -> list[Any]:
    """The arrays that an indexed plan gathers from, without reading any; [] for another one."""
    *_, source = prefixes(reader)
    plane = None if unread(source) else indexed(seeded(source, 0))
    every = leaves(plane.columns) if plane else []
    return [each for each in every if hasattr(each, "dtype") and getattr(each, "shape", None)]


def sample_leaves(reader: Reader[Any]) -> list[Any]:
    """The leaves of the first sample of a reader, or of the first of its first batch."""
    for item in peeked(reader):
        batched = isinstance(item, Columns) or of_batches(reader)
        return leaves(item[0]) if batched and len(item) else leaves(item)
    return []
