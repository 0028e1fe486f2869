"""`parquet`: read files of columns in row groups, each decoded when one of its rows is needed.

The footers of the files list the row count of each row group, so rows are found by number without
reading any. A row group is the smallest unit that can be decoded: it is a block, for
`shuffle(seed=, blocks=)`, and the next ones are read and decoded ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.columns import Array, offsets_of
from jreader.readers.ragged import Ragged
from jreader.sources.file_checks import damaged, number_of
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile, FetchedRanges, FileObject
from jreader.sources.files.file_parts import FilePart, Which
from jreader.sources.files.index_cache import FileIndex, in_threads
from jreader.sources.files.set_indices import MANY, SetIndex
from jreader.sources.files.stored_files import Latest, StoredFile
from jreader.sources.tables.arrow_columns import checked_schema, pyarrow
from jreader.sources.tables.column_names import top_of
from jreader.sources.tables.table_files import TableBlocks, TableFile, TableReader

_EXPECTED = "a Parquet file"
_READERS = 8  # idle pyarrow readers to keep: usually as many as threads decode


class ParquetFile(TableFile):
    """A Parquet file and its footer; each row group is a block.

    Args:
        file: The file.
        names: The wanted columns; None for all.
        idle: Readers to reuse.
        part: The part of the file whose row groups to read; None for all.

    Raises:
        DamagedData: It is not a Parquet file, or its size differs from that of the part.
        ValueError: It has no such column.
    """

    as_stored = False

    def __init__(
        self,
        file: ByteFile,
        names: tuple[str, ...] | str | None,
        idle: IdleReaders,
        part: FilePart | None,
    ) -> None:
        """Read the footer."""
        self.file, self.path, self.wanted = file, file.path, None
        self._idle, self.part = idle, part
        if part is not None:
            part.check_size(file.size)
        with _Reader(file).reading("its footer") as opened:
            self.metadata, self.schema = opened.metadata, checked_schema(opened.schema_arrow)
            if names is not None:
                self.wanted = [names] if isinstance(names, str) else list(names)
                tops = dict.fromkeys(top_of(name, self.schema, self.path) for name in self.wanted)
                chosen = opened.read_row_groups([], columns=self.wanted)
                self.schema = chosen.select(list(tops)).schema
        every = range(self.metadata.num_row_groups)
        self.rows = [self.metadata.row_group(group).num_rows for group in every]

    def decoded(self, number: int) -> Any:
        """Decode a row group to a table.

        Raises:
            DamagedData: It cannot be decoded.
        """
        remote = self.file.is_remote  # otherwise pyarrow would request one column after another
        if remote:
            reader = _Reader(FetchedRanges(self.file, self.ranges(number)), self.metadata)
        else:
            reader = self._idle.taken(self.file) or _Reader(self.file, self.metadata)
        what = f"row group {number}, which begins at byte {self.first_byte(number):,}"
        with reader.reading(what) as opened:
            table = opened.read_row_group(number, columns=self.wanted, use_threads=False)
            table = table.select(self.schema.names).combine_chunks()
        if not remote:
            self._idle.readers.append(reader)
        return table

    def nulls_in(self, number: int) -> list[str]:
        """Return the columns that have nulls in a row group, by the footer.

        Raises:
            DamagedData: The types in the row group and in the schema differ: pyarrow would abort
                the program (SIGABRT) when reading the numbers.
        """
        chunks, names = self.metadata.row_group(number), list[str]()
        for chunk, whole in ((chunks.column(at), whole) for at, whole in self._flat):
            name, here = chunk.path_in_schema, chunk.physical_type
            if here != whole:
                said = f"its footer says {whole} of {name!r}, and {here} in row group {number}"
                raise damaged(self.path, _EXPECTED, said)
            statistics = chunk.statistics
            if statistics and statistics.has_null_count and statistics.null_count:
                names.append(name)
        return names

    def ranges(self, number: int) -> list[tuple[int, int]]:
        """Return where the wanted columns of a row group are: offsets and sizes."""
        chunks = self.metadata.row_group(number)
        ranges = list[tuple[int, int]]()
        for chunk in map(chunks.column, range(chunks.num_columns)):
            path = f"{chunk.path_in_schema}."
            if self.wanted is None or any(path.startswith(f"{name}.") for name in self.wanted):
                begin = chunk.data_page_offset
                if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                    begin = min(begin, chunk.dictionary_page_offset)
                if ranges and ranges[-1][0] + ranges[-1][1] == begin:
                    begin, size = ranges.pop()
                    ranges.append((begin, size + chunk.total_compressed_size))
                else:
                    ranges.append((begin, chunk.total_compressed_size))
        return ranges

    @cached_property
    def _flat(self) -> list[tuple[int, str]]:
        """Indices and types of the wanted columns that are not nested."""
        schema, wanted = self.metadata.schema, {*self.schema.names}
        every = ((at, schema.column(at)) for at in range(len(schema)))
        return [(at, each.physical_type) for at, each in every if each.path in wanted]

    def first_byte(self, group: int) -> int:
        """Return the byte where a row group begins."""
        first = self.metadata.row_group(group).column(0)
        return int(
            first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset
        )


class RowGroups(TableBlocks):
    """The row groups of the files of one table, decoded by number.

    Args:
        files: The files, whose footers are read on demand.
        sources: The same files, without footers.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: The replacements for nulls.
        index: The index of the data set with the footers' contents (`_facts_of`), if there is one.
        store: Caches blocks of remote files on disk.
    """

    def __init__(
        self,
        files: Latest[ParquetFile],
        sources: Latest[ByteFile],
        names: Sequence[str] | str | None,
        nulls: Mapping[str, Any],
        index: SetIndex | None,
        store: Store | None,
    ) -> None:
        self._sources, self._index, self._store = sources, index, store
        counts = None
        if index is not None:
            rows = index.values >= 0
            counts = Ragged(index.values[rows], offsets_of(rows)[index.begins])
        super().__init__(files, names, nulls, counts)

    def wanted(self, rows: Array, files: Array, numbers: Array) -> Array:
        """Select non-empty row groups that begin in the part of the file to read."""
        wanted = super().wanted(rows, files, numbers)
        if self._index is None and (part := self.files[0].part) is not None:
            begins = map(self.files[0].first_byte, numbers.tolist())
            wanted &= np.fromiter(map(part.has, begins), bool, len(numbers))
        return wanted

    def doubtful(self) -> Array:
        """Return files with nulls that lack a replacement, and one file per distinct schema."""
        if self._index is None:
            return self.filled
        (facts, begins), filled = self._index, self.filled
        wanted = {*self.files[filled[0]].schema.names} - {*self.nulls}
        hits = offsets_of(np.isin(facts, [_mark(name) for name in wanted]))[begins]
        doubtful = np.diff(hits)[filled] > 0
        doubtful[np.unique(facts[begins[filled]], return_index=True)[1]] = True
        return filled[doubtful]

    def announce(self, blocks: Sequence[int], *, first: bool) -> None:
        """Announce the next row groups to the store of remote files, in order."""
        if self._store is None or not len(self._places):
            return
        places = [self.place(block) for block in blocks]
        if first:
            self._store.forget(file for file in self._sources if isinstance(file, StoredFile))
        in_threads(self.files.__getitem__, list(dict.fromkeys(at for at, _, _ in places)))
        for at, group, _ in places:
            file = self.files[at]
            if isinstance(file.file, StoredFile):
                file.file.announce(file.ranges(group))


def _facts_of(file: ByteFile) -> Array:
    """Summarize a footer in whole numbers, for plans.

    These are negative hashes of the schema and of each column that may have nulls (all columns if
    the footer contradicts itself), and the number of rows of each row group.

    Raises:
        DamagedData: It is not a Parquet file.
    """
    opened = ParquetFile(file, None, IdleReaders(), None)
    found = set[str]()
    try:
        for number, rows in enumerate(opened.rows):
            found.update(opened.nulls_in(number) if rows else ())
    except DamagedData:  # raised again where the column is read
        found.update(opened.schema.names)
    text = opened.schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return np.array([*map(_mark, [text, *sorted(found)]), *opened.rows], np.int64)


def _mark(text: str) -> int:
    """Hash a text to a negative number, distinct from all row counts."""
    return number_of(text) | -(1 << 63)


class _Reader:
    """A pyarrow reader, created at its first use; each thread needs its own."""

    def __init__(self, file: ByteFile, metadata: Any = None) -> None:
        self.file, self._metadata, self._source = file, metadata, FileObject(file)
        self._opened: Any = None

    @contextmanager
    def reading(self, what: str) -> Iterator[Any]:
        """Yield the reader; convert its errors to DamagedData."""
        pa = pyarrow("parquet")
        try:
            if self._opened is None:
                self._opened = pa.parquet.ParquetFile(
                    self._source,
                    metadata=self._metadata,
                    pre_buffer=False,
                    page_checksum_verification=True,
                )
            yield self._opened
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if self._source.error is not None:  # the file has changed, or cannot be reached
                raise self._source.error from None
            raise damaged(self.file.path, _EXPECTED, f"{what}: {error}") from error


class IdleReaders:
    """Idle readers of local files; creating one costs a tenth of reading a row group.

    Attributes:
        readers: Idle readers; if there are too many, the oldest is dropped.
    """

    def __init__(self) -> None:
        self.readers = deque[_Reader](maxlen=_READERS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the readers."""
        return IdleReaders, ()

    def taken(self, file: ByteFile) -> _Reader | None:
        """Take an idle reader of this file; None if there is none."""
        for reader in tuple(self.readers):
            if reader.file is file:
                with suppress(ValueError):  # another thread took it
                    self.readers.remove(reader)
                    return reader
        return None


