"""Samples taken out of a run: the rows of batches that hold them stay empty, under a mask.

All others keep their places, so a step that holds none of them is what it was. What is damaged, or
deleted, is not read: a sample near it is read in its place, and not handed over. Packed rows stay,
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

_MAX_NAMED = 8  # samples that a cursor names one by one
_AHEAD = 1 << 16  # places of a plan without an end that are searched at once


@dataclass(frozen=True, eq=False)
class Removed:
    """Samples by the rows of a column, or several such columns.

    Attributes:
        rows: For each column, by its number, the rows of removed samples: sorted, each once.
    """

    rows: dict[int, Array]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def __str__(self) -> str:
        """What cursors name them by: the numbers of a few, of many a hash."""
        every = [
            (column, each) for column in sorted(self.rows) for each in self.rows[column].tolist()
        ]
        named = [each for _, each in every] if len(self) <= _MAX_NAMED else text_hash(every)
        return f"{len(self)} samples, {named}"

    def hidden(self, plane: Plane) -> Plane:
        """The plane with padding in place of removed documents, in columns that have padding."""
        columns = leaves(plane.columns)
        for number, column in self._with_padding(plane).items():
            columns[number] = column
        return replace(plane, columns=rebuilt(plane.columns, iter(columns)))

    def _with_padding(self, plane: Plane) -> dict[int, Column]:
        """These columns by their numbers."""
        columns = leaves(plane.columns)
        made = {
            number: column_of(columns[number]).without(rows)
            for number, rows in self.rows.items()
            if len(rows)
        }
        return {number: column for number, column in made.items() if column is not None}

    def place_finder(self, plane: Plane) -> Callable[[int, int], Array]:
        """A function that gives the places between two of a plan that are hidden whole."""
        until, held = 0, np.zeros(0, np.int64)
        whole = self.rows.keys() - self._with_padding(plane).keys()

        def between(low: int, high: int) -> Array:
            nonlocal until, held
            if high > until:
                end = min(2 * high + _AHEAD, plane.length)
                found = [plane.holding(self.rows[each], end, each).index for each in whole]
                held = np.unique(np.concatenate([held[:0], *found]))
                until = end  # last, since another thread may ask
            return held[held.searchsorted(low) : held.searchsorted(high)]

        return between


def without_rows(made: Columns[Any], gone: Array) -> Columns[Any]:
    """The rows of a batch that are not gone, at the places that they have in it."""
    rows = np.flatnonzero(~gone)
    shown = rows if len(rows) else np.zeros(1, int)  # without any, one shows the shapes
    kept = made.having(
        map_tree(lambda column: None if column is None else column[shown], made.columns)
        if made.stacked
        else Rows([made[row] for row in shown.tolist()])
    )
    kept.valid = rows if made.valid is None else made.valid[rows]
    return kept
