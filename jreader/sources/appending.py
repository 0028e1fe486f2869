"""Samples appended to a folder of columns (`stored_columns`), which may change their kind."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jreader.readers import leaves
from jreader.readers.planes import Array, one_by_one
from jreader.readers.trees import same_structure
from jreader.sources.stored_columns import (
    OFFSET,
    TABLE,
    Stored,
    StoredColumn,
    files_of,
    mapped_column,
    npy_head,
    opened,
    rows_of,
    save,
)
from jreader.sources.stored_rows import (
    Kind,
    as_found,
    common,
    encoded,
    kind_of,
    size_of,
    skeleton,
    values_of,
)
from jreader.sources.transactions import FULL, full_disk_said

_AT_ONCE = 1 << 10  # rows that are converted in one go
_NO_OFFSETS = bytes(OFFSET.itemsize)  # the beginning of the first row


class _State(NamedTuple):
    """What is written and what is not, replaced in one step: Ctrl-C may come between any two.

    Attributes:
        held: What the folder holds.
        added: Samples that are not written yet, each with the position after it.
        rows: For each column, the rows of these samples, and perhaps one more, of half a sample.
    """

    held: Stored
    added: list[tuple[Any, Any]]
    rows: list[list[Any]]


class Appending:
    """Appends samples to the columns of a folder.

    Args:
        folder: It exists, and no other process writes to it.
        held: What it holds; all of it stays.
        at: The position after its last sample.
        said: Takes the position after the last sample of a commit; returns what is kept beside.
    """

    def __init__(self, folder: str, held: Stored, at: Any, said: Callable[[Any], Any]) -> None:
        self.folder, self._at, self._said = folder, at, said
        self._state = _unwritten(held)
        self.bytes = 0

    def __len__(self) -> int:
        """How many samples there are, written or not."""
        return self._state.held.rows + len(self._state.added)

    def __getitem__(self, index: int) -> Any:
        """A sample that is not written yet."""
        return self._state.added[index - self._state.held.rows][0]

    @property
    def held(self) -> Stored:
        """What is written."""
        return self._state.held

    @property
    def waiting(self) -> bool:
        """Whether there are samples that are not written yet."""
        return bool(self._state.added)

    def add(self, sample: Any, at: Any) -> None:
        """Takes one more sample, and the position after it."""
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
        for rows, part, column in zip(self._state.rows, parts, held.columns, strict=True):
            del rows[len(self._state.added) :]  # of a sample that could not be kept
            rows.append(encoded(part, column.kind))
            self.bytes += size_of(rows[-1])
        self._state.added.append((sample, at))

    def commit(self, *, whole: bool = False) -> None:
        """Writes what was added, and then the table, with what is kept beside.

        Raises:
            OSError: The disk is full, or another error of the file system.
        """
        held, added, written = self._state
        columns, many = list(held.columns), len(added)
        at = added[-1][1] if added else self._at
        with self._telling():
            if added:
                for number, rows in enumerate(written):
                    columns[number] = self._append(columns[number], rows[:many])
            if whole:
                for column in columns:
                    self._head(column, held.rows + many)
            held = replace(held, rows=held.rows + many, whole=whole, columns=tuple(columns))
            held = save(self.folder, replace(held, said=self._said(at)))
        self._at = at
        self._state, self.bytes = _unwritten(held), 0

    def _begun(self, sample: Any) -> Stored:
        tree = skeleton(sample)
        kinds = [Kind("object")] if tree is None else [*map(kind_of, leaves(sample))]
        columns = tuple(_empty(str(number), kind) for number, kind in enumerate(kinds))
        with self._telling():
            for column in columns:
                self._create(column)
        self._state = _unwritten(replace(self.held, tree=tree, columns=columns, made=len(columns)))
        return self.held

    def _converted(self, wanted: list[Kind] | None) -> Stored:
        """Makes columns of other kinds; None for one column of whole samples, as objects."""
        self.commit()
        held = self.held
        with self._telling():
            if wanted is None:
                column = _empty(str(held.made), Kind("object"))
                samples = rows_of(opened(self.folder, held), np.arange(held.rows))
                columns = [self._rewritten(column, samples)]
                tree = None
            else:
                tree, columns = held.tree, []
                for column, kind in zip(held.columns, wanted, strict=True):
                    columns.append(self._as_kind(column, kind, held.made + len(columns)))
            made = held.made + len(columns)
            held = replace(held, tree=tree, columns=tuple(columns), made=made)
            self._state = _unwritten(save(self.folder, held))
            swept(self.folder, held)
        return self.held

    def _as_kind(self, column: StoredColumn, kind: Kind, number: int) -> StoredColumn:
        if column.kind == kind:
            return column
        if kind.how == "ragged":  # the values lie as they should, only the offsets are missing
            each, many = column.kind.shape[0], self.held.rows
            self._create_offsets(column)
            offsets = np.arange(1, many + 1, dtype=OFFSET) * each
            checks = column.checks[0], self._append_offsets(column, offsets, 0)
            return replace(column, kind=kind, values=many * each, checks=checks)
        before = mapped_column(self.folder, column, self.held.rows)
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
        check, offsets_check = column.checks
        _write(Path(self.folder, f"{column.name}.npy"), values, column.first + at * each)
        check = zlib.crc32(_as_bytes(values), check)
        if lengths is None:
            return replace(column, values=before + len(rows), checks=(check, offsets_check))
        offsets = column.values + np.cumsum(lengths, dtype=OFFSET)
        checks = check, self._append_offsets(column, offsets, before)
        return replace(column, values=int(offsets[-1]), checks=checks)

    def _append_offsets(self, column: StoredColumn, offsets: Array, before: int) -> int:
        """Writes the ends of rows after those of others; returns the checksum of all."""
        path = Path(self.folder, f"{column.name}.offsets.npy")
        _write(path, offsets, len(npy_head(OFFSET, ())) + OFFSET.itemsize * (before + 1))
        return zlib.crc32(_as_bytes(offsets), column.checks[1])

    def _create(self, column: StoredColumn) -> None:
        head = npy_head(column.kind.dtype, column.kind.shape)
        _anew(Path(self.folder, f"{column.name}.npy"), head)
        if column.kind.how != "array":
            self._create_offsets(column)

    def _create_offsets(self, column: StoredColumn) -> None:
        path = Path(self.folder, f"{column.name}.offsets.npy")
        _anew(path, npy_head(OFFSET, ()) + _NO_OFFSETS)

    def _head(self, column: StoredColumn, rows: int) -> None:
        """Writes how many rows there are into the files, for NumPy."""
        many = rows if column.kind.how == "array" else column.values
        head = npy_head(column.kind.dtype, column.kind.shape, many)
        if len(head) == column.first:
            _write(Path(self.folder, f"{column.name}.npy"), head, 0)
        if column.kind.how != "array":
            path = Path(self.folder, f"{column.name}.offsets.npy")
            _write(path, npy_head(OFFSET, (), rows + 1), 0)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Says what a full disk, or a folder that was removed, means here."""
        kept = f"{self.held.rows:,} samples are kept there"
        try:
            with full_disk_said(self.folder, kept, "again, which goes on there; or"):
                yield
        except OSError as error:
            if error.errno in FULL:
                raise
            raise OSError(
                error.errno,
                f"{self.folder!r} cannot be written any more ({error}): {kept}, if it still "
                f"exists. Run again to resume there, and let no other program change it.",
            ) from error


def swept(folder: str, held: Stored) -> None:
    """Removes the files that a killed writer left, which the table does not know."""
    known = {file.name for file in files_of(held)}
    for path in Path(folder).iterdir():
        left = path.name.startswith(f".{TABLE}.") or path.suffix == ".npy"
        if left and path.name not in known:
            path.unlink(missing_ok=True)


def _anew(path: Path, content: bytes) -> None:
    """Makes a new file: shortening one that a process has mapped would kill that process."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _unwritten(held: Stored) -> _State:
    return _State(held, [], [[] for _ in held.columns])


def _empty(name: str, kind: Kind) -> StoredColumn:
    first = len(npy_head(kind.dtype, kind.shape))
    return StoredColumn(name, kind, first=first, checks=(0, zlib.crc32(_NO_OFFSETS)))


def _as_bytes(values: Array) -> memoryview:
    """The bytes of an array in their order."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _write(path: Path, values: Any, at: int) -> None:
    """Writes bytes at a place of a file, and waits until they are on the disk."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        left = _as_bytes(values) if isinstance(values, np.ndarray) else memoryview(values)
        while left:
            done = os.pwrite(descriptor, left, at)
            left, at = left[done:], at + done
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
