"""A folder of growing columns: appended in chunks, and complete up to the last commit.

Values are stored in `.npy` files, ragged ones with a file of offsets. Writing continues after the
last complete row, so it overwrites whatever a kill left there; NumPy can read a file once `finish`
has written its number of rows.

`columns.json` lists the contents: the number of rows, the columns, and the writer's metadata
(`Stored.said`). It is replaced atomically once its rows are on disk, so a writer may be killed at
any time: the next one overwrites the rest.

The table has a checksum of each file. Computing it reads the file, so `check_values` does that only
if the modification time differs from the table: after damage, or a copy.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from jreader.errors import DamagedData
from jreader.progress import Bar
from jreader.readers import leaves, rebuilt
from jreader.readers.columns import Array, column_of
from jreader.readers.hashing import text_hash
from jreader.readers.ragged import Ragged
from jreader.readers.trees import zipped
from jreader.sources.stored_rows import Kind, damaged_column, decoded_rows, values_of
from jreader.sources.transactions import new_file

_OFFSET = np.dtype(np.int64)
_CHUNK = 1 << 22  # bytes to read at a time
TABLE = "columns.json"
_FORMAT = 2
_BACKDATED_NS = 10 * 10**9  # ns by which to backdate files


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0) -> bytes:
    """Return a `.npy` header; NumPy leaves room in it for the number of rows to grow."""
    out = io.BytesIO()
    described = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        out, {"descr": described, "fortran_order": False, "shape": (rows, *shape)}
    )
    return out.getvalue()


@dataclass(frozen=True)
class GrowingArray:
    """A `.npy` file, up to the last row known to be complete.

    Attributes:
        path: The file.
        dtype: The dtype of its values.
        shape: The shape of a row.
        first: The byte where the rows begin.
        rows: The number of rows.
        check: The CRC-32 of the rows.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    rows: int = 0
    check: int = 0

    @classmethod
    def created(cls, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> Self:
        """Create an empty array in a new file: truncating a mapped file would kill its readers."""
        head = npy_head(dtype, shape)
        path.unlink(missing_ok=True)
        path.write_bytes(head)
        return cls(path, dtype, shape, len(head))

    @cached_property
    def end(self) -> int:
        """The byte where the rows end."""
        return self.first + self.dtype.itemsize * int(np.prod((self.rows, *self.shape), dtype=int))

    def appended(self, values: Array) -> Self:
        """Append rows, and wait until they are on disk; return the longer array."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        _write(self.path, data, self.end)
        check = zlib.crc32(data, self.check)
        return replace(self, rows=self.rows + len(values), check=check)

    def finish(self) -> None:
        """Write the row count to the header for NumPy, unless the header's size would change."""
        head = npy_head(self.dtype, self.shape, self.rows)
        if len(head) == self.first:
            _write(self.path, memoryview(head), 0)

    def mapped(self) -> Array:
        """Return the rows, mapped into memory."""
        shape = (self.rows, *self.shape)
        if not np.prod(shape):
            empty = np.empty(shape, self.dtype)
            empty.flags.writeable = False
            return empty
        return np.asarray(np.memmap(self.path, self.dtype, "r", self.first, shape))

    def is_whole(self, bar: Bar) -> bool:
        """Return whether the rows in the file match the checksum."""
        check, left = 0, self.end - self.first
        with self.path.open("rb") as file:
            file.seek(self.first)
            while left and (some := file.read(min(left, _CHUNK))):
                check, left = zlib.crc32(some, check), left - len(some)
                bar.add(len(some))
        return check == self.check


@dataclass(frozen=True)
class StoredColumn:
    """One column: rows of one kind, in one or two files.

    Attributes:
        name: The prefix of its file names.
        kind: The kind of its rows.
        values: The rows; if their lengths differ, their concatenated values.
        offsets: If their lengths differ, where each row begins, and where the last one ends; else
            None.
    """

    name: str
    kind: Kind
    values: GrowingArray
    offsets: GrowingArray | None

    @classmethod
    def created(cls, folder: Path, name: str, kind: Kind) -> Self:
        """Create an empty column in new files."""
        values, offsets = GrowingArray.created(folder / f"{name}.npy", kind.dtype, kind.shape), None
        if kind.how != "array":
            offsets = _new_offsets(folder, name, np.zeros(1, _OFFSET))
        return cls(name, kind, values, offsets)

    @classmethod
    def read(cls, folder: Path, rows: int, plain: Sequence[Any]) -> Self:
        """Open the column with `rows` rows that `plain` describes."""
        name, kind, many, first, (check, check_of_offsets) = plain
        kind, offsets = Kind(*kind), None
        values = GrowingArray(folder / f"{name}.npy", kind.dtype, kind.shape, first, many, check)
        if kind.how != "array":
            path, first = folder / f"{name}.offsets.npy", len(npy_head(_OFFSET, ()))
            offsets = GrowingArray(path, _OFFSET, (), first, rows + 1, check_of_offsets)
        return cls(name, kind, values, offsets)

    @property
    def plain(self) -> tuple[Any, ...]:
        """The description of the column in the table."""
        checks = self.values.check, self.offsets.check if self.offsets else 0
        return self.name, astuple(self.kind), self.values.rows, self.values.first, checks

    @property
    def files(self) -> Iterator[GrowingArray]:
        """Yield the values, and the offsets if there are any."""
        yield self.values
        if self.offsets:
            yield self.offsets

    def appended(self, rows: Sequence[Any]) -> Self:
        """Append rows that `encoded` returned, and wait until they are on disk."""
        values, lengths = values_of(rows, self.kind)
        offsets = self.offsets
        if offsets and lengths is not None:
            ends = self.values.rows + np.cumsum(lengths, dtype=_OFFSET)
            offsets = offsets.appended(ends)
        return replace(self, values=self.values.appended(values), offsets=offsets)

    def ragged(self, kind: Kind) -> Self:
        """Convert a column of arrays to a ragged one, which only needs offsets."""
        each, rows = self.kind.shape[0], self.values.rows
        values = replace(self.values, shape=kind.shape, rows=each * rows)
        offsets = _new_offsets(
            self.values.path.parent, self.name, each * np.arange(rows + 1, dtype=_OFFSET)
        )
        return replace(self, kind=kind, values=values, offsets=offsets)

    def mapped(self) -> Any:
        """Return the rows, mapped into memory."""
        values = self.values.mapped()
        if self.offsets is None:
            return values
        offsets = self.offsets.mapped()
        if self.kind.how == "ragged":
            return Ragged(values, offsets)
        return decoded_rows(self.kind, values, offsets, self.values.path)


def _new_offsets(folder: Path, name: str, offsets: Array) -> GrowingArray:
    return GrowingArray.created(folder / f"{name}.offsets.npy", _OFFSET).appended(offsets)


def _write(path: Path, data: memoryview, at: int) -> None:
    """Write bytes at a place of a file, and wait until they are on disk."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        while data:
            done = os.pwrite(descriptor, data, at)
            data, at = data[done:], at + done
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Stored:
    """The contents of a folder, at one commit.

    Attributes:
        folder: The folder.
        rows: The number of rows.
        whole: True if these are all rows.
        said: The writer's metadata: anything that JSON can represent.
        tree: The tree of a sample, with column numbers as leaves.
        columns: The columns; () before the first row.
        made: The number of column names used so far.
        times: The modification time of each file, in nanoseconds.
    """

    folder: Path
    rows: int = 0
    whole: bool = False
    said: Any = None
    tree: Any = 0
    columns: tuple[StoredColumn, ...] = ()
    made: int = 0
    times: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> list[GrowingArray]:
        """The files of all columns."""
        return [file for column in self.columns for file in column.files]

    @cached_property
    def mapped(self) -> Any:
        """The columns of a folder with at least one row, mapped into memory, as a tree."""
        return rebuilt(self.tree, (column.mapped() for column in self.columns))

    def samples(self, begin: int, end: int) -> Iterator[Any]:
        """Yield these samples."""
        rows = np.arange(begin, end)
        return zipped(self.tree, [column_of(column).each(rows) for column in leaves(self.mapped)])

    def check_values(self) -> None:
        """Compare files with their checksums, if they were modified after the last commit.

        Raises:
            DamagedData: A file's values do not match.
        """
        try:
            changed = [file for file in self.files if _time(file) != self.times[file.path.name]]
            size = sum(file.end - file.first for file in changed)
            with Bar(f"checking {self.folder.name}", size, "B") as bar:
                for file in changed:
                    if not file.is_whole(bar):
                        raise damaged_column(file.path, "does not fit its checksum")
        except FileNotFoundError as error:
            raise damaged_column(Path(error.filename), "is gone") from error
        if changed and self.whole:
            with suppress(OSError):  # a read-only folder is checked every time
                self.saved()

    def saved(self) -> Self:
        """Write the table, once its files are on disk; return it with their new times.

        Files are backdated, so that any later change gives them a different time, however soon it
        comes.
        """
        then = time.time_ns() - _BACKDATED_NS
        for file in self.files:
            os.utime(file.path, ns=(then, then))
        times = {file.path.name: _time(file) for file in self.files}
        plain = [column.plain for column in self.columns]
        packed = base64.b64encode(pickle.dumps((self.tree, plain, self.made))).decode()
        table = {"rows": self.rows, "whole": self.whole, "said": self.said, "columns": packed}
        table = json.loads(json.dumps({**table, "times": times}))
        written = json.dumps({"format": _FORMAT, "check": text_hash(table), "table": table})
        with new_file(self.folder / TABLE, durable=True) as aside:
            aside.write_text(written)
        return replace(self, times=times)

    def sweep(self) -> None:
        """Remove files that a killed writer left, and that are not in the table."""
        known = {file.path for file in self.files}
        for path in self.folder.iterdir():
            left = path.name.startswith(f".{TABLE}.") or path.suffix == ".npy"
            if left and path not in known:
                path.unlink(missing_ok=True)


def read_table(folder: str) -> Stored:
    """Read the contents of a folder; empty if it has no table.

    Raises:
        DamagedData: The table is invalid, or of another release, or files are too short.
    """
    path = Path(folder, TABLE)
    try:
        found = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return Stored(path.parent)
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError, EOFError) as error:
        raise damaged_column(path, f"is not the table of such a folder ({error!r})") from error
    for file in found.files:
        seen = file.path.stat().st_size if file.path.exists() else 0
        if seen < file.end:
            raise damaged_column(file.path, f"needs {file.end:,} bytes, and has {seen:,}")
    return found


def _read(path: Path) -> Stored:
    """Parse the table, if it is of this release and undamaged."""
    written, folder = json.loads(path.read_bytes()), path.parent
    if written["format"] > _FORMAT:
        raise DamagedData(
            f"{path} has format {written['format']}, and this jreader knows {_FORMAT}: a newer "
            "release wrote it. Update jreader, or give another folder."
        )
    if written["format"] < _FORMAT:
        raise DamagedData(
            f"{path} was written by an earlier version, which kept no checksums and, after a kill, "
            f"could keep the first samples twice. Delete the folder {str(folder)!r}, so that it is "
            "made again, or give another one."
        )
    table = written["table"]
    if written["check"] != text_hash(table):
        raise damaged_column(path, "does not fit its check")
    tree, plain, made = pickle.loads(base64.b64decode(table["columns"]))  # noqa: S301  # own
    rows, whole, said, times = (table[name] for name in ("rows", "whole", "said", "times"))
    columns = tuple(StoredColumn.read(folder, rows, each) for each in plain)
    return Stored(folder, rows, whole, said, tree, columns, made, times)


def _time(file: GrowingArray) -> int:
    """Return the modification time of a file."""
    return file.path.stat().st_mtime_ns
