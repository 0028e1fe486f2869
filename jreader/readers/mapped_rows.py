"""Maps over indexed readers: which rows they read, and in which order.

A map makes one sample from each, wherever it is. So `shuffle(map(f, rows))` has the samples of
`map(f, shuffle(rows))`, but only the second calls `f` just for samples that are handed over. Passes
begin with the second (`maps_last`), and a process that feeds only some rows of each batch maps only
those (`MappedRows.over`). The plan itself stays as it was written: its cursors and digests are
those of earlier releases, whose positions are read as they were written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jreader.readers.nodes import Node, Reader, declares, plane_of, with_reader
from jreader.readers.overrides import op_stands_for
from jreader.readers.seeds import seeded_below

T = TypeVar("T")


class MappedRows(NamedTuple):
    """The samples of a plan, as functions of indexed rows.

    Attributes:
        rows: The rows, in the order of the plan: an indexed reader.
        maps: The ops that make a sample from each, in order; none if rows are samples.
    """

    rows: Reader[Any]
    maps: tuple[Node[Any], ...]

    def under(self, op: Node[Any]) -> MappedRows | None:
        """Return the samples of an op that reads these; None if it needs the results of maps."""
        if op.moves == "samples" and (self.maps or not op.from_reader):
            is_pipeline = op.wrapped() is not None  # it only adds methods
            return self if is_pipeline else self._replace(maps=(*self.maps, op))
        moved = op.over_rows(self.rows)
        if moved is None:
            return None if self.maps else self._replace(rows=op)
        if seeded_below(moved) != seeded_below(op):  # its order would change
            return None
        if op.moves == "keys":
            return MappedRows(moved, tuple(each.beside_key() for each in self.maps))
        return self._replace(rows=moved)

    def over(self, rows: Reader[Any]) -> Reader[Any]:
        """Return the samples that the maps make from these rows."""
        for op in self.maps:
            rows = with_reader(op, rows)
        return rows


def mapped_rows(reader: Reader[Any]) -> MappedRows | None:
    """Return the rows that a plan maps, in the order of its samples; None if they must be read.

    >>> from jreader import arrays, map_readers, shuffle
    >>> found = mapped_rows(shuffle(map_readers(abs, arrays([3, 4])), seed=1))
    >>> found.rows, len(found.maps)
    (shuffle(arrays(int64[2]), seed=1), 1)
    """
    if isinstance(reader, Node) and plane_of(reader) is not None:
        return MappedRows(reader, ())
    above: list[Node[Any]] = []
    while isinstance(reader, Node) and _one_for_one(reader):
        above.append(reader)
        (reader,) = reader.input_readers
    found: MappedRows | None = MappedRows(reader, ())
    while found and above:
        found = found.under(above.pop())
    if found is None or plane_of(found.rows) is None:
        return None
    return found if lookup_of(found.over(found.rows)) is not None else None


def _one_for_one(op: Node[Any]) -> bool:
    """Return whether an op commutes as its `moves` says, and reads one reader."""
    kept = op_stands_for(type(op), "moves", "start", "plane", "lookup", "__call__", "__iter__")
    return kept and bool(op.moves) and len(op.input_readers) == 1


def maps_last(reader: Reader[T]) -> Reader[T] | None:
    """Return the same samples from a plan that reorders rows before it maps; None if it does.

    >>> from jreader import arrays, map_readers, shuffle
    >>> maps_last(shuffle(map_readers(abs, arrays([3, 4])), seed=1))
    map_readers(abs, shuffle(arrays(int64[2]), seed=1))
    """
    found = mapped_rows(reader) if _reorders_maps(reader) else None
    return found.over(found.rows) if found and found.maps else None


def _reorders_maps(reader: Reader[Any]) -> bool:
    """Return whether an op reorders the results of a map below: only the plan decides that."""
    reorders = False
    while isinstance(reader, Node) and reader.moves and len(reader.input_readers) == 1:
        if reader.moves == "samples" and not reader.from_reader:
            return reorders
        reorders = reorders or reader.moves == "rows"
        (reader,) = reader.input_readers
    return False


def lookup_of(reader: Reader[T]) -> Callable[[int], T] | None:
    """Return a function that finds a sample by its index; None if samples must be read to be found.

    >>> from jreader import arrays, map_readers, shuffle
    >>> find = lookup_of(map_readers(float, shuffle(arrays([10, 20, 30]), seed=0)))
    >>> find(2), find(0), lookup_of(lambda: "abc")
    (10.0, 20.0, None)
    """
    plane = plane_of(reader)
    if plane is not None:
        return plane.nth
    found = (
        reader.lookup() if isinstance(reader, Node) and declares(type(reader), "lookup") else None
    )
    if found is None and (mapped := maps_last(reader)) is not None:
        return lookup_of(mapped)
    return found
