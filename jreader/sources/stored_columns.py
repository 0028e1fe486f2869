"""A folder of columns that grow: appended to in chunks, and true up to the last commit.

`columns.json` says what there is: how many rows, of which columns, and what its writer asked to be
kept beside (`Stored.said`). It is replaced as a whole once the rows that it counts are on the disk,
so a writer may be killed at any moment: what lies beyond is overwritten by the next one. Values lie
in `.npy` files, ragged ones with offsets beside, which NumPy can read too once all is written.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import leaves, rebuilt
from jreader.readers.hashing import text_hash
from jreader.readers.planes import Array, one_by_one
from jreader.readers.ragged import Ragged
from jreader.readers.trees import same_structure
from jreader.sources.atomic_files import FULL, replaced
from jreader.sources.stored_rows import (
    Decoded,
    Kind,
    as_found,
    common,
    encoded,
    kind_of,
    size_of,
    skeleton,
    values_of,
)

TABLE = "columns.json"
_FORMAT = 1
_AT_ONCE = 1 << 10  # rows that are converted in one go
_OFFSET = np.dtype(np.int64)


@dataclass(frozen=True)
class StoredColumn:
    """One column, as the table has it.

    Attributes:
        name: The files are `name.npy` and `name.offsets.npy`.
        kind: What its rows are.
        values: How many values it has; as many as rows if these are arrays of one shape.
        first: The byte of the file at which the values begin.
    """

    name: str
    kind: Kind
    values: int = 0
    first: int = 0


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
    """

    rows: int = 0
    whole: bool = False
    said: Any = None
    tree: Any = 0
    columns: tuple[StoredColumn, ...] = field(default=())
    made: int = 0


