"""What the rules ask of plans: their ops, lengths that cost nothing, the first samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from jreader import transforms
from jreader.batches import batch, map_batches
from jreader.readers import Node, Reader, indexed, leaves, length, start
from jreader.readers.nodes import lazy_length, ops_of, unit_of
from jreader.readers.seeds import seeded
from jreader.readers.trees import Columns
from jreader.transforms import chain, compose, flat_map, interleave, map_readers
from jreader.transforms.sample_rng import keyed
from jreader.workers import fetch_batches, map_samples, xmap_readers

TOGETHER = 64
"""Samples of a map that are read to time its function."""
_MAPS = (map_readers, map_samples, xmap_readers)


@dataclass(frozen=True)
class Fed:
    """A plan, and what a loader makes of it.

    Attributes:
        plan: The reader of the samples or batches.
        axes: How many leading axes of a feed count samples.
        loses: Whether a short last batch is left out by default.
        keeps: Whether a short last batch is handed on as it is.
        first: Gives the first feed on the host; None where there is no loader.
        shapes: Gives the shapes of all feeds of an epoch.
        shared: Whether several processes feed parts of each batch.
    """

    plan: Reader[Any]
    axes: int = 1
    loses: bool = False
    keeps: bool = False
    first: Callable[[], Any] | None = None
    shapes: Callable[[], list[Any]] | None = None
    shared: bool = False

    @cached_property
    def mapped(self) -> list[tuple[Call, list[Any]]]:
        """The maps of one reader that draw no numbers, and the first samples of that reader.

        Their functions may be called once more.
        """
        calls = [call_of(op) for op in ops_of(self.plan) if not getattr(op, "rng", False)]
        return [
            (call, peeked(*call.op.input_readers, most=TOGETHER))
            for call in calls
            if call and isinstance(call.op, _MAPS) and len(call.op.input_readers) == 1
        ]


def of_batches(reader: Reader[Any]) -> bool:
    """Whether a reader says that it gives batches."""
    return unit_of(reader) == "batches"


def one_for_one(op: Node[Any]) -> bool:
    """Whether each item of an op is made of one of its reader, or is that, in whatever order."""
    return bool(op.from_reader) or op.in_cursor == "never" or isinstance(op, (batch, keyed))


def mixes(op: Node[Any]) -> bool:
    """Whether the items of an op are those of its readers, taken together."""
    return isinstance(op, (chain, compose, interleave))


def known_length(reader: Reader[Any]) -> int | None:
    """The length of a plan, where it is there without reading or computing an order; else None."""
    every = ops_of(reader)
    if lazy_length(reader) or not all(
        one_for_one(op) or mixes(op) or not op.input_readers for op in every
    ):
        return None
    try:
        return length(reader)
    except Exception:  # of a user's __len__: whoever needs it will see it
        return None


Stage: TypeAlias = Literal["map", "map_batches", "source"]
Workers: TypeAlias = Literal["", "threads", "processes", "executor"]


class Call(NamedTuple):
    """What an op calls for each of its items, and who does it.

    Attributes:
        op: The op.
        argument: The name of its argument that is a function.
        stage: "map" and "map_batches" are a user's functions, of samples and of batches; "source"
            is the one by which a data set is read.
        by: "threads", "processes" or "executor"; "" for the thread that draws.
        workers: How many do it.
    """

    op: Node[Any]
    argument: str
    stage: Stage
    by: Workers
    workers: int

    @property
    def function(self) -> Callable[..., Any]:
        """The function."""
        found: Callable[..., Any] = getattr(self.op, self.argument)
        return found


_FUNCTIONS: dict[type, tuple[str, Stage]] = {
    map_readers: ("func", "map"),
    map_samples: ("fn", "map"),
    xmap_readers: ("mapper", "map"),
    transforms.filter: ("fn", "map"),
    flat_map: ("fn", "map"),
    map_batches: ("fn", "map_batches"),
    fetch_batches: ("mapper", "source"),
}


def call_of(op: Node[Any]) -> Call | None:
    """The function that an op calls for each item, and on what; None if it calls none."""
    if isinstance(op, transforms.filter) and op.whole:  # it looks up what it has learnt
        return None
    found = next((each for kind, each in _FUNCTIONS.items() if isinstance(op, kind)), None)
    return None if found is None else Call(op, *found, *_workers(op))


def _workers(op: Node[Any]) -> tuple[Workers, int]:
    given: dict[Workers, int] = {}
    if isinstance(op, map_samples):
        given["executor"] = 0 if op.executor is None else op.concurrency or 1
    if isinstance(op, (map_samples, map_batches)):
        given |= {"processes": op.processes, "threads": op.threads}
    elif isinstance(op, xmap_readers):
        given["threads"] = op.process_num
    elif isinstance(op, fetch_batches):
        given["processes"] = op.process_num
    return next(((by, many) for by, many in given.items() if many), ("", 1))


def last_function(reader: Reader[Any]) -> Call | None:
    """What the last op calls that makes samples by a user's function; None if there is none."""
    calls = map(call_of, ops_of(reader))
    made = (
        c for c in calls if c and c.stage != "source" and not isinstance(c.op, transforms.filter)
    )
    return next(made, None)


def prefixes(reader: Reader[Any]) -> Iterator[Reader[Any]]:
    """The plan, what it maps, what that maps, and so on, down to where samples are made."""
    yield reader
    while (
        isinstance(reader, Node) and one_for_one(reader) and len(ups := reader.input_readers) == 1
    ):
        (reader,) = ups
        yield reader


def peeked(reader: Reader[Any], most: int = 1) -> list[Any]:
    """The first items of a reader, by a pass of its own."""
    with closing(start(reader)) as some:
        return list(islice(some.items, most))


def gathered_columns(reader: Reader[Any]) -> list[Any]:
    """The arrays that an indexed plan gathers from, without reading any; [] for another one."""
    *_, source = prefixes(reader)
    plane = None if lazy_length(source) else indexed(seeded(source, 0))
    every = leaves(plane.columns) if plane else []
    return [each for each in every if hasattr(each, "dtype") and getattr(each, "shape", None)]


def sample_leaves(reader: Reader[Any]) -> list[Any]:
    """The leaves of the first sample of a reader, or of the first of its first batch."""
    for item in peeked(reader):
        batched = isinstance(item, Columns) or of_batches(reader)
        return leaves(item[0]) if batched and len(item) else leaves(item)
    return []
