"""`csv`: read comma-separated values by record number, decoded once and cached.

The column types are known only after decoding all records. So the decoded table is cached: in
memory, or, from 16 MB on, as an Arrow file in the cache folder. Numbers of at most 64 MB also stay
in memory, as one array per column; their Arrow file saves later runs from decoding them again. Only
larger Arrow files are compressed, if the first block shows that this saves much. They are opened
again for each block, since mapped pages count as memory.

A file is decoded with the types of its first records. If later records, or other files of the
table, need wider types, it is decoded again with those: numbers cannot become text later, since 007
is 7 by then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jreader.errors import DamagedData, warn
from jreader.readers import argument, leaves, map_tree, op
from jreader.readers.columns import Array
from jreader.sources.blocks import BlockColumns, BlocksInMemory
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import Paths
from jreader.sources.files.index_cache import in_threads, kept_files, name_of
from jreader.sources.files.stored_files import open_file
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.csv_decoding import CsvFile, CsvLayout, Part
from jreader.sources.tables.csv_types import TEXT, UNKNOWN, checked_types, joint_kind, of_types
from jreader.sources.tables.table_files import TableBlocks, TableFile, TableReader
from jreader.sources.transactions import new_file

_INDEX_KIND = "csv"  # subfolder of the cache folder
_KEPT = 64 << 20  # bytes of the numbers of all files that stay in memory
_WORTH = 0.75  # compressing takes a third of the time of decoding: use it if it saves a quarter


class TableSummary(NamedTuple):
    """The properties of a decoded table.

    Attributes:
        rows: The number of records in each block.
        kinds: The kind of each column.
        nulls: The first block with a null, for each column that has nulls.
        wrong: If the last block is an unreadable record: whether the file is damaged, and the error
            message.
    """

    rows: list[int]
    kinds: dict[str, str]
    nulls: dict[str, int]
    wrong: tuple[bool, str] | None

    def widen(self, parts: Sequence[Part]) -> None:
        """Widen the column kinds to those of decoded parts."""
        for _, found in parts:
            for name, kind in found.items():
                self.kinds[name] = joint_kind([self.kinds[name], kind])

    def added(self, table: Any) -> Iterator[Any]:
        """Record the blocks of a table; yield them."""
        for batch in table.combine_chunks().to_batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if column.null_count:
                    self.nulls.setdefault(name, len(self.rows))
            self.rows.append(batch.num_rows)
            yield batch


class CsvTable(TableFile):
    """The decoded table of a CSV file, in blocks.

    Args:
        file: The file.
        found: The properties of its table.
        data: Its blocks, or the path of the Arrow file with them.
    """

    def __init__(self, file: CsvFile, found: TableSummary, data: Any) -> None:
        self.file, self.found, self.data = file, found, data
        self.path, self.rows = file.file.path, found.rows
        self.schema = file.schema(found.kinds)

    @classmethod
    def made(
        cls,
        file: CsvFile,
        bytes_of: ByteFile,
        known: Mapping[str, str],
        path: Path | None,
        most: float,
    ) -> CsvTable:
        """Decode a file, given known column kinds; write it to `path` or keep it in memory.

        Numbers of up to `most` bytes also stay in memory if they are written.
        """
        if path is None:
            return cls(file, *_decoded_blocks(file, bytes_of, known, None, math.inf))
        with new_file(path, durable=True) as aside:
            found, blocks = _decoded_blocks(file, bytes_of, known, aside, most)
        return cls(file, found, blocks or path)

    @classmethod
    def kept(cls, file: CsvFile, path: Path) -> CsvTable | None:
        """Return the cached table; None if it is missing or damaged."""
        pa = pyarrow()
        with suppress(OSError, ValueError, pa.ArrowException), pa.memory_map(str(path)) as data:
            opened = pa.ipc.open_file(data)
            last = opened.get_batch_with_custom_metadata(opened.num_record_batches - 1)
            found = TableSummary(*json.loads(last.custom_metadata[b"found"]))
            return None if found.wrong else cls(file, found, path)
        return None

    def nulls_in(self, number: int) -> list[str]:
        """Return the columns whose first nulls are in this block."""
        return [name for name, block in self.found.nulls.items() if block == number]

    def decoded(self, number: int) -> Any:
        """Return the table of a block.

        Raises:
            DamagedData: It is a record that cannot be read.
            ValueError: It has a value that is not of the given type.
        """
        pa, wrong, data = pyarrow(), self.found.wrong, self.data
        if wrong and number == len(self.rows) - 1:
            is_damaged, said = wrong
            raise DamagedData(said) if is_damaged else ValueError(said)
        if isinstance(data, Path):
            try:
                with pa.OSFile(str(data)) as opened:
                    return pa.Table.from_batches([pa.ipc.open_file(opened).get_batch(number)])
            except FileNotFoundError:  # the cache folder was cleared
                again = CsvTable.made(self.file, self.file.file, self.found.kinds, None, 0)
                data = self.data = again.data
        return pa.Table.from_batches([data[number]])


class CsvBlocks(TableBlocks):
    """The blocks of CSV files; they stay in memory if they are few numbers."""

    @property
    def in_memory(self) -> bool:
        """True if all columns are numbers, of at most 64 MB, and each record can be read."""
        columns = leaves(self.blank(self.files[0]))
        if any(file.found.wrong for file in self.files) or not all(map(_holds_numbers, columns)):
            return False
        size: int = sum(column.itemsize for column in columns)
        return self.rows * size <= _KEPT

    def whole(self, name: str) -> BlockColumns:
        """Return the columns of all blocks, concatenated: still one column of samples.

        So tables join into one plan, be they small or large.
        """
        blocks = map(self, range(max(len(self.starts), 1)))
        return BlocksInMemory(self.starts, map_tree(_concatenated, *blocks), name=name)


def tables(paths: Sequence[str], layout: CsvLayout, store: Store | None) -> list[CsvTable]:
    """Return the tables of files, all with the same column types.

    Raises:
        DamagedData: A file has another format, or no header.
        ValueError: A file has other columns.
    """
    opened = [open_file(path, store) for path in paths]
    files = in_threads(partial(CsvFile, layout=layout), opened)
    for file in files[1:]:
        _refuse_others(file, files[0])
    share = _KEPT / max(sum(file.size for file in opened), 1)
    known = dict.fromkeys(files[0].wanted, UNKNOWN)
    return _of_joint_types(_kept_tables(files, known, share), share)


def _of_joint_types(found: list[CsvTable], share: float) -> list[CsvTable]:
    """Decode tables again whose types do not fit the values of all tables."""
    names = found[0].file.wanted
    kinds = {name: joint_kind(table.found.kinds[name] for table in found) for name in names}
    types = {name: TEXT if kind == UNKNOWN else kind for name, kind in kinds.items()}
    narrow = [table.file for table in found if table.schema != table.file.schema(types)]
    again = iter(_kept_tables(narrow, types, share))
    return [next(again) if table.file in narrow else table for table in found]


def _refuse_others(file: CsvFile, first: CsvFile) -> None:
    """Raise ValueError if two files do not have the same columns."""
    if odd := {*file.wanted} ^ {*first.wanted}:
        name = min(odd)
        has = file if name in file.wanted else first
        raise ValueError(
            f"{file.file.path} has other columns than {first.file.path}: {name!r}, which only "
            f"{has.file.path} has. Name those that all files have, with columns=[...]."
        )


def _kept_tables(
    files: Sequence[CsvFile], known: Mapping[str, str], share: float
) -> list[CsvTable]:
    """Return the tables of files with known column kinds, from the cache or decoded again.

    `share` is how many decoded bytes may stay in memory for each byte of a file.
    """
    of = {file.file.path: file for file in files}

    def name(opened: ByteFile) -> str:
        return f"{name_of(opened, of[opened.path].layout.asked(known))}.arrow"

    def load(opened: ByteFile, path: Path) -> CsvTable | None:
        return CsvTable.kept(of[opened.path], path)

    def make(opened: ByteFile, path: Path | None) -> CsvTable:
        try:
            return CsvTable.made(of[opened.path], opened, known, path, share * opened.size)
        except OSError as error:
            if path is None or error.errno is None:  # the file failed, not the cache
                raise
            warn(
                f"what was decoded of {opened.path} cannot be kept in {str(path.parent)!r} "
                f"({error}), and stays in memory: free some room, or set XDG_CACHE_HOME to a "
                f"folder that has more."
            )
            return make(opened, None)

    return kept_files(_INDEX_KIND, [file.file for file in files], name, load, make)


def _decoded_blocks(
    file: CsvFile, bytes_of: ByteFile, known: Mapping[str, str], path: Path | None, most: float
) -> tuple[TableSummary, list[Any]]:
    """Decode a file, and write it to a path; return its properties, and its blocks if they are few.

    Blocks get the types of the first ones; if later blocks need others, all are decoded again.
    """
    decoding, size, kept = _Decoding(file, bytes_of, known), 0, list[Any]()
    fixed = all(map(pyarrow().types.is_primitive, decoding.schema.types))
    blocks, limit = decoding.blocks(), most if path is None or fixed else -1
    while size <= limit and (block := next(blocks, None)) is not None:
        kept.append(block)
        size += block.nbytes
    if path is not None and decoding.fits:
        decoding.write(path, chain(kept, blocks), compress=size > limit)
    if decoding.fits:
        return decoding.found, kept if size <= limit else []
    kept.clear()
    return _decoded_blocks(file, bytes_of, decoding.found.kinds, path, most)


class _Decoding:
    """Decodes a file to blocks with the types of the first ones.

    Args:
        file: The file.
        bytes_of: Where to read it.
        known: The known column kinds.

    Attributes:
        found: The properties of what was decoded.
        schema: The column names and types of the blocks.
        fits: Whether these types hold the values of all blocks; once they do not, `blocks` only
            finds the kinds that do.
    """

    def __init__(self, file: CsvFile, bytes_of: ByteFile, known: Mapping[str, str]) -> None:
        parts = file.parts(bytes_of, known)
        self._file, first = file, next(parts, ([], None))
        self.found, self.fits = TableSummary([], {**known}, {}, None), True
        self.found.widen(first[0])
        self.schema, self._parts = file.schema(self.found.kinds), chain([first], parts)

    def blocks(self) -> Iterator[Any]:
        """Decode and yield blocks; note a bad record, with a row for it, in `found`."""
        for some, bad in self._parts:
            self.found.widen(some)
            self.fits = self.fits and self._file.schema(self.found.kinds) == self.schema
            for decoded, _ in some:
                table = of_types(decoded, self.schema) if self.fits else None
                self.fits = table is not None
                if self.fits:
                    yield from self.found.added(table)
            if bad is not None:
                wrong = self._file.wrong(bad, sum(self.found.rows), self.found.kinds)
                self.found = self.found._replace(wrong=wrong)
                self.found.rows.append(1)

    def write(self, path: Path, blocks: Iterator[Any], *, compress: bool) -> None:
        """Write blocks, compressed if asked and worth it, and what was found, as an Arrow file."""
        pa, first = pyarrow(), list(islice(blocks, 1))
        packed = "lz4" if compress and _is_compressible(first) else None
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_file(str(path), self.schema, options=options) as opened:
            for block in chain(first, blocks):
                opened.write_batch(block)
            blank = pa.RecordBatch.from_pylist([], self.schema)
            opened.write_batch(blank, custom_metadata={"found": json.dumps(self.found)})


def _is_compressible(blocks: Sequence[Any]) -> bool:
    """Return whether LZ4 saves enough of the bytes of blocks to be worth its time."""
    pa = pyarrow()
    if not pa.Codec.is_available("lz4"):
        return False
    arrays = [column for block in blocks for column in block.columns]
    buffers = [each for array in arrays for each in array.buffers() if each is not None]
    packed: int = sum(pa.compress(each, "lz4").size for each in buffers)
    size: int = sum(each.size for each in buffers)
    return packed < _WORTH * size


def _concatenated(*parts: Array) -> Array:
    return np.concatenate(parts)


def _holds_numbers(column: Any) -> bool:
    return isinstance(column, np.ndarray) and not column.dtype.hasobject


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
    r"""Read the records of CSV files by number; each sample is a dict.

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

    Quoted fields may contain delimiters, newlines and doubled quotes; empty lines are skipped.
    Lines end with LF, CR LF or CR. Files are in UTF-8, with or without a byte order mark.

    Column types are inferred by pyarrow: whole numbers (int64, or uint64 where needed), floats,
    booleans (true, false), ISO 8601 dates and times, and text; the narrowest of these that holds
    *all* values of *all* files. Whole numbers that do not fit 64 bits are text. One fraction makes
    a column of floats (float64), which rounds whole numbers beyond 2**53. `types` overrides this:
    `str` keeps all digits, and text such as the postal code 01067, which would be the number 1067.

    The first pass decodes everything to find the types, on several threads. It caches the result in
    memory, or, for 16 MB or more, in `jreader/csv` of `$XDG_CACHE_HOME` or `~/.cache`, until the
    files change. That folder needs about as much space as the files, or up to 64 MB for numbers.
    Decoded columns without text whose rows take at most 64 MB also stay in memory. Otherwise,
    passes read blocks of about a megabyte from there, with read-ahead: `shuffle(seed=0, blocks=64)`
    reads each once per epoch. A file whose name ends in `.gz` is one block, unpacked as a whole:
    keep such files small, or unpack them.

    Args:
        paths: A file, a folder (its `.csv` and `.csv.gz` files), a pattern such as `"data/*.tsv"`,
            or a list of these: one table, in that order. The files of a folder or pattern are
            sorted by name.
        columns: The columns to read, in the order of the samples' fields; None for
            all. A single str gives bare values instead of dicts.
        nulls: Replacements for nulls, by column: `{"age": -1}`. Without it, a null is an error.
            Nulls are empty fields, NA, N/A, n/a, #N/A, NULL, null, None and none, except in text
            columns, where they are text.
        types: The types of columns, by name: a NumPy dtype (`np.int32`, `"datetime64[s]"`), `str`,
            `bytes`, or a pyarrow type. Types of other columns are inferred.
        delimiter: The field delimiter: one ASCII character, such as `"\t"`.
        header: True if the first record of each file names its columns; otherwise a list of the
            names: the first record is then a sample.
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor an `os.PathLike`, or columns, types or header have
            the wrong form.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: The delimiter is not one ASCII character; or, when a pass begins: there is no
            such column, a file has other columns, or there are nulls; or, when it reaches the
            record: a value is not of the given type.
        DamagedData: When a pass begins: a file has another format, is empty, or has changed since
            it was first read. When it reaches the record: it has too few or too many fields, bytes
            that are not UTF-8, or a quote that is never closed, or compressed data are damaged.
    """

    shown_call = "csv(paths, columns, nulls, types=, delimiter=, header=)"
    suffixes = (".csv", ".csv.gz")
    types: Mapping[str, Any] | None = argument(checked_types, default=None)
    delimiter: str = argument(_checked_delimiter, default=",")
    header: tuple[str, ...] | None = argument(_checked_header, default=None)

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
        _checked_header(self.shown_call, header)  # None too, which is no default
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
        """Return the files, decoded or from the cache."""
        layout = CsvLayout(self.delimiter, self.header, self.names, self.types or {})
        return tables(self.paths, layout, self.store)

    def blocks(self, files: Any) -> CsvBlocks:
        """Return the blocks, with columns in the order of the first file."""
        return CsvBlocks(files, self.names or files[0].schema.names, self.nulls or {})

    def shown(self) -> dict[str, Any]:
        """Return the arguments after the paths, as a user would type them."""
        types = {name: str(kind) for name, kind in (self.types or {}).items()}
        return super().shown() | ({"types": types} if types else {})
