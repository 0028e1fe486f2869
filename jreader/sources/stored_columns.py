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
import json
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from jreader.errors import DamagedData
from jreader.progress import Bar
from jreader.readers import leaves, rebuilt
from jreader.readers.hashing import text_hash
from jreader.readers.planes import Array, one_by_one
from jreader.sources.column_files import GrowingArray, StoredColumn
from jreader.sources.stored_rows import damaged_column
from jreader.sources.transactions import new_file

TABLE = "columns.json"

_FORMAT = 2
_BEFORE = 10 * 10**9  # ns by which files are dated back


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

    @property
    def files(self) -> Iterator[GrowingArray]:
        """The files of all columns."""
        return chain.from_iterable(column.files for column in self.columns)


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
        rows, whole, said, times = (table[name] for name in ("rows", "whole", "said", "times"))
        columns = tuple(StoredColumn.read(each, rows) for each in plain)
        found = Stored(rows, whole, said, tree, columns, made, times)
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError, EOFError) as error:
        raise damaged_column(
            Path(folder, TABLE), f"is not the table of such a folder ({error!r})"
        ) from error
    for file in found.files:
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
    paths = {file: Path(folder, file.name) for file in held.files}
    try:
        changed = {
            file: path
            for file, path in paths.items()
            if path.stat().st_mtime_ns != held.times[file.name]
        }
        size = sum(file.end - file.first for file in changed)
        with Bar(f"checking {Path(folder).name}", size, "B") as bar:
            for file, path in changed.items():
                if not file.is_whole(folder, bar):
                    raise damaged_column(path, "does not fit its checksum")
    except FileNotFoundError as error:
        raise damaged_column(Path(error.filename), "is gone") from error
    if changed and held.whole:
        with suppress(OSError):  # a read-only folder is checked each time
            save(folder, held)


def opened(folder: str, held: Stored) -> Any:
    """The columns of a folder with at least one row, mapped into memory, as a tree."""
    return rebuilt(held.tree, iter([column.mapped(folder) for column in held.columns]))


def rows_of(columns: Any, rows: Array) -> Iterator[Any]:
    """Samples of a tree of columns, one by one."""
    parts = [one_by_one(column, rows) for column in leaves(columns)]
    return (rebuilt(columns, iter(row)) for row in zip(*parts, strict=True))


def save(folder: str, held: Stored) -> Stored:
    """Writes the table of a folder, whose files have reached the disk; returns it as it is read.

    Files are dated back, so that every later change gives them another time, however soon it comes.
    """
    times, then = {}, time.time_ns() - _BEFORE
    for file in held.files:
        path = Path(folder, file.name)
        os.utime(path, ns=(then, then))
        times[file.name] = path.stat().st_mtime_ns
    plain = [column.plain for column in held.columns]
    packed = base64.b64encode(pickle.dumps((held.tree, plain, held.made))).decode()
    table = {"rows": held.rows, "whole": held.whole, "said": held.said, "columns": packed}
    table = json.loads(json.dumps({**table, "times": times}))
    written = json.dumps({"format": _FORMAT, "check": text_hash(table), "table": table})
    with new_file(Path(folder, TABLE), durable=True) as aside:
        aside.write_text(written)
    return replace(held, times=times)
