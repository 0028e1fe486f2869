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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from jreader.errors import DamagedData
from jreader.progress import Bar
from jreader.readers import leaves, rebuilt
from jreader.readers.columns import column_of
from jreader.readers.hashing import text_hash
from jreader.readers.trees import zipped
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
        folder: The folder.
        rows: How many rows.
        whole: Whether these are all.
        said: What its writer keeps beside: anything that JSON can write.
        tree: The tree of a sample, with the numbers of the columns as leaves.
        columns: The columns; none before the first row.
        made: How many names were given to columns.
        times: When each file was changed last, in nanoseconds.
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
        """These samples, one by one."""
        rows = np.arange(begin, end)
        return zipped(self.tree, [column_of(column).each(rows) for column in leaves(self.mapped)])

    def check_values(self) -> None:
        """Compares files with their checksums, if they were changed after the last commit.

        Raises:
            DamagedData: A file has other values.
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
            with suppress(OSError):  # a read-only folder is checked each time
                self.saved()

    def saved(self) -> Self:
        """Writes the table, whose files have reached the disk; returns it as it is read.

        Files are dated back, so that every later change gives them another time, however soon it
        comes.
        """
        then = time.time_ns() - _BEFORE
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
        """Removes the files that a killed writer left, which the table does not know."""
        known = {file.path for file in self.files}
        for path in self.folder.iterdir():
            left = path.name.startswith(f".{TABLE}.") or path.suffix == ".npy"
            if left and path not in known:
                path.unlink(missing_ok=True)


def read_table(folder: str) -> Stored:
    """What a folder holds; nothing if there is no table in it.

    Raises:
        DamagedData: The table is not one, or of another release, or files are shorter than it says.
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
    """What the table says, if it is one of this release, as it was written."""
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
    """When a file was changed last."""
    return file.path.stat().st_mtime_ns
