"""Planes made of planes: of readers side by side (`compose`), or end to end (`chain`).

Array columns become array columns. Other columns make their rows on access, and only a row shows
its structure and dtype (such as a tuple, which `compose` flattens). So those rows are combined when
they are made (`SideBySide`, `ConcatColumn`). Columns know neither seeds nor epochs: only routes
order samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Column, Indices, column_of
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS, begins, by_part, concat_columns, share_starts
from jreader.readers.planes import Plane, SideBySide, flattened
from jreader.readers.stacked_rows import StackedRows
from jreader.readers.trees import leaves, rebuilt, same_structure


def zip_planes(planes: Sequence[Plane]) -> Plane:
    """Return one plane for planes side by side, with flattened tuples, as in `compose`."""
    columns = [plane.columns for plane in planes]
    numbers = [(plane, number) for plane in planes for number in range(len(leaves(plane.columns)))]

    def held(column: int, rows: Array, end: int) -> Held:
        plane, number = numbers[column]
        return plane.holding(rows, end, number)

    return Plane(
        SideBySide(tuple(columns)) if any(map(_makes_rows, columns)) else flattened(columns),
        min(plane.length for plane in planes),
        lambda indices: [rows for plane in planes for rows in plane.route(indices)],
        blocks=_common_blocks(planes),
        held=held,
    )


def _common_blocks(planes: Sequence[Plane]) -> Array | None:
    """Return the block starts of planes side by side, if they agree; some planes may lack them."""
    known = [plane.blocks for plane in planes if plane.blocks is not None]
    length = min(plane.length for plane in planes)
    if not known or any(plane.blocks is None and in_blocks(plane.columns) for plane in planes):
        return None
    if any(not np.array_equal(known[0], other) for other in known[1:]):
        return None
    return known[0][: max(int(known[0].searchsorted(length)), 1)]


def in_blocks(columns: Any) -> bool:
    """Return whether any column is read in blocks."""
    return any(column_of(column).block_starts is not None for column in leaves(columns))


def concat_planes(planes: Sequence[Plane]) -> Plane | None:
    """Return one plane for planes end to end; None if structure, dtype or shape differ."""
    if len(planes) == 1:
        return planes[0]
    members = MemberPlanes.of(planes)
    if members is None:
        return None
    starts = begins([plane.length for plane in planes])
    length = min(starts[-1] + planes[-1].length, ENDLESS)
    reached = [start for start in starts[1:] if start < ENDLESS]

    def route(indices: Indices) -> list[Indices]:
        if members.straight:
            return [indices] * len(members.shifts)
        namespace = indices.__array_namespace__()
        which = namespace.searchsorted(namespace.asarray(reached), indices, side="right")
        return members.rows(which, indices - namespace.asarray([0, *reached])[which])

    firsts = [
        plane.blocks + start
        for plane, start in zip(planes, starts, strict=True)
        if plane.blocks is not None
    ]
    blocks = np.concatenate(firsts) if len(firsts) == len(planes) else None

    def held(column: int, rows: Array, end: int) -> Held:
        ends = [end - start for start in starts]
        return members.held(column, rows, ends, lambda number, local: local + starts[number])

    return Plane(
        members.columns, length, route, straight=members.straight, blocks=blocks, held=held
    )


@dataclass(frozen=True, eq=False)
class MemberPlanes:
    """Several planes, and columns that hold the rows of all: an order may alternate between them.

    Attributes:
        columns: A tree of columns.
        planes: The planes.
        shifts: For each column, where the rows of each plane begin in it.
        straight: Whether the samples of the planes, end to end, are the rows in order.
    """

    columns: Any
    planes: Sequence[Plane]
    shifts: Sequence[Sequence[int]]
    straight: bool

    @classmethod
    def of(cls, planes: Sequence[Plane]) -> MemberPlanes | None:
        """Join planes as members; None if structure, dtype or shape differ."""
        first = leaves(planes[0].columns)
        for plane in planes[1:]:
            if not same_structure(planes[0].columns, plane.columns):
                return None
            if not all(map(_can_concat, first, leaves(plane.columns))):
                return None
        parts = list(zip(*(leaves(plane.columns) for plane in planes), strict=True))
        columns, shifts = zip(*map(_concat, parts), strict=True)
        share_starts(columns)
        straight = all(plane.straight for plane in planes) and not any(map(_all_same, parts))
        return cls(rebuilt(planes[0].columns, iter(columns)), planes, shifts, straight)

    def rows(self, which: Indices, local: Indices) -> list[Indices]:
        """Return, for each column, the rows of samples `local` of the planes `which`."""
        if self.straight:
            asarray, shifts = local.__array_namespace__().asarray, list(map(tuple, self.shifts))
            rows = {shift: local + asarray(shift)[which] for shift in set(shifts)}
            return [rows[shift] for shift in shifts]
        if isinstance(local, np.ndarray):
            return routed_by_member(which, local, self._routed, len(self.shifts))
        namespace = local.__array_namespace__()
        selected: list[Indices] = []
        for number, plane in enumerate(self.planes):  # in a trace, all planes route all samples
            if plane.length:  # an empty order cannot be traced
                mine = which == number
                routed = self._routed(number, namespace.where(mine, local, 0))
                here = [
                    mine.reshape(*mine.shape, *[1] * (rows.ndim - mine.ndim)) for rows in routed
                ]
                selected = list(map(namespace.where, here, routed, selected or routed))
        return selected or [local] * len(self.shifts)

    def held(
        self,
        column: int,
        rows: Array,
        ends: Sequence[int],
        index: Callable[[int, Array], Array],
    ) -> Held:
        """Return the samples that hold rows of a column, numbered through all sources.

        Args:
            column: The number of the column.
            rows: The rows.
            ends: The sample of each plane to stop at.
            index: Maps the number of a plane, and samples of it, to places in the order.
        """
        starts = source_begins([leaves(plane.columns)[column] for plane in self.planes])
        asked = np.arange(len(rows))
        members = by_part(np.searchsorted(starts, rows, "right") - 1)
        if not any(starts):  # all gather from one column, or only one has rows
            members = ((number, asked) for number in range(len(self.planes)))
        parts = []
        for number, here in members:
            local = self.planes[number].holding(rows[here] - starts[number], ends[number], column)
            row = asked[here][local.asked]
            parts.append(replace(local, asked=row, index=index(number, local.index)))
        return Held.joined(parts)

    def _routed(self, number: int, local: Indices) -> list[Indices]:
        routed, shifts = self.planes[number].route(local), [each[number] for each in self.shifts]
        if len({*shifts}) == 1 and all(rows is routed[0] for rows in routed):
            return [routed[0] + shifts[0]] * len(shifts)
        return [rows + shift for rows, shift in zip(routed, shifts, strict=True)]


def routed_by_member(
    which: Array, local: Array, member: Callable[[int, Array], list[Array]], columns: int
) -> list[Array]:
    """Return, for each column, the rows of samples `local` of members `which`, routed by each."""
    given = [(here, member(number, local[here])) for number, here in by_part(which)]
    given = given or [(slice(None), member(0, local))]  # no rows, but in the right form
    same = all(rows is routed[0] for _, routed in given for rows in routed)
    out: list[Array] = []
    for here, routed in given:
        distinct = routed[:1] if same else routed  # columns with equal rows share one array
        out = out or [np.empty((len(local), *rows.shape[1:]), local.dtype) for rows in distinct]
        for rows, some in zip(out, distinct, strict=True):
            rows[here] = some
    return out * (columns if same else 1)


def _can_concat(column: Any, other: Any) -> bool:
    """Return whether two columns can be joined: their rows fit one array, or are made on access."""
    one, two = column_of(column), column_of(other)
    return one.form == two.form and (None in (one.kind, two.kind) or one.kind == two.kind)


def _makes_rows(columns: Any) -> bool:
    """Return whether only the rows of a tree of columns show their structure."""
    return isinstance(columns, SideBySide) or (isinstance(columns, Column) and columns.kind is None)


def makes_samples(columns: Any) -> bool:
    """Return whether a tree is one column that makes whole samples, found by plain numbers."""
    return isinstance(columns, Column) and columns.kind is None and columns.form is None


def source_begins(columns: Sequence[Any]) -> list[int]:
    """Return where the source rows of each column begin, numbered through all of them."""
    every = list(map(column_of, columns))
    while isinstance(every[0], StackedRows):
        columns = [each.column for each in every if isinstance(each, StackedRows)]
        every = list(map(column_of, columns))
    return [0] * len(every) if _all_same(columns) else begins([len(each.source) for each in every])


def _all_same(column: Sequence[Any]) -> bool:
    """Return whether all members gather from the same column."""
    return all(map(is_, column, [column[0]] * len(column)))


def _concat(columns: Sequence[Any]) -> tuple[Any, list[int]]:
    """Return the columns of all members as one, and where each member's rows begin in it."""
    first = columns[0]
    if isinstance(first, StackedRows):
        together, shift = _concat([each.column for each in columns])
        return first.of_column(together), shift
    if _all_same(columns):
        return first, [0] * len(columns)
    return concat_columns(columns), begins(list(map(len, columns)))
