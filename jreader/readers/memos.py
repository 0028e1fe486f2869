"""`Memo`: a value computed once per reader; `keep_latest`, which bounds a dict of recent values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """A value computed from a reader, for all copies of an op and all threads; never pickled.

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
        """Return what `make` returned for this reader at the first call; None is not kept."""
        with self._turn:
            if self._known is None or self._reader is not reader:
                self._known, self._reader = make(), reader
            return self._known

    def __reduce__(self) -> Any:
        """Make a copy in another process empty."""
        return Memo, ()


def keep_latest(entries: dict[Any, Any], most: int) -> None:
    """Remove the oldest entries of a dict, which threads may share, until `most` are left.

    A plain dict is safe to share without the GIL; an `OrderedDict` of Python 3.13 is not.

    >>> entries = {"a": 1, "b": 2, "c": 3}
    >>> keep_latest(entries, 2)
    >>> entries
    {'b': 2, 'c': 3}
    """
    while len(entries) > most:
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread was faster
            del entries[next(iter(entries))]
