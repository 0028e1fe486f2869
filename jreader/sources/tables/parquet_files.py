"""`parquet`: files of columns in row groups, each decoded when a row of it is wanted.

The footers of the files tell how many rows each row group has, so a row is found by its number
without reading any. A row group is the least that can be decoded: it is a block, for
`shuffle(seed=, blocks=)`, and those that come next are read and decoded ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jreader.readers import argument, op
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.file_parts import FilePart, Which
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.named_files import Paths
from jreader.sources.files.opening import open_file
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.column_names import checked_names, checked_nulls
from jreader.sources.tables.row_groups import IdleReaders, ParquetFile, RowGroups
from jreader.sources.tables.table_files import TableFile, TableReader


@op
class parquet(TableReader):
    """A reader of the rows of Parquet files, found by number; only the columns asked for are read.

    Samples are dicts, in which numbers and times are those of NumPy, lists of a fixed size are
    arrays, other lists of numbers are arrays that differ in length, structs are dicts, and text and
    bytes are Python's. Batches are stacked if all columns can be.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow, pyarrow.parquet
    >>> from jreader import batch
    >>> table = pyarrow.table({"x": [1.0, 2.0, 3.0], "label": [5, 0, 4], "name": ["a", "b", "c"]})
    >>> with TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/part-0.parquet")
    ...     rows = parquet(f"{folder}/*.parquet", columns=["label", "x"])
    ...     len(rows), next(iter(batch(rows, 2)())).columns
    (3, {'label': array([5, 0]), 'x': array([1., 2.])})

    A row group is decoded as a whole, so a shuffle over all rows decodes most of them again and
    again: `shuffle(seed=0, blocks=64)` decodes each once in an epoch.

    Damage raises `DamagedData`, with one exception: 1 in 200 flipped bits of a footer makes pyarrow
    abort the process when it reads the metadata of a column. Checking for these first would take
    five times as long as reading the footer.

    Args:
        paths: A file, a folder (its `.parquet` files), a pattern such as `"data/*.parquet"`, or a
            list of these: one table, in that order. The files of a folder or pattern are sorted by
            name. Or one part of a file, as `files(paths, parts=n)` gives it.
        columns: The names of the columns to read, in the order that samples are to have; of a
            struct also some fields (`"image.bytes"`). None for all columns. A single str gives bare
            values instead of dicts.
        nulls: What stands for nulls, by column: `{"age": -1}`, `{"point.x": 0.0}` for the field of
            a struct, `{"ids[]": 0}` for the values of lists. Without it, a null is an error.
        store: What keeps blocks of files that lie elsewhere (`Store`).

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor a path, or columns are not names.
        FileNotFoundError: A file does not exist, or a pattern or a folder has none.
        ValueError: When a pass begins: there is no such column, a column has another type in
            another file, or has nulls (which only some files tell so early; otherwise the row group
            that has them raises it).
        DamagedData: When a pass begins, or comes to the row group: a file is truncated, of another
            format, or has changed since it was first read, or a checksum does not match.
    """

    call = "parquet(paths, columns, nulls)"
    suffixes = (".parquet",)
    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)
    store: Store | None = argument(checked_store, default=None, cursor="never")
    part: Which | None = argument(default=None, cursor="if given")

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

    def tables(self) -> list[ParquetFile]:
        """The files, whose footers are read on several threads."""
        part = None if self.part is None else FilePart(self.paths[0], *self.part)
        idle, store, names = IdleReaders(), self.store, self.names
        return in_threads(
            lambda path: ParquetFile(open_file(path, store), names, idle, part), self.paths
        )

    def blocks(self, files: Sequence[TableFile]) -> RowGroups:
        """The row groups."""
        return RowGroups(files, self.names, self.nulls or {})
