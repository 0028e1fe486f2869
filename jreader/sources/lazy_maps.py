"""Map arrays in files into memory when first read, and keep little of them resident.

The pages of a mapped file stay in a process's resident memory as long as the kernel likes: a run
that reads 100 GB seems to use 100 GB. So the pages of large files are released every so often
(`MADV_DONTNEED`). They stay in the file cache, and views stay valid: reading a page again maps it
again. That costs two to three times as much as reading 2 KB (`pread`), so small scattered pieces of
a large file, such as those of shuffled windows, are read instead of mapped. Small files stay
mapped, which costs a third of a read. Only so many files are open at a time, because processes are
often limited to 1024.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, ArrayColumn, Where
from jreader.readers.overlaps import overlapping
from jreader.sources.file_checks import State, changed
from jreader.sources.files.byte_ranges import Descriptor, keep_few_open

_MAX_RESIDENT = 1 << 28  # bytes of one source's files that may be resident
_BLOCK = 1 << 21  # bytes that one read may make resident: a huge page of the file cache
_SMALL = 1 << 16  # bytes: smaller pieces are copied, unless read in order


class ResidentBytes:
    """Counts the resident bytes of one source's maps.

    Args:
        size: The bytes of all files.

    Attributes:
        bounded: True if they are too many to be resident all at once.
    """

    def __init__(self, size: int) -> None:
        """Start with nothing read."""
        self.bounded = size > _MAX_RESIDENT and hasattr(mmap, "MADV_DONTNEED")
        self._bytes = 0
        self._touched: dict[LazyMap, None] = {}

    def read(self, which: LazyMap, size: int) -> None:
        """Count bytes that are about to be read; release earlier ones if there are many."""
        self._bytes += size
        if self._bytes > _MAX_RESIDENT:
            touched, self._touched, self._bytes = self._touched, {}, size
            for each in touched:
                each.give_back()
        self._touched[which] = None


class LazyMap(ArrayColumn):
    """A part of a file as an array, mapped when first read.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "bytes").write_bytes(bytes(range(9)))
    ...     path = f"{folder}/bytes"
    ...     part = LazyMap(path, 1, 4, np.dtype(np.uint16), ResidentBytes(9), os.stat(path))
    ...     part, part[2:].tolist(), part.slices(np.array([0, 2]), 2).tolist()
    (uint16[4], [1541, 2055], [[513, 1027], [1541, 2055]])

    Args:
        path: The file.
        first: The byte where the array begins.
        length: The number of values.
        dtype: The dtype of the values.
        resident: The counter that this map shares with the others of its source.
        seen: The state of the file when first checked.
    """

    def __init__(
        self,
        path: str,
        first: int,
        length: int,
        dtype: np.dtype[Any],
        resident: ResidentBytes,
        seen: State,
    ) -> None:
        """Open nothing yet."""
        self._first_state = seen
        self.path, self.first, self.dtype, self.shape = path, first, dtype, (length,)
        self.arrays = (self,)
        self._resident, self._bounded = resident, resident.bounded
        self._descriptor: Descriptor | None = None
        self._map: mmap.mmap | None = None
        self._advice: int | None = None
        self._array: Array | None = None
        self._sliding: Array | None = None
        self._block = self._counted = -1  # the block read last; the last block known to be resident

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return self.shape[0] * self.dtype.itemsize

    @property
    def array(self) -> Array:
        """The array, a read-only map.

        Raises:
            DamagedData: The file is gone, or has shrunk.
        """
        array = self._array
        if array is None:
            opened = self._opened()
            try:
                held = mmap.mmap(opened.number, self._end, access=mmap.ACCESS_READ)
            except ValueError:  # it was truncated since
                raise self._shorter(os.fstat(opened.number).st_size) from None
            if self._advice is not None:
                held.madvise(self._advice)
            array = np.frombuffer(held, self.dtype, len(self), self.first)
            self._map, self._array = held, array
        return array

    def __getitem__(self, index: Any) -> Array:
        """Index values as NumPy does; a slice gives a view, or a copy if it is small."""
        if not self._bounded:
            return np.asarray(self.array[index])
        if not isinstance(index, slice):
            self._resident.read(self, np.size(index) * _BLOCK)
            return np.asarray(self.array[index])
        first, last, _ = index.indices(len(self))
        begin, size = self.first + first * self.dtype.itemsize, (last - first) * self.dtype.itemsize
        before, self._block = self._block, begin // _BLOCK
        if before != self._block and 0 < size < _SMALL:
            copy = np.empty(last - first, self.dtype)
            self._read(copy, begin)
            copy.flags.writeable = False
            return copy
        if self._counted != self._block or size > _BLOCK:
            self._counted = self._block
            self._resident.read(self, max(size, _BLOCK))
        return self.array[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        part = self[:]
        return part if dtype in (None, part.dtype) and not copy else np.array(part, dtype)

    def slices(self, begins: Array, size: int, out: Array | None = None) -> Array:
        """Return `size` values from each index on, as an array of [slices, size]."""
        if not self._bounded:
            return self._sliding_over(size)[begins]
        taken = np.empty((len(begins), size), self.dtype) if out is None else out
        places = (self.first + begins * self.dtype.itemsize).tolist()
        opened, read, bytes_ = self._opened(), os.preadv, size * self.dtype.itemsize
        for row, place in zip(taken, places, strict=True):
            if read(opened.number, [row], place) != bytes_:
                self._read(row, place)  # continue after a short read
        return taken

    def where(self, rows: Array) -> list[Where]:
        """Return where those values lie in the file."""
        each = self.dtype.itemsize
        return [Where(self.path, self.first + row * each) for row in rows.tolist()]

    def advise(self, advice: int) -> None:
        """Advise the kernel how the map will be read, now and after it is mapped again."""
        self._advice, held = advice, self._map
        if held is not None:
            held.madvise(advice)

    def give_back(self) -> None:
        """Let the kernel drop the pages of the map from resident memory."""
        held, self._counted = self._map, -1
        if held is not None:
            held.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Drop the file and the map; they close with the last read and the last view."""
        self._descriptor = self._map = self._array = self._sliding = None

    @property
    def _end(self) -> int:
        return self.first + self.nbytes

    def _opened(self) -> Descriptor:
        opened = self._descriptor
        if opened is None:
            self._descriptor = opened = Descriptor(self.path, self._first_state)
            keep_few_open(self)
        return opened

    def _shorter(self, size: int) -> DamagedData:
        return changed(self.path, f"had {self._end:,} bytes, and has {size:,} now")

    def _read(self, row: Array, place: int) -> None:
        """Fill an array with the bytes from a place on."""
        opened = self._opened()  # this reference keeps it open even if others close it
        left: Any = row.view(np.uint8)
        while len(left):
            done = os.preadv(opened.number, [left], place)
            if not done:
                raise self._shorter(os.fstat(opened.number).st_size)
            left, place = left[done:], place + done

    def _sliding_over(self, size: int) -> Array:
        sliding = self._sliding
        if sliding is None or sliding.shape[1] != size:
            sliding = self._sliding = overlapping(self.array, size)
        return sliding
