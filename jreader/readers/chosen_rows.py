"""Columns whose rows come in any order from one or another, and say from which.

Columns that make whole samples cannot be given one more field, and those of packed rows are so long
that several of them end to end are beyond 32 bits. So a row is a pair: its number in a column, and
the number of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Indices
from jreader.readers.joined_columns import EndToEnd
from jreader.readers.messages import described


class Chosen(EndToEnd):
    """Columns whose rows stand in any order in one: each row says of which column it is.

    Its rows have two axes: `route` gives the row in a column, and the number of the column. So
    the columns may be as long as they like, also in a trace of 32 bits, and samples that are dicts
    may say which column they come from.

    >>> from jreader.readers.columns import Column
    >>> class Squares(Column):
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

    def __init__(self, parts: Sequence[Any], name: str | None = None) -> None:
        self.parts, self.name = list(parts), name
        self.form = self  # its pairs are of no other column
        self._longest = max(len(parts), *map(len, parts))

    def __len__(self) -> int:
        """What rows are checked against."""
        return self._longest

    def __repr__(self) -> str:
        return " or ".join(map(described, self.parts))

    def found(self, rows: Indices) -> tuple[Indices, Indices]:
        """The number of the column of each row, and the row there."""
        return rows[:, 1], rows[:, 0]

    _found_in_trace = found

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows in order, each with the field."""
        numbers = rows[:, 1].astype(np.int32)
        return map(self._named, super().each(rows), numbers)

    def gather(self, rows: Array) -> Any:
        """The rows stacked, if those of all columns are alike; otherwise as a list of samples."""
        given, numbers = super().gather(rows), rows[:, 1].astype(np.int32)
        if isinstance(given, list):
            return list(map(self._named, given, numbers))
        return self._named(given, numbers)

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What each of the columns has on a device; the field is what the rows say."""
        trees, rows_of_parts = super().placed()

        def rows_of(placed: Any, rows: Indices) -> Any:
            return self._named(rows_of_parts(placed, rows), rows[:, 1].astype(np.int32))

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
