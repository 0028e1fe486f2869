"""Counters of the stages of a loader: what the last feeds took, in rings that never grow.

They are always on, so they take no lock: a stage appends to a ring of its own, which is one step of
the interpreter, and whoever asks copies the rings. A clock reading may cost as much as a hundredth
of a quick feed (0.7 us, of 60), and one that is timed has eight of them. So of feeds that come
quickly one in eight is timed, then, as long as they do, one in sixteen, and one in 32. Nothing that
is counted changes the stream. Times are nanoseconds of `time.perf_counter_ns`.

Ops that count for themselves (maps on threads, say) find the counters of the pass that is being
begun by `working`, since a plan knows nothing of the loader above it.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from jreader.errors import assigned
from jreader.tunables import Tunables

KEPT = 256
"""How many feeds are remembered."""
QUICK = 500_000
"""Nanoseconds from feed to feed: of those that come quicker, some are left out after each."""
FEWEST, MOST = 7, 31
"""How many are left out after the first of them, and at last."""


class Work(NamedTuple):
    """What one op did: `tasks` has (nanoseconds of its function, items) for each task.

    Attributes:
        op: The name of the op.
        function: The name of its function.
        made_at: The file and line that made it.
        by: "threads", "processes" or "executor"; "" for the thread that draws.
        workers: How many do the work.
        tasks: The last tasks; of `map_batches`, an item is a batch.
        depths: How many finished tasks waited, whenever one was taken.
    """

    op: str
    function: str
    made_at: str
    by: str
    workers: int
    tasks: deque[tuple[int, int]]
    depths: deque[int]


class Sampling:
    """Which of the items that come one after another are timed: of quick ones, few.

    Whoever times counts `left` down for each item that is left out, and calls `timed` with the time
    of each other one: so most of the quick ones cost no look at the clock.

    >>> sampling = Sampling()
    >>> [sampling.timed(QUICK - 1) for _ in range(4)], sampling.timed(QUICK)
    ([8, 16, 32, 32], 1)

    Attributes:
        left: How many more are left out before the next one that is timed.
    """

    def __init__(self) -> None:
        self.left = self._skips = 0

    def timed(self, spent: int, most: int = MOST) -> int:
        """Notes the nanoseconds of an item that was timed; returns for how many it stands."""
        more = min(max(2 * self._skips + 1, FEWEST), most)
        self.left = self._skips = more if spent < QUICK else 0
        return self.left + 1


class Counters:
    """The rings of one loader.

    Attributes:
        given: How many feeds all loops got since the loader was made, and for how many nanoseconds
            they waited for them. Its passes share it, and several threads add to it without a lock:
            nothing interrupts such a sum under that of the interpreter.
        steps: When the loop came for each feed, and when it left with it; None between two passes.
        assembled: For each feed that was timed, when it was begun, when its batch was read, when
            its arrays were stacked, and how many feeds it stands for.
        placed: How long each feed that was timed took to be put on the devices.
        depths: How many feeds the look-ahead had drawn, whenever the loop came for one.
        works: The ops that count for themselves.
        feed_bytes: The bytes of the first feed on the host; None before it.
        tunables: What may be turned while passes run; None where nothing may.
        most_skips: How many quick feeds are left out, at most, after one that was timed.
    """

    def __init__(self, tunables: Tunables | None = None, given: list[int] | None = None) -> None:
        self.tunables, self.given = tunables, given or [0, 0]
        self.steps: deque[tuple[int, int] | None] = deque(maxlen=KEPT)
        self.assembled: deque[tuple[int, int, int, int]] = deque(maxlen=KEPT)
        self.placed: deque[int] = deque(maxlen=KEPT)
        self.depths: deque[int] = deque(maxlen=KEPT)
        self.works: list[Work] = []
        self.feed_bytes: int | None = None
        self.most_skips = MOST

    def continued(self) -> Counters:
        """Counters for the next pass, which remember this one, and leave it its own."""
        copy = Counters(self.tunables, self.given)
        copy.feed_bytes = self.feed_bytes
        for name in ("assembled", "depths", "placed", "steps"):
            getattr(copy, name).extend(getattr(self, name).copy())
        copy.works.extend(
            work._replace(tasks=work.tasks.copy(), depths=work.depths.copy()) for work in self.works
        )
        return copy

    def has(self, work: Work, workers: int) -> Work:
        """The same rings, of an op that has so many workers from now on."""
        now = work._replace(workers=workers)
        for place, each in enumerate(self.works):
            if each.tasks is work.tasks:
                self.works[place] = now
        return now


def counters_of_pass() -> Counters | None:
    """The counters of the pass that is being begun."""
    return _counters.get()


def counting(counters: Counters) -> AbstractContextManager[None]:
    """Has the ops that are begun inside the block count into `counters`."""
    return assigned(_counters, counters)


def working(op: str, function: str, made_at: str, by: str = "", workers: int = 1) -> Work:
    """The rings of an op whose pass is being begun: those of its last pass, if it had one.

    >>> counters = Counters()
    >>> with counting(counters):
    ...     work = working("map_samples", "decode", "train.py:31", "threads", 2)
    >>> work.tasks.append((1_000_000, 8))
    >>> counters.works[0].function, counters.works[0].tasks[-1]
    ('decode', (1000000, 8))
    """
    counters = _counters.get()
    key = (op, function, made_at, by, workers)
    same = 4 if counters and counters.tunables else 5  # the number of workers may have been turned
    for work in counters.works if counters else ():
        if work[:same] == key[:same]:
            return work
    work = Work(*key, deque(maxlen=KEPT), deque(maxlen=KEPT))
    if counters and len(counters.works) < KEPT:
        counters.works.append(work)
    return work


_counters: ContextVar[Counters | None] = ContextVar("counters", default=None)
