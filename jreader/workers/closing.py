"""How a pass ends that other threads work for: whichever thread closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Generic, TypeVar

from jreader.readers import Pass, Position

S = TypeVar("S")
T = TypeVar("T")


class ClosableSource(Generic[S]):
    """A pass that several threads read from in turn, and that any thread may close.

    A generator cannot be closed while a thread is inside of it: so the last of those that are in
    the block of a `with` closes it, on its way out. One that is closed has no more items.

    >>> from jreader import start
    >>> source = ClosableSource(start(lambda: "abc"))
    >>> with source as up:
    ...     source.close()
    ...     print(next(up.items))
    a
    >>> with source as up:
    ...     print(list(up.items))
    []
    """

    def __init__(self, up: Pass[S]) -> None:
        self.up, self.lock = up, threading.RLock()  # reentrant: gc may close it anywhere
        self.inside = 0
        self.closed = self.left = False

    def __enter__(self) -> Pass[S]:
        with self.lock:
            self.inside += 1
            return Pass(iter(()), self.up.position, self.up.close) if self.closed else self.up

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
        self._leave()

    def close(self) -> None:
        """Closes the pass, at once or when the last thread that reads from it is done."""
        self.closed = True
        self._leave()

    def _leave(self) -> None:
        with self.lock:
            last = self.closed and not (self.inside or self.left)
            self.left = self.left or last
        if last:
            self.up.close()


def stoppable_pass(
    items: Generator[T, None, None],
    position: Callable[[], Position],
    stop: Callable[[], object],
) -> Pass[T]:
    """A pass that any thread may close, even while another one waits for its next item.

    Args:
        items: Ends once it was stopped.
        position: As of any `Pass`.
        stop: Wakes whoever waits in `items`.
    """

    def close() -> None:
        stop()
        with suppress(ValueError):  # another thread waits in it, and has been told
            items.close()

    return Pass(items, position, close)
