"""`graceful_stop`: signals wait for the end of a step, when parameters and cursor fit together."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

import jax
from jax.experimental import multihost_utils


class graceful_stop:
    """A `with` block in which Ctrl-C and SIGTERM wait, so that a run can be saved after a step.

    Without it a signal comes at any moment, also between a feed and its step. Inside the block, a
    signal only makes this object true. After the block it has its usual effect: Ctrl-C raises
    KeyboardInterrupt, SIGTERM exits with status 143. A second signal has that effect at once.

    Under `jax.distributed` it becomes true on all processes after the same step, whichever of them
    got the signal. For that, each process has to test it once per step.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> feeds, total = Pipeline(arrays(np.arange(6.0))).batch(2).load().epoch(0), 0.0
    >>> try:
    ...     with graceful_stop() as stop:
    ...         for feed in feeds:
    ...             total += float(feed.sum())
    ...             if feeds.step == 2:
    ...                 signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
    ...             if stop:
    ...                 saved = total, feeds.cursor["samples"]
    ...                 break
    ... except KeyboardInterrupt:
    ...     print(saved)
    (6.0, 4)
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._signal: int | None = None
        self._is_multihost = self._all_stop = False
        self._checks = 0

    def __enter__(self) -> Self:
        """Hold back SIGINT and SIGTERM, except those that the program ignores.

        Raises:
            RuntimeError: This is not the main thread, which alone gets signals.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "graceful_stop() is for the main thread, the only one that Python gives signals: "
                "enter it there, and let the other thread look whether it is true."
            )
        self._is_multihost = jax.distributed.is_initialized()
        # with several processes, jax already handles SIGTERM, and notifies the others
        for number in (signal.SIGINT,) if self._is_multihost else (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if callable(before) or before == signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, self._hold)
        return self

    def __bool__(self) -> bool:
        """Return whether a signal waits; on several processes, whether all stop after this step."""
        if not self._is_multihost:
            return self._signal is not None
        if not self._all_stop:
            self._checks += 1
            self._all_stop = multihost_utils.reached_preemption_sync_point(self._checks)
        return self._all_stop

    def _hold(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is not None:
            self._restore()
            signal.raise_signal(number)
            return
        self._signal = number
        name = signal.Signals(number).name
        with suppress(OSError):  # print, or a file's own buffer, is not reentrant
            message = f"\n{name}: finishing this step first; a second signal stops at once.\n"
            os.write(2, message.encode())
        if self._is_multihost:
            signal.raise_signal(signal.SIGTERM)

    def _restore(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the signal have its effect; if an error ends the block, it gets a note instead."""
        if self._signal is not None and not self._handlers:
            return  # the second signal was not held
        self._restore()
        number = signal.SIGTERM if self._signal is None and self._all_stop else self._signal
        if number is None:
            return
        if callable(signal.getsignal(number)):
            signal.raise_signal(number)
        elif error is None:
            raise SystemExit(128 + number)
        else:
            error.add_note(
                f"{signal.Signals(number).name} arrived during the block, and was held back."
            )
