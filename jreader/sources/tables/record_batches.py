"""The record batches of Arrow's IPC files: where they lie, how many rows they have, their table.

Both formats are messages end to end: the schema, dictionaries, record batches. The file format has
six letters and two zeros before them, and a list of them at its end. What lies in a file that is
not compressed is used where it lies. Of a compressed one, each batch has to be decoded, and how
many rows it has is in the head of its message, a flatbuffer, which pyarrow does not show.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jreader.sources.file_checks import changed, damaged
from jreader.sources.tables.arrow_columns import checked_schema, pyarrow
from jreader.sources.tables.table_files import TableFile

_EXPECTED = "an Arrow file (IPC)"
_MAGIC = b"ARROW1"
_BATCH = "record batch"
_LENGTH, _COMPRESSION = 0, 3  # fields of a RecordBatch (format/Message.fbs of Arrow)
_HEADER = 2  # field of a Message, likewise


class ArrowFile(TableFile):
    """What an IPC file holds, over its mapped bytes; each record batch is a block.

    Args:
        path: The file.

    Raises:
        DamagedData: It is no IPC file, or not whole.
    """

    def __init__(self, path: str) -> None:
        """Maps the file; only heads of messages are read."""
        self.path, ipc = path, pyarrow().ipc
        with _reading_ipc(path, "its schema"):
            self._mapped = _mapped_file(path)
            self._is_listed = self._has_magic()
            source = pyarrow().BufferReader(self._mapped)
            messages = list(_messages(source, path, 8 * self._is_listed))
            heads = [(at, *_head(each.metadata)) for at, each in messages if each.type == _BATCH]
            self._places, self.rows = [at for at, _, _ in heads], [rows for _, rows, _ in heads]
            opened = (ipc.open_file if self._is_listed else ipc.open_stream)(self._mapped)
            compressed = any(packed for _, _, packed in heads)
            if compressed and not self._is_listed:
                self._refuse_dictionaries(each.type for _, each in messages)
            self.schema = checked_schema(opened.schema)
            self.schema.empty_table()  # or a type is one that no column has
            self.table = None if compressed else opened.read_all()

    def _has_magic(self) -> bool:
        """Whether it is of the file format, which lists its record batches at its end."""
        whole = memoryview(self._mapped)
        begins, ends = (bytes(part) == _MAGIC for part in (whole[:6], whole[-6:]))
        if begins and not ends:
            raise damaged(self.path, _EXPECTED, f"it does not end with {_MAGIC.decode()}")
        return begins

    def _refuse_dictionaries(self, types: Iterable[str]) -> None:
        if "dictionary" in types:
            raise ValueError(
                f"{self.path} is a compressed stream with dictionaries, of which no batch can be "
                f"found by number: write it in the file format (pyarrow.ipc.new_file), or "
                f"without compression."
            )

    def decoded(self, number: int) -> Any:
        """The table of one batch.

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
    """The bytes of a file, mapped; the file need not stay open."""
    try:
        with pyarrow().memory_map(os.fsencode(path)) as file:  # also a name that is not UTF-8
            return file.read_buffer()
    except FileNotFoundError:
        raise changed(path, "cannot be found any more") from None


def _messages(source: Any, path: str, begin: int) -> Iterator[tuple[int, Any]]:
    """The messages from a place on, and where they begin.

    Raises:
        DamagedData: One is not whole, or none says that it is the last.
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


@contextmanager
def _reading_ipc(path: str, what: str) -> Iterator[None]:
    """Turns what pyarrow raises into DamagedData."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise damaged(path, _EXPECTED, f"{what}: {error}") from error
