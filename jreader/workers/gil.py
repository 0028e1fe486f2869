"""The GIL: measure whether a function holds it, and whether it waits.

Threads help a function that waits, or computes in C without the GIL. To find out, the function is
called again and again on this thread, while a second thread reads the clock, and releases the GIL
after each reading. No thread requests the GIL meanwhile (the switch interval is endless), so the
second thread runs only when the function releases it. How long it runs beside a sleeping thread
shows how busy the machine is: both measurements alternate until that is long enough. The function
is only ever called on one thread at a time, since it may not be thread-safe.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

_NO_SWITCH = 1000.0  # seconds: a switch interval longer than the measurement
_WATCH_SECONDS = 0.01  # before this thread sleeps as long
_RUN_SECONDS = 0.05  # that the other thread must run while this one sleeps
_TIMEOUT = 2.0  # seconds, however little the other thread has run
_MAX_GAP = 0.001  # seconds between two clock readings; a longer gap means the thread could not run
_MIN_FREE = 0.1  # share of the time others can run; below it, a function holds the GIL


@dataclass(frozen=True)
class GilUse:
    """How a function affects other threads.

    Attributes:
        free: The share of its time in which other threads may run Python.
        computes: The share of its time in which it computes; the rest it waits.
    """

    free: float
    computes: float

    @property
    def holds_gil(self) -> bool:
        """True if it holds the GIL, so that other threads wait while it runs."""
        return self.free < _MIN_FREE


def holding(function: Callable[..., Any], samples: Sequence[tuple[Any, ...]]) -> GilUse | None:
    """Measure a function of samples; None if it raised an error, or without samples.

    >>> import time
    >>> def waits(_sample):
    ...     time.sleep(0.002)
    >>> def counts(_sample):
    ...     return sum(number for number in range(20_000))
    >>> holding(waits, [(0,)]).holds_gil, holding(counts, [(0,)]).holds_gil
    (False, True)

    Args:
        function: A function; it is called again and again, on this thread.
        samples: The arguments of calls.
    """
    if not samples:
        return None

    def called() -> None:
        ends = time.perf_counter() + _WATCH_SECONDS
        while time.perf_counter() < ends:
            for sample in samples:
                function(*sample)
                if time.perf_counter() >= ends:
                    break

    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    before, late = sys.getswitchinterval(), time.perf_counter() + _TIMEOUT
    ran = most = took = worked = 0.0
    sys.setswitchinterval(_NO_SWITCH)
    try:
        while most < _RUN_SECONDS and time.perf_counter() < late:
            spent, beside = _beside(called)
            most += _beside(partial(time.sleep, spent.wall))[1]
            ran, took, worked = ran + beside, took + spent.wall, worked + spent.computed
    except Exception:  # of the function: a pass raises it, with the sample
        return None
    finally:
        sys.setswitchinterval(before)
    free = min(ran / most, 1.0) if locked and most else 1.0
    return GilUse(free, min(1.0, worked / took / share_of_a_core()))


class _Spent(NamedTuple):
    wall: float
    computed: float


def _beside(call: Callable[[], None]) -> tuple[_Spent, float]:
    """Return the seconds of a call, and those that another thread ran meanwhile."""
    ran, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal ran
        before = time.perf_counter()
        while not over.is_set():
            time.sleep(0)  # gives the lock away
            now = time.perf_counter()
            ran += now - before if now - before < _MAX_GAP else 0.0
            before = now

    beside = threading.Thread(target=watch, name="jreader looks for the lock", daemon=True)
    beside.start()
    try:
        ran, began, worked = 0.0, time.perf_counter(), time.thread_time()
        call()
        return _Spent(time.perf_counter() - began, time.thread_time() - worked), ran
    finally:
        over.set()
        beside.join()


def share_of_a_core() -> float:
    """Return how much of a core this thread gets at present: the most that computing can get.

    >>> 0 < share_of_a_core() <= 1
    True
    """
    began, worked = time.perf_counter(), time.thread_time()
    while (wall := time.perf_counter() - began) < _RUN_SECONDS:
        pass
    return min(1.0, max((time.thread_time() - worked) / wall, 0.01))
