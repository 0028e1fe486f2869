"""`Run`: the state that the passes of a loader share: the latest position, and an open stream.

What is loaded is frozen (`loading.Loading`). All that changes while a loader is used is here.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from jreader.counters import Counters
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.checkpoints.positions import Place
from jreader.loaders.multihost.board import Board
from jreader.loaders.tuning import Ceilings, Tuner
from jreader.readers import Cursor, Pass, Position
from jreader.workers import Pace
from jreader.workers.threads import Drawer, current_drawer


class OpenStream:
    """The pass over a stream that one epoch leaves open, for the next epoch to continue."""

    def __init__(self) -> None:
        self._at: Position = None
        self._pass: Pass[Any] | None = None
        self._drawer: Drawer | None = None

    def keep(self, up: Pass[Any]) -> None:
        """Keeps a pass at its position; who draws it keeps it open."""
        self._at, self._pass, self._drawer = up.position(), up, current_drawer()
        if self._drawer:
            self._drawer.kept = up

    def drawer(self, at: Position) -> Drawer | None:
        """The drawer of the pass kept at this position; None if any thread may draw it."""
        return self._drawer if self._pass and at == self._at else None

    def taken(self, at: Position) -> Pass[Any] | None:
        """The pass that was kept at this position; a pass at another position is closed."""
        if at == self._at:
            up, self._pass, self._drawer = self._pass, None, None
            return up
        self.close()
        return None

    def close(self) -> None:
        """Closes the pass that was kept."""
        up, self._pass = self._pass, None
        drawer, self._drawer = self._drawer, None
        if drawer:
            drawer.close()
        elif up:
            up.close()


class Run:
    """The state that the passes of one loader share.

    Attributes:
        next_epoch: The number of the epoch that the next `iter(loader)` begins.
        resumed: The cursor to resume instead; None for the beginning.
        place: Holds the fields of the `Place` of the latest pass, also when its iterator is gone.
        in_order: That of the latest `iter(loader)`; None before it.
        passes: The iterators that may still be open.
        counters: What the stages of the latest pass count.
        tuner: What moves threads and capacity; None for nothing.
        stream: The pass over a stream that the next epoch continues.
        pace: Whether looking ahead paid in the latest pass.
        board: Where processes post messages to each other; None until a pass needs it.
        unseen: Whether the linter has yet to see a feed.
        warned: Whether it has warned of samples that each epoch leaves out.
        warming: What compiles steps, until the first feed is handed over.
    """

    def __init__(
        self,
        tune: Ceilings | None = None,
        resumed: Cursor | None = None,
        next_epoch: int = 0,
        *,
        unseen: bool = True,
    ) -> None:
        """A run that has no pass yet.

        Args:
            tune: What threads and capacity may grow to; None to leave them alone.
            resumed: The cursor that the next pass resumes; None for the next epoch.
            next_epoch: The number of that.
            unseen: Whether the linter looks at the first feed.
        """
        self.next_epoch, self.resumed = next_epoch, resumed
        self.place: list[Any] = [Place.of(resumed or beginning(0))]
        self.in_order: list[Any] | None = None
        self.passes: WeakSet[Any] = WeakSet()
        self.tuner = Tuner(tune) if tune else None
        self.counters = Counters(self.tuner.tunables if self.tuner else None)
        self.stream, self.pace = OpenStream(), Pace()
        self.board: Board | None = None
        self.unseen, self.warned = unseen, False
        self.warming: list[Any] = []

    def close(self) -> None:
        """Closes the passes that are still open."""
        for feeds in list(self.passes):
            feeds.close()
        self.stream.close()
