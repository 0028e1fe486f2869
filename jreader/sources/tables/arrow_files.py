"""`arrow`: files of Arrow's own format (IPC), mapped into memory as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jreader.readers import argument, op
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.named_files import Paths
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.column_names import checked_names, checked_nulls
from jreader.sources.tables.record_batches import ArrowFile
from jreader.sources.tables.table_files import TableReader


@op
class arrow(TableReader):
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

    call = "arrow(paths, columns, nulls)"
    suffixes = (".arrow", ".feather")
    far = False
    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)

    def __init__(
        self,
        paths: Paths,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
    ) -> None:
        pyarrow()
        self.keep(paths, names=columns, nulls=nulls)

    def tables(self) -> list[ArrowFile]:
        """The files, mapped; of compressed ones, only heads of record batches are read."""
        return in_threads(ArrowFile, self.paths)
