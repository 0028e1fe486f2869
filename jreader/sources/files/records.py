"""Records that lie end to end in files, as a column: found by number, and parsed when asked for.

Rows that lie near to one another are read at once, in the order of the files, and given in the
order in which they were asked for. So a batch in order is one read, and a shuffled one is as many
as it has records, sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import add
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from jreader.readers.columns import Array, Column, Where, gathered_in_order
from jreader.readers.joined_columns import found
from jreader.sources.columns import FileTable
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import FileReader
from jreader.sources.files.kept_indices import kept
from jreader.sources.files.stored_files import open_file, read_many

T = TypeVar("T")

Parse: TypeAlias = Callable[[ByteFile, int, bytes, list[int], list[int]], Iterable[T]]
"""Makes samples of records that were read at once: it is given the file, the offset in it of what
was read, the bytes, and where in these each record begins and ends."""

_AT_FIRST, _AT_ONCE = 16, 4096  # rows that are read at once where they are wanted one by one
_BYTES = 1 << 22  # in which records begin that are read at once


class Records(Column):
    """A column whose row i is what `parse` makes of the i-th record.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> def parse(file, offset, data, begins, ends):
    ...     return [data[begin:end] for begin, end in zip(begins, ends)]
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "words").write_bytes(b"onetwothree")
    ...     words = Records([open_file(f"{folder}/words")], [np.array([0, 3, 6, 11])], parse)
    ...     words.gather(np.array([2, 0, 2]))
    [b'three', b'one', b'three']

    Args:
        files: The files.
        offsets: For each, the bytes at which its records begin, and at which the last one ends.
        parse: Makes samples of records.
    """

    def __init__(
        self, files: Sequence[ByteFile], offsets: Sequence[Array], parse: Parse[Any]
    ) -> None:
        self.files, self.parse = list(files), parse
        self.offsets = offsets[0] if len(offsets) == 1 else np.concatenate(offsets)
        self.near = np.array([file.near for file in self.files], np.int64)
        self.ahead = min(int(self.near.max(initial=0)) * 32, _BYTES)  # it stays in a cache near by
        counts = [len(each) - 1 for each in offsets]
        self.starts = np.cumsum([0, *counts])  # the rows at which files begin, and how many rows

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"records[{len(self)}]"

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
            yield from self.good_ones_first(some)
            low, many = low + len(some), min(2 * many, _AT_ONCE)

    def where(self, rows: Array) -> list[Where]:
        """The file of each row, and the byte at which it begins."""
        which, begins, _ = self._places(rows)
        paths = (self.files[file].path for file in which.tolist())
        return list(map(Where, paths, begins.tolist()))

    def _places(self, rows: Array) -> tuple[Array, Array, Array]:
        """The file of each row, and where in it the row begins and ends."""
        which = found(self.starts[1:], rows)[0] + 1
        at = rows + which  # each file has one offset more than rows
        return which, self.offsets[at], self.offsets[at + 1]

    def _in_order(self, rows: Array) -> Iterator[Any]:
        """Rows that do not decrease, neighbours read at once."""
        which, begins, ends = self._places(rows)
        runs = list(_runs(which, begins, ends, self.near))
        places = zip(which.tolist(), begins.tolist(), (ends - begins).tolist(), strict=True)
        files, begin, sizes = zip(*places, strict=True) if len(rows) else ((), (), ())
        asked = [
            (self.files[files[low]], begin[low], begin[high - 1] + sizes[high - 1] - begin[low])
            for low, high in runs
        ]
        for (low, high), (file, first, _), data in zip(runs, asked, read_many(asked), strict=True):
            if high - low == 1:  # as most are of a large file that is shuffled
                starts, stops = [0], [sizes[low]]
            else:
                starts = [each - first for each in begin[low:high]]
                stops = list(map(add, starts, sizes[low:high]))
            yield from self.parse(file, first, data, starts, stops)


def _runs(which: Array, begins: Array, ends: Array, near: Array) -> Iterator[tuple[int, int]]:
    """Where runs of rows begin and end that are read at once: neighbours, of a few megabytes."""
    if len(which):
        far = begins[1:] - ends[:-1] > near[which[1:]]
        pieces = begins // _BYTES
        cuts = far | (which[1:] != which[:-1]) | (pieces[1:] != pieces[:-1])
        yield from pairwise([0, *(np.flatnonzero(cuts) + 1).tolist(), len(which)])


class RecordFiles(FileReader[T], FileTable[T]):
    """A reader of records that lie end to end in files; a subclass says how to find and parse them.

    Attributes:
        kind: The folder of the cache folder that keeps where records begin.
        index_rules: By which rules `find` goes; with others, what was kept is found anew.
        store: What keeps blocks of files that lie elsewhere; a subclass names it as a field, and
            `part` too, if it reads parts of files.
    """

    kind: ClassVar[str]
    index_rules: ClassVar[str] = ""
    store: Store | None = None

    def find(self, file: ByteFile) -> Array:
        """The bytes at which records begin, and the size of the file; called on several threads.

        Where something is wrong, as much as shows it is the last record: `parse` says what it is,
        so that a pass gives those before it. Such an index does not reach the end of the file, and
        is found anew by the next process.
        """
        raise NotImplementedError(f"{type(self).__name__} must define find(self, file)")

    def parser(self) -> Parse[T]:
        """What makes samples of records; it must not hold this reader, which holds its files."""
        raise NotImplementedError(f"{type(self).__name__} must define parser(self)")

    def opened(self) -> Records:
        """The records; where they begin is found, if it is not kept."""
        files = [open_file(path, self.store) for path in self.paths]
        offsets = kept(self.kind, files, self.find, _ends_with_file, asked=self.index_rules)
        if (part := self.file_part) is not None:
            part.check_size(files[0].size)
            offsets = list(map(part.of_offsets, offsets))
        return Records(files, offsets, self.parser())


def _ends_with_file(file: ByteFile, offsets: Array) -> bool:
    return bool(offsets.ndim == 1 and len(offsets) and offsets[-1] == file.size)
