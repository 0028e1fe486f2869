"""Best-fit decreasing over the histogram of lengths: how many rows there are of which lengths.

The work grows with the number of *different* lengths, not with that of documents: all documents of
one length are placed at once. Histogram packing: Krell et al. 2021, "Efficient Sequence Packing
without Cross-contamination".
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple, TypeAlias

import numpy as np

from jreader.readers.columns import Array

_Runs: TypeAlias = "tuple[_Runs, int, int] | None"
"""What a row holds: what it held before, and a length with how often it came on top."""


class Strategies(NamedTuple):
    """Kinds of rows, by the lengths that they hold.

    Attributes:
        rows: The number of rows of each strategy.
        slots: The number of slots in a row of each strategy.
        lengths: The length of each slot, strategy after strategy.
    """

    rows: Array
    slots: Array
    lengths: Array


def best_fit(histogram: Array) -> Strategies:
    """Packs as many documents of each length as the histogram says, long ones first.

    >>> found = best_fit(np.array([0, 3, 0, 2, 1]))  # 1, 1, 1, 3, 3 and 4 tokens, in rows of 4
    >>> found.rows.tolist(), found.slots.tolist(), found.lengths.tolist()
    ([1, 2, 1], [1, 2, 1], [4, 3, 1, 1])

    Args:
        histogram: The number of documents of each length, from 0 to the size of a row.
    """
    size = len(histogram) - 1
    open_rows: dict[int, list[tuple[int, _Runs]]] = {}  # by room that is left
    rooms: list[int] = []  # in which rows are open, sorted

    def put(room: int, rows: int, runs: _Runs) -> None:
        if not open_rows.setdefault(room, []):
            insort(rooms, room)
        open_rows[room].append((rows, runs))

    for length in np.flatnonzero(histogram)[::-1].tolist():
        left = int(histogram[length]) if length else 0
        while left:
            found = bisect_left(rooms, length)
            if found < len(rooms):
                room = rooms[found]
                rows, runs = open_rows[room].pop()
                if not open_rows[room]:
                    del rooms[found]
            else:
                room, rows, runs = size, left, None  # new rows, as many as are needed
            each = min(room // length, left)
            taken = min(rows, left // each)
            put(room - each * length, taken, (runs, length, each))
            if rows > taken and room < size:
                put(room, rows - taken, runs)
            left -= taken * each
    return _flattened([kind for room in sorted(open_rows) for kind in open_rows[room]])


def _flattened(kinds: list[tuple[int, _Runs]]) -> Strategies:
    """Strategies as arrays; the lengths of a row are in the order in which they came."""
    lengths: list[int] = []
    times: list[int] = []
    slots: list[int] = []
    for _, runs in kinds:
        begun, left = len(times), runs
        while left:
            left, length, each = left
            lengths.append(length)
            times.append(each)
        lengths[begun:], times[begun:] = lengths[begun:][::-1], times[begun:][::-1]
        slots.append(sum(times[begun:]))
    return Strategies(
        np.array([rows for rows, _ in kinds], np.int64),
        np.array(slots, np.int64),
        np.repeat(np.array(lengths, np.int64), np.array(times, np.int64)),
    )
