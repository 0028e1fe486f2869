"""A column of records that are stored consecutively in files: found by number, parsed on demand.

Neighbouring rows are read together, in file order, and returned in the requested order. So a
sequential batch is one read, and a shuffled one takes a read per record, in sorted order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise, starmap
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from jreader.readers import argument, op
from jreader.readers.columns import Array, Column, Where, gathered_in_order, run_begins
from jreader.readers.joined_columns import locate
from jreader.readers.reading_ahead import PrefetchedColumn
from jreader.sources.columns import FileTable
from jreader.sources.files.block_store import Store, checked_block, checked_store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_parts import Which
from jreader.sources.files.file_readers import FileReader
from jreader.sources.files.index_cache import FileIndex
from jreader.sources.files.set_indices import MANY, SetIndex
from jreader.sources.files.stored_files import Latest, read_many

T = TypeVar("T")

Parse: TypeAlias = Callable[[ByteFile, int, bytes, list[int], list[int]], Iterable[T]]
"""Parses records that were read together. Takes the file, the offset of the bytes in it, the bytes,
and where each record begins and ends in them."""

_AT_FIRST, _CHUNK = 16, 4096  # rows to read at a time when requested one by one
_BYTES = 1 << 22  # records that begin in the same so many bytes are read together


class Records(Column):
    """A column whose row i is the i-th record, parsed by `parse`.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> def parse(file, offset, data, begins, ends):
    ...     return [data[begin:end] for begin, end in zip(begins, ends)]
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "words").write_bytes(b"onetwothree")
    ...     index = SetIndex.of_parts([np.array([0, 3, 6, 11])])
    ...     words = Records([open_file(f"{folder}/words")], index, parse)
    ...     words.gather(np.array([2, 0, 2]))
    [b'three', b'one', b'three']

    Args:
        files: The files.
        index: For each file, where its records begin, and where the last one ends.
        parse: Parses records.
    """

    def __init__(
        self, files: Sequence[ByteFile] | Latest[ByteFile], index: SetIndex, parse: Parse[Any]
    ) -> None:
        self.files, self.parse = files, parse
        self.offsets, few = index.values, len(files) < MANY
        some = list(files) if few else [files[0]]
        self.near = np.full(len(files), [file.near for file in some], np.int64)
        self._remote = any(file.is_remote for file in some)
        self.ahead = min(int(self.near.max(initial=0)) * 32, _BYTES)  # stays in the CPU cache
        # the row where each file begins, and the total: each file has one offset more than rows
        self.starts = index.begins - np.arange(len(index.begins))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"records[{len(self)}]"

    def reading(self, *, in_batches: bool = True) -> Column:
        """Return the same rows for one pass, which prefetches batches from remote files."""
        return PrefetchedColumn(self) if in_batches and self._remote else self

    def gather(self, rows: Array) -> list[Any]:
        """Return those rows in a list."""
        return gathered_in_order(rows, self._in_order)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows; reads a few ahead, and raises errors after the rows before them."""
        low, many = 0, _AT_FIRST
        while low < len(rows):
            some = rows[low : low + many]
            _, begins, ends = self._places(some)
            fitting = int(np.searchsorted(np.cumsum(ends - begins), self.ahead, "right"))
            some = some[: max(fitting, 1)]
            yield from self.rows_until_error(some)
            low, many = low + len(some), min(2 * many, _CHUNK)

    def cuts(self, size: int) -> Array:
        """Return the first row of each run of whole records; a longer record is a run by itself."""
        starts = list[int]()
        for file, (low, high) in enumerate(pairwise(self.starts.tolist())):
            runs = run_begins(self.offsets[low + file : high + file + 1], size)
            starts += [low + row for row in runs]
        return np.array(starts or [0])

    def held(self, low: int, high: int) -> HeldRecords:
        """Read the bytes of those records, which are in one file."""
        file = int(self._places(np.array([low]))[0][0])
        return HeldRecords(self.files[file], self.offsets[low + file : high + file + 1], self.parse)

    def where(self, rows: Array) -> list[Where]:
        """Return the file of each row, and the byte where it begins."""
        which, begins, _ = self._places(rows)
        paths = (self.files[file].path for file in which.tolist())
        return list(map(Where, paths, begins.tolist()))

    def _places(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the file of each row, and where the row begins and ends in it."""
        which = locate(self.starts[1:], rows)[0] + 1
        at = rows + which  # each file has one offset more than rows
        return which, self.offsets[at], self.offsets[at + 1]

    def _in_order(self, rows: Array) -> Iterator[Any]:
        """Yield rows in non-decreasing order; neighbours are read together."""
        reads = near_reads(self.files, *self._places(rows), self.near)
        return chain.from_iterable(starmap(self.parse, reads))


def near_reads(
    files: Any, which: Array, begins: Array, ends: Array, near: Array
) -> Iterator[tuple[ByteFile, int, bytes, list[int], list[int]]]:
    """Read neighbouring ranges of files together, up to a few megabytes.

    Args:
        files: The files.
        which: The index of the file of each range; ranges are in file order.
        begins: Where ranges begin in their file.
        ends: Where they end.
        near: The gap between two ranges that is read needlessly, for each file.

    Yields:
        The file, the offset and the bytes read, and where each range begins and ends in them
        (`Parse`).
    """
    if not len(which):
        return
    apart = begins[1:] - ends[:-1] > near[which[1:]]
    pieces = begins // _BYTES
    cuts = apart | (which[1:] != which[:-1]) | (pieces[1:] != pieces[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(cuts) + 1])
    sizes = np.maximum.reduceat(ends, firsts) - begins[firsts]
    opened = map(files.__getitem__, which[firsts].tolist())
    asked = list(zip(opened, begins[firsts].tolist(), sizes.tolist(), strict=True))
    runs = pairwise([*firsts.tolist(), len(which)])
    for (low, high), (file, at, size), data in zip(runs, asked, read_many(asked), strict=True):
        if high - low == 1:  # the common case of a large shuffled file
            yield file, at, data, [0], [size]
        else:
            lows, highs = begins[low:high] - at, ends[low:high] - at
            yield file, at, data, lows.tolist(), highs.tolist()


class HeldRecords(Column):
    """Records of one file that were read together; each is parsed on demand.

    Args:
        file: The file.
        offsets: Where the records begin, and where the last one ends.
        parse: Parses them.

    Raises:
        DamagedData: The file has changed.
        OSError: They cannot be read.
    """

    stacks = False

    def __init__(self, file: ByteFile, offsets: Array, parse: Parse[Any]) -> None:
        """Read them."""
        self.first = int(offsets[0])
        self.data = file.read(self.first, int(offsets[-1]) - self.first)
        self.file, self.offsets, self.parse = file, offsets - self.first, parse

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows."""
        begins, ends = self.offsets[rows].tolist(), self.offsets[rows + 1].tolist()
        return iter(self.parse(self.file, self.first, self.data, begins, ends))


@op
class RecordFiles(FileReader[T], FileTable[T]):
    """Read records stored consecutively in files; a subclass finds and parses them.

    Attributes:
        kind: The subfolder of the cache folder for the index of where records begin.
        index_rules: The version of the rules of `find`; a new version rebuilds stored indices.
        store: Caches blocks of remote files.
    """

    kind: ClassVar[str]
    index_rules: ClassVar[str] = ""
    paths: tuple[str, ...]
    store: Store | None = argument(checked_store, default=None, cursor="never")
    block: int | None = argument(checked_block, default=None, named=True, cursor="never")
    part: Which | None = argument(default=None, cursor="if given")

    def find(self, file: ByteFile) -> Array:
        """Return where records begin, and the size of the file; called on several threads.

        Damaged bytes are the last record, long enough for `parse` to describe the damage, so that a
        pass yields the records before it. Such an index does not reach the end of the file, and the
        next process rebuilds it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define find(self, file)")

    def parser(self) -> Parse[T]:
        """Return what parses records; it must not hold this reader, which holds its files."""
        raise NotImplementedError(f"{type(self).__name__} must define parser(self)")

    def opened(self) -> Records:
        """Return the records; find where they begin, unless cached."""
        locate = FileIndex(self.kind, self.find, _ends_with_file, self.index_rules)
        index = self.found_in_files(locate)
        if (part := self.file_part) is not None:
            part.check_size(self.files[0].size)
            index = SetIndex.of_parts([part.of_offsets(index.values)])
        return Records(self.files, index, self.parser())


def _ends_with_file(file: ByteFile, offsets: Array) -> bool:
    return bool(offsets.ndim == 1 and len(offsets) and offsets[-1] == file.size)
