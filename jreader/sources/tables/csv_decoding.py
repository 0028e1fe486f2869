"""Find where CSV records end, and decode blocks of them with pyarrow.

Records end at newlines (LF, CR LF or CR) outside of quotes. A quote opens only at the beginning of
a field; a doubled quote inside quotes stands for one. So whether a newline ends a record depends on
everything before it, and a file is split sequentially, each time where a record ends. The regular
expression jumps from quote to quote; data without quotes are not scanned byte by byte.

If pyarrow rejects a block, the bad record is searched for: the records before it are read, and
pyarrow's message for it is the error.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from jreader.sources.file_checks import check_unpacked, damaged
from jreader.sources.files.byte_ranges import ByteFile, FileObject
from jreader.sources.files.index_cache import in_threads
from jreader.sources.files.magic_numbers import first_bytes, known_format
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.csv_types import NULLS, UNKNOWN, kind_of_values, type_of_kind

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Part: TypeAlias = tuple[Any, dict[str, str]]
"""The table of a decoded block, and the kinds of its columns without a given type."""

OPEN = "a quote is open in it, and never closed"
_BLOCK = 1 << 20  # bytes of records to decode at a time
_CHUNK = 1 << 24  # bytes to read at a time
_LONGEST = 1 << 28  # bytes of a record: in a longer one, a quote was never closed
_EXPECTED = "a CSV file"
_HEAD = 1 << 16  # bytes to search for the header first
_VALUE = re.compile(
    r"In CSV column #(\d+):.* conversion error to .*: (invalid value .*)", re.DOTALL
)
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")


class Block(NamedTuple):
    """Consecutive records, or one that cannot be read.

    Attributes:
        begin: The byte where they begin in the unpacked file.
        data: Their bytes, or a view of them.
        wrong: Why the record cannot be read, if that is known.
    """

    begin: int
    data: bytes | memoryview
    wrong: str = ""


@lru_cache(32)
def record(delimiter: str) -> re.Pattern[bytes]:
    r"""Compile a pattern that matches one record, with its newline.

    >>> record(",").match(b'1,"two\nlines, ""2"" "\n3,4\n').group()
    b'1,"two\nlines, ""2"" "\n'
    """
    return re.compile(_record(delimiter))


def end_of_records(data: bytes, low: int, high: int, delimiter: str, *, last: bool) -> int:
    r"""Return where the last complete record ends; `low` if none does.

    >>> end_of_records(b'1\n"2\n', 0, 5, ",", last=False)
    2
    >>> end_of_records(b"1\n2", 0, 3, ",", last=True)
    3

    Args:
        data: Records; one begins at `low`.
        low: Where to begin.
        high: Where to stop.
        delimiter: The field delimiter.
        last: Whether the file ends there, so that the last record may lack its newline.
    """
    if data.find(b'"', low, high) < 0:
        newline = data.rfind(b"\n", low, high)
        newline = data.rfind(b"\r", low, high) if newline < 0 else newline
        return high if last else max(newline + 1, low)
    if not last or data.endswith((b"\n", b"\r"), low, high):
        found = _records_pattern(delimiter).match(data, low, high)
        return found.end() if found else low
    found = _records_pattern(delimiter).match(data[low:high] + b"\n")
    return min(low + found.end(), high) if found else low


def blocks(file: ByteFile, begin: int, delimiter: str, *, packed: bool) -> Iterator[list[Block]]:
    """Yield the records of a file from a byte on, several blocks of about a megabyte at a time.

    A compressed file is one block. The last block may be a bad record.
    """
    if packed:
        yield _unpacked_block(file, begin, delimiter)
        return
    at, size = begin, _CHUNK
    while at < file.size:
        data = file.read(at, min(size, file.size - at))
        last = at + len(data) == file.size
        cuts = [0, *_cuts(data, delimiter, last=last)]
        view, end = memoryview(data), cuts[-1]
        some = [Block(at + low, view[low:high]) for low, high in pairwise(cuts)]
        if end < len(data) and (last or len(data) - end > _LONGEST):
            yield [*some, Block(at + end, data[end:], OPEN)]
            return
        yield some
        # read the rest again, since joining it to what follows would copy that
        at, size = at + end, _CHUNK if end else 2 * size  # a record may be long, or a quote open


def unpacked(file: ByteFile, most: int | None = None) -> tuple[bytes, str]:
    """Unpack a gzip file as far as possible; also return why the rest cannot be unpacked.

    Args:
        file: The file.
        most: The most bytes to unpack; None for all.

    Raises:
        DamagedData: Unpacking would fill the memory (`check_unpacked`).
    """
    source = FileObject(file)
    parts, wrong, left = list[bytes](), "", sys.maxsize if most is None else most
    size = 0
    with gzip.GzipFile(fileobj=source, mode="rb") as opened:
        try:
            while left and (part := opened.read1(min(left, _BLOCK))):
                parts.append(part)
                left, size = left - len(part), size + len(part)
                check_unpacked(file.path, size, file.size)
        except (EOFError, OSError, zlib.error) as error:
            if source.error is not None:  # our own: the file changed, or is unreachable
                raise source.error from None
            wrong = f"it cannot be unpacked from there on, {error}"
    return b"".join(parts), wrong


def _record(delimiter: str) -> bytes:
    one = re.escape(delimiter.encode())
    opening = rb'(?<![^%s\r\n])"' % one
    quoted = opening + rb'[^"]*+(?:""[^"]*+)*+"'
    literal = rb'(?<=[^%s\r\n])"' % one
    return rb'[^"\r\n]*+(?:(?:%s|%s)[^"\r\n]*+)*+(?:\r\n?|\n)' % (quoted, literal)


@lru_cache(32)
def _records_pattern(delimiter: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?:%s)*+" % _record(delimiter))


def _cuts(data: bytes, delimiter: str, *, last: bool) -> Iterator[int]:
    """Yield where blocks end in these bytes; the rest is incomplete, or truncated."""
    low = 0
    while low < len(data):
        end, high = low, low
        while end == low and high < len(data):
            high = min(max(2 * high - low, low + _BLOCK), len(data))
            at_end = high == len(data)
            if at_end and not last and low:
                return  # the record continues beyond these bytes
            end = end_of_records(data, low, high, delimiter, last=last and at_end)
        if end == low:
            return
        yield end
        low = end


def _unpacked_block(file: ByteFile, begin: int, delimiter: str) -> list[Block]:
    data, wrong = unpacked(file)
    end = end_of_records(data, begin, len(data), delimiter, last=not wrong)
    found = [Block(begin, data[begin:end])] if end > begin else []
    if wrong or end < len(data):
        found.append(Block(end, data[end:], wrong or OPEN))
    return found


@dataclass(frozen=True)
class CsvLayout:
    """How to read CSV files.

    Attributes:
        delimiter: The field delimiter.
        header: The column names; None if they are the first record of each file.
        names: The wanted columns; a single str for bare values; None for all.
        types: The types of columns that are given, not inferred.
    """

    delimiter: str
    header: tuple[str, ...] | None = None
    names: tuple[str, ...] | str | None = None
    types: Mapping[str, Any] = field(default_factory=dict)

    def asked(self, known: Mapping[str, str]) -> str:
        """Return what the table of a file depends on besides the file, given known kinds."""
        types = sorted((name, str(kind)) for name, kind in self.types.items())
        kinds = sorted((name, kind) for name, kind in known.items() if kind != UNKNOWN)
        return f"4 {self.delimiter!r} {self.header} {self.names} {types} {kinds} {NULLS}"


class CsvFile:
    """A CSV file, and how to read it.

    Args:
        file: The file.
        layout: How to read it.

    Attributes:
        names: The names of its columns.
        wanted: The wanted ones.
        begin: The byte where its first record begins.

    Raises:
        DamagedData: It has no header, or another format.
        ValueError: It lacks a wanted column.
    """

    def __init__(self, file: ByteFile, layout: CsvLayout) -> None:
        """Read the header."""
        self.file, self.layout, self.packed = file, layout, file.path.endswith(".gz")
        self.names, self.begin = self._header()
        wanted = layout.names
        self.wanted = [wanted] if isinstance(wanted, str) else list(wanted or self.names)
        asked = [*self.wanted, *layout.types]
        missing = [name for name in asked if name not in self.names]
        if missing:
            raise ValueError(
                f"{file.path} has no column {missing[0]!r}; its columns are "
                f"{', '.join(map(repr, self.names))}."
            )
        self._types = {
            name: kind.value_type if pyarrow().types.is_dictionary(kind) else kind
            for name, kind in layout.types.items()
            if name in self.wanted
        }

    def schema(self, kinds: Mapping[str, str]) -> Any:
        """Return the column names and types, with these kinds for columns without a given type."""
        types = {name: type_of_kind(kind) for name, kind in kinds.items()} | self._types
        return pyarrow().schema([(name, types[name]) for name in self.wanted])

    def parts(
        self, file: ByteFile, known: Mapping[str, str]
    ) -> Iterator[tuple[list[Part], Block | None]]:
        """Yield decoded blocks, several at a time; at the end also the first unreadable record.

        Args:
            file: This file, to read from.
            known: The kinds of columns, as far as they are known.
        """
        decode = partial(self._decoded, types=self._known_types(known))
        for some in blocks(file, self.begin, self.layout.delimiter, packed=self.packed):
            decoded = in_threads(decode, some)
            wrong = next((at for at, (_, bad) in enumerate(decoded) if bad), len(decoded))
            bad = decoded[wrong][1] if wrong < len(decoded) else None
            yield [part for part, _ in decoded[: wrong + 1] if part], bad
            if bad:
                return

    def wrong(self, bad: Block, row: int, known: Mapping[str, str]) -> tuple[bool, str]:
        """Describe a bad record: whether the file is damaged, and the message of the error."""
        where = f"record {row:,}, which begins at byte {bad.begin:,}"
        where += " of what it unpacks to" if self.packed else ""
        said, expected, types = bad.wrong, _EXPECTED, self._known_types(known)
        if said:
            expected = _EXPECTED if said == OPEN else "a gzip file"
        else:
            try:
                self._table(bytes(bad.data), types)
            except pyarrow().ArrowInvalid as error:
                said = str(error)
        if value := _VALUE.search(said):
            name = self.names[int(value[1])]
            return False, (
                f"column {name!r} of {self.file.path} is read as {types[name]}, and in {where}, it "
                f"has the {value[2]}: give the type that all values have, with types={{{name!r}: "
                "...}; str for any text, bytes for anything."
            )
        if fields := _FIELDS.search(said):
            said = f"it has {fields[2]} fields, and there are {fields[1]} columns"
        return True, str(damaged(self.file.path, expected, f"{where}: {said}"))

    def _known_types(self, known: Mapping[str, str]) -> dict[str, Any]:
        found = {name: type_of_kind(kind) for name, kind in known.items() if kind != UNKNOWN}
        return found | self._types

    def _decoded(self, block: Block, types: Mapping[str, Any]) -> tuple[Part | None, Block | None]:
        """Decode a block up to the first unreadable record; return both."""
        if block.wrong:
            return None, block
        data = bytes(block.data)
        try:
            return self._part(data, types), None
        except pyarrow().ArrowInvalid:
            low, high = self._first_bad(data, types)
            good = self._part(data[:low], types) if low else None
            return good, Block(block.begin + low, data[low:high])

    def _part(self, data: bytes, types: Mapping[str, Any]) -> Part:
        table = self._table(data, types)
        kinds = {
            name: kind_of_values(table.column(name), partial(self._as_text, data, types, name))
            for name in self.wanted
            if name not in types
        }
        return table, kinds

    def _as_text(self, data: bytes, types: Mapping[str, Any], name: str) -> Any:
        return self._read(data, {**types, name: pyarrow().string()}).column(name)

    def _first_bad(self, data: bytes, types: Mapping[str, Any]) -> tuple[int, int]:
        """Return where the first unreadable record begins and ends; there must be one."""
        ends, match = [0], record(self.layout.delimiter).match
        while found := match(data, ends[-1]):
            ends.append(found.end())
        if ends[-1] < len(data):
            ends.append(len(data))

        def is_bad(end: int) -> bool:
            try:
                self._table(data[:end], types)
            except pyarrow().ArrowInvalid:
                return True
            return False

        bad = bisect_left(ends, x=True, lo=1, hi=len(ends) - 1, key=is_bad)
        return ends[bad - 1], ends[bad]

    def _table(self, data: bytes, types: Mapping[str, Any]) -> Any:
        """Decode records to a table; pyarrow infers the types of columns without one.

        Raises:
            pyarrow.ArrowInvalid: A record cannot be read, or has a value of another type.
        """
        table = self._read(data, types)
        kinds = {name: table.schema.field(name).type for name in self.wanted if name not in types}
        odd = [name for name, kind in kinds.items() if kind == pyarrow().binary()]
        if odd:  # not text: read as text, pyarrow says where
            self._read(data, {**types, **dict.fromkeys(odd, pyarrow().string())})
            raise pyarrow().ArrowInvalid(f"column {odd[0]!r} is {kinds[odd[0]]}")
        return table

    def _read(self, data: bytes, types: Mapping[str, Any]) -> Any:
        csv = pyarrow("csv").csv
        return csv.read_csv(
            pyarrow().BufferReader(data),
            csv.ReadOptions(
                use_threads=False,
                block_size=min(len(data) + 1, (1 << 31) - 1),
                column_names=list(self.names),
            ),
            csv.ParseOptions(
                delimiter=self.layout.delimiter,
                newlines_in_values=b'"' in data,  # it costs time
            ),
            csv.ConvertOptions(
                column_types=dict(types), include_columns=self.wanted, null_values=NULLS
            ),
        )

    def _header(self) -> tuple[tuple[str, ...], int]:
        """Return the column names, and the byte where the first record begins."""
        head = self._head(_HEAD)
        if not self.packed and (known_format(head) or b"\0" in head):
            raise damaged(self.file.path, _EXPECTED, first_bytes(head))
        begin = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        if self.layout.header is not None:
            return self.layout.header, begin
        first = self._first_record(head, begin)
        names = self._names_in(first)
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"{self.file.path} has several columns of the name {twice[0]!r}, and samples are "
                "dicts: remove the first record, and give the names with header=[...]."
            )
        return names, begin + len(first)

    def _first_record(self, head: bytes, begin: int) -> bytes:
        """Return the record that begins here, reading more until it ends."""
        delimiter, size = self.layout.delimiter, _HEAD
        while not (found := record(delimiter).match(head, begin)) and len(head) == size:
            size *= 2
            head = self._head(size)
        end = found.end() if found else len(head)
        if end_of_records(head, begin, end, delimiter, last=True) < end:
            raise damaged(self.file.path, _EXPECTED, "a quote is open in its header")
        return head[begin:end]

    def _head(self, size: int) -> bytes:
        """Return the first bytes, fewer if the file is shorter."""
        if not self.packed:
            return self.file.read(0, min(size, self.file.size))
        head, wrong = unpacked(self.file, size)
        if wrong and not head:
            raise damaged(self.file.path, "a gzip file", wrong)
        return head

    def _names_in(self, head: bytes) -> tuple[str, ...]:
        csv = pyarrow("csv").csv
        if not head.strip(b"\r\n"):
            said = "it has no header, which names the columns (or type header=[...])"
            raise damaged(self.file.path, _EXPECTED, said)
        try:
            names = csv.read_csv(
                pyarrow().BufferReader(head),
                csv.ReadOptions(use_threads=False, block_size=len(head) + 1),
                csv.ParseOptions(delimiter=self.layout.delimiter, newlines_in_values=True),
            ).column_names
        except (pyarrow().ArrowException, UnicodeDecodeError) as error:
            raise damaged(self.file.path, _EXPECTED, f"its header: {error}") from error
        return tuple(names)
