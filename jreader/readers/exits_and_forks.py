"""What has threads or processes of its own, when its program exits, or forks.

At exit it is stopped and waited for, two seconds at the most. In a process that was forked from it,
its threads are not there: it is refused there.
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

_EXIT_SECONDS = 2.0  # seconds that a program waits at exit for a user's function or a decoder


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
    limit = time.monotonic() + _EXIT_SECONDS
    for thread in [thread for state in states for thread in state.threads]:
        thread.join(max(0, limit - time.monotonic()))


def run_daemon(name: str, call: Callable[[], T]) -> Future[T]:
    """Begins a call on a thread, and returns its future.

    The thread is a daemon, unlike those of an executor: a call that hangs does not keep the program
    from its end.

    >>> run_daemon("a thread", lambda: 3).result()
    3
    """
    given: Future[T] = Future()
    given.set_running_or_notify_cancel()  # whoever waits may give up: the call continues
    threading.Thread(target=resolve_future, args=(given, call), name=name, daemon=True).start()
    return given


def resolve_future(given: Future[T], call: Callable[[], T]) -> None:
    """Gives a future what a call returns, or raises."""
    try:
        given.set_result(call())
    except BaseException as error:  # it is raised where the result is wanted
        given.set_exception(error)


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


def _forget_guards() -> None:
    """In a process that was forked: the threads are not there, and locks may be held for ever."""
    global _running  # noqa: PLW0603  # it is of a process
    _running = weakref.WeakSet()
    for guard in list(_guards):
        guard.forked = True
    atexit.unregister(_stop_all)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_guards)
