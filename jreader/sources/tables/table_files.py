"""Shared code of table formats: select the named columns of all files, in blocks or whole.

A format extends `TableReader`, and returns the opened files, each a `TableFile`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from jreader.readers import argument, leaves, op
from jreader.readers.columns import Array
from jreader.readers.joined_columns import share_starts
from jreader.readers.ragged import Ragged
from jreader.sources.blocks import BlockColumns
from jreader.sources.columns import FileTable
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.file_readers import FileReader, Paths
from jreader.sources.tables.arrow_columns import (
    ArrowObjects,
    Nulls,
    columns_end_to_end,
    columns_of,
    pyarrow,
)
from jreader.sources.tables.column_names import (
    bare_values,
    check_fills,
    checked_names,
    checked_nulls,
    selected,
)


class TableFile:
    """A file with rows of a table, in blocks.

    Attributes:
        path: The file.
        schema: The pyarrow schema of its table.
        rows: The number of rows in each block.
        table: The whole table, if it is in memory or mapped; None if blocks have to be decoded.
        as_stored: True if decoded data are in memory as the file has them (`Nulls`).
    """

    path: str
    schema: Any
    rows: Sequence[int]
    table: Any = None
    as_stored = True

    def decoded(self, number: int) -> Any:
        """Decode a block to a table.

        Raises:
            DamagedData: It cannot be decoded.
        """
        raise NotImplementedError(f"{type(self).__name__} must define decoded(self, number)")

    def nulls_in(self, _number: int) -> Collection[str]:
        """Return the columns known to have nulls in a block before it is decoded."""
        return ()


class TableBlocks:
    """The blocks of the files of one table, decoded by number.

    Args:
        files: The files, by number.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: The replacements for nulls.
        counts: The number of rows of each block of each file, if known without opening the files.

    Attributes:
        starts: The row where each block begins.
        rows: The number of rows.
        filled: The indices of non-empty files; that of the first if all are empty.
    """

    def __init__(
        self,
        files: Any,
        names: Sequence[str] | str | None,
        nulls: Mapping[str, Any],
        counts: Ragged | None = None,
    ) -> None:
        self.files, self.names, self.nulls = files, names, nulls
        if counts is None:
            ends = np.cumsum([0, *(len(file.rows) for file in files)])
            rows = np.fromiter(chain.from_iterable(file.rows for file in files), np.int64, ends[-1])
            counts = Ragged(rows, ends)
        rows, begins = counts.values, counts.offsets
        many, before = np.diff(begins), np.append(0, np.cumsum(rows))
        of_file = np.repeat(np.arange(len(many)), many)
        numbers = np.arange(len(rows)) - begins[:-1][of_file]
        firsts = before[:-1] - before[begins[:-1]][of_file]
        wanted = self.wanted(rows, of_file, numbers)
        self._places = np.stack([of_file, numbers, firsts], axis=1)[wanted]
        self.starts, self.rows = np.append(0, np.cumsum(rows[wanted]))[:-1], int(rows[wanted].sum())
        filled = np.flatnonzero(np.bincount(of_file, rows > 0))
        self.filled: Array = filled if len(filled) else np.zeros(1, np.int64)

    def wanted(self, rows: Array, _files: Array, _numbers: Array) -> Array:
        """Select the blocks to read, by their rows, files, and numbers in these."""
        return rows > 0

    def place(self, block: int) -> tuple[int, int, int]:
        """Return the file index of a block, its number in the file, and its first row there."""
        file, number, first = self._places[block].tolist()
        return file, number, first

    def __call__(self, block: int) -> Any:
        """Return the columns of a block.

        Raises:
            DamagedData: It cannot be decoded.
            ValueError: It has nulls.
        """
        if not len(self._places):
            return self.blank(self.files[self.filled[0]])
        at, number, first = self.place(block)
        file = self.files[at]
        return self.columns(file.decoded(number), file, first)

    def blank(self, file: TableFile) -> Any:
        """Return the columns without rows."""
        # `empty_table` does not support tensors in structs
        return self.columns(pyarrow().Table.from_batches([], file.schema), file)

    @property
    def in_memory(self) -> bool:
        """True if all files are in memory or mapped: `whole` returns the columns."""
        return all(self.files[at].table is not None for at in self.filled)

    def whole(self, _name: str) -> Any:
        """Return the columns of all files, concatenated; `_name` is that of the table."""
        files = [self.files[at] for at in self.filled]
        columns = columns_end_to_end([self.columns(file.table, file) for file in files])
        share_starts(leaves(columns))
        return columns

    def columns(self, table: Any, file: TableFile, first: int = 0) -> Any:
        """Select the columns of a table whose first row is row `first` of its file."""
        nulls = Nulls(file.path, first, self.nulls, as_stored=file.as_stored)
        return columns_in(table, self.names, nulls)

    def doubtful(self) -> Array:
        """Return the indices of the files that `check` has to examine."""
        return self.filled

    def check(self) -> None:
        """Raise ValueError if the files do not form one table, or are known to have nulls."""
        first = self.files[self.filled[0]]
        columns = self.blank(first)
        check_fills(self.nulls, self.names or first.schema.names)
        doubtful = self.doubtful()
        for file in (self.files[at] for at in doubtful):
            if not file.schema.equals(first.schema):
                _refuse_another(self.blank(file), file.path, columns, first.path)
        for block in np.flatnonzero(np.isin(self._places[:, 0], doubtful)).tolist():
            at, number, _ = self.place(block)
            if {*self.files[at].nulls_in(number)} - {*self.nulls}:
                self(block)  # raises, naming the row of the null


@op
class TableReader(FileReader[Any], FileTable[Any]):
    """Read the rows of table files by number."""

    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)
    store: Store | None = argument(checked_store, default=None, cursor="never")

    def __init__(
        self,
        paths: Paths,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
        *,
        store: Store | None = None,
    ) -> None:
        pyarrow()
        self.keep(paths, names=columns, nulls=nulls, store=store)

    def tables(self) -> Any:
        """Return the files by number, each a `TableFile`."""
        raise NotImplementedError(f"{type(self).__name__} must define tables(self)")

    def blocks(self, files: Any) -> TableBlocks:
        """Return the blocks of non-empty files."""
        return TableBlocks(files, self.names, self.nulls or {})

    def opened(self) -> Any:
        """Return the columns if they are in memory or mapped; else one of samples, in blocks."""
        files = self.tables()
        blocks = self.blocks(files)
        blocks.check()
        if blocks.in_memory:
            self.check_files()  # reading beyond the end of a truncated file would raise SIGBUS
            return blocks.whole(repr(self))
        return BlockColumns(blocks.starts, blocks.rows, blocks, name=repr(self))


def columns_in(table: Any, names: Sequence[str] | str | None, nulls: Nulls) -> Any:
    """Return the named columns of a table; for a single str, the only one.

    >>> import pyarrow as pa
    >>> columns_in(pa.table({"a": [1, 2], "b": [None, 3]}), "b", Nulls("a.arrow", 0, {"b": 0}))
    array([0, 3])

    Args:
        table: A `pyarrow.Table`.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: The replacements for nulls.

    Raises:
        ValueError: There is no such column, or it has nulls without a replacement.
    """
    wanted = selected(table, [names] if isinstance(names, str) else names, nulls.where)
    return bare_values(columns_of(wanted, nulls), names)


def _refuse_another(columns: Any, path: str, first_columns: Any, first_path: str) -> None:
    """Raise ValueError if the columns of two files do not form one table."""
    kinds, first_kinds = _kinds(columns), _kinds(first_columns)
    differ = [
        f"{name or 'it'} is {kinds.get(name, 'missing')}, not {first_kinds.get(name, 'there')}"
        for name in first_kinds | kinds
        if kinds.get(name) != first_kinds.get(name)
    ]
    if differ:
        raise ValueError(
            f"{path} has other columns than {first_path}: {', '.join(differ)}. Name those that all "
            f"files have, with columns=[...], or write the files alike."
        )


def _kinds(columns: Any, name: str = "") -> dict[str, str]:
    """Return the type of each column's rows, as far as samples show it."""
    if isinstance(columns, dict):
        parts = [_kinds(part, f"{name}.{key}" if name else key) for key, part in columns.items()]
        return {key: kind for part in parts for key, kind in part.items()}
    if isinstance(columns, ArrowObjects):
        return {name: str(columns.chunks[0].array.type).replace("large_", "")}
    inside = ", ".join("..." if size is None else str(size) for size in columns.shape[1:])
    return {name: f"{columns.dtype}[{inside}]" if inside else str(columns.dtype)}