@dataclass(frozen=True, eq=False, repr=False, init=False)
class parquet(TableReader):
    """Read the rows of Parquet files by number, and only the columns that you name.

    Samples are dicts: numbers and times have NumPy types, fixed-size lists are arrays, other lists
    of numbers are arrays of different lengths, structs are dicts, and text and bytes are Python
    objects. Batches are stacked if all columns can be.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow, pyarrow.parquet
    >>> from jreader import batch
    >>> table = pyarrow.table({"x": [1.0, 2.0, 3.0], "label": [5, 0, 4], "name": ["a", "b", "c"]})
    >>> with TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/part-0.parquet")
    ...     rows = parquet(f"{folder}/*.parquet", columns=["label", "x"])
    ...     len(rows), next(iter(batch(rows, 2)())).columns
    (3, {'label': array([5, 0]), 'x': array([1., 2.])})

    A row group is decoded as a whole, so a global shuffle decodes most of them many times:
    `shuffle(seed=0, blocks=64)` decodes each once per epoch.

    Damage raises `DamagedData`, with one exception: 1 in 200 flipped bits of a footer makes pyarrow
    abort the process when it reads the metadata of a column. Checking for these first would take
    five times as long as reading the footer.

    Args:
        paths: A file, a folder (its `.parquet` files), a pattern such as `"data/*.parquet"`, or a
            list of these: one table, in that order. The files of a folder or pattern are sorted by
            name. Or one part of a file, as `files(paths, parts=n)` yields it.
        columns: The columns to read, in the order of the samples' fields; for a struct, also single
            fields (`"image.bytes"`). None for all columns. A single str gives bare values instead
            of dicts.
        nulls: Replacements for nulls, by column: `{"age": -1}`, `{"point.x": 0.0}` for the field of
            a struct, `{"ids[]": 0}` for the values of lists. Without it, a null is an error.
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor an `os.PathLike`, or columns are not names.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: When a pass begins: there is no such column, a column has different types in
            different files, or has nulls (known this early for some files only; otherwise the row
            group that has them raises it).
        DamagedData: When a pass begins, or reaches the row group: a file is truncated, of another
            format, or has changed since it was first read, or a checksum does not match.
    """

    shown_call = "parquet(paths, columns, nulls)"
    suffixes = (".parquet",)
    part: Which | None = field(default=None, metadata={"cursor": "if given"})

    def tables(self) -> Latest[ParquetFile]:
        """Return the files; if there are few, read their footers on several threads."""
        of_file = partial(ParquetFile, names=self.names, idle=IdleReaders(), part=self.file_part)
        tables = Latest(of_file, self.files)
        if len(tables) < MANY:
            in_threads(tables.__getitem__, range(len(tables)))
        return tables

    def blocks(self, files: Any) -> RowGroups:
        """Return the row groups; for many files, from a cached index."""
        index = None
        if len(files) >= MANY:
            index = self.found_in_files(FileIndex("footers", _facts_of, asked="marks below 0"))
        return RowGroups(files, self.files, self.names, self.nulls or {}, index, self.store)
