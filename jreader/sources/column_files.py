"""Columns as `.npy` files that grow: values, and where the rows end if their lengths differ.

A file is written behind what is known to be whole, so whatever a kill left there is overwritten.
NumPy can read it once `finish` has written how many rows there are.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from jreader.progress import Bar
from jreader.readers.columns import Array
from jreader.readers.ragged import Ragged
from jreader.sources.stored_rows import EncodedRows, Kind, values_of

_OFFSET = np.dtype(np.int64)
_CHUNK = 1 << 22  # bytes that are read in one go


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0) -> bytes:
    """The header of a `.npy` file; NumPy leaves room in it for a number of rows that grows."""
    out = io.BytesIO()
    described = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        out, {"descr": described, "fortran_order": False, "shape": (rows, *shape)}
    )
    return out.getvalue()


@dataclass(frozen=True)
class GrowingArray:
    """A `.npy` file, up to the last row that is known to be whole.

    Attributes:
        path: Where it is.
        dtype: That of its values.
        shape: The shape of a row.
        first: The byte at which the rows begin.
        rows: How many there are.
        check: Their CRC-32.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    rows: int = 0
    check: int = 0

    @classmethod
    def created(cls, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Self:
        """An empty one, in a new file: to shorten one that a process has mapped would kill that."""
        head = npy_head(dtype, shape)
        path.unlink(missing_ok=True)
        path.write_bytes(head)
        return cls(path, dtype, shape, len(head))

    @cached_property
    def end(self) -> int:
        """The byte at which the rows end."""
        return self.first + self.dtype.itemsize * int(np.prod((self.rows, *self.shape), dtype=int))

    def appended(self, values: Array) -> Self:
        """The array with more rows, which are on the disk."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        _write(self.path, data, self.end)
        check = zlib.crc32(data, self.check)
        return replace(self, rows=self.rows + len(values), check=check)

    def finish(self) -> None:
        """Writes how many rows there are, for NumPy; not if the shape of the rows has changed."""
        head = npy_head(self.dtype, self.shape, self.rows)
        if len(head) == self.first:
            _write(self.path, memoryview(head), 0)

    def mapped(self) -> Array:
        """The rows, mapped into memory."""
        shape = (self.rows, *self.shape)
        if not np.prod(shape):
            empty = np.empty(shape, self.dtype)
            empty.flags.writeable = False
            return empty
        return np.asarray(np.memmap(self.path, self.dtype, "r", self.first, shape))

    def is_whole(self, bar: Bar) -> bool:
        """Whether the rows in the file fit the checksum."""
        check, left = 0, self.end - self.first
        with self.path.open("rb") as file:
            file.seek(self.first)
            while left and (some := file.read(min(left, _CHUNK))):
                check, left = zlib.crc32(some, check), left - len(some)
                bar.add(len(some))
        return check == self.check


@dataclass(frozen=True)
class StoredColumn:
    """One column: rows of a kind, in one file or two.

    Attributes:
        name: What the names of its files begin with.
        kind: What its rows are.
        values: The rows; if their lengths differ, their values end to end.
        offsets: Then, where each row begins, and where the last one ends; else None.
    """

    name: str
    kind: Kind
    values: GrowingArray
    offsets: GrowingArray | None

    @classmethod
    def created(cls, folder: Path, name: str, kind: Kind) -> Self:
        """An empty one, in new files."""
        values, offsets = GrowingArray.created(folder / f"{name}.npy", kind.dtype, kind.shape), None
        if kind.how != "array":
            offsets = _new_offsets(folder, name, np.zeros(1, _OFFSET))
        return cls(name, kind, values, offsets)

    @classmethod
    def read(cls, folder: Path, rows: int, plain: Sequence[Any]) -> Self:
        """The column of so many rows that `plain` was."""
        name, kind, many, first, (check, check_of_offsets) = plain
        kind, offsets = Kind(*kind), None
        values = GrowingArray(folder / f"{name}.npy", kind.dtype, kind.shape, first, many, check)
        if kind.how != "array":
            path, first = folder / f"{name}.offsets.npy", len(npy_head(_OFFSET, ()))
            offsets = GrowingArray(path, _OFFSET, (), first, rows + 1, check_of_offsets)
        return cls(name, kind, values, offsets)

    @property
    def plain(self) -> tuple[Any, ...]:
        """What a table keeps of it."""
        checks = self.values.check, self.offsets.check if self.offsets else 0
        return self.name, astuple(self.kind), self.values.rows, self.values.first, checks

    @property
    def files(self) -> Iterator[GrowingArray]:
        """The values, and the offsets if there are some."""
        yield self.values
        if self.offsets:
            yield self.offsets

    def appended(self, rows: Sequence[Any]) -> Self:
        """The column with more rows, which are on the disk; of what `encoded` gives."""
        values, lengths = values_of(rows, self.kind)
        offsets = self.offsets
        if offsets and lengths is not None:
            ends = self.values.rows + np.cumsum(lengths, dtype=_OFFSET)
            offsets = offsets.appended(ends)
        return replace(self, values=self.values.appended(values), offsets=offsets)

    def ragged(self, kind: Kind) -> Self:
        """The column of arrays as one of a ragged kind: only offsets are missing."""
        each, rows = self.kind.shape[0], self.values.rows
        values = replace(self.values, shape=kind.shape, rows=each * rows)
        offsets = _new_offsets(
            self.values.path.parent, self.name, each * np.arange(rows + 1, dtype=_OFFSET)
        )
        return replace(self, kind=kind, values=values, offsets=offsets)

    def mapped(self) -> Any:
        """The rows, mapped into memory."""
        values = self.values.mapped()
        if self.offsets is None:
            return values
        offsets = self.offsets.mapped()
        if self.kind.how == "ragged":
            return Ragged(values, offsets)
        return EncodedRows(self.kind, values, offsets, self.values.path)


def _new_offsets(folder: Path, name: str, offsets: Array) -> GrowingArray:
    return GrowingArray.created(folder / f"{name}.offsets.npy", _OFFSET).appended(offsets)


def _write(path: Path, data: memoryview, at: int) -> None:
    """Writes bytes at a place of a file, and waits until they are on the disk."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        while data:
            done = os.pwrite(descriptor, data, at)
            data, at = data[done:], at + done
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
