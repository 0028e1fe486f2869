"""The record batches of Arrow's IPC files: where they lie, how many rows they have, their table.

Both formats are messages end to end: the schema, dictionaries, record batches. The file format has
six letters and two zeros before them, and a list of them at its end. What lies in a file that is
not compressed is used where it lies. Of a compressed one, each batch has to be decoded, and how
many rows it has is in the head of its message, a flatbuffer, which pyarrow does not show.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.readers.planes import begins
from jreader.sources.file_checks import changed, damaged
from jreader.sources.tables.arrow_columns import Nulls, checked_schema, columns_of, pyarrow
from jreader.sources.tables.joined_tables import bare_values, selected

_EXPECTED = "an Arrow file (IPC)"
_MAGIC = b"ARROW1"
_BATCH = "record batch"
_LENGTH, _COMPRESSION = 0, 3  # fields of a RecordBatch (format/Message.fbs of Arrow)
_HEADER = 2  # field of a Message, likewise


@dataclass(frozen=True)
class Batches:
    """What an IPC file holds.

    Attributes:
        path: The file.
        schema: Of its table, as pyarrow has it.
        rows: How many rows each of its record batches has.
        places: The byte at which each begins.
        table: The table, over the memory of the mapped file; None if it is compressed.
        mapped: The bytes of the file.
    """

    path: str
    schema: Any
    rows: Sequence[int]
    places: Sequence[int]
    table: Any
    mapped: Any

    @classmethod
    def of(cls, path: str) -> Batches:
        """Those of a file, which is mapped; only heads of messages are read.

        Raises:
            DamagedData: It is no IPC file, or not whole.
        """
        with _reading_ipc(path, "its schema"):
            mapped = _mapped_file(path)
            whole = memoryview(mapped)
            in_file_format = bytes(whole[: len(_MAGIC)]) == _MAGIC
            if in_file_format and bytes(whole[-len(_MAGIC) :]) != _MAGIC:
                raise damaged(path, _EXPECTED, f"it does not end with {_MAGIC.decode()}")
            source = pyarrow().BufferReader(mapped)
            if in_file_format:
                source.seek(8)
            messages = list(_messages(source, path))
            heads = [
                (place, *_head(each.metadata)) for place, each in messages if each.type == _BATCH
            ]
            places, rows, packed = zip(*heads, strict=True) if heads else ((), (), ())
            compressed = any(packed)
            coded = any(each.type == "dictionary" for _, each in messages)
            ipc = pyarrow().ipc
            opened = (ipc.open_file if in_file_format else ipc.open_stream)(mapped)
            if compressed and coded and not in_file_format:
                raise ValueError(
                    f"{path} is a compressed stream with dictionaries, of which no batch can be "
                    f"found by number: write it in the file format (pyarrow.ipc.new_file), or "
                    f"without compression."
                )
            checked_schema(opened.schema).empty_table()  # or a type is one that no column has
            table = None if compressed else opened.read_all()
        return cls(path, opened.schema, rows, places, table, mapped)

    def decoded(self, number: int) -> Any:
        """The table of one batch.

        Raises:
            DamagedData: It cannot be decoded.
        """
        pa, place = pyarrow(), self.places[number]
        with _reading_ipc(self.path, f"record batch {number}, which begins at byte {place:,}"):
            if bytes(memoryview(self.mapped)[: len(_MAGIC)]) == _MAGIC:
                batch = pa.ipc.open_file(self.mapped).get_batch(number)
            else:
                source = pa.BufferReader(self.mapped)
                source.seek(place)
                batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), self.schema)
            return pa.Table.from_batches([batch])


def _mapped_file(path: str) -> Any:
    """The bytes of a file, mapped; the file need not stay open."""
    try:
        with pyarrow().memory_map(os.fsencode(path)) as file:  # also a name that is not UTF-8
            return file.read_buffer()
    except FileNotFoundError:
        raise changed(path, "cannot be found any more") from None


def _messages(source: Any, path: str) -> Iterator[tuple[int, Any]]:
    """The messages from a place on, and where they begin.

    Raises:
        DamagedData: One is not whole, or none says that it is the last.
    """
    read, size = pyarrow().ipc.read_message, source.size()
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
    """How many rows a record batch has, and whether it is compressed."""
    head = memoryview(metadata)
    (root,) = struct.unpack_from("<I", head)
    batch = _flatbuffer_field(head, root, _HEADER)
    batch += struct.unpack_from("<I", head, batch)[0]
    length = _flatbuffer_field(head, batch, _LENGTH)
    rows = struct.unpack_from("<q", head, length)[0] if length else 0
    return rows, bool(_flatbuffer_field(head, batch, _COMPRESSION))


def _flatbuffer_field(head: memoryview, table: int, number: int) -> int:
    """Where a field of a table of a flatbuffer lies; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    (size,) = struct.unpack_from("<H", head, vtable)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", head, vtable + at)[0] if at < size else 0
    return table + offset if offset else 0


class TableBlocks:
    """The blocks of files of one table, which are decoded by their number.

    Args:
        files: The files, such as `Batches`: each has a `path`, a `schema`, the number of `rows` of
            each block, and `decoded(number)`.
        names: The names of the columns; a single str for bare_values values; None for all.
        nulls: What stands for nulls.
        wanted: Whether a file and the number of a block in it are one of them.

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
        wanted: Callable[[Any, int], bool] = lambda _file, _number: True,
    ) -> None:
        self.files, self.names, self.nulls = list(files), names, nulls
        self.blocks = [
            (file, number, first)
            for file in files
            for number, (first, many) in enumerate(zip(begins(file.rows), file.rows, strict=False))
            if many and wanted(file, number)
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
        return self.columns(self.decoded(file, number), file.path, first)

    def decoded(self, file: Any, number: int) -> Any:
        """The table of a block."""
        return file.decoded(number)

    def blank(self, file: Any) -> Any:
        """The columns of no rows."""
        # `empty_table` cannot make tensors that lie in structs
        return self.columns(pyarrow().Table.from_batches([], file.schema), file.path, 0)

    def columns(self, table: Any, path: str, first: int) -> Any:
        """Those that are asked for, of a table whose first row has that number in its file."""
        return columns_in(table, path, first, self.names, self.nulls)


def columns_in(
    table: Any, where: str, first: int, names: Sequence[str] | str | None, nulls: Mapping[str, Any]
) -> Any:
    """The columns of a table that are asked for; of a single str, the only one.

    >>> import pyarrow as pa
    >>> columns_in(pa.table({"a": [1, 2], "b": [None, 3]}), "a.arrow", 0, "b", {"b": 0})
    array([0, 3])

    Args:
        table: A `pyarrow.Table`.
        where: What errors call it.
        first: The number there of its first row.
        names: The names of the columns; a single str for bare_values values; None for all.
        nulls: What stands for nulls.

    Raises:
        ValueError: There is no such column, or it has nulls that nothing stands for.
    """
    wanted = selected(table, [names] if isinstance(names, str) else names, where)
    return bare_values(columns_of(wanted, Nulls(where, first, nulls, as_stored=True)), names)


@contextmanager
def _reading_ipc(path: str, what: str) -> Iterator[None]:
    """Turns what pyarrow raises into DamagedData."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise damaged(path, _EXPECTED, f"{what}: {error}") from error
