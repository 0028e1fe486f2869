"""Passes over columns that are read in blocks: they say which rows come, and close what they read.

The route of a plan is computed, so a pass knows its rows long before it hands them over. It tells
them to columns that read in blocks, which can so read ahead, and keep what comes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from jreader.readers.trees import leaves, map_tree

Array: TypeAlias = np.ndarray[Any, Any]

_RUNS = 64  # runs of indices that are routed ahead, at most


class BlockReading(Protocol):
    """The rows of a column for one pass: `Gathers`, and what a pass tells it."""

    def expect(self, rows: Array) -> None:
        """Takes note that these rows come, behind those that it was told before."""

    def full(self) -> bool:
        """Whether to tell it more would be of no use: it cannot read so far ahead."""

    def gather(self, rows: Array) -> Any:
        """Those rows, as `Gathers.gather` gives them."""

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""

    def close(self) -> None:
        """Lets go of what is open, and stops to read ahead; any thread may call it."""


class OpenedColumns(NamedTuple):
    """Columns of one pass.

    Attributes:
        columns: The tree of columns, with a `BlockReading` for each that is read in blocks.
        readings: The number of each of these among the leaves, and the reading.
    """

    columns: Any
    readings: list[tuple[int, BlockReading]]

    def ahead(self, routed: Iterable[list[Array]]) -> Iterator[list[Array]]:
        """The rows of run after run; those of later runs are told while earlier ones are read.

        An error of a later run is raised in its turn.
        """
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


def opened_for_pass(columns: Any) -> OpenedColumns | None:
    """The columns for one pass; None if none of them is read in blocks."""
    if not any(hasattr(column, "reading") for column in leaves(columns)):
        return None

    def of_pass(column: Any) -> Any:
        return column.reading() if hasattr(column, "reading") else column

    made = map_tree(of_pass, columns)
    every = zip(leaves(columns), leaves(made), strict=True)
    readings = [(number, new) for number, (old, new) in enumerate(every) if new is not old]
    return OpenedColumns(made, readings)


def keeping(columns: Any, blocks: int) -> Any:
    """The columns, of which those that are read in blocks keep so many of these open."""

    def kept(column: Any) -> Any:
        return column.keeping(blocks) if hasattr(column, "keeping") else column

    return map_tree(kept, columns)
