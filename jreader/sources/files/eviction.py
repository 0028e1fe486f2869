"""Eviction: a full store evicts the block whose next use is farthest away.

The order of reads is known before reading. So the next use of each announced block is known, and
evicting the block whose next use is last loses the least (Belady, "A study of replacement
algorithms for a virtual-storage computer", 1966).

Without announcements, the least recently used block is evicted, but only for one new block in 16:
data are read in epochs, and if every block replaced another, each would be gone before its next use
(Qureshi et al., "Adaptive insertion policies for high performance caching", 2007).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

_TAKEN = 16  # one in so many unannounced blocks replaces another
_SLACK = 64  # uses by which a thread may be late: earlier ones count as done


class NextUses:
    """Predicts the next use of blocks, and chooses the stored block to evict.

    >>> uses = NextUses()
    >>> for block in "abc":
    ...     uses.keep(block)
    >>> uses.announce([("b", 0), ("a", 0), ("c", 0), ("b", 0)])
    >>> uses.victim()
    'c'
    >>> for block in "bac":
    ...     uses.used(block, 0, 1)
    >>> uses.victim()  # of "a" and "c", which do not come: what was not used for longest
    'a'
    """

    def __init__(self) -> None:
        """Start with nothing stored or announced."""
        self._coming: dict[str, deque[tuple[int, int]]] = {}  # per block: when, and from which byte
        self._order: deque[tuple[int, str]] = deque()
        self._kept: dict[str, float] = {}  # block: its last use
        self._heap: list[tuple[float, float, str]] = []
        self._ticks, self._uses, self._now = count(1), count(1), 0
        self._knows_order, self._left_out = False, 0

    def __contains__(self, block: str) -> bool:
        return block in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def announce(self, parts: Iterable[tuple[str, int]]) -> None:
        """Announce the next reads of parts of blocks, in order, after those announced before.

        Args:
            parts: Pairs of a block and the byte where the read begins in it.
        """
        for block, begin in parts:
            tick = next(self._ticks)
            uses = self._coming.setdefault(block, deque())
            uses.append((tick, begin))
            self._order.append((tick, block))
            if len(uses) == 1:
                self._push(block)
        self._knows_order = bool(self._order)

    def forget(self, fits: Callable[[str], bool]) -> None:
        """Drop the announced reads of blocks that `fits` selects."""
        gone = set(filter(fits, self._coming))
        self._order = deque(each for each in self._order if each[1] not in gone)
        for block in gone:
            del self._coming[block]
            self._push(block)

    def used(self, block: str, begin: int, end: int) -> None:
        """Record that these bytes of a block are read, and end the uses announced for them."""
        if block in self._kept:
            self._kept[block] = next(self._uses)
        uses, least = self._coming.get(block) or deque(), begin
        while uses and least <= uses[0][1] < end:
            tick, at = uses.popleft()
            least = at + 1  # the same byte again is another use
            self._now = max(self._now, tick)
        self._push(block)
        while self._order and self._order[0][0] <= self._now - _SLACK:
            self._pass(*self._order.popleft())

    def keep(self, block: str, used: float | None = None) -> None:
        """Record that a block is stored.

        Args:
            block: The block.
            used: Its last use, if in another run: a negative number.
        """
        self._kept[block] = next(self._uses) if used is None else used
        self._push(block)

    def drop(self, block: str) -> None:
        """Record that a block is no longer stored."""
        self._kept.pop(block, None)

    def next_use(self, block: str) -> float:
        """Return when a block is used next; infinity if unknown."""
        uses = self._coming.get(block)
        return uses[0][0] if uses else math.inf

    def victim(self) -> str | None:
        """Return the block to evict; None if there is none."""
        if len(self._heap) > 4 * len(self._kept) + 64:
            self._heap = [self._entry(block) for block in self._kept]
            heapify(self._heap)
        while self._heap:
            block = self._heap[0][2]
            if block in self._kept and self._heap[0] == self._entry(block):
                return block
            heappop(self._heap)
        return None

    def should_evict(self, block: str, to: str) -> bool:
        """Return whether evicting one block for another is worth it.

        If neither has an announced use, a block from another run is evicted. If an order was
        announced, other blocks stay; if not, most of them do.
        """
        if (own := self.next_use(block)) != (other := self.next_use(to)):
            return own > other
        if self._kept.get(block, 0) <= 0:
            return True
        self._left_out += 1
        return not self._knows_order and self._left_out % _TAKEN == 0

    def _pass(self, tick: int, block: str) -> None:
        """Record that a use is over."""
        uses = self._coming.get(block)
        if uses and uses[0][0] <= tick:
            uses.popleft()
            self._push(block)
        if not uses:
            self._coming.pop(block, None)

    def _entry(self, block: str) -> tuple[float, float, str]:
        return -self.next_use(block), self._kept[block], block

    def _push(self, block: str) -> None:
        if block in self._kept:
            heappush(self._heap, self._entry(block))
