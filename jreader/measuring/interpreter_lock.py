"""Whether a function holds the interpreter's lock, and whether it waits.

Threads help a function that waits, or computes in C without the lock. To find that out, a second
thread sleeps a little, again and again, while the function is called on this one, and looks how
much later than it wished it goes on: while Python runs, the interpreter hands its lock over only
after a switch interval, which is made longer meanwhile, so that it stands out on a busy machine.
The function is only ever called on one thread at a time, since it may not stand more.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_INTERVAL = 0.03  # seconds: the switch interval meanwhile
_PAUSE = 0.001  # seconds that the other thread sleeps
_LOOKS = 9  # of the other thread
_SPIN = 0.05  # seconds
_LONGEST = 2.0  # seconds, whatever was seen by then


@dataclass(frozen=True)
class Holding:
    """How a function behaves beside others.

    Attributes:
        holds_lock: Whether other threads wait for the interpreter while it runs.
        computes: The share of its time in which it computes; the rest it waits.
    """

    holds_lock: bool
    computes: float


def holding(function: Callable[..., Any], samples: Sequence[tuple[Any, ...]]) -> Holding | None:
    """Watches a function of samples; None where it raised an error.

    >>> import time
    >>> def waits(_sample):
    ...     time.sleep(0.002)
    >>> def counts(_sample):
    ...     return sum(number for number in range(20_000))
    >>> holding(waits, [(0,)]).holds_lock, holding(counts, [(0,)]).holds_lock
    (False, True)

    Args:
        function: A function; it is called again and again, on this thread.
        samples: The arguments of calls, at least one.
    """
    late: list[float] = []
    enough = threading.Event()

    def look() -> None:
        while len(late) < _LOOKS and not enough.is_set():
            wished = time.perf_counter() + _PAUSE
            time.sleep(_PAUSE)
            late.append(time.perf_counter() - wished)
        enough.set()

    before = sys.getswitchinterval()
    other = threading.Thread(target=look, name="jreader looks for the lock", daemon=True)
    sys.setswitchinterval(_INTERVAL)
    try:
        began, worked = time.perf_counter(), time.thread_time()
        other.start()
        while not enough.is_set() and time.perf_counter() - began < _LONGEST:
            for sample in samples:
                function(*sample)
                if enough.is_set():
                    break
        wall, worked = time.perf_counter() - began, time.thread_time() - worked
        whole = share_of_a_core()
    except Exception:
        return None
    finally:
        enough.set()
        sys.setswitchinterval(before)
        other.join()
    waited = sum(each > _INTERVAL / 2 for each in late)
    return Holding(3 * waited >= len(late), min(1.0, worked / max(wall, 1e-9) / whole))


def share_of_a_core() -> float:
    """How much of a core this thread gets at present: what computes gets no more of it.

    >>> 0 < share_of_a_core() <= 1
    True
    """
    began, worked = time.perf_counter(), time.thread_time()
    while (wall := time.perf_counter() - began) < _SPIN:
        pass
    return min(1.0, max((time.thread_time() - worked) / wall, 0.01))
