"""Samples removed from a run: their rows of a batch stay empty, under a mask.

All other samples keep their places, so a step without removed samples is unchanged. Damaged or
deleted samples are never read: a neighbour is read instead, and is not yielded. Packed rows stay,
with padding in place of removed documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jreader.readers import Columns, Plane, leaves, map_tree, rebuilt
from jreader.readers.columns import Array, Column, column_of
from jreader.readers.hashing import text_hash
from jreader.readers.trees import Rows

_MAX_NAMED = 8  # more are named by a hash
_AHEAD = 1 << 16  # places of an endless plan to search at a time


@dataclass(frozen=True, eq=False)
class Removed:
    """Removed samples, by the rows of one column or several.

    Attributes:
        rows: The rows of removed samples by column index, sorted and unique.
    """

    rows: dict[int, Array]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def __str__(self) -> str:
        """Return the text that identifies them in cursors: the numbers of a few, else a hash."""
        every = [
            (column, each) for column in sorted(self.rows) for each in self.rows[column].tolist()
        ]
        named = [each for _, each in every] if len(self) <= _MAX_NAMED else text_hash(every)
        return f"{len(self)} samples, {named}"

    def hidden(self, plane: Plane) -> Plane:
        """Return the plane with removed documents padded, in columns that can pad."""
        columns = leaves(plane.columns)
        for number, column in self._with_padding(plane).items():
            columns[number] = column
        return replace(plane, columns=rebuilt(plane.columns, iter(columns)))

    def _with_padding(self, plane: Plane) -> dict[int, Column]:
        """Return those columns, by index."""
        columns = leaves(plane.columns)
        made = {
            number: column_of(columns[number]).without(rows)
            for number, rows in self.rows.items()
            if len(rows)
        }
        return {number: column for number, column in made.items() if column is not None}

    def place_finder(self, plane: Plane) -> Callable[[int, int], Array]:
        """Return a function that finds the fully hidden places between two places of a plan."""
        until, held = 0, np.zeros(0, np.int64)
        whole = self.rows.keys() - self._with_padding(plane).keys()

        def between(low: int, high: int) -> Array:
            nonlocal until, held
            if high > until:
                end = min(2 * high + _AHEAD, plane.length)
                found = [plane.holding(self.rows[each], end, each).index for each in whole]
                held = np.unique(np.concatenate([held[:0], *found]))
                until = end  # last, since another thread may call this
            return held[held.searchsorted(low) : held.searchsorted(high)]

        return between


def without_rows(made: Columns[Any], gone: Array) -> Columns[Any]:
    """Drop the rows marked in `gone` from a batch; the others keep their places."""
    rows = np.flatnonzero(~gone)
    shown = rows if len(rows) else np.zeros(1, int)  # if none is left, one shows the shapes
    kept = made.having(
        map_tree(lambda column: None if column is None else column[shown], made.columns)
        if made.stacked
        else Rows([made[row] for row in shown.tolist()])
    )
    kept.valid = rows if made.valid is None else made.valid[rows]
    return kept
