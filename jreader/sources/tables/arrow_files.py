"""`arrow`: read files in Arrow's own format (IPC), mapped into memory.

Both the file format and the streaming format are sequences of messages: the schema, dictionaries,
record batches. The file format has a magic number and two zeros before them, and an index at its
end. Uncompressed data are used in place. Compressed batches have to be decoded; their number of
rows is in the header of each message, a flatbuffer, which pyarrow does not expose.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jreader.sources.file_checks import changed, damaged
from jreader.sources.files.copies import local_copy
from jreader.sources.files.index_cache import in_threads
from jreader.sources.tables.arrow_columns import checked_schema, pyarrow
from jreader.sources.tables.table_files import TableFile, TableReader

_EXPECTED = "an Arrow file (IPC)"
_MAGIC = b"ARROW1"
_BATCH = "record batch"
_LENGTH, _COMPRESSION = 0, 3  # fields of a RecordBatch (format/Message.fbs of Arrow)
_HEADER = 2  # field of a Message (same file)


class ArrowFile(TableFile):
    """An IPC file, mapped; each record batch is a block.

    Args:
        path: The file.

    Raises:
        DamagedData: It is not an IPC file, or is incomplete.
    """

    def __init__(self, path: str) -> None:
        """Map the file; read only message headers."""
        self.path, ipc = str(path), pyarrow().ipc  # a str, so that it does not own a temporary copy
        with _reading_ipc(path, "its schema"):
            self._mapped = _mapped_file(path)
            self._is_listed = self._has_magic()
            compressed = self._find_batches()
            opened = (ipc.open_file if self._is_listed else ipc.open_stream)(self._mapped)
            self.schema = checked_schema(opened.schema)
            self.schema.empty_table()  # raises if a type is not a valid column type
            self.table = None if compressed else opened.read_all()

    def _has_magic(self) -> bool:
        """Return whether it has the file format, which lists its record batches at its end."""
        whole = memoryview(self._mapped)
        begins, ends = (bytes(part) == _MAGIC for part in (whole[:6], whole[-6:]))
        if begins and not ends:
            raise damaged(self.path, _EXPECTED, f"it does not end with {_MAGIC.decode()}")
        return begins

    def _find_batches(self) -> bool:
        """Find where record batches begin, and their rows; return whether one is compressed."""
        source = pyarrow().BufferReader(self._mapped)
        messages = list(_messages(source, self.path, 8 * self._is_listed))
        heads = [(at, *_head(each.metadata)) for at, each in messages if each.type == _BATCH]
        self._places, self.rows = [at for at, _, _ in heads], [rows for _, rows, _ in heads]
        compressed = any(packed for _, _, packed in heads)
        types = {each.type for _, each in messages}
        if compressed and not self._is_listed and "dictionary" in types:
            raise ValueError(
                f"{self.path} is a compressed stream with dictionaries, of which no batch can be "
                f"found by number: write it in the file format (pyarrow.ipc.new_file), or "
                f"without compression."
            )
        return compressed

    def decoded(self, number: int) -> Any:
        """Decode one batch to a table.

        Raises:
            DamagedData: It cannot be decoded.
        """
        pa, place = pyarrow(), self._places[number]
        with _reading_ipc(self.path, f"record batch {number}, which begins at byte {place:,}"):
            if self._is_listed:
                batch = pa.ipc.open_file(self._mapped).get_batch(number)
            else:
                source = pa.BufferReader(self._mapped)
                source.seek(place)
                batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), self.schema)
            return pa.Table.from_batches([batch])


def _mapped_file(path: str) -> Any:
    """Map a file and return its bytes; the file need not stay open."""
    try:
        with pyarrow().memory_map(os.fsencode(path)) as file:  # the name need not be UTF-8
            return file.read_buffer()
    except FileNotFoundError:
        raise changed(path, "cannot be found any more") from None


def _messages(source: Any, path: str, begin: int) -> Iterator[tuple[int, Any]]:
    """Yield the messages from a place on, and where they begin.

    Raises:
        DamagedData: A message is incomplete, or none marks the end.
    """
    read, size = pyarrow().ipc.read_message, source.size()
    source.seek(begin)
    while True:
        place = source.tell()
        with _reading_ipc(path, f"the message at byte {place:,}"):
            try:
                message = read(source)
            except EOFError:
                if place == size:
                    raise damaged(
                        path, _EXPECTED, f"nothing after byte {size:,} says that it ends there"
                    ) from None
                return
        yield place, message


def _head(metadata: Any) -> tuple[int, bool]:
    """Return the number of rows in a record batch, and whether it is compressed."""
    head = memoryview(metadata)
    (root,) = struct.unpack_from("<I", head)
    batch = _flatbuffer_field(head, root, _HEADER)
    batch += struct.unpack_from("<I", head, batch)[0]
    length = _flatbuffer_field(head, batch, _LENGTH)
    rows = struct.unpack_from("<q", head, length)[0] if length else 0
    return rows, bool(_flatbuffer_field(head, batch, _COMPRESSION))


def _flatbuffer_field(head: memoryview, table: int, number: int) -> int:
    """Return where a field of a flatbuffer table is; 0 if it is missing."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    (size,) = struct.unpack_from("<H", head, vtable)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", head, vtable + at)[0] if at < size else 0
    return table + offset if offset else 0


@contextmanager
def _reading_ipc(path: str, what: str) -> Iterator[None]:
    """Convert pyarrow's errors to DamagedData."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise damaged(path, _EXPECTED, f"{what}: {error}") from error


@dataclass(frozen=True, eq=False, repr=False, init=False)
class arrow(TableReader):
    """Read the rows of Arrow files (IPC, `.arrow` or `.feather`), mapped into memory.

    It reads the file format, and the streaming format of Hugging Face's caches. Numbers without
    nulls are used in place, so a batch is one gather per column. Samples are dicts, as those of
    `parquet` are. If batches are compressed, a record batch is decoded when one of its rows is
    needed: it is a block, for `shuffle(seed=, blocks=64)`.

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
            pattern are sorted by name. Remote files (such as `s3://`) are copied into a temporary
            folder, which is deleted once they are mapped; the disk space is freed when the program
            ends.
        columns: The columns to read, in the order of the samples' fields; for a struct, also single
            fields (`"image.bytes"`). None for all columns. A single str gives bare values instead
            of dicts.
        nulls: Replacements for nulls, by column: `{"age": -1}`, `{"point.x": 0.0}` for the field of
            a struct, `{"ids[]": 0}` for the values of lists. Without it, a null is an error.
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: pyarrow is not installed: `python -m pip install 'jreader[arrow]'`.
        TypeError: A path is neither a str nor an `os.PathLike`, or columns are not names.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: When a pass begins: there is no such column, a column has different types in
            different files, or it has nulls (in compressed files, when the pass reaches them).
        DamagedData: When a pass begins: a file is truncated, of another format, or has changed
            since it was first read.
    """

    shown_call = "arrow(paths, columns, nulls)"
    suffixes = (".arrow", ".feather")

    def tables(self) -> list[ArrowFile]:
        """Return the files, mapped; from compressed ones, only headers are read."""
        return in_threads(lambda path: ArrowFile(local_copy(path, self.store)), self.paths)
