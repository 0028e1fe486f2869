"""Passes say which rows come, so that columns read ahead; and close what they have read.

The route of a plan is computed, so a pass knows its rows long before it hands them over. It tells
them to columns that read in blocks, which can so read ahead, and keep what comes again; and to
those whose rows come late, from other machines or decoders: several batches are on their way.
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

_MAX_ROUTED_RUNS = 64  # runs of indices that are routed ahead, at most
_MAX_PENDING = 4  # batches that are on their way at the same time
_NAME = "jreader late rows"  # of threads
_CLOSE_SECONDS = 2.0  # seconds that a pass that ends waits for them: a store may write what came


class OpenedColumns(NamedTuple):
    """Columns of one pass.

    Attributes:
        columns: The tree of columns, those that are read in blocks as `reading` gives them.
        readings: The number of each of these among the leaves, and the reading.
    """

    columns: Any
    readings: list[tuple[int, Column]]

    def ahead(self, routed: Iterable[list[Array]]) -> Iterator[list[Array]]:
        """The rows of run after run; later ones are prefetched while earlier ones are read.

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
            failed = None  # or a traceback would hold this frame, and the frame the error
            self.close()

    def close(self) -> None:
        """Closes what is open."""
        for _, reading in self.readings:
            reading.close()

    def prefetch(self, rows: list[Array]) -> None:
        """Prefetches these rows."""
        for number, reading in self.readings:
            reading.prefetch(rows[number])

    def full(self) -> bool:
        """Whether to stop prefetching: no column can read further ahead."""
        return all(reading.full() for _, reading in self.readings)


def opened_for_pass(columns: Any, *, in_batches: bool) -> OpenedColumns:
    """The columns for one pass."""
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
    """The rows of a column for one pass, of which the next batches are gathered on threads.

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
        """Begins with nothing expected; threads begin with what is."""
        self.column, self.stacks, self.kind = column, column.stacks, column.kind
        self.at_once = column.at_once
        self._coming = deque[Array]()
        self._pending = deque[tuple[Array, Future[Any]]]()
        self._fork_guard = ForkGuard()

    def __len__(self) -> int:
        return len(self.column)

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Takes note of how many rows a batch has."""
        self.at_once = max(size, 1)
        return self.gather, None

    def prefetch(self, rows: Array) -> None:
        """Takes note that these rows come, in batches."""
        self._coming += [rows[at : at + self.at_once] for at in range(0, len(rows), self.at_once)]
        self._request_batches()

    def full(self) -> bool:
        """Whether more batches are expected than may be on their way."""
        return bool(self._coming)

    def gather(self, rows: Array) -> Any:
        """Those rows, which may be on their way already."""
        if self._pending and not self._fork_guard.forked:
            expected, given = self._pending[0]
            if np.array_equal(expected, rows):
                self._pending.popleft()
                self._request_batches()
                return given.result()
        return self.column.gather(rows)

    def close(self) -> None:
        """Asks for no more, and waits a moment for what is on its way."""
        asked = [given for _, given in self._pending]
        self._coming.clear()
        self._pending.clear()
        if not self._fork_guard.forked:
            wait(asked, _CLOSE_SECONDS)

    def _request_batches(self) -> None:
        while self._coming and len(self._pending) < _MAX_PENDING:
            rows = self._coming.popleft()
            self._pending.append((rows, run_daemon(_NAME, partial(self.column.gather, rows))))
