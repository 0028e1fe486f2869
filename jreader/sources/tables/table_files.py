"""What formats of tables share: the columns that are named, of all files, in blocks or whole.

A format extends `TableReader`, and gives the files that were opened, each a `TableFile`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from jreader.readers import leaves
from jreader.readers.joined_columns import begins, share_starts
from jreader.sources.blocks import BlockColumns
from jreader.sources.columns import FileTable
from jreader.sources.files.file_readers import FileReader
from jreader.sources.tables.arrow_columns import (
    ArrowObjects,
    Nulls,
    columns_end_to_end,
    columns_of,
    pyarrow,
)
from jreader.sources.tables.column_names import bare_values, check_fills, selected


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

    def wants(self, _number: int) -> bool:
        """Whether a block is one of those that are read."""
        return True

    def nulls_in(self, _number: int) -> Collection[str]:
        """Columns that are known to have nulls in a block before it is decoded."""
        return ()


class TableBlocks:
    """The blocks of files of one table, which are decoded by their number.

    Args:
        files: The files.
        names: The names of the columns; a single str for bare values; None for all.
        nulls: What stands for nulls.

    Attributes:
        blocks: The file of each, its number there, and the number there of its first row.
        starts: The rows at which blocks begin.
        rows: How many rows there are.
    """

    def __init__(
        self,
        files: Sequence[Any],
        names: Sequence[str] | str | None,
        nulls: Mapping[str, Any],
    ) -> None:
        self.files, self.names, self.nulls = list(files), names, nulls
        self.blocks = [
            (file, number, first)
            for file in files
            for number, (first, many) in enumerate(zip(begins(file.rows), file.rows, strict=False))
            if many and file.wants(number)
        ]
        counts = [file.rows[number] for file, number, _ in self.blocks]
        self.starts, self.rows = np.array(begins(counts)), sum(counts)

    def __call__(self, block: int) -> Any:
        """The columns of a block.

        Raises:
            DamagedData: It cannot be decoded.
            ValueError: It has nulls.
        """
        if not self.blocks:
            return self.blank(self.files[0])
        file, number, first = self.blocks[block]
        return self.columns(file.decoded(number), file, first)

    def blank(self, file: TableFile) -> Any:
        """The columns of no rows."""
        # `empty_table` cannot make tensors that lie in structs
        return self.columns(pyarrow().Table.from_batches([], file.schema), file)

    def whole(self) -> Any:
        """The columns of all files, end to end."""
        columns = columns_end_to_end([self.columns(file.table, file) for file in self.files])
        share_starts(leaves(columns))
        return columns

    def columns(self, table: Any, file: TableFile, first: int = 0) -> Any:
        """Those that are asked for, of a table whose first row has that number in its file."""
        nulls = Nulls(file.path, first, self.nulls, as_stored=file.as_stored)
        return columns_in(table, self.names, nulls)

    def check(self) -> None:
        """Raises ValueError if the files do not make one table, or have nulls that are known."""
        first, columns = self.files[0], self.blank(self.files[0])
        check_fills(self.nulls, self.names or first.schema.names)
        for file in self.files[1:]:
            if not file.schema.equals(first.schema):
                _refuse_another(self.blank(file), file.path, columns, first.path)
        for block, (file, number, _) in enumerate(self.blocks):
            if {*file.nulls_in(number)} - {*self.nulls}:
                self(block)  # which says where the null is


class TableReader(FileReader[Any], FileTable[Any]):
    """A reader of the rows of files of tables, found by number."""

    names: tuple[str, ...] | str | None
    nulls: Mapping[str, Any] | None

    def tables(self) -> Sequence[TableFile]:
        """The files, opened."""
        raise NotImplementedError(f"{type(self).__name__} must define tables(self)")

    def blocks(self, files: Sequence[TableFile]) -> TableBlocks:
        """The blocks of the files that have rows."""
        return TableBlocks(files, self.names, self.nulls or {})

    def opened(self) -> Any:
        """The columns where they lie in memory; else one whose rows are samples, in blocks."""
        files = self.tables()
        blocks = self.blocks([file for file in files if any(file.rows)] or files[:1])
        blocks.check()
        if all(file.table is not None for file in blocks.files):
            self.check_files()  # reading beyond the end of a file that was cut would be a SIGBUS
            return blocks.whole()
        return BlockColumns(blocks.starts, blocks.rows, blocks, name=repr(self))


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
