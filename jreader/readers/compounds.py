"""Planes made of planes: those of readers side by side, and one after another.

Columns of arrays become columns of arrays. Others make their rows when they are asked for, and only
rows tell what they are (tuples, which `compose` lays into one; other structures, other dtypes):
these are put together when they are there (`SideBySide`, `Several`). Columns know neither seeds nor
epochs, whatever they are: an order is a matter of the route.
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
    """Planes side by side, as `compose` flattens samples: tuples are laid into the row."""
    columns = [plane.columns for plane in planes]
    opaque = any(isinstance(each, SideBySide) or _opaque(each) for each in columns)
    return Plane(
        SideBySide(tuple(columns)) if opaque else flattened(columns),
        min(plane.length for plane in planes),
        lambda indices: [rows for plane in planes for rows in plane.route(indices)],
    )


def end_to_end(planes: Sequence[Plane]) -> Plane | None:
    """Planes one after another; None where arrays differ in structure, dtype or shape."""
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
    """Rows of sample `local` of member `which`, for each column: each member routes its own."""
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
    """The same in a trace, which asks every member for all, and selects."""
    namespace = local.__array_namespace__()
    routed = [local] * columns
    for number, size in enumerate(sizes):
        if size:  # an order of nothing cannot be traced
            mine = which == number
            rows = member(number, namespace.where(mine, local, 0))
            routed = [namespace.where(mine, *pair) for pair in zip(rows, routed, strict=True)]
    return routed


class Several:
    """Columns end to end as one that makes its rows, each made by the column that it is of."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts: list[Any] = []
        for part in parts:
            self.parts += part.parts if isinstance(part, (Joined, Several)) else [part]
        self.starts = np.array(begins([len(part) for part in self.parts]))

    def __len__(self) -> int:
        return int(min(self.starts[-1] + len(self.parts[-1]), ENDLESS))

    def each(self, rows: Array) -> Iterator[Any]:
        """In their order, although each column is asked for all of its own."""
        which, local = found(self.starts, rows)
        streams = {
            number: one_by_one(self.parts[number], local[here]) for number, here in parted(which)
        }
        for number in which.tolist():
            yield next(streams[number])

    def gather(self, rows: Array) -> Any:
        """Stacked, if what the columns give is alike; otherwise a list of samples."""
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
    """Whether batches make one: of arrays that are alike, column by column."""
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
    """Whether they make one column: rows of both fit into one array, or are made when asked for."""
    if _opaque(column) or _opaque(other):
        return True
    return bool(column.dtype == other.dtype and column.shape[1:] == other.shape[1:])


def _opaque(column: Any) -> bool:
    """Whether only its rows tell what they are."""
    return branches(column) is None and not isinstance(column, (np.ndarray, Joined))


def _one(column: Sequence[Any]) -> bool:
    """Whether all members gather from one and the same column."""
    return all(map(is_, column, [column[0]] * len(column)))


def _end_to_end(column: Sequence[Any]) -> Any:
    """The columns of all members as one."""
    if _one(column):
        return column[0]
    return Several(column) if any(map(_opaque, column)) else Joined(column)
