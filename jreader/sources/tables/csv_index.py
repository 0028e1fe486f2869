"""What is found once of a CSV file: where its blocks begin, and the kinds of its columns.

All records are decoded for it, on several threads. One that cannot be read is a block of its own,
the last one of its file: those before it come first, and then it says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jreader.readers.planes import Array
from jreader.sources.file_checks import damaged
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.magic_numbers import first_bytes, kind_of
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.tables.csv_records import (
    BYTE_ORDER_MARK,
    blocks,
    end_of_records,
    record,
    unpacked,
)
from jreader.sources.tables.csv_types import NULLS, joint_kind, kind_of_type

EXPECTED = "a CSV file"
_HEAD = 1 << 16  # bytes in which the header is looked for first


@dataclass(frozen=True)
class Layout:
    """How files are to be read.

    Attributes:
        delimiter: What stands between fields.
        header: The names of the columns; None if the first record of each file has them.
        names: The names of the columns that are wanted; a single str for bare values; None for all.
        types: The types of columns that are not to be found.
    """

    delimiter: str
    header: tuple[str, ...] | None = None
    names: tuple[str, ...] | str | None = None
    types: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """What the index of a file depends on besides the file."""
        types = sorted((name, str(kind)) for name, kind in self.types.items())
        return f"1 {self.delimiter!r} {self.header} {self.names} {types} {NULLS}"


class Part(NamedTuple):
    """Records of a block that were decoded.

    Attributes:
        size: How many bytes they have.
        rows: How many they are.
        kinds: For each column, its kind there, and whether it has nulls; None if it is one record
            that cannot be read.
    """

    size: int
    rows: int
    kinds: list[tuple[int, bool]] | None


class Found(NamedTuple):
    """The index of a file, as it is kept.

    Attributes:
        kinds: The kind of each column.
        nulls: For each column, the first block in which it has a null; -1 if none has.
        begins: The bytes at which blocks begin, and where the last one ends.
        rows: How many records each block has.
        whole: Whether all records can be read; otherwise the last block is one that cannot.
    """

    kinds: list[int]
    nulls: list[int]
    begins: list[int]
    rows: list[int]
    whole: bool

    @classmethod
    def of(cls, index: Array, columns: int) -> Found:
        """What an index says of a file with so many columns."""
        kinds, nulls = index[:columns].T.tolist()
        begins, rows = index[columns:].T.tolist()
        return cls(kinds, nulls, begins, rows[:-1], bool(rows[-1]))


def is_whole(_file: ByteFile, index: Array) -> bool:
    """Whether an index is one of a file whose records can all be read."""
    return index.ndim == 2 and index.shape[1] == 2 and len(index) > 1 and bool(index[-1, 1])


class CsvFile:
    """A CSV file, and how it is to be read.

    Args:
        file: The file.
        layout: How to read it.

    Attributes:
        names: The names of its columns.
        wanted: Those that are wanted.
        begin: The byte at which its first record begins.

    Raises:
        DamagedData: It has no header, or is of another format.
        ValueError: It has not the columns that are wanted.
    """

    def __init__(self, file: ByteFile, layout: Layout) -> None:
        """Reads the header."""
        self.file, self.layout = file, layout
        self.packed = file.path.endswith(".gz")
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
        self.types = {name: kind for name, kind in layout.types.items() if name in self.wanted}

    def index(self, _file: ByteFile | None = None) -> Array:
        """Finds what is found once, as an array of pairs.

        A pair for each column (kind, first block with a null), one for each block (the byte at
        which it begins, how many records it has), and one of where the last block ends, and whether
        all records can be read.
        """
        kinds, nulls = [0] * len(self.wanted), [-1] * len(self.wanted)
        found, end, whole = list[tuple[int, int]](), self.begin, True
        for part in self._parts():
            for column, (kind, has_nulls) in enumerate(part.kinds or ()):
                kinds[column] = joint_kind([kinds[column], kind])
                if has_nulls and nulls[column] < 0:
                    nulls[column] = len(found)
            found.append((end, part.rows))
            end, whole = end + part.size, part.kinds is not None
        return np.array([*zip(kinds, nulls, strict=True), *found, (end, whole)], np.int64)

    def table(self, data: bytes, types: Mapping[str, Any]) -> Any:
        """The table of some records; columns without a type have that which pyarrow finds.

        Raises:
            pyarrow.ArrowInvalid: One cannot be read, or has a value that is not of the type.
        """
        table = self._read(data, types)
        found = {name: table.schema.field(name).type for name in self.wanted if name not in types}
        odd = [name for name, kind in found.items() if kind_of_type(kind) is None]
        if odd:  # bytes that are no text: as text, pyarrow says where
            self._read(data, {**types, **dict.fromkeys(odd, pyarrow().string())})
            raise pyarrow().ArrowInvalid(f"column {odd[0]!r} is {found[odd[0]]}")
        return table

    def bytes_of(self, begin: int, end: int) -> bytes:
        """The bytes of a block."""
        if self.packed:
            return unpacked(self.file, end)[0][begin:end]
        return self.file.read(begin, end - begin)

    def first_bad(self, data: bytes, types: Mapping[str, Any]) -> tuple[int, int]:
        """Where the first record begins and ends that cannot be read, of which there is one."""
        ends, match = [0], record(self.layout.delimiter).match
        while found := match(data, ends[-1]):
            ends.append(found.end())
        if ends[-1] < len(data):
            ends.append(len(data))
        low, high = 0, len(ends) - 1  # as many can be read, and as many cannot
        while high - low > 1:
            middle = (low + high) // 2
            try:
                self.table(data[: ends[middle]], types)
            except pyarrow().ArrowInvalid:
                high = middle
            else:
                low = middle
        return ends[low], ends[high]

    def _parts(self) -> Iterator[Part]:
        """The parts of all blocks, up to the first record that cannot be read."""
        for some in blocks(self.file, self.begin, self.layout.delimiter, packed=self.packed):
            for parts in in_threads(self._parts_of, some):
                for part in parts:
                    yield part
                    if part.kinds is None:
                        return

    def _parts_of(self, block: tuple[int, bytes, str]) -> list[Part]:
        _, data, wrong = block
        if wrong:
            return [Part(len(data), 1, None)]
        try:
            return [self._part(data)]
        except pyarrow().ArrowInvalid:
            begin, end = self.first_bad(data, self.types)
            good = [self._part(data[:begin])] if begin else []
            return [*good, Part(end - begin, 1, None)]

    def _part(self, data: bytes) -> Part:
        table = self.table(data, self.types)
        columns = [(name, table.column(name)) for name in self.wanted]
        kinds = [
            (0 if name in self.types else kind_of_type(column.type) or 0, column.null_count > 0)
            for name, column in columns
        ]
        return Part(len(data), table.num_rows, kinds)

    def _read(self, data: bytes, types: Mapping[str, Any]) -> Any:
        from pyarrow import csv  # noqa: PLC0415  # an extra

        return csv.read_csv(
            pyarrow().BufferReader(data),
            csv.ReadOptions(
                use_threads=False,
                block_size=min(len(data) + 1, (1 << 31) - 1),
                column_names=list(self.names),
            ),
            csv.ParseOptions(
                delimiter=self.layout.delimiter,
                newlines_in_values=b'"' in data,  # they cost time, where there can be none
            ),
            csv.ConvertOptions(
                column_types=dict(types), include_columns=self.wanted, null_values=NULLS
            ),
        )

    def _header(self) -> tuple[tuple[str, ...], int]:
        """The names of the columns, and the byte at which the first record begins."""
        head, whole = self._head(_HEAD)
        if not self.packed and (kind_of(head) or b"\0" in head):
            raise damaged(self.file.path, EXPECTED, first_bytes(head))
        begin = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        if self.layout.header is not None:
            return self.layout.header, begin
        while not (found := record(self.layout.delimiter).match(head, begin)) and not whole:
            head, whole = self._head(2 * len(head))
        end = found.end() if found else len(head)
        if not found and end_of_records(head, begin, end, self.layout.delimiter, last=True) < end:
            raise damaged(self.file.path, EXPECTED, "a quote is open in its header")
        names = self._names_in(head[begin:end])
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"{self.file.path} has several columns of the name {twice[0]!r}, and samples are "
                "dicts: remove the first record, and give the names with header=[...]."
            )
        return names, end

    def _head(self, size: int) -> tuple[bytes, bool]:
        """So many bytes from the beginning, and whether these are all."""
        if self.packed:
            head, wrong = unpacked(self.file, size)
            if wrong and not head:
                raise damaged(self.file.path, "a gzip file", wrong)
            return head, len(head) < size
        size = min(size, self.file.size)
        return self.file.read(0, size), size == self.file.size

    def _names_in(self, head: bytes) -> tuple[str, ...]:
        from pyarrow import csv  # noqa: PLC0415  # an extra

        if not head.strip(b"\r\n"):
            said = "it has no header, which names the columns (or type header=[...])"
            raise damaged(self.file.path, EXPECTED, said)
        try:
            names = csv.read_csv(
                pyarrow().BufferReader(head),
                csv.ReadOptions(use_threads=False, block_size=len(head) + 1),
                csv.ParseOptions(delimiter=self.layout.delimiter, newlines_in_values=True),
            ).column_names
        except (pyarrow().ArrowException, UnicodeDecodeError) as error:
            raise damaged(self.file.path, EXPECTED, f"its header: {error}") from error
        return tuple(names)
