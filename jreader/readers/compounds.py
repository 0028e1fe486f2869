"""Planes made of planes: of readers side by side (`compose`), or one after another (`chain`).

Columns that are arrays become columns that are arrays. Other columns make their rows when they are
asked for, and only a row shows its structure and dtype (a tuple, which `compose` flattens, say), so
rows are combined when they are made (`SideBySide`, `Several`). Columns know neither seeds nor
epochs: only routes order samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any

import numpy as np

from jreader.readers.planes import (
    ENDLESS,
    Array,
    Gathering,
    Indices,
    Joined,
    Plane,
    SideBySide,
    begins,
    flattened,
    found,
    one_by_one,
    parted,
)
from jreader.readers.trees import Columns, branches, leaves, rebuilt, same_structure


def beside(planes: Sequence[Plane]) -> Plane:
    """One plane for planes side by side, whose tuples are flattened into one, as in `compose`."""
    columns = [plane.columns for plane in planes]
    opaque = any(isinstance(each, SideBySide) or _opaque(each) for each in columns)
    return Plane(
        SideBySide(tuple(columns)) if opaque else flattened(columns),
        min(plane.length for plane in planes),
        lambda indices: [rows for plane in planes for rows in plane.route(indices)],
    )


def end_to_end(planes: Sequence[Plane]) -> Plane | None:
    """One plane for planes one after another; None if structure, dtype or shape differ."""
    if len(planes) == 1:
        return planes[0]
    first = leaves(planes[0].columns)
    for plane in planes[1:]:
        if not same_structure(planes[0].columns, plane.columns):
            return None
        if not all(map(_alike, first, leaves(plane.columns))):
            return None
    parts = list(zip(*(leaves(plane.columns) for plane in planes), strict=True))
    columns = list(map(_end_to_end, parts))
    shift = [
        [0] * len(planes) if _one(column) else begins([len(part) for part in column])
        for column in parts
    ]
    starts = begins([plane.length for plane in planes])
    length = min(starts[-1] + planes[-1].length, ENDLESS)
    straight = all(plane.straight for plane in planes) and not any(map(_one, parts))

    def member(number: int, indices: Indices) -> list[Indices]:
        routed = planes[number].route(indices)
        return [rows + shift[column][number] for column, rows in enumerate(routed)]

    def route(indices: Indices) -> list[Indices]:
        if straight:
            return [indices] * len(parts)
        namespace = indices.__array_namespace__()
        ends = [start for start in starts[1:] if start < ENDLESS]
        which = namespace.searchsorted(namespace.asarray(ends), indices, side="right")
        local = indices - namespace.asarray(starts[: len(ends) + 1])[which]
        sizes = [plane.length for plane in planes[: len(ends) + 1]]
        if isinstance(indices, np.ndarray):
            return dealt(which, local, member, len(parts))
        return _selected(which, local, member, sizes, len(parts))

    tree = rebuilt(planes[0].columns, iter(columns))
    return Plane(tree, length, route, straight=straight)


def dealt(
    which: Array, local: Array, member: Callable[[int, Array], list[Array]], columns: int
) -> list[Array]:
    """For each column, the rows of samples `local` of members `which`, routed by each member."""
    out = [np.empty_like(local) for _ in range(columns)]
    for number, here in parted(which):
        for rows, routed in zip(out, member(number, local[here]), strict=True):
            rows[here] = routed
    return out


def _selected(
    which: Indices,
    local: Indices,
    member: Callable[[int, Indices], list[Indices]],
    sizes: Sequence[int],
    columns: int,
) -> list[Indices]:
    """As `dealt`, in a trace: each member routes all samples, and the right rows are selected."""
    namespace = local.__array_namespace__()
    routed = [local] * columns
    for number, size in enumerate(sizes):
        if size:  # an order of nothing cannot be traced
            mine = which == number
            rows = member(number, namespace.where(mine, local, 0))
            routed = [namespace.where(mine, *pair) for pair in zip(rows, routed, strict=True)]
    return routed


class Several:
    """Columns end to end, as one column whose rows are made by the column that they belong to."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts: list[Any] = []
        for part in parts:
            self.parts += part.parts if isinstance(part, (Joined, Several)) else [part]
        self.starts = np.array(begins([len(part) for part in self.parts]))

    def __len__(self) -> int:
        return int(min(self.starts[-1] + len(self.parts[-1]), ENDLESS))

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows in order; each column is asked once, for all of its own."""
        which, local = found(self.starts, rows)
        streams = {
            number: one_by_one(self.parts[number], local[here]) for number, here in parted(which)
        }
        for number in which.tolist():
            yield next(streams[number])

    def gather(self, rows: Array) -> Any:
        """The rows stacked, if those of all columns are alike; otherwise as a list of samples."""
        which, local = found(self.starts, rows)
        parts = [
            (here, Gathering(self.parts[number], len(rows))([local[here]]))
            for number, here in parted(which)
        ]
        if len(parts) == 1:
            ((_, only),) = parts
            return only.columns if isinstance(only, Columns) else only
        if _stackable([given for _, given in parts]):
            return self._stacked(parts, len(rows))
        samples: list[Any] = [None] * len(rows)
        for here, given in parts:
            for index, sample in zip(here.tolist(), given, strict=True):
                samples[index] = sample
        return samples

    @staticmethod
    def _stacked(parts: list[tuple[Array, Any]], many: int) -> Any:
        first = parts[0][1].columns
        columns = [np.empty((many, *leaf.shape[1:]), leaf.dtype) for leaf in leaves(first)]
        for here, given in parts:
            for column, leaf in zip(columns, leaves(given.columns), strict=True):
                column[here] = leaf
        return rebuilt(first, iter(columns))


def _stackable(parts: Sequence[Any]) -> bool:
    """Whether batches can be stacked to one: their arrays are alike, column by column."""
    if not all(isinstance(part, Columns) for part in parts):
        return False
    first = parts[0].columns
    return all(
        same_structure(first, part.columns) and all(map(_fit, leaves(first), leaves(part.columns)))
        for part in parts
    )


def _fit(leaf: Any, other: Any) -> bool:
    both = isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray)
    return both and leaf.dtype == other.dtype and leaf.shape[1:] == other.shape[1:]


def _alike(column: Any, other: Any) -> bool:
    """Whether two columns make one: their rows fit into one array, or are made when asked for."""
    if _opaque(column) or _opaque(other):
        return True
    return bool(column.dtype == other.dtype and column.shape[1:] == other.shape[1:])


def _opaque(column: Any) -> bool:
    """Whether only the rows of a column show their structure and dtype."""
    return branches(column) is None and not isinstance(column, (np.ndarray, Joined))


def _one(column: Sequence[Any]) -> bool:
    """Whether all members gather from one and the same column."""
    return all(map(is_, column, [column[0]] * len(column)))


def _end_to_end(column: Sequence[Any]) -> Any:
    """The columns of all members as one."""
    if _one(column):
        return column[0]
    return Several(column) if any(map(_opaque, column)) else Joined(column)
