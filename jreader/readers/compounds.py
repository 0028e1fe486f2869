"""Planes made of planes: of readers side by side (`compose`), or one after another (`chain`).

Columns that are arrays become columns that are arrays. Other columns make their rows when they are
asked for, and only a row shows its structure and dtype (a tuple, which `compose` flattens, say), so
rows are combined when they are made (`SideBySide`, `Several`). Columns know neither seeds nor
epochs: only routes order samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from jreader.readers.joined_columns import Joined, found, parted, share_starts
from jreader.readers.messages import described
from jreader.readers.planes import (
    ENDLESS,
    Array,
    Gathering,
    Indices,
    Placed,
    Plane,
    SideBySide,
    begins,
    flattened,
    one_by_one,
)
from jreader.readers.ragged import Ragged, ragged_end_to_end
from jreader.readers.stacked_rows import STACKED
from jreader.readers.trees import (
    Columns,
    branches,
    leaves,
    map_tree,
    rebuilt,
    same_structure,
)


def beside(planes: Sequence[Plane]) -> Plane:
    """One plane for planes side by side, whose tuples are flattened into one, as in `compose`."""
    columns = [plane.columns for plane in planes]
    opaque = any(isinstance(each, SideBySide) or _opaque(each) for each in columns)
    return Plane(
        SideBySide(tuple(columns)) if opaque else flattened(columns),
        min(plane.length for plane in planes),
        lambda indices: [rows for plane in planes for rows in plane.route(indices)],
        blocks=_common_blocks(planes),
    )


def _common_blocks(planes: Sequence[Plane]) -> Array | None:
    """Where blocks begin side by side: at the same samples, or without any in some planes."""
    known = [plane.blocks for plane in planes if plane.blocks is not None]
    length = min(plane.length for plane in planes)
    if not known or any(plane.blocks is None and in_blocks(plane.columns) for plane in planes):
        return None
    if any(not np.array_equal(known[0], other) for other in known[1:]):
        return None
    return known[0][: max(int(known[0].searchsorted(length)), 1)]


def in_blocks(columns: Any) -> bool:
    """Whether a column is read in blocks."""
    return any(hasattr(column, "block_starts") for column in leaves(columns))


def end_to_end(planes: Sequence[Plane]) -> Plane | None:
    """One plane for planes one after another; None if structure, dtype or shape differ."""
    if len(planes) == 1:
        return planes[0]
    members = Members.of(planes)
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
    return Plane(members.columns, length, route, straight=members.straight, blocks=blocks)


@dataclass(frozen=True, eq=False)
class Members:
    """Several planes, and columns that hold the rows of all: an order may go from one to another.

    Attributes:
        columns: A tree of columns.
        planes: The planes.
        shifts: For each column, where the rows of each plane begin in it.
        straight: Whether the samples of the planes, one plane after another, are the rows in order.
    """

    columns: Any
    planes: Sequence[Plane]
    shifts: Sequence[Sequence[int]]
    straight: bool

    @classmethod
    def of(cls, planes: Sequence[Plane]) -> Members | None:
        """Planes as members of one; None if structure, dtype or shape differ."""
        first = leaves(planes[0].columns)
        for plane in planes[1:]:
            if not same_structure(planes[0].columns, plane.columns):
                return None
            if not all(map(_alike, first, leaves(plane.columns))):
                return None
        parts = list(zip(*(leaves(plane.columns) for plane in planes), strict=True))
        columns, shifts = zip(*map(_end_to_end, parts), strict=True)
        share_starts(columns)
        straight = all(plane.straight for plane in planes) and not any(map(_one, parts))
        return cls(rebuilt(planes[0].columns, iter(columns)), planes, shifts, straight)

    def rows(self, which: Indices, local: Indices) -> list[Indices]:
        """For each column, the rows of samples `local` of the planes of numbers `which`."""
        if self.straight:
            asarray, shifts = local.__array_namespace__().asarray, list(map(tuple, self.shifts))
            rows = {shift: local + asarray(shift)[which] for shift in set(shifts)}
            return [rows[shift] for shift in shifts]
        if isinstance(local, np.ndarray):
            return routed_by_member(which, local, self._routed, len(self.shifts))
        namespace = local.__array_namespace__()
        selected: list[Indices] = []
        for number, plane in enumerate(self.planes):  # a trace has all planes route all samples
            if plane.length:  # an order of nothing cannot be traced
                mine = which == number
                routed = self._routed(number, namespace.where(mine, local, 0))
                here = [
                    mine.reshape(*mine.shape, *[1] * (rows.ndim - mine.ndim)) for rows in routed
                ]
                selected = list(map(namespace.where, here, routed, selected or routed))
        return selected or [local] * len(self.shifts)

    def _routed(self, number: int, local: Indices) -> list[Indices]:
        routed, shifts = self.planes[number].route(local), [each[number] for each in self.shifts]
        if len({*shifts}) == 1 and all(rows is routed[0] for rows in routed):
            return [routed[0] + shifts[0]] * len(shifts)
        return [rows + shift for rows, shift in zip(routed, shifts, strict=True)]


def routed_by_member(
    which: Array, local: Array, member: Callable[[int, Array], list[Array]], columns: int
) -> list[Array]:
    """For each column, the rows of samples `local` of members `which`, routed by each member."""
    given = [(here, member(number, local[here])) for number, here in parted(which)]
    same = all(rows is routed[0] for _, routed in given for rows in routed)
    out: list[Array] = []
    for here, routed in given:
        distinct = routed[:1] if same else routed  # columns with the same rows share one array
        out = out or [np.empty((len(local), *rows.shape[1:]), local.dtype) for rows in distinct]
        for rows, some in zip(out, distinct, strict=True):
            rows[here] = some
    return out * (columns if same else 1) or [np.empty_like(local)] * columns


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
        return gathered_by_part(self.parts, *found(self.starts, rows))

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to a device: what each of the columns has there.

        Raises:
            ValueError: A column makes its rows when they are asked for.
        """
        trees, rows_of_parts = placed_parts(self.parts)

        def rows_of(placed: Any, rows: Indices) -> Any:
            namespace = rows.__array_namespace__()
            starts = namespace.asarray(self.starts)
            which = namespace.searchsorted(starts, rows, side="right") - 1
            return rows_of_parts(placed, which, rows - starts[which])

        return trees, rows_of


