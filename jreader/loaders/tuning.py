"""`load(tune=True)`: autotune the threads of maps and the capacity during training.

The stream is the same at any setting, so the tuner judges by the time from feed to feed. A `Tuner`
climbs: it measures some feeds, makes one change (doubles or halves the threads of busy maps, or
doubles the capacity if the queue is sometimes empty), measures again, and goes back unless feeds
came clearly faster. Other programs make a measurement slower, never faster: so an unclear one is
repeated for both settings, and the faster ones are compared. If nothing helps it rests, longer each
time; if the loop does not wait, it changes nothing.

It runs on the thread of the loop, between two feeds, and has no thread of its own: a pass may be
closed at any moment. Each of several processes tunes itself.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

from jreader import errors
from jreader.counters import Counters, snapshot
from jreader.readers import described
from jreader.tunables import Tunable, Tunables

_MEASURED_SECONDS = 0.4  # seconds of feeds to compare
_SETTLING_SECONDS = 0.15  # seconds to ignore after a change: feeds prefetched before it
_MIN_FEEDS = 8  # feeds to compare, if they take longer than that
_MIN_GAIN = 0.04  # of the interval between feeds: a change that saves less is undone
_CLEAR_GAIN = 0.2  # a change that adds threads and saves more is not measured again
_CLEAR_LOSS = 0.1  # a change that removes some and costs more is not measured again
_MIN_WAIT = 0.02  # share of the time the loop waits; below it there is nothing to gain
_BUSY_SHARE = 0.3  # share of the time that threads of a map work, if the map may be the bottleneck
_OTHER = 0.25  # relative change of the interval that shows another loop
_FIRST_REST_SECONDS = 4.0
_MAX_REST_SECONDS = 300.0


@dataclass(frozen=True)
class Ceilings:
    """The limits of `tune`.

    Attributes:
        threads: The number of threads, of all tuned maps together.
        capacity: The number of feeds to prefetch.
        bytes: The size of the samples and feeds that are ahead of the loop.
    """

    threads: int = 32
    capacity: int = 16
    bytes: int = 1 << 30


def tuning(tune: Any, capacity: int) -> Ceilings | None:
    """Return the ceilings for the argument `tune`; None without tuning.

    >>> tuning({"threads": 8}, capacity=2)
    Ceilings(threads=8, capacity=16, bytes=1073741824)
    >>> tuning({"memory": 8}, capacity=2)
    Traceback (most recent call last):
    TypeError: tune of load takes ceilings by the names "threads", "capacity" and "bytes", not \
