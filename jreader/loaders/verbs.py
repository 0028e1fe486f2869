"""The seeds' loop without `for`: `start()`, `next()` until `EOFException`, `reset()`."""

from __future__ import annotations

from typing import Any

from jreader import errors
from jreader.loaders.passes import FeedPass


class Verbs:
    """What a `DataLoader` with `iterable=False` is driven by."""

    _iterable: bool
    _started: FeedPass | None

    def _next_pass(self) -> FeedPass:
        """The next epoch."""
        raise NotImplementedError

    def start(self) -> None:
        """Begins an epoch of a loader with `iterable=False`."""
        self._not_iterable("start")
        if self._started:
            raise RuntimeError("this loader was started already: call reset() before start()")
        self._started = self._next_pass()

    def next(self) -> Any:
        """The next feed of a loader with `iterable=False`.

        Raises:
            EOFException: There is none: `reset()`, then `start()` the next epoch.
        """
        self._not_iterable("next")
        if not self._started:
            raise RuntimeError("this loader was not started: call start() before next()")
        for feed in self._started:
            return feed
        raise errors.EOFException("there is no next feed: reset() the loader, then start() it")

    def reset(self) -> None:
        """Ends the epoch of a loader with `iterable=False`, wherever it is."""
        self._not_iterable("reset")
        if not self._started:
            raise RuntimeError("this loader was not started: reset() follows start()")
        self._started.close()
        self._started = None

    def _not_iterable(self, verb: str) -> None:
        if self._iterable:
            raise TypeError(
                f"{verb}() is for loaders with iterable=False: iterate this one (`for feed in "
                f"loader`), or make it with from_generator(..., iterable=False)"
            )
