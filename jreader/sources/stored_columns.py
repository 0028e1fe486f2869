"""A folder of columns that grow: appended to in chunks, and true up to the last commit.

`columns.json` says what there is: how many rows, of which columns, and what its writer asked to be
kept beside (`Stored.said`). It is replaced as a whole once the rows that it counts are on the disk,
so a writer may be killed at any moment: what lies beyond is overwritten by the next one. Values lie
in `.npy` files, ragged ones with offsets beside, which NumPy can read too once all is written.

The table has a checksum of each file. To compute it reads the file, so `check_values` does that
only where the time of the last change is not the one in the table: after damage, or a copy.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jreader.errors import DamagedData
from jreader.progress import Bar
from jreader.readers import leaves, rebuilt
from jreader.readers.hashing import text_hash
from jreader.readers.planes import Array, one_by_one
from jreader.readers.ragged import Ragged
from jreader.sources.stored_rows import EncodedRows, Kind, damaged_column
from jreader.sources.transactions import new_file

TABLE = "columns.json"
OFFSET = np.dtype(np.int64)

_FORMAT = 2
_CHUNK = 1 << 22  # bytes that are read in one go
_BEFORE = 10 * 10**9  # ns by which files are dated back


@dataclass(frozen=True)
class StoredColumn:
    """One column, as the table has it.

    Attributes:
        name: The files are `name.npy` and `name.offsets.npy`.
        kind: What its rows are.
        values: How many values it has; as many as rows if these are arrays of one shape.
        first: The byte of the file at which the values begin.
        checks: The CRC-32 of the values, and of the offsets.
    """

    name: str
    kind: Kind
    values: int = 0
    first: int = 0
    checks: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Stored:
    """What a folder holds, at one commit.

    Attributes:
        rows: How many rows.
        whole: Whether these are all.
        said: What its writer keeps beside: anything that JSON can write.
        tree: The tree of a sample, with the numbers of the columns as leaves.
        columns: The columns; none before the first row.
        made: How many names were given to columns.
        times: When each file was changed last, in nanoseconds.
    """

    rows: int = 0
    whole: bool = False
    said: Any = None
    tree: Any = 0
    columns: tuple[StoredColumn, ...] = field(default=())
    made: int = 0
    times: dict[str, int] = field(default_factory=dict)


def stored(folder: str) -> Stored | None:
    """What a folder holds; None if there is no table in it.

    Raises:
        DamagedData: The table is not one, or of another release, or files are shorter than it says.
    """
    try:
        written = Path(folder, TABLE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        held = json.loads(written)
        if held["format"] > _FORMAT:
            raise DamagedData(
                f"{Path(folder, TABLE)} has format {held['format']}, and this jreader knows "
                f"{_FORMAT}: a newer release wrote it. Update jreader, or give another folder."
            )
        if held["format"] < _FORMAT:
            raise DamagedData(
                f"{Path(folder, TABLE)} was written by an earlier version, which kept no checksums "
                f"and, after a kill, could keep the first samples twice. Delete the folder "
                f"{folder!r}, so that it is made again, or give another one."
            )
        table = held["table"]
        if held["check"] != text_hash(table):
            raise damaged_column(Path(folder, TABLE), "does not fit its check")
        tree, plain, made = pickle.loads(base64.b64decode(table["columns"]))  # noqa: S301  # own
        columns = tuple(StoredColumn(name, Kind(*kind), *rest) for name, kind, *rest in plain)
        rows, whole, said, times = (table[name] for name in ("rows", "whole", "said", "times"))
        found = Stored(rows, whole, said, tree, columns, made, times)
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError, EOFError) as error:
        raise damaged_column(
            Path(folder, TABLE), f"is not the table of such a folder ({error!r})"
        ) from error
    for file in files_of(found):
        path = Path(folder, file.name)
        seen = path.stat().st_size if path.exists() else 0
        if seen < file.end:
            raise damaged_column(path, f"needs {file.end:,} bytes, and has {seen:,}")
    return found


def check_values(folder: str, held: Stored) -> None:
    """Compares files with their checksums, if they were changed after the last commit.

    Raises:
        DamagedData: A file has other values.
    """
    paths = {file: Path(folder, file.name) for file in files_of(held)}
    try:
        changed = {
            file: path
            for file, path in paths.items()
            if path.stat().st_mtime_ns != held.times[file.name]
        }
        size = sum(file.end - file.first for file in changed)
        with Bar(f"checking {Path(folder).name}", size, "B") as bar:
            for file, path in changed.items():
                if _checksum(path, file, bar) != file.check:
                    raise damaged_column(path, "does not fit its checksum")
    except FileNotFoundError as error:
        raise damaged_column(Path(error.filename), "is gone") from error
    if changed and held.whole:
        with suppress(OSError):  # a read-only folder is checked each time
            save(folder, held)


def _checksum(path: Path, file: _ColumnFile, bar: Bar) -> int:
    check, left = 0, file.end - file.first
    with path.open("rb") as opened_file:
        opened_file.seek(file.first)
        while left and (some := opened_file.read(min(left, _CHUNK))):
            check, left = zlib.crc32(some, check), left - len(some)
            bar.add(len(some))
    return check


def opened(folder: str, held: Stored) -> Any:
    """The columns of a folder with at least one row, mapped into memory, as a tree."""
    return rebuilt(
        held.tree, iter([mapped_column(folder, column, held.rows) for column in held.columns])
    )


def rows_of(columns: Any, rows: Array) -> Iterator[Any]:
    """Samples of a tree of columns, one by one."""
    parts = [one_by_one(column, rows) for column in leaves(columns)]
    return (rebuilt(columns, iter(row)) for row in zip(*parts, strict=True))


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0) -> bytes:
    """The header of a `.npy` file; NumPy leaves room in it for a number of rows that grows."""
    out = io.BytesIO()
    described = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        out, {"descr": described, "fortran_order": False, "shape": (rows, *shape)}
    )
    return out.getvalue()


class _ColumnFile(NamedTuple):
    """A file of a column.

    Attributes:
        name: Its name in the folder.
        first: The byte at which its values begin.
        end: The byte at which they end.
        check: Their CRC-32.
    """

    name: str
    first: int
    end: int
    check: int


def files_of(held: Stored) -> Iterator[_ColumnFile]:
    """The files of all columns."""
    for column in held.columns:
        kind, (values, offsets) = column.kind, column.checks
        each = kind.dtype.itemsize * int(np.prod(kind.shape, dtype=np.int64))
        many = held.rows if kind.how == "array" else column.values
        yield _ColumnFile(f"{column.name}.npy", column.first, column.first + many * each, values)
        if kind.how != "array":
            first = len(npy_head(OFFSET, ()))
            end = first + OFFSET.itemsize * (held.rows + 1)
            yield _ColumnFile(f"{column.name}.offsets.npy", first, end, offsets)


def save(folder: str, held: Stored) -> Stored:
    """Writes the table of a folder, whose files have reached the disk; returns it as it is read.

    Files are dated back, so that every later change gives them another time, however soon it comes.
    """
    times, then = {}, time.time_ns() - _BEFORE
    for file in files_of(held):
        path = Path(folder, file.name)
        os.utime(path, ns=(then, then))
        times[file.name] = path.stat().st_mtime_ns
    plain = [(c.name, astuple(c.kind), c.values, c.first, c.checks) for c in held.columns]
    packed = base64.b64encode(pickle.dumps((held.tree, plain, held.made))).decode()
    table = {"rows": held.rows, "whole": held.whole, "said": held.said, "columns": packed}
    table = json.loads(json.dumps({**table, "times": times}))
    written = json.dumps({"format": _FORMAT, "check": text_hash(table), "table": table})
    with new_file(Path(folder, TABLE), durable=True) as aside:
        aside.write_text(written)
    return replace(held, times=times)


def mapped_column(folder: str, column: StoredColumn, rows: int) -> Any:
    """One column of a folder, mapped into memory."""
    kind = column.kind
    many = rows if kind.how == "array" else column.values
    path = Path(folder, f"{column.name}.npy")
    values = _mapped_values(path, kind.dtype, (many, *kind.shape), column.first)
    if kind.how == "array":
        return values
    offsets = _mapped_values(
        Path(folder, f"{column.name}.offsets.npy"), OFFSET, (rows + 1,), len(npy_head(OFFSET, ()))
    )
    if kind.how == "ragged":
        return Ragged(values, offsets)
    return EncodedRows(kind, values, offsets, path)


def _mapped_values(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], first: int) -> Array:
    if not np.prod(shape):
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    return np.asarray(np.memmap(path, dtype, "r", first, shape))
