"""Pack rows with several bounds: a length for each field, or a number of documents.

Documents are sorted by the largest share of a row that any of their fields takes. Each goes into
the row with the least room left, among those in which all of its fields fit: best-fit decreasing
over vectors (Panigrahy et al. 2011, "Heuristics for Vector Bin Packing"). Documents whose lengths
are equal in all fields are placed together, and change places from variant to variant.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from jreader.progress import Bar
from jreader.readers.columns import Array
from jreader.readers.holders import Held
from jreader.transforms.packing.document_fields import Documents
from jreader.transforms.packing.whole_documents import (
    Longer,
    Runs,
    Side,
    Strategies,
    WholeDocuments,
    pieces_of,
    strategies_of,
)

_OPEN = 4096  # kinds of open rows to search for each length; beyond that, the fullest is closed
_ROW = 1 << 32  # units of a full row
_FULL = 1 << 62  # more than any room


class BoundedDocuments(WholeDocuments):
    """Assigns documents to slots, as `WholeDocuments` does, in rows with several bounds.

    Args:
        documents: The documents.
        size: Tokens per row; an array by field, if fields have their own lengths.
        longer: What to do with longer documents: not "split".
        cut: On which side to truncate them.
        most: The most documents in a row; None for no limit.
    """

    def __init__(
        self, documents: Documents, size: Any, longer: Longer, *, cut: Side, most: int | None
    ) -> None:
        self.packed, self._size = documents, size
        self._fronts = longer == "truncate" and cut == "left"
        found = [lengths for _, lengths, _ in pieces_of(documents, size, longer)]
        lengths = np.concatenate([documents.lengths(0, 0), *found])
        fields = lengths if lengths.ndim > 1 else lengths[:, None]
        order = np.lexsort(fields.T[::-1])
        order = order[fields[order].any(1)]
        begins = np.flatnonzero(np.diff(fields[order], axis=0, prepend=-1).any(1))
        counts = np.diff([*begins, len(order)])
        needs, room = fields[order[begins]], np.atleast_1d(size)
        if most is not None:
            needs = np.insert(needs, needs.shape[1], 1, 1)
            room = np.append(room, most)
        self._deal(best_fit_of_several(needs, counts, room), lengths[order[begins]], counts)
        self._sorted = order.astype(np.uint32)

    def _placed(self, documents: Held) -> tuple[Held, Array, Array]:
        """Return the kept documents, the kind of each, and its place among those of its kind."""
        rank = self._ranks[documents.index]
        kept = rank >= 0
        rank, first = rank[kept], self.tables["first document"]
        number = first.searchsorted(rank, "right") - 1
        return documents.taken(kept), number, rank - first[number]

    @cached_property
    def _ranks(self) -> Array:
        """The place of each document in the order by length; -1 if it is dropped."""
        ranks = np.full(self.packed.count, -1)
        ranks[self._sorted] = np.arange(len(self._sorted))
        return ranks


def best_fit_of_several(needs: Array, counts: Array, room: Array) -> Strategies:
    """Pack documents that need room in several dimensions, those with the largest share first.

    >>> needs = np.array([[3, 1], [1, 4], [2, 2]])
    >>> found = best_fit_of_several(needs, np.array([2, 2, 1]), np.array([4, 5]))
    >>> found.rows.tolist(), found.slots.tolist(), found.lengths.tolist()
    ([2, 1], [2, 1], [1, 0, 2])

    Args:
        needs: The needs of each kind of documents: [kinds, dimensions], none of them all 0.
        counts: The number of documents of each kind.
        room: The capacity of a row: [dimensions].

    Returns:
        The kinds of rows; their `lengths` are kinds of documents.
    """
    weights = _ROW // room
    shares = needs * weights
    width = min(_OPEN, int(counts.sum()))
    left = np.zeros((len(room), width), np.int64)  # the room left in each open row, by dimension
    free = np.full(width, _FULL)  # its sum in units of a full row
    opened: list[tuple[int, Runs]] = []
    closed: list[tuple[int, Runs]] = []

    def put(at: int, rows: int, runs: Runs, rest: Array) -> None:
        """Put rows at a place, or at a new one, closing the fullest kind if necessary."""
        if at == width:
            at = int(free.argmin())
            closed.append(opened[at])
        opened[at : at + 1] = [(rows, runs)]
        left[:, at], free[at] = rest, rest @ weights

    with Bar("fitting packs", int(counts.sum()), " documents") as bar:
        for kind in (-shares.max(1)).argsort(kind="stable").tolist():
            need, many = needs[kind], int(counts[kind])
            some = need > 0
            bar.add(many)
            while many:
                open_rows = len(opened)
                fits = (left[:, :open_rows] >= need[:, None]).all(0)
                best = np.where(fits, free[:open_rows], _FULL)
                at, rows, runs, there = open_rows, many, None, room  # new rows, if no open row fits
                if open_rows and best[found := int(best.argmin())] < _FULL:
                    at, there = found, left[:, found].copy()
                    rows, runs = opened[at]
                each = min(int((there[some] // need[some]).min()), many) if many > 1 else 1
                taken = min(rows, many // each)
                if rows > taken and at < open_rows:
                    opened[at] = rows - taken, runs
                    at = open_rows
                put(at, taken, (runs, kind, each), there - each * need)
                many -= taken * each
    return strategies_of(closed + opened)
