"""`arrow`: files of Arrow's own format (IPC), mapped into memory as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jreader.readers import leaves, op, set_fields
from jreader.readers.joined_columns import share_starts
from jreader.sources.blocks import BlockColumns
from jreader.sources.columns import Table
from jreader.sources.file_checks import FileNode
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.named_files import Paths, files_named, written
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.joined_tables import columns_end_to_end, refuse_another
from jreader.sources.tables.record_batches import Batches, TableBlocks, columns_in
from jreader.sources.tables.table_arguments import check_fills, checked_names, checked_nulls, shown

_CALL = "arrow(paths, columns, nulls)"


@op
class arrow(FileNode[Any], Table[Any]):
    """A reader of the rows of Arrow files (IPC, `.arrow` or `.feather`), mapped into memory.

    It reads the file format, and the streaming format, which Hugging Face's caches have. Numbers
    without nulls are read where they lie in the file, so a batch is one gather for each column.
    Samples are dicts, as those of `parquet` are. In files whose batches are compressed, a record
    batch is decoded when a row of it is wanted: it is a block, for `shuffle(seed=, blocks=64)`.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow, pyarrow.feather
    >>> table = pyarrow.table({"x": [1.0, 2.0, 3.0], "ids": [[1], [], [2, 3]]})
    >>> with TemporaryDirectory() as folder:
    ...     pyarrow.feather.write_feather(table, f"{folder}/a.arrow", compression="uncompressed")
    ...     [(float(row["x"]), row["ids"].tolist()) for row in arrow(f"{folder}/*.arrow")()]
    [(1.0, [1]), (2.0, []), (3.0, [2, 3])]

    Args:
        paths: A file, a folder (its `.arrow` and `.feather` files), a pattern such as
            `"data/*.arrow"`, or a list of these: one table, in that order. The files of a folder or
            pattern are sorted by name.
        columns: The names of the columns to read, in the order that samples are to have; of a
            struct also some fields (`"image.bytes"`). None for all columns. A single str gives bare
            values instead of dicts.
        nulls: What stands for nulls, by column: `{"age": -1}`, `{"point.x": 0.0}` for the field of
            a struct, `{"ids[]": 0}` for the values of lists. Without it, a null is an error.

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor a path, or columns are not names.
        FileNotFoundError: A file does not exist, or a pattern or a folder has none.
        ValueError: A file is elsewhere (`s3://`, say); or, when a pass begins: there is no such
            column, a column has another type in another file, or it has nulls (in compressed files,
            when the pass comes to them).
        DamagedData: When a pass begins: a file is truncated, of another format, or has changed
            since it was first read.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = None
    nulls: Mapping[str, Any] | None = None

    def __init__(
        self,
        paths: Paths,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
    ) -> None:
        pyarrow()
        set_fields(
            self,
            paths=files_named(_CALL, paths, (".arrow", ".feather"), far=False),
            names=checked_names(_CALL, columns),
            nulls=checked_nulls(_CALL, nulls),
        )

    @cached_property
    def columns(self) -> Any:
        """The columns, over the memory of the mapped files; of compressed ones, blocks."""
        self.check_files()
        files, nulls = in_threads(Batches.of, self.paths), self.nulls or {}
        self.check_files()  # which may have changed while their messages were read
        filled = [file for file in files if any(file.rows)] or files[:1]
        first, blank = filled[0], self._blank(filled[0])
        for file in filled[1:]:
            if not file.schema.equals(first.schema):
                refuse_another(self._blank(file), file.path, blank, first.path)
        if any(file.table is None for file in filled):
            blocks = TableBlocks(filled, self.names, nulls)
            return BlockColumns(blocks.starts, blocks.rows, blocks, name=repr(self))
        trees = [columns_in(file.table, file.path, 0, self.names, nulls) for file in filled]
        columns = columns_end_to_end(trees)
        share_starts(leaves(columns))
        return columns

    def _blank(self, file: Batches) -> Any:
        """The columns of no rows."""
        table, nulls = file.schema.empty_table(), self.nulls or {}
        columns = columns_in(table, file.path, 0, self.names, nulls)
        check_fills(nulls, self.names or table.column_names)
        return columns

    def __repr__(self) -> str:
        """The call that makes this reader; of many files, the first and the last."""
        return f"arrow({', '.join([written(self.paths), *shown(self.names, self.nulls)])})"