def stored(folder: str) -> Stored | None:
    """What a folder holds; None if there is no table in it.

    Raises:
        DamagedData: The table is not one, or files are shorter than it says.
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
        table = held["table"]
        if held["check"] != text_hash(table):
            raise _damaged(folder, TABLE, "does not fit its check")
        tree, plain, made = pickle.loads(base64.b64decode(table["columns"]))  # noqa: S301  # own
        columns = tuple(
            StoredColumn(name, Kind(*kind), values, first) for name, kind, values, first in plain
        )
        found = Stored(table["rows"], table["whole"], table["said"], tree, columns, made)
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError, EOFError) as error:
        raise _damaged(folder, TABLE, f"is not the table of such a folder ({error!r})") from error
    for column in found.columns:
        for name, needed in _files(column, found.rows):
            path = Path(folder, name)
            seen = path.stat().st_size if path.exists() else 0
            if seen < needed:
                raise _damaged(folder, name, f"needs {needed:,} bytes, and has {seen:,}")
    return found


def opened(folder: str, held: Stored) -> Any:
    """The columns of a folder with at least one row, mapped into memory, as a tree."""
    return rebuilt(held.tree, iter([_column(folder, column, held.rows) for column in held.columns]))


def rows_of(columns: Any, rows: Array) -> Iterator[Any]:
    """Samples of a tree of columns, one by one."""
    parts = [one_by_one(column, rows) for column in leaves(columns)]
    return (rebuilt(columns, iter(row)) for row in zip(*parts, strict=True))


class Appending:
    """Appends samples to the columns of a folder.

    Args:
        folder: It exists, and nobody else writes to it.
        held: What it holds; all of it stays.
    """

    def __init__(self, folder: str, held: Stored) -> None:
        self.folder, self.held = folder, held
        self._columns: Any = None  # those of `held`, once they are asked for
        self.samples: list[Any] = []  # that are not written yet, as they are found again
        self._written: list[list[Any]] = [[] for _ in held.columns]
        self.bytes = 0

    def __len__(self) -> int:
        """How many samples there are, written or not."""
        return self.held.rows + len(self.samples)

    @property
    def columns(self) -> Any:
        """The columns of what is written."""
        if self._columns is None:
            self._columns = opened(self.folder, self.held)
        return self._columns

    def add(self, sample: Any) -> Any:
        """Takes one more sample; returns it as it is found again."""
        sample = as_found(sample)
        held = self.held if self.held.columns else self._begun(sample)
        if held.tree is not None and not same_structure(held.tree, sample):
            held = self._converted(None)
        parts = [sample] if held.tree is None else leaves(sample)
        if held.tree is not None:
            kinds = [column.kind for column in held.columns]
            wanted = [*map(common, kinds, map(kind_of, parts))]
            if wanted != kinds:
                held = self._converted(wanted)
        for rows, part, column in zip(self._written, parts, held.columns, strict=True):
            rows.append(encoded(part, column.kind))
            self.bytes += size_of(rows[-1])
        self.samples.append(sample)
        return sample

    def commit(self, said: Any, *, whole: bool = False) -> None:
        """Writes what was added, and then the table, with what is to be kept beside.

        Raises:
            OSError: The disk is full, or another error of the file system.
        """
        held, columns = self.held, list(self.held.columns)
        with self._telling():
            if self.samples:
                for number, rows in enumerate(self._written):
                    columns[number] = self._append(columns[number], rows)
            many = len(self)
            if whole:
                for column in columns:
                    self._head(column, many)
            self._table(replace(held, rows=many, whole=whole, said=said, columns=tuple(columns)))
        self.samples, self.bytes = [], 0
        self._written = [[] for _ in columns]

    def _begun(self, sample: Any) -> Stored:
        tree = skeleton(sample)
        kinds = [Kind("object")] if tree is None else [*map(kind_of, leaves(sample))]
        columns = tuple(_empty(str(number), kind) for number, kind in enumerate(kinds))
        with self._telling():
            for column in columns:
                self._create(column)
        self.held = replace(self.held, tree=tree, columns=columns, made=len(columns))
        self._written = [[] for _ in columns]
        return self.held

    def _converted(self, wanted: list[Kind] | None) -> Stored:
        """Makes columns of other kinds; None for one column of whole samples, as objects."""
        self.commit(self.held.said)
        held = self.held
        with self._telling():
            if wanted is None:
                column = _empty(str(held.made), Kind("object"))
                samples = rows_of(self.columns, np.arange(held.rows))
                columns = [self._rewritten(column, samples)]
                tree = None
            else:
                tree, columns = held.tree, []
                for column, kind in zip(held.columns, wanted, strict=True):
                    columns.append(self._as_kind(column, kind, held.made + len(columns)))
            made = held.made + len(columns)
            self._table(replace(held, tree=tree, columns=tuple(columns), made=made))
            kept = {name for column in columns for name, _ in _files(column, 0)}
            for column in held.columns:
                for name, _ in _files(column, 0):
                    if name not in kept:
                        Path(self.folder, name).unlink(missing_ok=True)
        self._written = [[] for _ in columns]
        return self.held

    def _as_kind(self, column: StoredColumn, kind: Kind, number: int) -> StoredColumn:
        if column.kind == kind:
            return column
        if kind.how == "ragged":  # the values lie as they should, only the offsets are missing
            each, many = column.kind.shape[0], self.held.rows
            path = self._create_offsets(column)
            _write(
                path, np.arange(1, many + 1, dtype=_OFFSET) * each, len(npy_head(_OFFSET, ())) + 8
            )
            return replace(column, kind=kind, values=many * each)
        before = _column(self.folder, column, self.held.rows)
        rows = one_by_one(before, np.arange(self.held.rows))
        return self._rewritten(_empty(str(number), kind), rows)

    def _rewritten(self, column: StoredColumn, rows: Iterator[Any]) -> StoredColumn:
        self._create(column)
        some: list[Any] = []
        written = 0
        for row in rows:
            some.append(encoded(row, column.kind))
            if len(some) == _AT_ONCE:
                column, written = self._append(column, some, written), written + len(some)
                some = []
        return self._append(column, some, written) if some else column

    def _append(
        self, column: StoredColumn, rows: Sequence[Any], before: int | None = None
    ) -> StoredColumn:
        kind, before = column.kind, self.held.rows if before is None else before
        values, lengths = values_of(rows, kind)
        each = kind.dtype.itemsize * int(np.prod(kind.shape, dtype=np.int64))
        at = before if lengths is None else column.values
        _write(Path(self.folder, f"{column.name}.npy"), values, column.first + at * each)
        if lengths is None:
            return replace(column, values=before + len(rows))
        offsets = column.values + np.cumsum(lengths, dtype=_OFFSET)
        path = Path(self.folder, f"{column.name}.offsets.npy")
        _write(path, offsets, len(npy_head(_OFFSET, ())) + 8 * (before + 1))
        return replace(column, values=int(offsets[-1]))

    def _create(self, column: StoredColumn) -> None:
        head = npy_head(column.kind.dtype, column.kind.shape)
        _anew(Path(self.folder, f"{column.name}.npy"), head)
        if column.kind.how != "array":
            self._create_offsets(column)

    def _create_offsets(self, column: StoredColumn) -> Path:
        path = Path(self.folder, f"{column.name}.offsets.npy")
        _anew(path, npy_head(_OFFSET, ()) + bytes(_OFFSET.itemsize))
        return path

    def _head(self, column: StoredColumn, rows: int) -> None:
        """Writes how many rows there are into the files, for NumPy."""
        many = rows if column.kind.how == "array" else column.values
        head = npy_head(column.kind.dtype, column.kind.shape, many)
        if len(head) == column.first:
            _write(Path(self.folder, f"{column.name}.npy"), head, 0)
        if column.kind.how != "array":
            path = Path(self.folder, f"{column.name}.offsets.npy")
            _write(path, npy_head(_OFFSET, (), rows + 1), 0)

    def _table(self, held: Stored) -> None:
        plain = [(c.name, astuple(c.kind), c.values, c.first) for c in held.columns]
        packed = base64.b64encode(pickle.dumps((held.tree, plain, held.made))).decode()
        table = {"rows": held.rows, "whole": held.whole, "said": held.said, "columns": packed}
        table = json.loads(json.dumps(table))
        written = json.dumps({"format": _FORMAT, "check": text_hash(table), "table": table})
        replaced(Path(self.folder, TABLE), lambda path: path.write_text(written))
        self.held, self._columns = held, None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Says what a full disk, or a folder that was removed, means here."""
        try:
            yield
        except OSError as error:
            kept = f"{self.held.rows:,} samples are kept there"
            if error.errno in FULL:
                raise OSError(
                    error.errno,
                    f"no space is left for {self.folder!r} ({error.strerror}): {kept}. Free some "
                    f"space and run again, which goes on there; or give another folder.",
                ) from error
            raise OSError(
                error.errno,
                f"{self.folder!r} cannot be written any more ({error}): {kept}, if it still "
                f"exists. Run again, which goes on there, and let nobody else change it.",
            ) from error


