"""The row groups of Parquet files, found by what the footers tell, and decoded one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jreader.sources.file_checks import damaged
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile, open_file
from jreader.sources.files.file_objects import FetchedRanges, FileObject
from jreader.sources.files.file_parts import FilePart
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.stored_files import StoredFile
from jreader.sources.tables.arrow_columns import Nulls, checked_schema, columns_of, pyarrow
from jreader.sources.tables.joined_tables import bare_values, refuse_another, top_of
from jreader.sources.tables.record_batches import TableBlocks
from jreader.sources.tables.table_arguments import check_fills

_EXPECTED = "a Parquet file"
_READERS = 8  # of pyarrow that are kept: as many as threads decode at the same time, as a rule


@dataclass(frozen=True)
class _ParquetFile:
    file: ByteFile
    metadata: Any
    schema: Any
    """Of the columns that are wanted, in the order of samples."""
    wanted: list[str] | None
    """Their names, and of structs the fields, as pyarrow is asked for them."""

    @property
    def path(self) -> str:
        return self.file.path

    @cached_property
    def rows(self) -> list[int]:
        """How many rows each row group has."""
        every = range(self.metadata.num_row_groups)
        return [self.metadata.row_group(group).num_rows for group in every]


class RowGroups(TableBlocks):
    """The row groups of files of one table, which are decoded by their number.

    Args:
        files: The files, and what their footers tell.
        names: The names of the columns; a single str for bare_values values; None for all.
        nulls: What stands for nulls.
        part: The part of the only file whose row groups these are; None for all.
    """

    def __init__(
        self,
        files: Sequence[_ParquetFile],
        names: tuple[str, ...] | str | None,
        nulls: Mapping[str, Any],
        part: FilePart | None = None,
    ) -> None:
        def wanted(file: _ParquetFile, group: int) -> bool:
            return part is None or part.has(_first_byte(file.metadata, group))

        super().__init__(files, names, nulls, wanted)
        self._readers = _Readers()

    @classmethod
    def of(
        cls,
        paths: Sequence[str],
        names: tuple[str, ...] | str | None,
        nulls: Mapping[str, Any],
        store: Store | None = None,
        part: FilePart | None = None,
    ) -> RowGroups:
        """Those of some files, whose footers are read on several threads.

        Raises:
            DamagedData: A file is no Parquet file.
            ValueError: There is no such column, or it has another type in another file, or nulls.
        """
        files = in_threads(lambda path: _with_footer(open_file(path, store), names), paths)
        if part is not None:
            part.check_size(files[0].file.size)
        groups = cls(files, names, nulls, part)
        filled = [file for file in files if file.metadata.num_rows] or files[:1]
        first, blank = filled[0], groups.blank(filled[0])
        check_fills(nulls, first.schema.names)
        for file in filled[1:]:
            if not file.schema.equals(first.schema):
                refuse_another(groups.blank(file), file.path, blank, first.path)
        groups.refuse_nulls()
        return groups

    def coming(self, blocks: Sequence[int], *, first: bool) -> None:
        """Has the store of far files know which row groups come next, in that order."""
        stored = [file.file for file in self.files if isinstance(file.file, StoredFile)]
        if not stored or not self.blocks:
            return
        if first:
            stored[0].store.forget(stored)
        for file, group, _ in (self.blocks[block] for block in blocks):
            if isinstance(file.file, StoredFile):
                file.file.coming(_ranges(file, group))

    def decoded(self, file: _ParquetFile, number: int) -> Any:
        """The table of a row group."""
        return _decoded_group(file, number, self._readers)

    def columns(self, table: Any, path: str, first: int) -> Any:
        """Those that were asked for, of which the file gave no others."""
        return bare_values(columns_of(table, Nulls(path, first, self.nulls)), self.names)

    def refuse_nulls(self) -> None:
        """Decodes the first row group whose footer tells of nulls that nothing stands for."""
        flat = dict[str, list[int]]()  # by file: nulls inside of lists are no nulls of a column
        for block, (file, group, _) in enumerate(self.blocks):
            chunks = file.metadata.row_group(group)
            if file.path not in flat:
                wanted = {name for name in file.schema.names if name not in self.nulls}
                every = range(chunks.num_columns)
                flat[file.path] = [at for at in every if chunks.column(at).path_in_schema in wanted]
            if any(_nulls(file, group, at) for at in flat[file.path]):
                self(block)


def _with_footer(file: ByteFile, names: tuple[str, ...] | str | None) -> _ParquetFile:
    """A file, and what its footer tells.

    Raises:
        DamagedData: It is no Parquet file.
        ValueError: It has no such column.
    """
    with _reading_parquet(FileObject(file), "its footer") as opened:
        metadata = opened.metadata
        checked_schema(opened.schema_arrow)
        if names is None:
            return _ParquetFile(file, metadata, opened.schema_arrow, None)
        wanted = [names] if isinstance(names, str) else list(names)
        tops = [top_of(name, opened.schema_arrow, file.path) for name in wanted]
        schema = opened.read_row_groups([], columns=wanted).select(list(dict.fromkeys(tops))).schema
        return _ParquetFile(file, metadata, schema, wanted)


def _nulls(file: _ParquetFile, group: int, at: int) -> int:
    """How many nulls a column has in a row group, as far as the footer tells.

    Raises:
        DamagedData: It says another type there than in its schema: pyarrow would end the
            program (SIGABRT) where it reads the numbers as of the other one.
    """
    chunk = file.metadata.row_group(group).column(at)
    here, whole = chunk.physical_type, file.metadata.schema.column(at).physical_type
    if here != whole:
        said = f"its footer says {whole} of {chunk.path_in_schema!r}, and {here} in row group"
        raise damaged(file.path, _EXPECTED, f"{said} {group}")
    told = chunk.statistics
    return told.null_count if told and told.has_null_count else 0


def _first_byte(metadata: Any, group: int) -> int:
    """The byte at which a row group begins."""
    first = metadata.row_group(group).column(0)
    begin = first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset
    return int(begin)


def _ranges(file: _ParquetFile, group: int) -> list[tuple[int, int]]:
    """Where the columns of a row group lie that are wanted: offsets and sizes."""
    chunks = file.metadata.row_group(group)
    ranges = list[tuple[int, int]]()
    for chunk in map(chunks.column, range(chunks.num_columns)):
        path = f"{chunk.path_in_schema}."
        if file.wanted is None or any(path.startswith(f"{name}.") for name in file.wanted):
            begin = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                begin = min(begin, chunk.dictionary_page_offset)
            if ranges and ranges[-1][0] + ranges[-1][1] == begin:
                begin, size = ranges.pop()
                ranges.append((begin, size + chunk.total_compressed_size))
            else:
                ranges.append((begin, chunk.total_compressed_size))
    return ranges


class _Readers:
    """pyarrow's readers of files here that are idle: to make one costs a tenth of a row group."""

    def __init__(self) -> None:
        self._idle = deque[tuple[_ParquetFile, FileObject, Any]](maxlen=_READERS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without those that are open."""
        return _Readers, ()

    def take(self, file: _ParquetFile) -> tuple[FileObject, Any] | None:
        """One of this file, for the thread that asks."""
        for _ in range(len(self._idle)):
            try:
                kept = self._idle.popleft()
            except IndexError:  # other threads took the rest
                break
            if kept[0] is file:
                return kept[1:]
            self._idle.append(kept)
        return None

    def give(self, file: _ParquetFile, source: FileObject, reader: Any) -> None:
        """Takes back one that has not failed; of too many, the oldest is dropped."""
        self._idle.append((file, source, reader))


def _decoded_group(file: _ParquetFile, group: int, readers: _Readers) -> Any:
    """The table of a row group."""
    what = f"row group {group}, which begins at byte {_first_byte(file.metadata, group):,}"
    far = hasattr(file.file, "read_many")  # or pyarrow would ask for one column after another
    kept = None if far else readers.take(file)
    ranges = FetchedRanges(file.file, _ranges(file, group)) if far else file.file
    source, reader = kept or (FileObject(ranges), None)
    with _reading_parquet(source, what, file.metadata, reader) as opened:
        table = opened.read_row_group(group, columns=file.wanted, use_threads=False)
        table = table.select(file.schema.names).combine_chunks()
    if not far:
        readers.give(file, source, opened)
    return table


@contextmanager
def _reading_parquet(
    source: FileObject, what: str, metadata: Any = None, reader: Any = None
) -> Iterator[Any]:
    """A reader of pyarrow, a new one if none is given; what it raises becomes DamagedData."""
    pa = pyarrow("parquet")
    try:
        yield reader or pa.parquet.ParquetFile(
            source, metadata=metadata, pre_buffer=False, page_checksum_verification=True
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if source.error is not None:  # of our own: the file has changed, or cannot be reached
            raise source.error from None
        raise damaged(source.file.path, _EXPECTED, f"{what}: {error}") from error
