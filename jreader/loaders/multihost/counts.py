"""`Counts`: how far all processes are in a pass, counted by the store and not by each of them.

A process reports its feeds by adding to a number of the store, which holds two digits for each of
some feeds: how many processes have reported it, and how many of these have no samples of their own
for it. So whoever adds sees whether all have it now, and then posts how far all are. The others
wait for that one value. So a feed costs each process the same, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jreader.errors import ReaderError
from jreader.loaders.multihost.board import GROUP, Board, news_of

_BITS = 31  # of a number of the store, which cannot add beyond
_KEPT = 64  # groups of feeds of which messages are kept


class Counts:
    """How far all processes are in a pass.

    Attributes:
        told: How many feeds this process has reported; the end of its feeds counts as one more.
        good: How many feeds all processes have.
        spares: How many processes have nothing for the feed after those, which ends the epoch; None
            until that is known.
        gone: A process that has left, so that nothing more will be known.
    """

    def __init__(self, board: Board, turn: int, goes_on: Callable[[int], bool]) -> None:
        """Begins with no feed.

        Args:
            board: The board of the loader.
            turn: The number of the pass.
            goes_on: Whether the epoch has a feed for which so many processes have nothing.
        """
        self._board, self._turn, self._goes_on = board, turn, goes_on
        self.many = len(board.others) + 1
        self._bits = self.many.bit_length()
        self._each = _BITS // (2 * self._bits)  # feeds that one number counts
        self.told = self.good = 0
        self.spares: int | None = None
        self.gone: int | None = None

    @property
    def over(self) -> bool:
        """Whether no feed will be known that all have, besides those that are."""
        return self.spares is not None or self.gone is not None

    def check(self) -> None:
        """Raises ReaderError if there are too many processes to be counted."""
        if not self._each:
            raise ReaderError(
                f"{self.many} processes read a stream, and at most {(1 << _BITS // 2) - 1} can "
                f"agree on where it ends: read the data by index, as arrays or mapped files, or "
                f"start fewer processes."
            )

    def tell(self, spares: Sequence[bool]) -> None:
        """Reports more feeds: for each of them, whether this process has nothing for it."""
        while spares and not self.over:
            block, place = divmod(self.told, self._each)
            some, spares = spares[: self._each - place], spares[self._each - place :]
            self.told += len(some)
            digits = sum(
                (1 + (spare << self._bits)) << 2 * self._bits * (place + number)
                for number, spare in enumerate(some)
            )
            group = block * self._each // GROUP
            counted = self._board.count(f"{self._turn}/feeds/{group}/count {block}", digits)
            self._post_news(block, self._full(counted - digits), counted)

    def _full(self, counted: int) -> int:
        """How many of the feeds that one number counts all processes have reported."""
        return next(n for n in range(self._each + 1) if self._digit(counted, 2 * n) != self.many)

    def _digit(self, counted: int, number: int) -> int:
        return counted >> self._bits * number & (1 << self._bits) - 1

    def _post_news(self, block: int, known: int, counted: int) -> None:
        """Posts how far all are, if a report of this process was the last one for some feeds."""
        full = self._full(counted)
        if full == known:
            return
        before, good, spares = block * self._each + known, block * self._each + full, None
        for number in range(known, full):
            without = self._digit(counted, 2 * number + 1)
            if not self._goes_on(without):
                good, spares = block * self._each + number, without
                break
        self._board.first(news_of(self._turn, before + 1), [good, spares])
        self._take(good, spares)
        if good // GROUP > before // GROUP:
            self._board.delete(f"{self._turn}/feeds/{good // GROUP - _KEPT}")

    def hear(self, seconds: float) -> bool:
        """Whether there is news, within so many seconds."""
        news = self._board.awaited(news_of(self._turn, self.good + 1), seconds)
        if news is not None:
            self._take(*news)
        return news is not None

    def _take(self, good: int, spares: int | None = None, gone: int | None = None) -> None:
        """Notes news, unless another thread has noted later ones."""
        self.good = max(self.good, good)
        if spares is not None:
            self.spares = spares
        if gone is not None:
            self.gone = gone
