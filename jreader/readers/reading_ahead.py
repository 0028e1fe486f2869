"""Passes announce the rows they need, so that columns can read ahead.

The route of a plan is computed, so a pass knows its rows long before it hands them over. It passes
them to columns that read in blocks, which can read ahead, and keep blocks that are needed again;
and to columns whose rows come late, from other machines or decoders: these request several batches
ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jreader.readers.columns import Array, Column, Take
from jreader.readers.exits_and_forks import ForkGuard, run_daemon
from jreader.readers.trees import leaves, rebuilt
from jreader.staging import Staging

_MAX_ROUTED_RUNS = 64  # most runs of indices that are routed ahead
_MAX_PENDING = 4  # batches requested at the same time
_NAME = "jreader late rows"  # of the threads
_CLOSE_SECONDS = 2.0  # seconds to wait when a pass ends: a store may be writing


class OpenedColumns(NamedTuple):
    """Columns of one pass.

    Attributes:
        columns: The tree of columns; those that are read in blocks as `reading` returns them.
        readings: The reading columns, each with its number among the leaves.
    """

    columns: Any
    readings: list[tuple[int, Column]]

    def ahead(self, routed: Iterable[list[Array]]) -> Iterator[list[Array]]:
        """Return run after run of rows; prefetch later runs while earlier ones are read.

        An error of a later run is raised in its turn.
        """
        return self._ahead(routed) if self.readings else iter(routed)

    def _ahead(self, routed: Iterable[list[Array]]) -> Iterator[list[Array]]:
        runs, known = iter(routed), deque[list[Array]]()
        failed: Exception | None = None
        try:
            more = True
            while True:
                for _ in range(2):  # one more than is handed over, so that the first comes soon
                    far = len(known) > _MAX_ROUTED_RUNS or (known and self.full())
                    if not more or far:
                        break
                    try:
                        rows = next(runs, None)
                    except Exception as error:
                        failed, rows = error, None
                    if more := rows is not None:
                        self.prefetch(rows)
                        known.append(rows)
                if not known:
                    break
                yield known.popleft()
            if failed is not None:
                raise failed
        finally:
            failed = None  # otherwise a traceback would hold this frame, and the frame the error
            self.close()

    def close(self) -> None:
        """Close what is open."""
        for _, reading in self.readings:
            reading.close()

    def prefetch(self, rows: list[Array]) -> None:
        """Prefetch these rows."""
        for number, reading in self.readings:
            reading.prefetch(rows[number])

    def full(self) -> bool:
        """Return whether to stop prefetching: no column can read further ahead."""
        return all(reading.full() for _, reading in self.readings)


def opened_for_pass(columns: Any, *, in_batches: bool) -> OpenedColumns:
    """Open the columns for one pass."""
    every = leaves(columns)
    made = [
        PrefetchedColumn(column)
        if isinstance(column, Column) and column.late
        else column.reading(in_batches=in_batches)
        if isinstance(column, Column)
        else column
        for column in every
    ]
    pairs = enumerate(zip(every, made, strict=True))
    readings = [(number, new) for number, (old, new) in pairs if new is not old]
    return OpenedColumns(rebuilt(columns, iter(made)) if readings else columns, readings)


class PrefetchedColumn(Column):
    """The rows of a column for one pass, whose next batches are gathered on threads.

    >>> from jreader.readers.columns import Objects
    >>> squares = PrefetchedColumn(Objects(9, lambda rows: iter((rows**2).tolist())))
    >>> _ = squares.gatherer(2)
    >>> squares.prefetch(np.array([5, 2, 3]))
    >>> squares.gather(np.array([5, 2])), squares.gather(np.array([3])), squares[8]
    ([25, 4], [9], 64)

    Args:
        column: The column.
    """

    def __init__(self, column: Column) -> None:
        """Begin without threads; the first expected rows start them."""
        self.column, self.stacks, self.kind = column, column.stacks, column.kind
        self.at_once = column.at_once
        self._coming = deque[Array]()
        self._pending = deque[tuple[Array, Future[Any]]]()
        self._fork_guard = ForkGuard()

    def __len__(self) -> int:
        return len(self.column)

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Record the number of rows per batch."""
        self.at_once = max(size, 1)
        return self.gather, None

    def prefetch(self, rows: Array) -> None:
        """Record that these rows come, in batches."""
        self._coming += [rows[at : at + self.at_once] for at in range(0, len(rows), self.at_once)]
        self._request_batches()

    def full(self) -> bool:
        """Return whether more batches are expected than may be requested."""
        return bool(self._coming)

    def gather(self, rows: Array) -> Any:
        """Return these rows, which may already be requested."""
        if self._pending and not self._fork_guard.forked:
            expected, given = self._pending[0]
            if np.array_equal(expected, rows):
                self._pending.popleft()
                self._request_batches()
                return given.result()
        return self.column.gather(rows)

    def close(self) -> None:
        """Request no more, and wait a moment for what was requested."""
        asked = [given for _, given in self._pending]
        self._coming.clear()
        self._pending.clear()
        if not self._fork_guard.forked:
            wait(asked, _CLOSE_SECONDS)

    def _request_batches(self) -> None:
        while self._coming and len(self._pending) < _MAX_PENDING:
            rows = self._coming.popleft()
            self._pending.append((rows, run_daemon(_NAME, partial(self.column.gather, rows))))
