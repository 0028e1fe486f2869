"""Columns whose rows differ in length: values end to end, and where each row begins.

Documents of tokens, point clouds and time series are stored like this, in files and in memory. The
offsets give the length of every row before one is read, so an op can compute which rows go together
(`pack`, `bucket`), and stay arithmetic on indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np

from jreader.readers.columns import Array, ArrayColumn, Column, Where, array_column, run_begins
from jreader.readers.joined_columns import ConcatArray, concat_columns
from jreader.readers.nodes import Reader, plane_of, readers_below
from jreader.readers.planes import Plane
from jreader.readers.protected import read_only
from jreader.readers.trees import branches, leaves

_ROWS_PER_LOOKUP = 1 << 20  # rows whose lengths are read per call


class Ragged(Column):
    """A column whose row i is `values[offsets[i]:offsets[i + 1]]`.

    >>> words = Ragged(np.arange(6), np.array([0, 3, 3, 6]))
    >>> len(words), words.lengths().tolist(), words.gather(np.array([2, 1]))
    (3, [3, 0, 3], [array([3, 4, 5]), array([], dtype=int64)])

    Args:
        values: The values of all rows, end to end along the first axis: an array, a memory map, or
            several of them as `ConcatArray`.
        offsets: Where each row begins, and where the last one ends: ascending ints, one more than
            there are rows.
    """

    stacks = False

    def __init__(self, values: Any, offsets: Array) -> None:
        self.values, self.offsets = read_only(values), offsets
        self.dtype = values.dtype
        self.shape = (len(offsets) - 1, None, *values.shape[1:])
        self.ndim = len(self.shape)
        self.kind, self.tables = (self.dtype, self.shape[1:]), (offsets,)
        self._column = column = array_column(self.values)
        self.arrays, self.late = column.arrays, column.late
        self.at_once = max(column.at_once * len(self) // max(len(values), 1), 1)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, rows: Array | None = None) -> Array:
        """Return the number of values of these rows; of all rows, if None."""
        if rows is None:
            return np.diff(self.offsets)
        lengths: Array = self.offsets[rows + 1] - self.offsets[rows]
        return lengths

    @cached_property
    def digest(self) -> str:
        """A hash of the lengths of all rows, whatever their dtype; takes some 5 ns per row."""
        made = blake2b(digest_size=8)
        for low in range(0, len(self), _ROWS_PER_LOOKUP):
            lengths = np.diff(self.offsets[low : low + _ROWS_PER_LOOKUP + 1])
            narrow = np.min_scalar_type(lengths.max())
            made.update(narrow.char.encode())
            made.update(lengths.astype(narrow).data)
        return made.hexdigest()

    def where(self, rows: Array) -> list[Where] | None:
        """Return where the first values of these rows lie."""
        return self._column.where(self.offsets[rows])

    def each(self, rows: Array) -> Iterator[Array]:
        """Return these rows one by one, as views if the values are one array."""
        return iter(self._column.spans(self.offsets[rows], self.offsets[rows + 1]))

    def cuts(self, size: int) -> Array:
        """Return the first row of each run of whole rows; a longer row is a run by itself."""
        each = prod(self.shape[2:]) * self.dtype.itemsize
        return np.array(run_begins(self.offsets, size // max(each, 1)) or [0])

    def held(self, low: int, high: int) -> Ragged:
        """Return these rows with a copy of their values."""
        offsets = self.offsets[low : high + 1]
        values = np.array(self.values[int(offsets[0]) : int(offsets[-1])])
        return Ragged(values, offsets - offsets[0])

    def __repr__(self) -> str:
        inside = "".join(f", {size}" for size in self.shape[2:])
        return f"{self.dtype}[{len(self)}, ...{inside}]"

    @staticmethod
    def concat(columns: Sequence[Ragged]) -> Ragged:
        """Return the rows of several columns of one dtype as one column.

        >>> both = Ragged.concat([Ragged(np.arange(4), np.array([1, 3, 4]))] * 2)
        >>> both.gather(np.array([0, 3]))
        [array([1, 2]), array([3])]
        """
        values = [_between(column.values, *column.offsets[[0, -1]].tolist()) for column in columns]
        begins, offsets = 0, []
        for column in columns:
            offsets.append(column.offsets[:-1] - column.offsets[0] + begins)
            begins += int(column.offsets[-1] - column.offsets[0])
        made = concat_columns(values)
        whole = made if isinstance(made, ArrayColumn) else ConcatArray(values)
        return Ragged(whole, np.concatenate([*offsets, [begins]]))


def _between(values: Any, first: int, last: int) -> Any:
    """Return some of the values; all of them as they are: slices of several files are copies."""
    return values if (first, last) == (0, len(values)) else values[first:last]


def lengths_hash(reader: Reader[Any]) -> str:
    """Return a hash of the lengths of all rows of the ragged columns below; "" without any.

    >>> from jreader import arrays, ragged, shuffle
    >>> one, other = ragged(np.arange(6), [0, 1, 3, 6]), ragged(np.arange(6), [0, 1, 4, 6])
    >>> lengths_hash(shuffle(one)) == lengths_hash(one) != lengths_hash(other)
    True
    >>> lengths_hash(arrays([1, 2]))
    ''
    """
    return " ".join(_digests(reader))


def _digests(reader: Reader[Any]) -> Iterator[str]:
    below = readers_below(reader)
    for up in below:
        yield from _digests(up)
    plane = None if below else plane_of(reader)
    for column in leaves(plane.columns) if plane else ():
        if isinstance(column, Ragged):
            yield column.digest


def lengths_of(plane: Plane, by: str | None = None) -> Array | None:
    """Return the length of every sample of a plane, in its order; None if no column is ragged.

    >>> from jreader import arrays, ragged, skip
    >>> from jreader.readers import indexed
    >>> texts = arrays(text=ragged(np.arange(6), [0, 1, 3, 6]), label=[1, 0, 1])
    >>> lengths_of(indexed(skip(texts, 1))), lengths_of(indexed(arrays([1, 2])))
    (array([2, 3]), None)

    Args:
        plane: A plane with an end.
        by: The field whose lengths count, if several are ragged.

    Raises:
        ValueError: There is no ragged field of that name; or several, of different lengths, and
            `by` is None.
    """
    every, fields = leaves(plane.columns), _ragged_fields(plane.columns, by)
    if not fields:
        return None
    lengths, *others = (_column_lengths(plane, number, every[number]) for number in fields)
    if not all(np.array_equal(lengths, other) for other in others):
        names = list(branches(plane.columns) or ())
        raise ValueError(
            f"the samples have {len(fields)} ragged fields of different lengths, in {names!r}: say "
            f"which one's lengths are meant, with by=name."
        )
    return lengths


def _ragged_fields(columns: Any, by: str | None) -> list[int]:
    """Return the numbers of the ragged columns; of those that `by` names, if given."""
    every = enumerate(leaves(columns))
    found = [number for number, column in every if isinstance(column, Ragged)]
    if by is None:
        return found
    parts = branches(columns) or {}
    names = list(_dotted(parts))
    found = [each for each in found if names and f"{names[each]}.".startswith(f"{by}.")]
    if not found:
        fields = ", ".join(map(repr, parts)) or "no names"
        raise ValueError(
            f"by={by!r} names no ragged field of the samples, which have {fields}: name a "
            f"field that was made by jreader.ragged(values, offsets)."
        )
    return found


def _dotted(parts: Mapping[Any, Any], above: str = "") -> Iterator[str]:
    """Yield the name of each leaf as `padded_batch` takes it, with dots for nested dicts."""
    for key, part in parts.items():
        name = f"{above}{key}"
        yield from (_dotted(part, f"{name}.") if type(part) is dict else [name] * len(leaves(part)))


def _column_lengths(plane: Plane, number: int, column: Ragged) -> Array:
    """Return the lengths of the rows of one column, in the order of the samples."""
    if plane.straight and plane.length == len(column):
        return column.lengths()
    runs = range(0, plane.length, _ROWS_PER_LOOKUP)
    indices = (np.arange(low, min(low + _ROWS_PER_LOOKUP, plane.length)) for low in runs)
    lengths = [column.lengths(plane.rows(each)[number]) for each in indices]
    return np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