def swept(folder: str, held: Stored) -> None:
    """Removes the files that a killed writer left, which the table does not know."""
    known = {name for column in held.columns for name, _ in _files(column, 0)}
    for path in Path(folder).iterdir():
        left = path.name.startswith(f".{TABLE}.") or path.suffix == ".npy"
        if left and path.name not in known:
            path.unlink(missing_ok=True)


def _anew(path: Path, content: bytes) -> None:
    """Makes a file that nobody has mapped: to shorten one that is would end its reader."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _empty(name: str, kind: Kind) -> StoredColumn:
    return StoredColumn(name, kind, 0, len(npy_head(kind.dtype, kind.shape)))


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0) -> bytes:
    """The header of a `.npy` file; NumPy leaves room in it for a number of rows that grows."""
    out = io.BytesIO()
    described = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(
        out, {"descr": described, "fortran_order": False, "shape": (rows, *shape)}
    )
    return out.getvalue()


def _write(path: Path, values: Any, at: int) -> None:
    """Writes bytes at a place of a file, and waits until they are on the disk."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        left = memoryview(values)
        while left:
            done = os.pwrite(descriptor, left, at)
            left, at = left[done:], at + done
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(column: StoredColumn, rows: int) -> Iterator[tuple[str, int]]:
    """The files of a column, and how many bytes each has at least."""
    each = column.kind.dtype.itemsize * int(np.prod(column.kind.shape, dtype=np.int64))
    many = rows if column.kind.how == "array" else column.values
    yield f"{column.name}.npy", column.first + many * each
    if column.kind.how != "array":
        yield f"{column.name}.offsets.npy", len(npy_head(_OFFSET, ())) + 8 * (rows + 1)


def _column(folder: str, column: StoredColumn, rows: int) -> Any:
    kind = column.kind
    many = rows if kind.how == "array" else column.values
    values = _mapped(
        Path(folder, f"{column.name}.npy"), kind.dtype, (many, *kind.shape), column.first
    )
    if kind.how == "array":
        return values
    offsets = _mapped(
        Path(folder, f"{column.name}.offsets.npy"), _OFFSET, (rows + 1,), len(npy_head(_OFFSET, ()))
    )
    return Ragged(values, offsets) if kind.how == "ragged" else Decoded(kind, values, offsets)


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], first: int) -> Array:
    if not np.prod(shape):
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    return np.asarray(np.memmap(path, dtype, "r", first, shape))


def _damaged(folder: str, name: str, how: str) -> DamagedData:
    return DamagedData(
        f"{Path(folder, name)} {how}: it was changed after it was written. Delete the folder "
        f"{folder!r}, so that it is made again, or give another one."
    )
