"""Samples as a user names them: by number, in a source or a file, or by their place in files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from jreader.loaders.queries.provenance import as_users_know
from jreader.readers import Reader, described, indexed, leaves
from jreader.readers.columns import Array, Column, Where, column_of
from jreader.readers.compounds import source_begins
from jreader.readers.planes import Plane
from jreader.readers.trees import named_leaves
from jreader.transforms import cache, chain, interleave, mix


@dataclass(frozen=True)
class AskedRows:
    """Samples of a source.

    Attributes:
        indices: Their numbers; or a `Where`, or several, as `Samples.files` has them.
        source: The source that counts them, if a plan has several: the name or the number of a
            reader, or the path of a file. None for all sources, one after another.
        field: The field whose source is meant, if fields come from several; None for the first.
        call: The call, as errors show it.
    """

    indices: Any
    source: str | int | None = None
    field: str | int | None = None
    call: str = "loader.where(indices)"

    def found(self, reader: Reader[Any], plane: Plane) -> tuple[Array, int, int]:
        """Return the numbers of the samples, the shift to a column's rows, and its number.

        Args:
            reader: The plan.
            plane: Its plane.

        Raises:
            TypeError: The indices are not ints.
            ValueError: There is no such source, field or file.
            IndexError: There is no such sample.
        """
        names = [name for name, _ in named_leaves(as_users_know(plane.columns))]
        field = names[0] if self.field is None else self.field
        found = [n for n, name in enumerate(names) if f"{name}.".startswith(f"{field}.")]
        if not found:
            raise ValueError(f"{self.call} has field={field!r}, and the fields are {names}.")
        number, *_ = found
        column = column_of(leaves(plane.columns)[number]).source
        numbers = self._numbers(column)
        first, end = (0, len(column)) if self.source is None else self._span(reader, number, column)
        for beyond in numbers[(numbers < 0) | (numbers >= end - first)].tolist():
            where = "the source" if self.source is None else f"source {self.source!r}"
            raise IndexError(
                f"{self.call} has the number {beyond}, and {where} has {end - first:,} samples "
                "(over windows and packs: documents)."
            )
        return numbers, first, number

    def _numbers(self, column: Column) -> Array:
        """Return the numbers as an array; for a `Where`, the row of the column that is there."""
        places = [self.indices] if isinstance(self.indices, Where) else self.indices
        if isinstance(places, list) and places and isinstance(places[0], Where):
            places = [_row_at(column, *where) for where in places]
        try:
            numbers = np.atleast_1d(np.asarray(places))
        except ValueError:  # lists of several lengths
            numbers = np.zeros((0, 0))
        if numbers.ndim > 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise TypeError(
                f"{self.call} needs the number of a sample, or a list or an array of numbers, not "
                f"{described(self.indices)}."
            )
        return numbers.astype(np.int64)

    def _span(self, reader: Reader[Any], number: int, column: Column) -> tuple[int, int]:
        """Return where the rows of the source begin and end in a column."""
        op = _joined(reader)
        several = op.readers if isinstance(op, (mix, chain, interleave)) else ()
        names = [str(name) for name in getattr(op, "names", None) or range(len(several))]
        if str(self.source) in names:
            columns = [leaves(cast("Plane", indexed(each)).columns)[number] for each in several]
            which = names.index(str(self.source))
            first = source_begins(columns)[which]
            return first, first + len(column_of(columns[which]).source)
        in_files = column.where(np.arange(min(len(column), 1))) is not None
        if isinstance(self.source, (str, PathLike)) and (in_files or not names):
            return _span_of_file(column, self.source)
        raise ValueError(
            f"{self.call} has source={self.source!r}, and the plan has {names or 'one source'}: "
            "name one of these, or a file."
        )


def _joined(reader: Any) -> Any:
    """Return the op whose rows a plan selects or reorders; a cache on disk has its own rows."""
    while getattr(reader, "from_reader", "") in ("all", "some"):
        in_memory = isinstance(reader, cache)
        if in_memory and reader.path is not None:
            break
        reader = reader.settled if in_memory else reader.reader
    return reader


def _row_at(column: Column, path: str, offset: int) -> int:
    """Return the row of a column that contains a byte of a file."""
    low, high = _span_of_file(column, path)
    return low - 1 + bisect_right(range(low, high), offset, key=lambda row: _at(column, row).offset)


def _span_of_file(column: Column, path: str | PathLike[str]) -> tuple[int, int]:
    """Return the first row of a column that is in a file, and the row after the last one.

    It passes files one by one: growing steps, and then halving, find where each ends.

    Raises:
        ValueError: No row is in the file.
    """
    low, end, wanted = 0, len(column), Path(path).resolve()
    while low < end:
        here, step = _at(column, low).path, 1
        while low + step < end and _at(column, low + step).path == here:
            step *= 2
        near = range(low + step // 2, min(low + step, end))
        inside = partial(_in_another_file, column, here)
        high = near.start + bisect_left(near, 1, key=inside)
        if Path(here).resolve() == wanted:
            return low, high
        low = high
    raise ValueError(
        f"no sample of {described(column)} lies in {str(path)!r}: name a file of the plan, as "
        f"loader.samples(0).files does."
    )


def _in_another_file(column: Column, path: str, row: int) -> bool:
    return _at(column, row).path != path


def _at(column: Column, row: int) -> Where:
    """Return where a row lies.

    Raises:
        ValueError: It is in no file, or its place is unknown.
    """
    places = column.where(np.array([row]))
    if places is None:
        raise ValueError(
            f"{described(column)} does not say in which files its rows lie: give their numbers, "
            f"counted through all files."
        )
    return places[0]
