"""Records that lie end to end in files, as a column: found by number, and parsed when asked for.

Rows that lie near to one another are read at once, in the order of the files, and given in the
order in which they were asked for. So a batch in order is one read, and a shuffled one is as many
as it has records, sorted.
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
"""Makes samples of records that were read at once: it is given the file, the offset in it of what
was read, the bytes, and where in these each record begins and ends."""

_AT_FIRST, _CHUNK = 16, 4096  # rows that are read at once where they are wanted one by one
_BYTES = 1 << 22  # in which records begin that are read at once


class Records(Column):
    """A column whose row i is what `parse` makes of the i-th record.

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
        index: For each, the bytes at which its records begin, and at which the last one ends.
        parse: Makes samples of records.
    """

    def __init__(
        self, files: Sequence[ByteFile] | Latest[ByteFile], index: SetIndex, parse: Parse[Any]
    ) -> None:
        self.files, self.parse = files, parse
        self.offsets, few = index.values, len(files) < MANY
        some = list(files) if few else [files[0]]
        self.near = np.full(len(files), [file.near for file in some], np.int64)
        self._remote = any(file.is_remote for file in some)
        self.ahead = min(int(self.near.max(initial=0)) * 32, _BYTES)  # it stays in a cache near by
        # the rows at which files begin, and how many rows: each has one offset more than rows
        self.starts = index.begins - np.arange(len(index.begins))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"records[{len(self)}]"

    def reading(self, *, in_batches: bool = True) -> Column:
        """The same rows for one pass, which asks for some batches ahead where files answer late."""
        return PrefetchedColumn(self) if in_batches and self._remote else self

    def gather(self, rows: Array) -> list[Any]:
        """Those rows, in a list."""
        return gathered_in_order(rows, self._in_order)

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one; a few are read ahead, and an error comes after the good ones."""
        low, many = 0, _AT_FIRST
        while low < len(rows):
            some = rows[low : low + many]
            _, begins, ends = self._places(some)
            fitting = int(np.searchsorted(np.cumsum(ends - begins), self.ahead, "right"))
            some = some[: max(fitting, 1)]
            yield from self.rows_until_error(some)
            low, many = low + len(some), min(2 * many, _CHUNK)

    def cuts(self, size: int) -> Array:
        """Runs of whole records of one file; a longer record is one by itself."""
        starts = list[int]()
        for file, (low, high) in enumerate(pairwise(self.starts.tolist())):
            runs = run_begins(self.offsets[low + file : high + file + 1], size)
            starts += [low + row for row in runs]
        return np.array(starts or [0])

    def held(self, low: int, high: int) -> HeldRecords:
        """The bytes of those records, which lie in one file."""
        file = int(self._places(np.array([low]))[0][0])
        return HeldRecords(self.files[file], self.offsets[low + file : high + file + 1], self.parse)

    def where(self, rows: Array) -> list[Where]:
        """The file of each row, and the byte at which it begins."""
        which, begins, _ = self._places(rows)
        paths = (self.files[file].path for file in which.tolist())
        return list(map(Where, paths, begins.tolist()))

    def _places(self, rows: Array) -> tuple[Array, Array, Array]:
        """The file of each row, and where in it the row begins and ends."""
        which = locate(self.starts[1:], rows)[0] + 1
        at = rows + which  # each file has one offset more than rows
        return which, self.offsets[at], self.offsets[at + 1]

    def _in_order(self, rows: Array) -> Iterator[Any]:
        """Rows that do not decrease, neighbours read at once."""
        reads = near_reads(self.files, *self._places(rows), self.near)
        return chain.from_iterable(starmap(self.parse, reads))


def near_reads(
    files: Any, which: Array, begins: Array, ends: Array, near: Array
) -> Iterator[tuple[ByteFile, int, bytes, list[int], list[int]]]:
    """Reads ranges of files that lie near to one another at once, up to a few megabytes.

    Args:
        files: The files.
        which: The number of the file of each range; ranges are in the order of the files.
        begins: Where ranges begin in their file.
        ends: Where they end.
        near: How many bytes between two ranges are read for nothing, in each file.

    Yields:
        The file, the offset in it of what was read, the bytes, and where each range begins and ends
        in these (`Parse`).
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
        if high - low == 1:  # as most are of a large file that is shuffled
            yield file, at, data, [0], [size]
        else:
            lows, highs = begins[low:high] - at, ends[low:high] - at
            yield file, at, data, lows.tolist(), highs.tolist()


class HeldRecords(Column):
    """Records of one file that were read at once; each is parsed when it is asked for.

    Args:
        file: The file.
        offsets: The bytes at which the records begin, and at which the last one ends.
        parse: Makes samples of them.

    Raises:
        DamagedData: The file has changed.
        OSError: They cannot be had.
    """

    stacks = False

    def __init__(self, file: ByteFile, offsets: Array, parse: Parse[Any]) -> None:
        """Reads them."""
        self.first = int(offsets[0])
        self.data = file.read(self.first, int(offsets[-1]) - self.first)
        self.file, self.offsets, self.parse = file, offsets - self.first, parse

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""
        begins, ends = self.offsets[rows].tolist(), self.offsets[rows + 1].tolist()
        return iter(self.parse(self.file, self.first, self.data, begins, ends))


@op
class RecordFiles(FileReader[T], FileTable[T]):
    """Read records that lie end to end in files; a subclass finds and parses them.

    Attributes:
        kind: The folder of the cache folder that keeps where records begin.
        index_rules: The version of the rules of `find`; a new one rebuilds stored indices.
        store: What keeps blocks of files that lie elsewhere.
    """

    kind: ClassVar[str]
    index_rules: ClassVar[str] = ""
    paths: tuple[str, ...]
    store: Store | None = argument(checked_store, default=None, cursor="never")
    block: int | None = argument(checked_block, default=None, named=True, cursor="never")
    part: Which | None = argument(default=None, cursor="if given")

    def find(self, file: ByteFile) -> Array:
        """The bytes at which records begin, and the size of the file; called on several threads.

        Where something is wrong, as much as shows it is the last record: `parse` says what it is,
        so that a pass gives those before it. Such an index does not reach the end of the file, and
        is rebuilt by the next process.
        """
        raise NotImplementedError(f"{type(self).__name__} must define find(self, file)")

    def parser(self) -> Parse[T]:
        """What makes samples of records; it must not hold this reader, which holds its files."""
        raise NotImplementedError(f"{type(self).__name__} must define parser(self)")

    def opened(self) -> Records:
        """The records; where they begin is found, if it is not kept."""
        locate = FileIndex(self.kind, self.find, _ends_with_file, self.index_rules)
        index = self.found_in_files(locate)
        if (part := self.file_part) is not None:
            part.check_size(self.files[0].size)
            index = SetIndex.of_parts([part.of_offsets(index.values)])
        return Records(self.files, index, self.parser())


def _ends_with_file(file: ByteFile, offsets: Array) -> bool:
    return bool(offsets.ndim == 1 and len(offsets) and offsets[-1] == file.size)
