"""`Counts`: the progress of all processes in a pass, counted by the store.

A process reports its feeds by adding to a number in the store, which holds two digits for each of
some feeds: how many processes have reported it, and how many of these lack samples for it. So
whoever adds sees whether all have it now, and then posts the progress of all. The others wait for
that one value. So a feed costs each process the same, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jreader.errors import ReaderError
from jreader.loaders.multihost.board import GROUP, Board, news_of

_BITS = 31  # of a number in the store, which cannot add beyond
_KEPT_GROUPS = 64  # groups of feeds whose messages are kept


class Counts:
    """The progress of all processes in a pass.

    Attributes:
        reported: Feeds that this process has reported; the end of its feeds counts as one more.
        agreed_feeds: Feeds that all processes have.
        lacking: Processes without samples for the feed that ends the epoch; None until known.
        gone: A process that has left, so nothing more will be known.
    """

    def __init__(self, board: Board, turn: int, has_feed: Callable[[int], bool]) -> None:
        """Begin without feeds.

        Args:
            board: The board of the loader.
            turn: The number of the pass.
            has_feed: Whether the epoch has a feed that so many processes lack samples for.
        """
        self._board, self._turn, self._has_feed = board, turn, has_feed
        self.processes = len(board.others) + 1
        self._bits = self.processes.bit_length()
        self._room = _BITS // (2 * self._bits)  # feeds counted by one number
        self.reported = self.agreed_feeds = 0
        self.lacking: int | None = None
        self.gone: int | None = None

    @property
    def over(self) -> bool:
        """True if no further feed will become known that all processes have."""
        return self.lacking is not None or self.gone is not None

    def check(self) -> None:
        """Raise ReaderError if there are too many processes to be counted."""
        if not self._room:
            raise ReaderError(
                f"{self.processes} processes read a stream, and at most {(1 << _BITS // 2) - 1} "
                f"can agree on where it ends: read the data by index, as arrays or mapped files, "
                f"or start fewer processes."
            )

    def report(self, lacking: Sequence[bool]) -> None:
        """Report more feeds: for each, whether this process lacks samples for it."""
        while lacking and not self.over:
            block, place = divmod(self.reported, self._room)
            some, lacking = lacking[: self._room - place], lacking[self._room - place :]
            self.reported += len(some)
            digits = sum(
                (1 + (spare << self._bits)) << 2 * self._bits * (place + number)
                for number, spare in enumerate(some)
            )
            group = block * self._room // GROUP
            counted = self._board.count(f"{self._turn}/feeds/{group}/count {block}", digits)
            self._post_news(block, self._full(counted - digits), counted)

    def _full(self, counted: int) -> int:
        """Return how many of the feeds counted by one number all processes have reported."""
        return next(
            n for n in range(self._room + 1) if self._digit(counted, 2 * n) != self.processes
        )

    def _digit(self, counted: int, number: int) -> int:
        return counted >> self._bits * number & (1 << self._bits) - 1

    def _post_news(self, block: int, known: int, counted: int) -> None:
        """Post the progress of all, if this process's report completed some feeds."""
        full = self._full(counted)
        if full == known:
            return
        before, agreed_feeds, lacking = block * self._room + known, block * self._room + full, None
        for number in range(known, full):
            without = self._digit(counted, 2 * number + 1)
            if not self._has_feed(without):
                agreed_feeds, lacking = block * self._room + number, without
                break
        self._board.first(news_of(self._turn, before + 1), [agreed_feeds, lacking])
        self._take(agreed_feeds, lacking)
        if agreed_feeds // GROUP > before // GROUP:
            self._board.delete(f"{self._turn}/feeds/{agreed_feeds // GROUP - _KEPT_GROUPS}")

    def wait_for_news(self, seconds: float) -> bool:
        """Wait for news, for so many seconds; return whether any came."""
        news = self._board.awaited(news_of(self._turn, self.agreed_feeds + 1), seconds)
        if news is not None:
            self._take(*news)
        return news is not None

    def _take(self, agreed_feeds: int, lacking: int | None = None, gone: int | None = None) -> None:
        """Take news, unless another thread has taken later ones."""
        self.agreed_feeds = max(self.agreed_feeds, agreed_feeds)
        if lacking is not None:
            self.lacking = lacking
        if gone is not None:
            self.gone = gone
