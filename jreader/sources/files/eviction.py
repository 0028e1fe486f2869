"""Eviction: a full store evicts the block whose next use is farthest away.

An order that is computed is known before it is read. So for each announced block it is
known when, and to close the one that comes last loses the least of all choices (Belady, "A study of
replacement algorithms for a virtual-storage computer", 1966).

Without announcements the least recently used block is evicted, but only for one of 16:
data are read in epochs, and if every block took the place of another, each would be gone before it
comes again (Qureshi et al., "Adaptive insertion policies for high performance caching", 2007).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

_TAKEN = 16  # of so many blocks that are not known to come, one takes the place of another
_SLACK = 64  # uses by which a thread may be late: those before are over, read or not


class NextUses:
    """When blocks come, and which of those that are kept gives way.

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
        """Nothing is kept, and nothing comes."""
        self._coming: dict[str, deque[tuple[int, int]]] = {}  # of each block, when and where
        self._order: deque[tuple[int, str]] = deque()
        self._kept: dict[str, float] = {}  # when it was used last
        self._heap: list[tuple[float, float, str]] = []
        self._ticks, self._uses, self._now = count(1), count(1), 0
        self._knows_order, self._left_out = False, 0

    def __contains__(self, block: str) -> bool:
        return block in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def announce(self, parts: Iterable[tuple[str, int]]) -> None:
        """Announces the next reads of parts of blocks, in order, after those announced before.

        Args:
            parts: Blocks, and the byte at which what is wanted of them begins.
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
        """Forgets the announced reads of blocks that `fits` selects."""
        gone = set(filter(fits, self._coming))
        self._order = deque(each for each in self._order if each[1] not in gone)
        for block in gone:
            del self._coming[block]
            self._push(block)

    def used(self, block: str, begin: int, end: int) -> None:
        """Notes that these bytes of a block are read, and so the uses that begin in them."""
        if block in self._kept:
            self._kept[block] = next(self._uses)
        uses, least = self._coming.get(block) or deque(), begin
        while uses and least <= uses[0][1] < end:
            tick, at = uses.popleft()
            least = at + 1  # the same place again is another use
            self._now = max(self._now, tick)
        self._push(block)
        while self._order and self._order[0][0] <= self._now - _SLACK:
            self._pass(*self._order.popleft())

    def keep(self, block: str, used: float | None = None) -> None:
        """Notes that a block is stored.

        Args:
            block: The block.
            used: When it was used last, if that was in another run: a negative number.
        """
        self._kept[block] = next(self._uses) if used is None else used
        self._push(block)

    def drop(self, block: str) -> None:
        """Notes that a block is no longer stored."""
        self._kept.pop(block, None)

    def next_use(self, block: str) -> float:
        """When a block comes; infinity if that is not known."""
        uses = self._coming.get(block)
        return uses[0][0] if uses else math.inf

    def victim(self) -> str | None:
        """The block to evict; None if there is none."""
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
        """Whether evicting one block for another is worth it.

        Of two that do not come, as far as is known, that of another run gives way. If an order is
        known, the others stay; if none is, most of them do.
        """
        if (own := self.next_use(block)) != (other := self.next_use(to)):
            return own > other
        if self._kept.get(block, 0) <= 0:
            return True
        self._left_out += 1
        return not self._knows_order and self._left_out % _TAKEN == 0

    def _pass(self, tick: int, block: str) -> None:
        """Notes that a use is over."""
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
