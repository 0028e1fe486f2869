"""Stop threads and processes when the program exits, and refuse them in a fork.

At exit, they are stopped, and joined for two seconds at most. A forked process lacks the threads of
its parent, so it gets an error.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from jreader.errors import ReaderError

T = TypeVar("T")

_EXIT_SECONDS = 2.0  # seconds to wait at exit for a user's function or a decoder


class Stoppable(Protocol):
    """An object with threads that work for it, or wait for it, and can be asked to end."""

    threads: list[threading.Thread]

    def stop(self) -> None:
        """Ask the threads to end, and wake any that wait."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(state: Stoppable) -> None:
    """Stop `state` at exit, before modules imported until now (such as jax) are torn down."""
    _running.add(state)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)


def _stop_all() -> None:
    """Stop all: a daemon thread inside device_put at interpreter exit aborts the process."""
    states = list(_running)
    for state in states:
        state.stop()
    limit = time.monotonic() + _EXIT_SECONDS
    for thread in [thread for state in states for thread in state.threads]:
        thread.join(max(0, limit - time.monotonic()))


def run_daemon(name: str, call: Callable[[], T]) -> Future[T]:
    """Begin a call on a thread, and return its future.

    The thread is a daemon, unlike those of an executor: a call that hangs cannot keep the program
    from exiting.

    >>> run_daemon("a thread", lambda: 3).result()
    3
    """
    given: Future[T] = Future()
    given.set_running_or_notify_cancel()  # a waiting thread may give up: the call continues
    threading.Thread(target=resolve_future, args=(given, call), name=name, daemon=True).start()
    return given


def resolve_future(given: Future[T], call: Callable[[], T]) -> None:
    """Set a future to what a call returns, or raises."""
    try:
        given.set_result(call())
    except BaseException as error:  # raised where the result is used
        given.set_exception(error)


class ForkGuard:
    """Detects a fork since it was made: threads and workers stay with the parent.

    >>> guard = ForkGuard()
    >>> guard.check("this pass")
    >>> guard.forked
    False

    Attributes:
        process: The process that made the guard.
        forked: Whether this process was forked from it.
    """

    def __init__(self) -> None:
        self.process, self.forked = os.getpid(), False
        _guards.add(self)

    def check(self, what: str) -> None:
        """Raise ReaderError in a process forked since; `what` names what was begun before."""
        if self.forked:
            raise ReaderError(
                f"{what} was begun by process {self.process}, and process {os.getpid()} was forked "
                f"from it, without its threads and workers: begin another one here, from the same "
                f"reader or loader."
            )


_guards: weakref.WeakSet[ForkGuard] = weakref.WeakSet()


def _forget_guards() -> None:
    """Reset the guards in a fork: its threads are missing, and locks may be held for ever."""
    global _running  # noqa: PLW0603  # one per process
    _running = weakref.WeakSet()
    for guard in list(_guards):
        guard.forked = True
    atexit.unregister(_stop_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_guards)
