"""The blocks of several CSV files, decoded by their number, with columns of the same types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jreader.readers.planes import begins
from jreader.sources.file_checks import changed, damaged
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile, open_file
from jreader.sources.files.kept_indices import in_threads, kept
from jreader.sources.files.stored_files import StoredFile
from jreader.sources.tables.arrow_columns import Nulls, columns_of, pyarrow
from jreader.sources.tables.csv_index import EXPECTED, CsvFile, Found, Layout, is_whole
from jreader.sources.tables.csv_records import end_of_records, unpacked
from jreader.sources.tables.csv_types import joint_kind, type_of_kind
from jreader.sources.tables.joined_tables import bare
from jreader.sources.tables.table_arguments import check_fills

_ROOM = "csv"  # in the cache folder
_VALUE = re.compile(
    r"In CSV column #(\d+):.* conversion error to .*: (invalid value .*)", re.DOTALL
)
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")


class CsvBlocks:
    """The blocks of files of one table.

    Args:
        files: The files.
        found: What was found in each.
        nulls: What stands for nulls.

    Attributes:
        starts: The rows at which blocks begin.
        rows: How many rows there are.
        types: The type of each column.
    """

    def __init__(
        self, files: Sequence[CsvFile], found: Sequence[Found], nulls: Mapping[str, Any]
    ) -> None:
        self.files, self.found, self.nulls = list(files), list(found), nulls
        self.wanted = files[0].wanted
        self.types = {name: self._type(name) for name in self.wanted}
        self.places = [
            (number, block)
            for number, each in enumerate(found)
            for block, rows in enumerate(each.rows)
            if rows
        ]
        self._firsts = [begins(each.rows) for each in found]
        counts = [found[number].rows[block] for number, block in self.places]
        self.starts, self.rows = np.array(begins(counts)), sum(counts)

    @classmethod
    def of(
        cls, paths: Sequence[str], layout: Layout, nulls: Mapping[str, Any], store: Store | None
    ) -> CsvBlocks:
        """Those of some files, of which what is found once is found, or was kept.

        Raises:
            DamagedData: A file is of another format, or has no header.
            ValueError: A file has other columns, or a column has nulls.
        """
        opened = [open_file(path, store) for path in paths]
        files = in_threads(partial(CsvFile, layout=layout), opened)
        first = files[0]
        for file in files[1:]:
            if {*file.wanted} != {*first.wanted}:
                odd = min({*file.wanted} ^ {*first.wanted})
                has = file if odd in file.wanted else first
                which = f"{odd!r}, which only {has.file.path} has"
                raise ValueError(
                    f"{file.file.path} has other columns than {first.file.path}: {which}. Name "
                    f"those that all files have, with columns=[...]."
                )
        check_fills(nulls, first.wanted)
        of_file = {file.file.path: file for file in files}

        def find(file: ByteFile) -> Any:
            return of_file[file.path].index()

        indices = kept(_ROOM, opened, find, is_whole, asked=layout.asked)
        found = [
            Found.of(index, len(file.wanted)) for file, index in zip(files, indices, strict=True)
        ]
        blocks = cls(files, found, nulls)
        blocks.refuse_nulls()
        return blocks

    def __call__(self, block: int) -> Any:
        """The columns of a block.

        Raises:
            DamagedData: A record cannot be read.
            ValueError: A value is not of the type of its column, or is null.
        """
        if not self.places:
            return self._columns(None, self.files[0], 0)
        number, part = self.places[block]
        file, found = self.files[number], self.found[number]
        first = self._firsts[number][part]
        data = file.bytes_of(found.begins[part], found.begins[part + 1])
        try:
            if found.whole or part < len(found.rows) - 1:
                return self._columns(file.table(data, self.types), file, first)
            begin, end = 0, len(data)
        except pyarrow().ArrowInvalid:  # a block of one file, as all blocks of all files are read
            begin, end = file.first_bad(data, self.types)
            first += file.table(data[:begin], self.types).num_rows if begin else 0
        raise self._wrong(file, found.begins[part] + begin, data[begin:end], first)

    def coming(self, blocks: Sequence[int], *, first: bool) -> None:
        """Has the store of far files know which blocks come next, in that order."""
        stored = [each.file for each in self.files if isinstance(each.file, StoredFile)]
        if not stored or not self.places:
            return
        if first:
            stored[0].store.forget(stored)
        for number, part in (self.places[block] for block in blocks):
            file, found = self.files[number], self.found[number]
            if isinstance(file.file, StoredFile):
                begin = 0 if file.packed else found.begins[part]
                end = file.file.size if file.packed else found.begins[part + 1]
                file.file.coming([(begin, end - begin)])

    def refuse_nulls(self) -> None:
        """Decodes the first block that has nulls for which nothing stands."""
        is_text = pyarrow().types.is_string  # where nothing is a null, also what one block is of
        told = {name for name, kind in self.types.items() if not is_text(kind)} - {*self.nulls}
        number_of = {place: number for number, place in enumerate(self.places)}
        for number, (file, found) in enumerate(zip(self.files, self.found, strict=True)):
            for name, block in zip(file.wanted, found.nulls, strict=True):
                if name in told and block >= 0:
                    self(number_of[number, block])

    def _type(self, name: str) -> Any:
        """The type of a column: as was said, or the least that has the values of all files."""
        said = self.files[0].types.get(name)
        if said is not None:
            return said
        each = zip(self.files, self.found, strict=True)
        kinds = (found.kinds[file.wanted.index(name)] for file, found in each)
        return type_of_kind(joint_kind(kinds))

    def _columns(self, table: Any, file: CsvFile, first: int) -> Any:
        if table is None:
            table = pyarrow().schema(list(self.types.items())).empty_table()
        ordered = table.select(self.wanted).combine_chunks()
        columns = columns_of(ordered, Nulls(file.file.path, first, self.nulls))
        return bare(columns, file.layout.names)

    def _wrong(self, file: CsvFile, offset: int, data: bytes, row: int) -> Exception:
        """The error for a record that cannot be read."""
        path, where = file.file.path, f"record {row:,}, which begins at byte {offset:,}"
        if file.packed:
            where += " of what it unpacks to"
            whole, wrong = unpacked(file.file)
            if wrong and offset + len(data) >= len(whole):
                return damaged(path, "a gzip file", f"{where}: {wrong}")
        if end_of_records(data, 0, len(data), file.layout.delimiter, last=True) < len(data):
            return damaged(path, EXPECTED, f"{where}: a quote is open in it, and never closed")
        try:
            file.table(data, self.types)
        except pyarrow().ArrowInvalid as error:
            said = str(error)
        else:
            return changed(path, f"could not be read in {where}, and can be read now")
        if fields := _FIELDS.search(said):
            many = f"it has {fields[2]} fields, and there are {fields[1]} columns"
            return damaged(path, EXPECTED, f"{where}: {many}")
        if value := _VALUE.search(said):
            name = file.names[int(value[1])]
            return ValueError(
                f"column {name!r} of {path} is read as {self.types[name]}, and in {where}, it has "
                f"the {value[2]}: give the type that all values have, with types={{{name!r}: "
                "...}; str for any text, bytes for anything."
            )
        return damaged(path, EXPECTED, f"{where}: {said}")
