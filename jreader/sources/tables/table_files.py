"""What formats of tables share: the columns that are named, of all files, in blocks or whole.

A format extends `TableReader`, and gives the files that were opened, each a `TableFile`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

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
    """A file that has rows of a table, in blocks.

    Attributes:
        path: The file.
        schema: Of its table, as pyarrow has it.
        rows: How many rows each of its blocks has.
        table: All of it, where it lies in memory or is mapped; None if blocks have to be decoded.
        as_stored: Whether what is decoded lies in memory as the file has it (`Nulls`).
    """

    path: str
    schema: Any
    rows: Sequence[int]
    table: Any = None
    as_stored = True

    def decoded(self, number: int) -> Any:
        """The table of a block.

        Raises:
            DamagedData: It cannot be decoded.
        """
        raise NotImplementedError(f"{type(self).__name__} must define decoded(self, number)")

    def nulls_in(self, _number: int) -> Collection[str]:
        """Columns that are known to have nulls in a block before it is decoded."""
        return ()


class TableBlocks:
    """The blocks of files of one table, which are decoded by their number.

    Args:
        files: The files, by number.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: What stands for nulls.
        counts: How many rows each block of each file has, where that is known without the files.

    Attributes:
        starts: The rows at which blocks begin.
        rows: How many rows there are.
        filled: The numbers of the files that have rows; that of the first if none has.
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
        """Which blocks are read, by their rows, files, and numbers there."""
        return rows > 0

    def place(self, block: int) -> tuple[int, int, int]:
        """The number of the file of a block, its number there, and that of its first row there."""
        file, number, first = self._places[block].tolist()
        return file, number, first

    def __call__(self, block: int) -> Any:
        """The columns of a block.

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
        """The columns of no rows."""
        # `empty_table` cannot make tensors that lie in structs
        return self.columns(pyarrow().Table.from_batches([], file.schema), file)

    @property
    def mapped(self) -> bool:
        """Whether all files lie in memory or are mapped."""
        return all(self.files[at].table is not None for at in self.filled)

    def whole(self) -> Any:
        """The columns of all files, end to end."""
        files = [self.files[at] for at in self.filled]
        columns = columns_end_to_end([self.columns(file.table, file) for file in files])
        share_starts(leaves(columns))
        return columns

    def columns(self, table: Any, file: TableFile, first: int = 0) -> Any:
        """Those that are asked for, of a table whose first row has that number in its file."""
        nulls = Nulls(file.path, first, self.nulls, as_stored=file.as_stored)
        return columns_in(table, self.names, nulls)

    def doubtful(self) -> Array:
        """The numbers of the files that `check` has to look at."""
        return self.filled

    def check(self) -> None:
        """Raises ValueError if the files do not make one table, or have nulls that are known."""
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
                self(block)  # raises, and names the place of the null


@op
class TableReader(FileReader[Any], FileTable[Any]):
    """Read the rows of files of tables by number.

    Attributes:
        kept: Whether what was decoded stays in memory, if it is little (`BlockColumns`).
    """

    kept: ClassVar[bool] = False
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
        """The files by number, each a `TableFile`."""
        raise NotImplementedError(f"{type(self).__name__} must define tables(self)")

    def blocks(self, files: Any) -> TableBlocks:
        """The blocks of the files that have rows."""
        return TableBlocks(files, self.names, self.nulls or {})

    def opened(self) -> Any:
        """The columns where they lie in memory; else one whose rows are samples, in blocks."""
        files = self.tables()
        blocks = self.blocks(files)
        blocks.check()
        if blocks.mapped:
            self.check_files()  # reading beyond the end of a file that was cut would be a SIGBUS
            return blocks.whole()
        like = blocks.blank(files[blocks.filled[0]]) if self.kept else None
        return BlockColumns(blocks.starts, blocks.rows, blocks, name=repr(self), like=like)


def columns_in(table: Any, names: Sequence[str] | str | None, nulls: Nulls) -> Any:
    """The columns of a table that are asked for; of a single str, the only one.

    >>> import pyarrow as pa
    >>> columns_in(pa.table({"a": [1, 2], "b": [None, 3]}), "b", Nulls("a.arrow", 0, {"b": 0}))
    array([0, 3])

    Args:
        table: A `pyarrow.Table`.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: What stands for nulls.

    Raises:
        ValueError: There is no such column, or it has nulls that nothing stands for.
    """
    wanted = selected(table, [names] if isinstance(names, str) else names, nulls.where)
    return bare_values(columns_of(wanted, nulls), names)


def _refuse_another(columns: Any, path: str, first_columns: Any, first_path: str) -> None:
    """Raises ValueError if columns of two files do not make one table."""
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
    """For each column, what its rows are, as far as samples show it."""
    if isinstance(columns, dict):
        parts = [_kinds(part, f"{name}.{key}" if name else key) for key, part in columns.items()]
        return {key: kind for part in parts for key, kind in part.items()}
    if isinstance(columns, ArrowObjects):
        return {name: str(columns.chunks[0].array.type).replace("large_", "")}
    inside = ", ".join("..." if size is None else str(size) for size in columns.shape[1:])
    return {name: f"{columns.dtype}[{inside}]" if inside else str(columns.dtype)}
