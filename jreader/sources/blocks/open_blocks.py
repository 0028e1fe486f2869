"""The open blocks of one pass: decoded ahead on threads, in the order of first use, few at a time.

A pass announces its rows (`prefetch`). So blocks are decoded in the order in which they are first
needed, and a block is not closed while more of its rows are to come: in an order by blocks
(`shuffle(blocks=)`), each is decoded once. Threads decode only into free places. A caller that
needs a block that no thread is decoding decodes it itself.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from jreader.cores import usable_cores
from jreader.readers.columns import Array, Column
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.readers.joined_columns import by_part, merged
from jreader.readers.messages import described
from jreader.sources.blocks.decoded_blocks import Arena, Decoded, Slot, slot_rows

if TYPE_CHECKING:
    from jreader.sources.blocks.block_columns import BlockColumns

_OPEN = 4  # open blocks, unless an order sets the number
_AHEAD = 4  # blocks to decode ahead
_THREADS = min(usable_cores(), _AHEAD)
_BYTES, _FEW = 1 << 19, 4096  # bytes of rows, and rows, to read ahead when requested one by one


class _OpenBlock:
    """A block that is open, or being decoded.

    Attributes:
        rows: Gathers its rows; None until it is decoded.
        decoded: A future, done once it is decoded or has failed.
        slot: Its slot in the arena; -1 for none.
        used: The time of its last use, as a counter. Unused blocks have larger numbers than all
            others.
    """

    __slots__ = ("decoded", "rows", "slot", "used")

    def __init__(self, used: int) -> None:
        self.rows: Decoded | Slot | None = None
        self.decoded = Future[None]()
        self.slot, self.used = -1, used


class OpenBlocks(Column):
    """The rows of a column, with a bounded number of open blocks.

    Args:
        column: The column.
        ahead: Whether threads decode blocks ahead; they start when rows are announced.
        in_batches: Whether batches span many blocks, so that blocks go into an arena.

    Attributes:
        threads: The threads that were started.
    """

    def __init__(self, column: BlockColumns, *, ahead: bool, in_batches: bool) -> None:
        """Start with no block and no thread."""
        self.column, self.stacks = column, column.stacks
        self.threads: list[threading.Thread] = []
        self._rows_ahead = self._made_ahead(column)
        self._most = max(column.open_blocks or _OPEN, 1) + (_AHEAD if ahead else 0)
        self._ahead = ahead
        self._blocks: dict[int, _OpenBlock] = {}
        self._expected: dict[int, None] = {}  # announced blocks, by first use
        many = len(column.block_starts)
        self._left = np.zeros(many + 1, np.int64)  # announced rows of each block
        self._unread = column.sizes.copy()  # rows of each block not read yet
        self._arena: Arena | None = None
        self._slot_rows = slot_rows(column.sizes) if in_batches and column.open_blocks else 0
        self._slot_of = np.full(many, -1)
        self._block_of = np.full(self._most, many)  # of each slot
        self._changed = threading.Condition()  # reentrant: gc may close it anywhere
        self._announced = False
        self._closed, self._clock, self._fork_guard = False, count(), ForkGuard()

    def __len__(self) -> int:
        return len(self.column)

    def __repr__(self) -> str:
        return described(self.column)

    def prefetch(self, rows: Array) -> None:
        """Announce rows; threads start to decode their blocks."""
        self._check_process()
        which = self.column.blocks_of(rows)
        if not len(which):
            return
        counts = np.bincount(which)
        first = np.empty(len(counts), np.int64)
        first[which[::-1]] = np.arange(len(which))[::-1]
        blocks = np.flatnonzero(counts)
        blocks = blocks[first[blocks].argsort()]
        with self._changed:
            new = [block for block in blocks.tolist() if block not in self._expected]
            self.column.announce(new, first=not self._announced)
            self._announced = True
            self._left[blocks] += counts[blocks]
            for block in blocks.tolist():
                self._expected[block] = None
            self._changed.notify_all()
            if not self._closed and len(self._expected) > 1:
                self._start()

    def full(self) -> bool:
        """Return whether more blocks are announced than may be open."""
        return len(self._expected) > self._most

    def gather(self, rows: Array) -> Any:
        """Return those rows: a tree of arrays, or a list of samples if they cannot be stacked."""
        self._check_process()
        which = self.column.blocks_of(rows)
        if not len(rows):
            return []
        local = rows - self.column.block_starts[which]
        if self._arena is not None and (slots := self._slot_of[which]).min() >= 0:
            given = self._arena.gather(slots, local)
            rows_of = np.bincount(slots, minlength=len(self._block_of))
            used = rows_of.nonzero()[0]
            self._used(self._block_of[used], rows_of[used])
            return given
        if which[0] == which[-1] and (which == which[0]).all():
            block = int(which[0])
            given = self._rows_of(block).gather(local)
            self._used(block, len(rows))
            return given
        parts: list[tuple[Any, Any]] = []
        # open blocks first: closing them may make room for the others
        for block, here in sorted(by_part(which), key=self._turn):
            some = local[here]
            parts.append((here, self._rows_of(block).gather(some)))
            self._used(block, len(some))
        return merged(parts, len(rows))

    def _turn(self, part: tuple[int, Array]) -> tuple[bool, int]:
        return part[0] not in self._blocks, int(part[1][0])

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield those rows; if they are small, read some ahead. Errors keep their place."""
        if not self._rows_ahead:
            return self._one_by_one(rows)
        some = (rows[low : low + self._rows_ahead] for low in range(0, len(rows), self._rows_ahead))
        return chain.from_iterable(map(self.rows_until_error, some))

    def _one_by_one(self, rows: Array) -> Iterator[Any]:
        """Yield those rows; consecutive ones of a block are gathered together."""
        which = self.column.blocks_of(rows)
        local = rows - self.column.block_starts[which]
        cuts = (np.flatnonzero(which[1:] != which[:-1]) + 1).tolist()
        for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True) if len(rows) else ():
            self._check_process()
            block = int(which[low])
            yield from self._rows_of(block).each(local[low:high])
            self._used(block, high - low)

    def close(self) -> None:
        """Stop the threads; open blocks are freed with their last reference."""
        if self._fork_guard.forked:  # a thread left in the parent may hold the lock forever
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    stop = close

    @staticmethod
    def _made_ahead(column: BlockColumns) -> int:
        """Return how many rows to read ahead, if their size is known; else 0."""
        whole = column.by_row.block_bytes * len(column.block_starts) if column.by_row else 0
        return min(max(_BYTES * len(column) // whole, 1), _FEW) if whole else 0

    def _check_process(self) -> None:
        if self._fork_guard.forked:  # otherwise each gather would describe the column
            self._fork_guard.check(f"this pass over {self!r}")

    def _rows_of(self, block: int) -> Decoded | Slot:
        """Return the rows of a block; decode it here unless a thread is doing so."""
        held = self._blocks.get(block)
        if held is None or held.rows is None:
            with self._changed:
                held = self._blocks.get(block)
                if mine := held is None:
                    self._make_room(asked=True)
                    held = self._blocks[block] = _OpenBlock(next(self._clock))
            if mine:
                self._decode(block, held)
        held.used = next(self._clock)
        if held.rows is not None:
            return held.rows
        error = held.decoded.exception()
        if held.rows is not None or error is None:
            return self._rows_of(block)
        with self._changed:
            self._close(block)  # allow a retry
        try:
            raise error
        finally:
            del held, error  # breaks the cycle of traceback and frame

    def _decode(self, block: int, held: _OpenBlock) -> None:
        try:
            held.rows = self._placed(block, held, self.column.decoded(block))
            held.decoded.set_result(None)
        except BaseException as error:  # raised where the first row is requested
            held.decoded.set_exception(error)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _placed(self, block: int, held: _OpenBlock, decoded: Decoded) -> Decoded | Slot:
        """Put a block into the arena if it has the right structure and a slot is free."""
        if not self._slot_rows or not decoded.arrays or not decoded.rows:
            return decoded
        with self._changed:
            if self._arena is None:
                self._arena = Arena(decoded.tree, len(self._block_of), self._slot_rows)
            arena = self._arena
            if not arena.fits(decoded.tree):
                return decoded
            held.slot = arena.free.pop()
        placed = arena.put(decoded.tree, held.slot)
        with self._changed:
            self._block_of[held.slot], self._slot_of[block] = block, held.slot
        return placed

    def _used(self, blocks: Any, rows: Any) -> None:
        """Record that rows were read; close blocks that are no longer needed.

        Args:
            blocks: The number of a block, or of several.
            rows: How many rows were read of each.
        """
        if not self._ahead:
            return
        left = self._left[blocks] - rows
        self._left[blocks] = left
        self._unread[blocks] -= rows
        if (left if isinstance(blocks, int) else left.min()) <= 0:
            self._release_blocks(np.atleast_1d(blocks)[np.atleast_1d(left) <= 0].tolist())

    def _release_blocks(self, blocks: list[int]) -> None:
        """Record that no more rows of these blocks are announced; close those read whole."""
        with self._changed:
            for block in blocks:
                self._expected.pop(block, None)
                self._left[block] = 0
                if self._unread[block] <= 0:
                    self._close(block)
            self._changed.notify_all()

    def _close(self, block: int) -> None:
        held = self._blocks.pop(block, None)
        self._unread[block] = self.column.sizes[block]
        if held is not None and held.slot >= 0 and self._arena is not None:
            self._slot_of[block] = -1
            self._block_of[held.slot] = len(self._slot_of)
            self._arena.free.append(held.slot)

    def _make_room(self, *, asked: bool) -> bool:
        """Close a block if need be; return whether one more may open: if `asked`, always.

        Args:
            asked: Whether it is needed now. Then an announced block may be closed: the one with the
                oldest use, whose rows may come in a later epoch.
        """
        while len(self._blocks) >= self._most:
            some = self._blocks.items()
            held = [(each.used, block) for block, each in some if each.decoded.done()]
            idle = [(used, block) for used, block in held if block not in self._expected]
            if idle:
                self._close(min(idle)[1])
            elif asked and held:
                block = min(held)[1]
                self._close(block)
                self._expected[block] = self._expected.pop(block)  # else it would be next again
            else:
                return asked
        return True

    def _next(self) -> int | None:
        """Return the block to decode ahead: the first needed one that is not open."""
        for block in self._expected:
            if block not in self._blocks:
                return block if self._make_room(asked=False) else None
        return None

    def _start(self) -> None:
        if not self.threads:
            stop_at_exit(self)
            for _ in range(_THREADS):
                thread = threading.Thread(target=self._work, name="jreader blocks", daemon=True)
                self.threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while (block := None if self._closed else self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
                held = self._blocks[block] = _OpenBlock(sys.maxsize - next(self._clock))
            self._decode(block, held)
            del held
