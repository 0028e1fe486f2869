"""Append samples to a folder of columns (`stored_columns`), whose kinds may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from jreader.readers import leaves
from jreader.readers.columns import column_of
from jreader.readers.trees import same_structure
from jreader.sources.stored_columns import Stored, StoredColumn
from jreader.sources.stored_rows import Kind, common, encoded, kind_of, reloaded, size_of, skeleton
from jreader.sources.transactions import FULL, explaining_full_disk

_CHUNK = 1 << 10  # rows to convert at a time


class _State(NamedTuple):
    """The written and unwritten samples, replaced atomically, since Ctrl-C may come at any time.

    Attributes:
        held: The contents of the folder.
        added: Unwritten samples, each with the position after it.
        rows: The encoded rows of these samples, by column; perhaps one more, from an interrupted
            add.
    """

    held: Stored
    added: list[tuple[Any, Any]]
    rows: list[list[Any]]


class Appending:
    """Appends samples to the columns of a folder.

    Args:
        held: The contents of the folder, which stay; no other process writes to it.
        at: The position after its last sample.
        said: Takes the position after the last sample of a commit; returns metadata to store with
            it.
    """

    def __init__(self, held: Stored, at: Any, said: Callable[[Any], Any]) -> None:
        self._position, self._said = at, said
        self._state = _nothing_added(held)
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of samples, written or not."""
        return self._state.held.rows + len(self._state.added)

    def __getitem__(self, index: int) -> Any:
        """Return an unwritten sample."""
        return self._state.added[index - self._state.held.rows][0]

    @property
    def held(self) -> Stored:
        """The written contents."""
        return self._state.held

    @property
    def waiting(self) -> bool:
        """True if there are unwritten samples."""
        return bool(self._state.added)

    def add(self, sample: Any, at: Any) -> None:
        """Add a sample, with the position after it."""
        sample = reloaded(sample)
        held = self.held if self.held.columns else self._new_columns(sample)
        if held.tree is not None and not same_structure(held.tree, sample):
            held = self._converted(None)
        parts = [sample] if held.tree is None else leaves(sample)
        if held.tree is not None:
            kinds = [column.kind for column in held.columns]
            wanted = [*map(common, kinds, map(kind_of, parts))]
            if wanted != kinds:
                held = self._converted(wanted)
        for rows, part, column in zip(self._state.rows, parts, held.columns, strict=True):
            del rows[len(self._state.added) :]  # of a sample whose add failed
            rows.append(encoded(part, column.kind))
            self.bytes += size_of(rows[-1])
        self._state.added.append((sample, at))

    def commit(self, *, whole: bool = False) -> None:
        """Write the added samples, then the table with its metadata.

        Raises:
            OSError: The disk is full, or the file system fails.
        """
        held, added, _ = self._state
        at = added[-1][1] if added else self._position
        with _explaining_errors(held):
            held = self.written(replace(held, rows=held.rows + len(added), whole=whole))
            for file in held.files if whole else ():
                file.finish()
            held = replace(held, said={**self._said(at), **held.said}).saved()
        self._position = at
        self._state, self.bytes = _nothing_added(held), 0

    def written(self, held: Stored) -> Stored:
        """Return the contents with the added samples appended, and without metadata."""
        _, added, every = self._state
        pairs = zip(held.columns, every, strict=True) if added else ()
        columns = tuple(column.appended(rows[: len(added)]) for column, rows in pairs)
        return replace(held, columns=columns or held.columns, said={})

    def _new_columns(self, sample: Any) -> Stored:
        tree = skeleton(sample)
        kinds = [Kind("object")] if tree is None else [*map(kind_of, leaves(sample))]
        with _explaining_errors(self.held):
            columns = tuple(
                StoredColumn.created(self.held.folder, str(number), kind)
                for number, kind in enumerate(kinds)
            )
        self._state = _nothing_added(
            replace(self.held, tree=tree, columns=columns, made=len(columns))
        )
        return self.held

    def _converted(self, wanted: list[Kind] | None) -> Stored:
        """Convert the columns to other kinds; None makes one column of whole samples."""
        self.commit()
        held = self.held
        with _explaining_errors(self.held):
            if wanted is None:
                samples = held.samples(0, held.rows)
                tree, columns = None, [self._rewritten(held.made, Kind("object"), samples)]
            else:
                numbers = count(held.made)
                pairs = zip(held.columns, wanted, numbers, strict=False)
                tree, columns = held.tree, [self._as_kind(*each) for each in pairs]
            made = held.made + len(columns)
            held = replace(held, tree=tree, columns=tuple(columns), made=made)
            self._state = _nothing_added(held.saved())
            held.sweep()
        return self.held

    def _as_kind(self, column: StoredColumn, kind: Kind, number: int) -> StoredColumn:
        if column.kind == kind:
            return column
        if kind.how == "ragged":
            return column.ragged(kind)
        rows = column_of(column.mapped()).each(np.arange(self.held.rows))
        return self._rewritten(number, kind, rows)

    def _rewritten(self, number: int, kind: Kind, rows: Iterator[Any]) -> StoredColumn:
        column = StoredColumn.created(self.held.folder, str(number), kind)
        while some := [encoded(row, kind) for row in islice(rows, _CHUNK)]:
            column = column.appended(some)
        return column


@contextmanager
def _explaining_errors(held: Stored) -> Iterator[None]:
    """Say how a full disk or a removed folder affects the samples stored there."""
    kept, folder = f"{held.rows:,} samples are kept there", str(held.folder)
    try:
        with explaining_full_disk(folder, kept, "again, which resumes there; or"):
            yield
    except OSError as error:
        if error.errno in FULL:
            raise
        raise OSError(
            error.errno,
            f"{folder!r} cannot be written any more ({error}): {kept}, if it still "
            f"exists. Run again to resume there, and let no other program change it.",
        ) from error


def _nothing_added(held: Stored) -> _State:
    """Return a state without unwritten samples."""
    return _State(held, [], [[] for _ in held.columns])