def gathered_by_part(parts: Sequence[Any], which: Array, local: Array) -> Any:
    """Rows of several columns stacked, if they are alike; otherwise as a list of samples."""
    given = [
        (here, Gathering(parts[number], len(which))([local[here]]))
        for number, here in parted(which)
    ]
    if not given:
        return []
    if len(given) == 1:
        ((_, only),) = given
        return only.columns if isinstance(only, Columns) else only
    if _stackable([each for _, each in given]):
        return _stacked(given, len(which))
    samples: list[Any] = [None] * len(which)
    for here, each in given:
        for index, sample in zip(here.tolist(), each, strict=True):
            samples[index] = sample
    return samples


def _stacked(parts: list[tuple[Array, Any]], many: int) -> Any:
    first = parts[0][1].columns
    columns = [np.empty((many, *leaf.shape[1:]), leaf.dtype) for leaf in leaves(first)]
    for here, given in parts:
        for column, leaf in zip(columns, leaves(given.columns), strict=True):
            column[here] = leaf
    return rebuilt(first, iter(columns))


def placed_parts(
    parts: Sequence[Any],
) -> tuple[tuple[Any, ...], Callable[[Any, Indices, Indices], Any]]:
    """What goes to a device of several columns, and how rows of all are gathered there.

    Raises:
        ValueError: A column makes its rows when they are asked for.
    """
    for part in parts:
        if not isinstance(part, Placed):
            raise ValueError(  # noqa: TRY004  # a reader that `as_function` cannot take
                f"{described(part)} makes its rows when they are asked for, and a device needs "
                f"columns that fit on it as a whole: use .load(...)."
            )
    trees, ways = zip(*(part.placed() for part in parts), strict=True)

    def rows_of(placed: Any, which: Indices, local: Indices) -> Any:
        """All columns give a row for each, and the right ones are selected."""
        namespace = local.__array_namespace__()
        chosen: Any = None
        for number, (way, tree) in enumerate(zip(ways, placed, strict=True)):
            mine = which == number
            given = way(tree, namespace.where(mine, local, 0))
            chosen = given if chosen is None else map_tree(partial(_where, mine), given, chosen)
        return chosen

    return trees, rows_of


def _where(mine: Indices, rows: Indices, others: Indices) -> Indices:
    here = mine.reshape(*mine.shape, *[1] * (rows.ndim - mine.ndim))
    return rows.__array_namespace__().where(here, rows, others)


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
    if isinstance(column, STACKED) or isinstance(other, STACKED):
        alike = type(column) is type(other) and column.size == other.size
        return alike and _alike(column.column, other.column)
    if getattr(column, "in_pairs", False) or getattr(other, "in_pairs", False):
        return (
            column is other
        )  # beside rows that are one number each, there is no one array of rows
    if _opaque(column) or _opaque(other):
        return True
    return bool(column.dtype == other.dtype and column.shape[1:] == other.shape[1:])


def _opaque(column: Any) -> bool:
    """Whether only the rows of a column show their structure and dtype."""
    if isinstance(column, STACKED):
        return _opaque(column.column)
    return branches(column) is None and not isinstance(column, (np.ndarray, Joined, Ragged))


def makes_rows(column: Any) -> bool:
    """Whether a tree of columns is one column that makes whole samples when they are asked for."""
    return _opaque(column) and not isinstance(column, (SideBySide, *STACKED))


def _one(column: Sequence[Any]) -> bool:
    """Whether all members gather from one and the same column."""
    return all(map(is_, column, [column[0]] * len(column)))


def _end_to_end(column: Sequence[Any]) -> tuple[Any, list[int]]:
    """The columns of all members as one, and where the rows of each begin in it."""
    if isinstance(column[0], STACKED):
        together, shift = _end_to_end([each.column for each in column])
        return column[0].over(together), shift
    if _one(column):
        return column[0], [0] * len(column)
    shift = begins([len(part) for part in column])
    if all(hasattr(part, "block_starts") for part in column):
        return column[0].end_to_end(column), shift
    if any(map(_opaque, column)):
        return Several(column), shift
    if isinstance(column[0], Ragged):
        return ragged_end_to_end(column), shift
    return Joined(column), shift
