"""Processes that live in this one, and tell one another of a pass over the store of a real run."""

from collections import deque
from itertools import islice

from programs import PATIENCE

from jreader import start
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.multihost.agreement import Agreement
from jreader.readers import Pass


class Side:
    """One process of several that live in this one: its pass over a stream."""

    def __init__(
        self,
        board,
        reader=range(9),
        window=2,
        timeout=PATIENCE,
        about=(),
        host=None,
        lanes=None,
        **cursor,
    ):
        self.agreement = Agreement(board, {**beginning(0), **cursor}, timeout, about, lanes)
        self.told = self.agreement.posting(host or start(lambda: iter(reader)), window)
        self.drawn = deque()
        self.feeds = self.agreement.agreed(Pass(self._queue(), self.told.position, self.close))

    def ahead(self, many):
        """Draws, as whoever looks ahead does."""
        self.drawn.extend(islice(self.told.items, many))
        return self

    def takes(self, many=None):
        """Hands feeds over; all without a number."""
        return list(islice(self.feeds.items, many))

    def close(self):
        """Leaves the pass, wherever it is."""
        self.told.items.close()

    def _queue(self):
        while True:
            if not self.drawn:
                self.ahead(1)
            if not self.drawn:
                return
            yield self.drawn.popleft()
