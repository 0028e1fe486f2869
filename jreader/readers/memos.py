"""What an op computes once of its reader, and keeps for the epochs of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """What was computed of a reader, for all copies of an op, on whatever thread; no pickle has it.

    >>> memo = Memo()
    >>> reader = lambda: "abc"
    >>> memo.of(reader, lambda: 3), memo.of(reader, lambda: 4), memo.of(len, lambda: 5)
    (3, 3, 5)
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._reader: Any = None
        self._known: T | None = None

    def of(self, reader: Any, make: Callable[[], T | None]) -> T | None:
        """What `make` returned for this reader when it was first called; None is not kept."""
        with self._turn:
            if self._known is None or self._reader is not reader:
                self._known, self._reader = make(), reader
            return self._known

    def __reduce__(self) -> Any:
        """A copy in another process is empty."""
        return Memo, ()
