"""`SharedState`: what the passes of one loader share."""

from __future__ import annotations

from typing import Any

from jreader.loaders.multihost.board import Board
from jreader.readers import Pass, Position
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
        """Who draws the pass that was kept at this position, and has to go on; None for anybody."""
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


class SharedState:
    """What the passes of one loader share.

    Attributes:
        stream: The pass over a stream that goes on in the next epoch.
        pace: Whether looking ahead paid in the latest pass.
        board: Where processes post messages to each other; None until a pass needs it.
        unseen: Whether the linter has yet to see a feed.
        warned: Whether it has warned of samples that each epoch leaves out.
        warming: What compiles steps, until the first feed is handed over.
    """

    def __init__(self, *, unseen: bool = True) -> None:
        self.stream = OpenStream()
        self.pace = Pace()
        self.board: Board | None = None
        self.unseen = unseen
        self.warned = False
        self.warming: list[Any] = []
