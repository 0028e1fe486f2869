"""Passes over columns that are read in blocks: they say which rows come, and close what they read.

The route of a plan is computed, so a pass knows its rows long before it hands them over. It tells
them to columns that read in blocks, which can so read ahead, and keep what comes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jreader.readers.columns import Array, Column
from jreader.readers.trees import leaves, map_tree, rebuilt

_RUNS = 64  # runs of indices that are routed ahead, at most


class OpenedColumns(NamedTuple):
    """Columns of one pass.

    Attributes:
        columns: The tree of columns, those that are read in blocks as `reading` gives them.
        readings: The number of each of these among the leaves, and the reading.
    """

    columns: Any
    readings: list[tuple[int, Column]]

    def ahead(self, routed: Iterable[list[Array]]) -> Iterator[list[Array]]:
        """The rows of run after run; those of later runs are told while earlier ones are read.

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
                    far = len(known) > _RUNS or (known and all(self._full()))
                    if not more or far:
                        break
                    try:
                        rows = next(runs, None)
                    except Exception as error:
                        failed, rows = error, None
                    if more := rows is not None:
                        self._tell(rows)
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

    def _tell(self, rows: list[Array]) -> None:
        for number, reading in self.readings:
            reading.expect(rows[number])

    def _full(self) -> Iterator[bool]:
        return (reading.full() for _, reading in self.readings)


def opened_for_pass(columns: Any, *, in_batches: bool) -> OpenedColumns:
    """The columns for one pass."""
    every = leaves(columns)
    made = [
        column.reading(in_batches=in_batches) if isinstance(column, Column) else column
        for column in every
    ]
    pairs = enumerate(zip(every, made, strict=True))
    readings = [(number, new) for number, (old, new) in pairs if new is not old]
    return OpenedColumns(rebuilt(columns, iter(made)) if readings else columns, readings)


def keeping(columns: Any, blocks: int) -> Any:
    """The columns, of which those that are read in blocks keep so many of these open."""

    def kept(column: Any) -> Any:
        return column.keeping(blocks) if isinstance(column, Column) else column

    return map_tree(kept, columns)
