"""Inspect plans for rules: their ops, lengths that are free to compute, and first samples."""

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
"""Samples to read to time the function of a map."""
_MAPS = (map_readers, map_samples, xmap_readers)


@dataclass(frozen=True)
class Fed:
    """A plan, and how a loader feeds it.

    Attributes:
        plan: The reader of the samples or batches.
        axes: How many leading axes of a feed count samples.
        loses: Whether a short last batch is dropped by default.
        keeps: Whether a short last batch is fed as it is.
        first: Returns the first feed on the host; None if there is no loader.
        shapes: Returns the shapes of all feeds of an epoch.
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
        """The maps of one reader without random numbers, and the first samples of that reader.

        Their functions may be called again.
        """
        calls = [call_of(op) for op in ops_of(self.plan) if not getattr(op, "rng", False)]
        return [
            (call, peeked(*call.op.input_readers, most=TOGETHER))
            for call in calls
            if call and isinstance(call.op, _MAPS) and len(call.op.input_readers) == 1
        ]


def of_batches(reader: Reader[Any]) -> bool:
    """Return whether a reader declares that it yields batches."""
    return unit_of(reader) == "batches"


def one_for_one(op: Node[Any]) -> bool:
    """Return whether each item comes from a single item of the op's reader, in any order."""
    return bool(op.from_reader) or op.in_cursor == "never" or isinstance(op, (batch, keyed))


def mixes(op: Node[Any]) -> bool:
    """Return whether an op combines the items of its readers."""
    return isinstance(op, (chain, compose, interleave))


def known_length(reader: Reader[Any]) -> int | None:
    """Return the length of a plan, if that needs no reading or ordering; else None."""
    every = ops_of(reader)
    if lazy_length(reader) or not all(
        one_for_one(op) or mixes(op) or not op.input_readers for op in every
    ):
        return None
    try:
        return length(reader)
    except Exception:  # of a user's __len__: the user sees it where the length is needed
        return None


Stage: TypeAlias = Literal["map", "map_batches", "source"]
Workers: TypeAlias = Literal["", "threads", "processes", "executor"]


class Call(NamedTuple):
    """The function that an op calls for each item, and what runs it.

    Attributes:
        op: The op.
        argument: The name of the op's argument that is the function.
        stage: "map" and "map_batches" for a user's functions of samples and of batches; "source"
            for the function that reads a data set.
        by: "threads", "processes" or "executor"; "" for the thread that reads.
        workers: The number of workers.
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
    """Return the function that an op calls per item, and its workers; None if it calls none."""
    if isinstance(op, transforms.filter) and op.whole:  # it looks up stored bits
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
    """Return the last call of a user's function that makes samples; None if there is none."""
    calls = map(call_of, ops_of(reader))
    made = (
        c for c in calls if c and c.stage != "source" and not isinstance(c.op, transforms.filter)
    )
    return next(made, None)


def prefixes(reader: Reader[Any]) -> Iterator[Reader[Any]]:
    """Yield the plan, the reader that it maps, and so on, down to where samples are made."""
    yield reader
    while (
        isinstance(reader, Node) and one_for_one(reader) and len(ups := reader.input_readers) == 1
    ):
        (reader,) = ups
        yield reader


def peeked(reader: Reader[Any], most: int = 1) -> list[Any]:
    """Return the first items of a reader, from a separate pass."""
    with closing(start(reader)) as some:
        return list(islice(some.items, most))


def gathered_columns(reader: Reader[Any]) -> list[Any]:
    """Return the arrays that an indexed plan gathers from, without reading; [] for other plans."""
    *_, source = prefixes(reader)
    plane = None if lazy_length(source) else indexed(seeded(source, 0))
    every = leaves(plane.columns) if plane else []
    return [each for each in every if hasattr(each, "dtype") and getattr(each, "shape", None)]


def sample_leaves(reader: Reader[Any]) -> list[Any]:
    """Return the leaves of the first sample of a reader, or of its first batch."""
    for item in peeked(reader):
        batched = isinstance(item, Columns) or of_batches(reader)
        return leaves(item[0]) if batched and len(item) else leaves(item)
    return []
