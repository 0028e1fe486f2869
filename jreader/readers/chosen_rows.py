"""Columns whose rows come in any order from one or another, and say from which.

Columns that make whole samples cannot be given one more field, and those of packed rows are so long
that several of them end to end are beyond 32 bits. So a row is a pair: its number in a column, and
the number of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jreader.readers.compounds import gathered_by_part, placed_parts
from jreader.readers.joined_columns import parted
from jreader.readers.messages import described
from jreader.readers.planes import Array, Indices, one_by_one


class Chosen:
    """Columns whose rows stand in any order in one: each row says of which column it is.

    Its rows have two axes: `route` gives the row in a column, and the number of the column. So
    the columns may be as long as they like, also in a trace of 32 bits, and samples that are dicts
    may say which column they come from.

    >>> class Squares:
    ...     def __len__(self):
    ...         return 9
    ...     def gather(self, rows):
    ...         return {"n": rows**2}
    >>> Chosen([Squares(), Squares()], "of").gather(np.array([[2, 0], [3, 1]]))
    {'n': array([4, 9]), 'of': array([0, 1], dtype=int32)}

    Args:
        parts: The columns.
        name: A field to add, of the number of the column; None for no such field.
    """

    in_pairs = True
    """Whether a row is two numbers."""

    def __init__(self, parts: Sequence[Any], name: str | None = None) -> None:
        self.parts, self.name = parts, name
        self._longest = max(len(parts), *map(len, parts))

    def __len__(self) -> int:
        """What rows are checked against."""
        return self._longest

    def __repr__(self) -> str:
        return " or ".join(map(described, self.parts))

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows in order; each column is asked once, for all of its own."""
        local, which = rows[:, 0], rows[:, 1]
        streams = {
            number: one_by_one(self.parts[number], local[here]) for number, here in parted(which)
        }
        return (self._named(next(streams[number]), np.int32(number)) for number in which.tolist())

    def gather(self, rows: Array) -> Any:
        """The rows stacked, if those of all columns are alike; otherwise as a list of samples."""
        which = rows[:, 1]
        given = gathered_by_part(self.parts, which, rows[:, 0])
        if isinstance(given, list):
            return [
                self._named(sample, number)
                for sample, number in zip(given, which.astype(np.int32), strict=True)
            ]
        return self._named(given, which.astype(np.int32))

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to a device: what each of the columns has there.

        Raises:
            ValueError: A column makes its rows when they are asked for.
        """
        trees, rows_of_parts = placed_parts(self.parts)

        def rows_of(placed: Any, rows: Indices) -> Any:
            local, which = rows[:, 0], rows[:, 1]
            return self._named(rows_of_parts(placed, which, local), which.astype(np.int32))

        return trees, rows_of

    def _named(self, sample: Any, number: Any) -> Any:
        return sample if self.name is None else with_field(sample, self.name, number)


def with_field(sample: Any, name: str, number: Any) -> dict[Any, Any]:
    """A sample, or columns of samples, with one more field.

    Raises:
        TypeError: It has no named fields.
        ValueError: It has one of that name.
    """
    if not isinstance(sample, Mapping):
        raise TypeError(
            f"source={name!r} of mix adds a field to samples that are dicts, not "
            f"{described(sample)}: name their fields, as arrays(x=...) does, or leave source out."
        )
    if name in sample:
        raise ValueError(
            f"source={name!r} of mix adds a field, and samples have one of that name: give another "
            f"name."
        )
    return {**sample, name: number}
