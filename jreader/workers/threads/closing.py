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
    """A pass that one thread at a time reads, and that any thread may close.

    A generator cannot be closed while a thread is inside it: then that thread does it, on its way
    out. One that is closed has no more items.

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
        self.inside = self.closed = False

    def __enter__(self) -> Pass[S]:
        with self.lock:
            self.inside = not self.closed
            return self.up if self.inside else Pass(iter(()), self.up.position, self.up.close)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            mine, self.inside = self.inside and self.closed, False
        if mine:
            self.up.close()

    def close(self) -> None:
        """Closes the pass, at once or when the thread that reads it is done."""
        with self.lock:
            mine = not (self.closed or self.inside)
            self.closed = True
        if mine:
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
