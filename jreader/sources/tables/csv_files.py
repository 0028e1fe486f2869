"""`csv`: files of comma-separated values, found by number, decoded in blocks of whole records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jreader.readers import argument, op, set_fields
from jreader.sources.blocks import BlockColumns
from jreader.sources.columns import Table
from jreader.sources.file_checks import FileNode
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.named_files import Paths, files_named, written
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.csv_decoding import CsvLayout
from jreader.sources.tables.csv_tables import tables
from jreader.sources.tables.csv_types import checked_types
from jreader.sources.tables.record_batches import TableBlocks
from jreader.sources.tables.table_arguments import check_fills, checked_names, checked_nulls, shown

_CALL = "csv(paths, columns, nulls, types=, delimiter=, header=)"


@op
class csv(FileNode[Any], Table[Any]):
    r"""A reader of the records of CSV files, found by number; each sample is a dict.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader import batch
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text('label,x,name\n5,1.5,"A, ""A"" or\nB"\n0,2,C')
    ...     rows = csv(folder)
    ...     len(rows), [row["name"] for row in rows()]
    ...     next(iter(batch(csv(folder, columns=["label", "x"]), 2)())).columns
    (2, ['A, "A" or\nB', 'C'])
    {'label': array([5, 0]), 'x': array([1.5, 2. ])}

    Fields in quotes may hold delimiters, newlines and doubled quotes; empty lines are skipped.
    Lines end with LF, CR LF or CR. Files are in UTF-8, with a byte order mark or without.

    Columns are of the types that pyarrow finds in them: whole numbers (int64, or uint64 where one
    needs it), floats, booleans (true, false), dates and times in the notation of ISO 8601, and
    text; the narrowest of these that holds *all* values of *all* files. Whole numbers that 64 bits
    cannot hold are text. One fraction makes a column of floats (float64), which round whole numbers
    beyond 2**53. `types` says what a column is instead: `str` keeps all digits, and text such as
    the postal code 01067, which would be the number 1067.

    The first pass decodes everything to find the types, on several threads, and keeps what it
    decoded: in memory, or, for 16 MB or more, in the folder `jreader/csv` of `$XDG_CACHE_HOME` or
    `~/.cache`, for as long as the files do not change. That folder needs about as much room as the
    files. Later passes and later runs read blocks of about a megabyte from there, and those that
    come next ahead: `shuffle(seed=0, blocks=64)` reads each once in an epoch. A file whose name
    ends in `.gz` is one block, which is unpacked as a whole: keep such files small, or unpack them.

    Args:
        paths: A file, a folder (its `.csv` and `.csv.gz` files), a pattern such as `"data/*.tsv"`,
            or a list of these: one table, in that order. The files of a folder or pattern are
            sorted by name.
        columns: The names of the columns to read, in the order that samples are to have; None for
            all. A single str gives bare values instead of dicts.
        nulls: What stands for nulls, by column: `{"age": -1}`. Without it, a null is an error.
            Nulls are empty fields, NA, N/A, n/a, #N/A, NULL, null, None and none, in columns that
            are not text; in those, they are text.
        types: The types of columns, by name: a dtype of NumPy (`np.int32`, `"datetime64[s]"`),
            `str`, `bytes`, or a type of pyarrow. Those of other columns are found.
        delimiter: What stands between fields: one character of ASCII, such as `"\t"`.
        header: True if the first record of each file names its columns; otherwise the names, as a
            list: then the first record is a sample.
        store: What keeps blocks of files that lie elsewhere (`Store`).

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor a path, or columns, types or header have the wrong
            form.
        FileNotFoundError: A file does not exist, or a pattern or a folder has none.
        ValueError: The delimiter is not one ASCII character; or, when a pass begins: there is no
            such column, a file has other columns, or there are nulls; or, when it comes to the
            record: a value is not of the type that was said.
        DamagedData: When a pass begins: a file is of another format, or empty, or has changed since
            it was first read. When it comes to the record: that has too few or too many fields,
            bytes that are not UTF-8, or a quote that is never closed, or what is packed is damaged.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = None
    nulls: Mapping[str, Any] | None = None
    types: Mapping[str, Any] | None = None
    delimiter: str = ","
    header: tuple[str, ...] | None = None
    store: Store | None = argument(default=None, cursor="never")

    def __init__(
        self,
        paths: Paths,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
        *,
        types: Mapping[str, Any] | None = None,
        delimiter: str = ",",
        header: bool | Sequence[str] = True,
        store: Store | None = None,
    ) -> None:
        pyarrow()
        set_fields(
            self,
            paths=files_named(_CALL, paths, (".csv", ".csv.gz")),
            names=checked_names(_CALL, columns),
            nulls=checked_nulls(_CALL, nulls),
            types=checked_types(_CALL, types),
            delimiter=_checked_delimiter(delimiter),
            header=_checked_header(header),
            store=checked_store(_CALL, store),
        )

    @cached_property
    def columns(self) -> BlockColumns:
        """A single column whose rows are the samples; the files are looked through at first use."""
        self.check_files()
        layout = CsvLayout(self.delimiter, self.header, self.names, self.types or {})
        found, nulls = tables(self.paths, layout, self.store), self.nulls or {}
        self.check_files()  # which may have changed while they were decoded
        wanted = found[0].file.wanted
        check_fills(nulls, wanted)
        blocks = TableBlocks(found, self.names or wanted, nulls)
        for number, (table, block, _) in enumerate(blocks.blocks):
            if any(table.found.nulls[name] == block for name in {*table.found.nulls} - {*nulls}):
                blocks(number)  # which says where the null is
        return BlockColumns(blocks.starts, blocks.rows, blocks, name=repr(self))

    def __repr__(self) -> str:
        """The call that makes this reader; of many files, the first and the last."""
        said = [written(self.paths), *shown(self.names, self.nulls)]
        if self.types:
            said.append(f"types={ {name: str(kind) for name, kind in self.types.items()} }")
        if self.delimiter != ",":
            said.append(f"delimiter={self.delimiter!r}")
        if self.header is not None:
            said.append(f"header={list(self.header)!r}")
        return f"csv({', '.join(said)})"


def _checked_delimiter(given: Any) -> str:
    if not isinstance(given, str) or len(given) != 1 or not given.isascii() or given in '"\r\n\0':
        kind = ValueError if isinstance(given, str) else TypeError
        raise kind(
            f"{_CALL} needs one character of ASCII as delimiter, such as ',', ';' or '\\t', not "
            f"{given!r}."
        )
    return given


def _checked_header(given: Any) -> tuple[str, ...] | None:
    if given is True:
        return None
    several = tuple(given) if isinstance(given, (list, tuple)) else ()
    if not several or not all(isinstance(name, str) for name in several):
        raise TypeError(
            f"{_CALL} needs header=True for files that begin with the names of their columns, or "
            f"the names, such as header=['label', 'x'], not {given!r}."
        )
    if len({*several}) < len(several):
        raise ValueError(f"{_CALL} was given a header with one name twice: {given!r}.")
    return several
