"""How a pass ends that other threads work for: it is closed, its program exits, or forks."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from jreader.errors import ReaderError
from jreader.readers import Pass, Position

S = TypeVar("S")
T = TypeVar("T")

_PATIENCE = 2.0  # seconds that an ending program waits for a function of the user's that is running


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


class Stoppable(Protocol):
    """What has threads that work or wait for it, and can ask them to end."""

    threads: list[threading.Thread]

    def stop(self) -> None:
        """Asks the threads to end, and wakes whoever waits."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(state: Stoppable) -> None:
    """Has `state` stopped at exit, before what was imported until now (jax) tears itself down."""
    _running.add(state)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)


def _stop_all() -> None:
    """A daemon thread inside device_put when the interpreter goes away aborts the process."""
    states = list(_running)
    for state in states:
        state.stop()
    limit = time.monotonic() + _PATIENCE
    for thread in [thread for state in states for thread in state.threads]:
        thread.join(max(0, limit - time.monotonic()))


class ForkGuard:
    """Knows whether the process was forked since: threads and workers stay with the parent.

    >>> guard = ForkGuard()
    >>> guard.check("this pass")
    >>> guard.forked
    False

    Attributes:
        process: The process where the guard was made.
        forked: Whether this is another one, forked from it.
    """

    def __init__(self) -> None:
        self.process, self.forked = os.getpid(), False
        _guards.add(self)

    def check(self, what: str) -> None:
        """Raises ReaderError in a process that was forked since; `what` was begun before."""
        if self.forked:
            raise ReaderError(
                f"{what} was begun by process {self.process}, and process {os.getpid()} was forked "
                f"from it, without its threads and workers: begin another one here, from the same "
                f"reader or loader."
            )


_guards: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


def _forked() -> None:
    """In a process that was forked: the threads are not there, and locks may be held for ever."""
    global _running  # noqa: PLW0603  # it is of a process
    _running = weakref.WeakSet()
    for guard in list(_guards):
        guard.forked = True
    atexit.unregister(_stop_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
