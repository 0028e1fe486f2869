"""A column of rows of one dtype and shape, stored consecutively in files: each is a byte range.

This is how remote arrays and tokens are read, since they cannot be mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, ArrayColumn, Take, Where, rows_on_device
from jreader.readers.joined_columns import locate
from jreader.sources.file_checks import reading
from jreader.sources.files.byte_ranges import ByteFile, FileObject
from jreader.sources.files.magic_numbers import both_ends_read
from jreader.sources.files.records import near_reads

_CHUNK = 1 << 20  # bytes to read at a time when rows are requested one by one
_NEAR = 1 << 15  # bytes of gap to read needlessly: a larger gap costs more than a request
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class FileRows(ArrayColumn):
    """A column of rows in files, of which only the requested ones are read.

    Neighbouring rows are read together, and several such ranges at a time.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "bytes").write_bytes(bytes(range(9)))
    ...     part = open_file(f"{folder}/bytes"), 1, 4
    ...     rows = FileRows([part, part], np.dtype(np.uint16))
    ...     rows, rows[2:6].tolist(), rows.gather(np.array([5, 0])).tolist()
    (uint16[8], [1541, 2055, 513, 1027], [1027, 513])

    Args:
        parts: Where the rows are: a file, the byte where they begin, and their number.
        dtype: Their dtype.
        shape: The shape of each row.
    """

    late = True

    def __init__(
        self,
        parts: Sequence[tuple[ByteFile, int, int]],
        dtype: np.dtype[Any],
        shape: tuple[int, ...] = (),
    ) -> None:
        self.parts, self.dtype = list(parts), dtype
        self.files, firsts, counts = zip(*parts, strict=True)
        self._firsts = np.array(firsts)
        self._near = np.minimum([file.near for file in self.files], _NEAR)
        self._starts = np.cumsum([0, *counts])
        self.shape = (int(self._starts[-1]), *shape)
        self._width = prod(shape) * dtype.itemsize
        self.at_once = max(_CHUNK // max(self._width, 1), 1)

    def __getitem__(self, rows: Any) -> Any:
        """Index rows as in an array; consecutive ones are read together."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return super().__getitem__(rows)
        first, last, _ = rows.indices(len(self))
        (span,) = self.spans(np.array([first]), np.array([max(first, last)]))
        return span

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows, as read-only arrays."""
        return (span[0] for span in self.spans(rows, rows + 1))

    def gatherer(self, _size: int) -> tuple[Take, None]:
        """Return a function that gathers rows into a new array."""
        return lambda rows: self.slices(rows, 1)[:, 0], None

    def spans(self, begins: Array, ends: Array) -> Iterable[Array]:
        """Yield the rows from each begin to its end, as read-only arrays."""
        first = locate(self._starts[:-1], begins)[0]
        last = np.maximum(locate(self._starts[:-1], ends - 1)[0], first)
        many = last - first + 1  # number of files that each lies in
        inside = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        which = np.repeat(first, many) + inside
        starts = self._starts[which]
        low = np.maximum(np.repeat(begins, many), starts) - starts
        high = np.minimum(np.repeat(ends, many), self._starts[which + 1]) - starts
        firsts = self._firsts[which]
        pieces = self._pieces(which, firsts + low * self._width, firsts + high * self._width)
        shapes = ((rows, *self.shape[1:]) for rows in (high - low).tolist())
        arrays = (
            np.frombuffer(data, self.dtype).reshape(shape)
            for data, shape in zip(pieces, shapes, strict=True)
        )
        for each in many.tolist():
            yield next(arrays) if each == 1 else np.concatenate([*islice(arrays, each)])

    def where(self, rows: Array) -> list[Where]:
        """Return the file of each row, and the byte where it begins."""
        which, local = locate(self._starts[:-1], rows)
        begins = (self._firsts[which] + local * self._width).tolist()
        return [Where(self.files[f].path, at) for f, at in zip(which.tolist(), begins, strict=True)]

    def placed(self) -> tuple[Any, Any]:
        """Return all rows, read at once."""
        return self[:], rows_on_device

    @staticmethod
    def concat(columns: Sequence[Any]) -> FileRows | None:
        """Concatenate several such columns."""
        first = columns[0]
        if any((each.dtype, each.shape[1:]) != (first.dtype, first.shape[1:]) for each in columns):
            return None
        parts = [part for each in columns for part in each.parts]
        return FileRows(parts, first.dtype, first.shape[1:])

    def _pieces(self, which: Array, begins: Array, ends: Array) -> list[bytes]:
        """Read ranges of files in file order, merging neighbours; return the given order."""
        order = np.lexsort((begins, which))
        given = [b""] * len(order)
        reads = near_reads(self.files, which[order], begins[order], ends[order], self._near)
        spans = (
            (data, *span) for *_, data, low, high in reads for span in zip(low, high, strict=True)
        )
        for place, (data, low, high) in zip(order.tolist(), spans, strict=True):
            given[place] = data[low:high]
        return given


def npy_header(file: ByteFile) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the shape, whether in Fortran order, the dtype, and where the values begin.

    Raises:
        ValueError: NumPy cannot read the header; or another error that `reading` handles.
        KeyError: The header has a version that allows non-ASCII field names.
    """
    opened: Any = FileObject(file)
    shape, turned, dtype = _HEADERS[np.lib.format.read_magic(opened)](opened)
    return shape, turned, dtype, opened.at


def npy_rows(file: ByteFile) -> FileRows | None:
    """Return the rows of a `.npy` file, from its header; None if they are not byte ranges."""
    with suppress(DamagedData, KeyError), reading(file.path, "a .npy file"):
        shape, turned, dtype, first = npy_header(both_ends_read(file))
        in_order = shape and not dtype.hasobject and not (turned and len(shape) > 1)
        if in_order and first + prod(shape) * dtype.itemsize <= file.size:
            return FileRows([(file, first, shape[0])], dtype, shape[1:])
    return None
