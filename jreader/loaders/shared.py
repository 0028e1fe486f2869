"""`Shared`: what the passes of one loader share."""

from __future__ import annotations

from typing import Any

from jreader.loaders.multihost.board import Board
from jreader.readers import Pass, Position


class Kept:
    """The pass over a stream that one epoch leaves open, for the next epoch to continue."""

    def __init__(self) -> None:
        self._at: Position = None
        self._pass: Pass[Any] | None = None

    def keep(self, up: Pass[Any]) -> None:
        """Keeps a pass at its position."""
        self._at, self._pass = up.position(), up

    def taken(self, at: Position) -> Pass[Any] | None:
        """The pass that was kept at this position; a pass at another position is closed."""
        if at == self._at:
            up, self._pass = self._pass, None
            return up
        self.close()
        return None

    def close(self) -> None:
        """Closes the pass that was kept."""
        up, self._pass = self._pass, None
        if up:
            up.close()


class Shared:
    """What the passes of one loader share.

    Attributes:
        kept: The pass over a stream that goes on in the next epoch.
        board: Where processes post messages to each other; None until a pass needs it.
        unseen: Whether the linter has yet to see a feed.
        warned: Whether it has warned of samples that each epoch leaves out.
        warming: What compiles steps, until the first feed is handed over.
    """

    def __init__(self, *, unseen: bool = True) -> None:
        self.kept = Kept()
        self.board: Board | None = None
        self.unseen = unseen
        self.warned = False
        self.warming: list[Any] = []
