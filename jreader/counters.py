"""Counters of a loader's stages: measurements of the last feeds, in rings that never grow.

They are always on, so they take no lock: a stage appends to its own ring, which is atomic, and
readers copy the rings. A clock reading may cost as much as a hundredth of a quick feed
(0.7 us, of 60), and a timed feed takes eight. So of quick feeds one in eight is timed, then, as
long as they stay quick, one in sixteen, and one in 32. Counting never changes the stream. Times are
nanoseconds of `time.perf_counter_ns`.

Ops with their own counters (such as maps on threads) find the counters of the pass that is
beginning through `working`, since a plan does not know the loader above it.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from jreader.errors import assigned
from jreader.tunables import Tunables

T = TypeVar("T")

KEPT = 256
"""The number of feeds remembered."""
QUICK = 500_000
"""Nanoseconds between feeds; quicker feeds are timed less often."""
FEWEST, MOST = 7, 31
"""How many feeds go untimed after the first quick one, and at most."""


class Work(NamedTuple):
    """The work of one op: `tasks` has (nanoseconds of its function, items) for each task.

    Attributes:
        op: The name of the op.
        function: The name of its function.
        made_at: The file and line that made it.
        by: "threads", "processes" or "executor"; "" for the thread that draws.
        workers: The number of workers.
        tasks: The last tasks; for `map_batches`, an item is a batch.
        depths: The number of finished tasks that waited, whenever one was taken.
    """

    op: str
    function: str
    made_at: str
    by: str
    workers: int
    tasks: deque[tuple[int, int]]
    depths: deque[int]


class Sampling:
    """Chooses which of consecutive items are timed: few, if they are quick.

    The caller counts `left` down for each untimed item, and calls `timed` with the time of each
    other one: so most quick items need no clock reading.

    >>> sampling = Sampling()
    >>> [sampling.timed(QUICK - 1) for _ in range(4)], sampling.timed(QUICK)
    ([8, 16, 32, 32], 1)

    Attributes:
        left: The number of untimed items before the next timed one.
    """

    def __init__(self) -> None:
        self.left = self._skips = 0

    def timed(self, spent: int, most: int = MOST) -> int:
        """Record the nanoseconds of a timed item; return how many items it stands for."""
        more = min(max(2 * self._skips + 1, FEWEST), most)
        self.left = self._skips = more if spent < QUICK else 0
        return self.left + 1


class Counters:
    """The rings of one loader.

    Attributes:
        given: The number of feeds that all loops got since the loader was made, and the nanoseconds
            that they waited for them. Its passes share it, and several threads add to it without a
            lock: under the GIL nothing interrupts such a sum; without it, one may get lost.
        steps: When the loop came for each feed, and when it left with it; None between two passes.
        assembled: For each timed feed, when it was begun, when its batch was read, when its arrays
            were stacked, and how many feeds it stands for.
        placed: The time to put each timed feed on the devices.
        depths: The number of prefetched feeds, whenever the loop came for one.
        works: The ops with their own counters.
        feed_bytes: The bytes of the first feed on the host; None before it.
        tunables: What may be tuned while passes run; None for nothing.
        most_skips: The most quick feeds that go untimed after a timed one.
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
        """Return counters for the next pass, which remember this pass, and leave it its own."""
        copy = Counters(self.tunables, self.given)
        copy.feed_bytes = self.feed_bytes
        for name in ("assembled", "depths", "placed", "steps"):
            getattr(copy, name).extend(snapshot(getattr(self, name)))
        copy.works.extend(
            work._replace(
                tasks=deque(snapshot(work.tasks), KEPT), depths=deque(snapshot(work.depths), KEPT)
            )
            for work in self.works
        )
        return copy

    def has(self, work: Work, workers: int) -> Work:
        """Return the same rings, for an op that has so many workers from now on."""
        now = work._replace(workers=workers)
        for place, each in enumerate(self.works):
            if each.tasks is work.tasks:
                self.works[place] = now
        return now


def snapshot(ring: deque[T]) -> list[T]:
    """Return the values of a ring, to which other threads may append meanwhile."""
    while True:
        with suppress(RuntimeError):  # without a GIL, an append may come in between
            return list(ring)  # not `copy`, which then takes a lock for each value


def counters_of_pass() -> Counters | None:
    """Return the counters of the pass that is beginning."""
    return _counters.get()


def counting(counters: Counters) -> AbstractContextManager[None]:
    """Make ops that begin inside the block count into `counters`."""
    return assigned(_counters, counters)


def working(op: str, function: str, made_at: str, by: str = "", workers: int = 1) -> Work:
    """Return the rings of an op whose pass is beginning: those of its last pass, if it had one.

    >>> counters = Counters()
    >>> with counting(counters):
    ...     work = working("map_samples", "decode", "train.py:31", "threads", 2)
    >>> work.tasks.append((1_000_000, 8))
    >>> counters.works[0].function, counters.works[0].tasks[-1]
    ('decode', (1000000, 8))
    """
    counters = _counters.get()
    key = (op, function, made_at, by, workers)
    same = 4 if counters and counters.tunables else 5  # the number of workers may have been tuned
    for work in counters.works if counters else ():
        if work[:same] == key[:same]:
            return work
    work = Work(*key, deque(maxlen=KEPT), deque(maxlen=KEPT))
    if counters and len(counters.works) < KEPT:
        counters.works.append(work)
    return work


_counters: ContextVar[Counters | None] = ContextVar("counters", default=None)