'memory': type tune=True, or tune={"threads": 16}.

    Args:
        tune: The argument.
        capacity: The number of feeds that are prefetched.

    Raises:
        TypeError: `tune` is neither a bool nor a dict of ceilings.
        ValueError: A ceiling is below 1, or there is no capacity to tune.
    """
    type_this = 'type tune=True, or tune={"threads": 16}.'
    if not isinstance(tune, (bool, Mapping)):
        raise TypeError(
            f"tune of load needs True, False or a dict of ceilings, not {described(tune)}: "
            f"{type_this}"
        )
    given = {} if isinstance(tune, bool) else dict(tune)
    for name, most in given.items():
        if name not in vars(Ceilings()):
            raise TypeError(
                f'tune of load takes ceilings by the names "threads", "capacity" and "bytes", not '
                f"{name!r}: {type_this}"
            )
        given[name] = errors.check_number(f"tune={{{name!r}: ...}} of load", most, 1)
    if tune is False:
        return None
    if not capacity:
        raise ValueError(
            "load(tune=True) moves the number of feeds that are prefetched, and capacity=0 "
            "prefetches none: leave one of the two out."
        )
    return Ceilings(**given)


@dataclass(frozen=True)
class TunedMap:
    """The threads of a tuned map.

    Attributes:
        function: The name of its function.
        made_at: The file and line that made it.
        threads: The present number of threads.
    """

    function: str
    made_at: str
    threads: int


@dataclass(frozen=True)
class Tuned:
    """The result of `tune=True`; as text, what to type instead.

    Attributes:
        capacity: The present number of feeds to prefetch.
        maps: The tuned maps.
        settled: Whether the latest round found nothing better.
    """

    capacity: int
    maps: tuple[TunedMap, ...]
    settled: bool

    def __str__(self) -> str:
        """Return the arguments to type, a line for each map."""
        maps = [f".map({each.function}, threads={each.threads})" for each in self.maps]
        places = [f"  # {PureWindowsPath(each.made_at).name}" for each in self.maps]
        return "\n".join([*map(str.__add__, maps, places), f".load(capacity={self.capacity})"])


class Seen(NamedTuple):
    """A measurement of some feeds.

    Attributes:
        interval: The seconds from one feed to the next.
        waiting: The share of that time that the loop waited.
        busy: For each tunable of threads, the share of the time that they worked.
        uneven: Whether the prefetch queue was empty at times, but not always.
    """

    interval: float
    waiting: float
    busy: dict[Tunable, float]
    uneven: bool


class Tuner:
    """Tunes map threads and capacity, by the time from feed to feed.

    >>> tuner = Tuner(Ceilings())
    >>> tuner.tunables.of("capacity", "", "train.py:9", 2).value
    2

    Attributes:
        tunables: The tunables of the loader's passes.
        settled: Whether the latest round of changes found nothing better.
    """

    def __init__(self, ceilings: Ceilings) -> None:
        self.ceilings, self.tunables, self.settled = ceilings, Tunables(), False
        self._counters, self._last = Counters(), 0
        self._looking = threading.Lock()
        self._climb = self._climbing()
        self._rejected: set[tuple[int, ...]] = set()  # settings of this round that were not better
        self._left: set[frozenset[tuple[Tunable, int]]] = set()  # replaced by better ones
        self._begin(next(self._climb))

    def begin(self, counters: Counters) -> None:
        """Follow another pass; the gap between the two is not measured."""
        self._counters, self._last = counters, 0

    def fed(self, counters: Counters, came: int, left: int) -> None:
        """Count a feed: when the loop asked for it and got it, in nanoseconds."""
        if counters is not self._counters:
            return  # from a pass beside the followed one
        last, self._last = self._last, left
        if not last:
            return
        self._feeds += 1
        self._time += left - last
        self._waited += left - came
        if self._time >= self._until and self._feeds >= self._least:
            self._look()

    def _begin(self, seconds: float) -> None:
        """Start a measurement of so many seconds and at least 8 feeds; 2 while settling."""
        self._until, self._least = 1e9 * seconds, 2 if seconds == _SETTLING_SECONDS else _MIN_FEEDS
        self._feeds, self._time, self._waited = 0, 0, 0
        self._spent = {each: each.spent for each in self.tunables if each.name == "threads"}

    def _look(self) -> None:
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._begin(self._climb.send(self._seen()))
        finally:
            self._looking.release()

    def _seen(self) -> Seen:
        seconds = 1e-9 * self._time
        busy = {
            each: (each.spent - before) / (seconds * each.value * max(1, len(each.running())))
            for each, before in self._spent.items()
        }
        looks = snapshot(self._counters.depths)[-self._feeds :]
        some = max(1, len(looks) // 50)
        uneven = len(looks) - looks.count(0) >= some <= looks.count(0)
        return Seen(seconds / self._feeds, self._waited / self._time, busy, uneven)

    def _climbing(self) -> Generator[float, Seen, None]:
        """Measure, change, and measure again; yield for how many seconds to measure next."""
        yield _MEASURED_SECONDS  # the first feeds of a loop compile its step
        base = yield _MEASURED_SECONDS
        rest = _FIRST_REST_SECONDS
        while True:
            self._rejected.clear()
            settled = False
            while not settled:
                settled = True
                for move in self._moves(base):
                    better, base = yield from self._tried(move, base)
                    if better:
                        settled = False
                        break
            self.settled = True
            if (yield from self._rested(rest, base.interval)):
                rest = min(2 * rest, _MAX_REST_SECONDS)
            else:
                rest = _FIRST_REST_SECONDS
                self._left.clear()
            base = yield _MEASURED_SECONDS

    def _rested(self, seconds: float, expected: float) -> Generator[float, Seen, bool]:
        """Change nothing for so long; return False as soon as the loop's timing changes."""
        others = 0
        for _ in range(round(seconds / _FIRST_REST_SECONDS)):
            seen = yield _FIRST_REST_SECONDS
            other = abs(seen.interval - expected) > _OTHER * expected and seen.waiting > _MIN_WAIT
            others = others + 1 if other else 0
            if others == 2:  # once may be another program
                return False
        return True

    def _moves(self, base: Seen) -> list[dict[Tunable, int]]:
        """Return changes worth trying, the most promising first."""
        if base.waiting < _MIN_WAIT:
            return []
        busy = [each for each, share in base.busy.items() if share > _BUSY_SHARE]
        alone = busy if len(busy) > 1 else []
        queues = [each for each in self.tunables if each.name == "capacity" and base.uneven]
        moves = [{each: 2 * each.value} for each in [*alone, *queues]]
        halves = {each: max(1, each.value // 2) for each in busy}
        return [{each: 2 * each.value for each in busy}, *moves, halves]

    def _tried(
        self, move: dict[Tunable, int], base: Seen
    ) -> Generator[float, Seen, tuple[bool, Seen]]:
        """Make a change, and revert it unless feeds come faster; return the last measurement."""
        before = {each: each.value for each in move}
        there = self._bounded(move)
        if there is None or there == before or self._was_tried(there):
            return False, base
        self.settled = False
        raises_threads = sum(there.values()) > sum(before.values())
        seen = yield from _seen_with(there)
        if not (raises_threads and seen.interval < (1 - _CLEAR_GAIN) * base.interval):
            better, seen, base = yield from self._compared(before, there, seen, base)
            if not better:
                self._rejected.add(self._setting(there))
                return False, base
        if raises_threads:
            self._left.add(frozenset(before.items()))
        return True, seen

    def _was_tried(self, there: dict[Tunable, int]) -> bool:
        return self._setting(there) in self._rejected or frozenset(there.items()) in self._left

    def _compared(
        self, before: dict[Tunable, int], there: dict[Tunable, int], seen: Seen, base: Seen
    ) -> Generator[float, Seen, tuple[bool, Seen, Seen]]:
        """Measure both settings again: whether the new one is better, and the best of each."""
        again = yield from _seen_with(before)
        both, best = base.interval + again.interval, min(base, again, key=_interval)
        shrinks = sum(there.values()) <= sum(before.values())
        if shrinks and seen.interval >= (1 + _CLEAR_LOSS) * best.interval:
            return False, seen, best
        twice = yield from _seen_with(there)
        slower = seen.interval + twice.interval >= both
        seen = min(seen, twice, key=_interval)
        if slower or seen.interval >= (1 - _MIN_GAIN) * best.interval:
            _tune(before)
            yield _SETTLING_SECONDS
            return False, seen, best
        return True, seen, best

    def _bounded(self, move: dict[Tunable, int]) -> dict[Tunable, int] | None:
        """Return the change as far as ceilings allow it; None if they allow none of it."""
        there = {each: self._allowed(each, wanted) for each, wanted in move.items()}
        grown = {each.name for each, value in there.items() if value > each.value}
        ahead = sum(
            each.held_bytes() * there.get(each, each.value) / each.value for each in self.tunables
        )
        beyond = ahead > self.ceilings.bytes
        beyond |= "threads" in grown and self._threads(there) > self.ceilings.threads
        return None if grown and beyond else there

    def _allowed(self, tunable: Tunable, wanted: int) -> int:
        """Return the wanted value of a tunable, reduced to its ceiling."""
        if wanted <= tunable.value:
            return wanted
        most = self.ceilings.capacity if tunable.name == "capacity" else self._free(tunable)
        return max(tunable.value, min(wanted, most, tunable.most or wanted))

    def _free(self, tunable: Tunable) -> int:
        """Return how many threads each part of a tunable may have beside all others."""
        taken = self._threads({tunable: 0})
        return (self.ceilings.threads - taken) // max(1, len(tunable.running()))

    def _threads(self, there: Mapping[Tunable, int]) -> int:
        """Return how many threads all maps have, with some values replaced."""
        return sum(
            there.get(each, each.value) * max(1, len(each.running()))
            for each in self.tunables
            if each.name == "threads"
        )

    def _setting(self, there: dict[Tunable, int]) -> tuple[int, ...]:
        return tuple(there.get(each, each.value) for each in self.tunables)

    def tuned(self, capacity: int) -> Tuned:
        """Return the result so far; `capacity` is the initial one."""
        every = [each for each in self.tunables if each.name == "threads"]
        maps = tuple(TunedMap(each.function, each.made_at, each.value) for each in every)
        queues = [each.value for each in self.tunables if each.name == "capacity"]
        return Tuned([capacity, *queues][-1], maps, self.settled)


def _seen_with(there: Mapping[Tunable, int]) -> Generator[float, Seen, Seen]:
    """Measure a setting, after the feeds prefetched before it."""
    _tune(there)
    yield _SETTLING_SECONDS
    return (yield _MEASURED_SECONDS)


def _tune(there: Mapping[Tunable, int]) -> None:
    for each, value in there.items():
        each.tune(value)


_interval = attrgetter("interval")
