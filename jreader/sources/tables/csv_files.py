"""`csv`: files of comma-separated values, found by number, decoded in blocks of whole records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jreader.readers import argument, op
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.named_files import Paths
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.column_names import checked_names, checked_nulls
from jreader.sources.tables.csv_decoding import CsvLayout
from jreader.sources.tables.csv_tables import CsvTable, tables
from jreader.sources.tables.csv_types import checked_types
from jreader.sources.tables.table_files import TableBlocks, TableFile, TableReader


def _checked_delimiter(call: str, given: Any) -> str:
    if not isinstance(given, str) or len(given) != 1 or not given.isascii() or given in '"\r\n\0':
        kind = ValueError if isinstance(given, str) else TypeError
        raise kind(
            f"{call} needs one character of ASCII as delimiter, such as ',', ';' or '\\t', not "
            f"{given!r}."
        )
    return given


def _checked_header(call: str, given: Any) -> tuple[str, ...] | None:
    if given is True:
        return None
    several = tuple(given) if isinstance(given, (list, tuple)) else ()
    if not several or not all(isinstance(name, str) for name in several):
        raise TypeError(
            f"{call} needs header=True for files that begin with the names of their columns, or "
            f"the names, such as header=['label', 'x'], not {given!r}."
        )
    if len({*several}) < len(several):
        raise ValueError(f"{call} was given a header with one name twice: {given!r}.")
    return several


@op
class csv(TableReader):
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

    call = "csv(paths, columns, nulls, types=, delimiter=, header=)"
    suffixes = (".csv", ".csv.gz")
    paths: tuple[str, ...]
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)
    types: Mapping[str, Any] | None = argument(checked_types, default=None)
    delimiter: str = argument(_checked_delimiter, default=",")
    header: tuple[str, ...] | None = argument(_checked_header, default=None)
    store: Store | None = argument(checked_store, default=None, cursor="never")

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
        self.keep(
            paths,
            names=columns,
            nulls=nulls,
            types=types,
            delimiter=delimiter,
            header=header,
            store=store,
        )

    def tables(self) -> list[CsvTable]:
        """The files, decoded, or as they were kept."""
        layout = CsvLayout(self.delimiter, self.header, self.names, self.types or {})
        return tables(self.paths, layout, self.store)

    def blocks(self, files: Sequence[TableFile]) -> TableBlocks:
        """The blocks, with columns in the order of the first file."""
        return TableBlocks(files, self.names or files[0].schema.names, self.nulls or {})

    def shown(self) -> dict[str, Any]:
        """The arguments behind the paths, as a user would type them."""
        types = {name: str(kind) for name, kind in (self.types or {}).items()}
        return super().shown() | ({"types": types} if types else {})
