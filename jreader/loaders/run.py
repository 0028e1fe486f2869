"""`Run`: the state that the passes of a loader share: the latest position, and an open stream.

What is loaded is frozen (`loading.Loading`). All state that changes while a loader is used is here.
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
        """Keep a pass at its position; its drawer keeps it open."""
        self._at, self._pass, self._drawer = up.position(), up, current_drawer()
        if self._drawer:
            self._drawer.kept = up

    def drawer(self, at: Position) -> Drawer | None:
        """Return the drawer of the pass kept at this position; None if any thread may draw it."""
        return self._drawer if self._pass and at == self._at else None

    def taken(self, at: Position) -> Pass[Any] | None:
        """Return the pass kept at this position; close a pass at another position."""
        if at == self._at:
            up, self._pass, self._drawer = self._pass, None, None
            return up
        self.close()
        return None

    def close(self) -> None:
        """Close the pass that was kept."""
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
        place: Holds the fields of the `Place` of the latest pass, even when its iterator is gone.
        in_order: The same for the latest `iter(loader)`; None before it.
        passes: The iterators that may still be open.
        counters: The counters of the latest pass.
        tuner: Tunes threads and capacity; None without tuning.
        stream: The pass over a stream that the next epoch continues.
        pace: Whether looking ahead paid in the latest pass.
        board: Where processes post messages to each other; None until a pass needs it.
        unseen: Whether the linter has yet to see a feed.
        warned: Whether the loader has warned of samples that each epoch drops.
        warming: Compilations to wait for before the first feed is handed over.
    """

    def __init__(
        self,
        tune: Ceilings | None = None,
        resumed: Cursor | None = None,
        next_epoch: int = 0,
        *,
        unseen: bool = True,
    ) -> None:
        """Begin a run without passes.

        Args:
            tune: The limits of threads and capacity; None without tuning.
            resumed: The cursor that the next pass resumes; None for the next epoch.
            next_epoch: The number of that epoch.
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
        """Close the passes that are still open."""
        for feeds in list(self.passes):
            feeds.close()
        self.stream.close()
