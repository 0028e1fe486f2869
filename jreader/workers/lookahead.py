"""Prefetch a loader's feeds on threads, but only if that pays.

Moving a cheap host loop behind a queue costs 25 to 40 % on two cores, while a jitted step returns
at once anyway. So any free thread draws. A consumer that comes back quickly draws for itself, as if
there were no thread. If it stays away (it waits for a step), or the source is slow, a thread
starts, which then keeps `capacity` items ready. Draws take turns, so the order is the source's, and
each item carries the position after it.

A pass that runs users' code is drawn by one thread (`threads/drawers.py`). It is chosen when the
pass begins, from what the previous one has measured (`Pace`): a background thread at first, and if
the consumer stays away or the source is slow; otherwise the consumer's, for the whole pass.

Whoever draws an item finishes it (`finish` places a feed, in 200 us). Behind a slow source, that
would add to the source's time: so one thread draws on at once, and a second one finishes what was
drawn.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from jreader.counters import Counters, Work
from jreader.readers import Pass
from jreader.tunables import Tunable
from jreader.workers.ahead import DrawnChunk, made_ahead
from jreader.workers.limits import Limits
from jreader.workers.threads import Drawer, ThreadCrew

T = TypeVar("T")
S = TypeVar("S")

_MIN_AWAY = 300_000  # ns; a hand-over between threads costs 50 to 150 us
_MAX_AWAY = 4 * _MIN_AWAY  # ns; a longer break counts as this much
_CHEAP_SHARE = 0.1  # of the time to draw an item: a hand-over that takes less is cheap
_SLOW = 1e-9 * _MIN_AWAY / _CHEAP_SHARE  # seconds to draw an item for which a hand-over is cheap
_LIMITS = Limits(workers=2, window=0)
_TRIAL_ITEMS = 4  # items before it is known whether prefetching pays

TURN: Any = object()
"""A marker among the items: what follows is another pass over users' code."""

_END: Any = object()


class Pace:
    """What a loader's latest pass has measured of its source and its consumer.

    Attributes:
        pays: Whether a prefetching thread paid for most items; True if unknown.
    """

    pays = True


def lookahead(
    up: Pass[S],
    capacity: int,
    finish: Callable[[S], T],
    counters: Counters | None = None,
    tunable: Tunable | None = None,
    drawer: Drawer | None = None,
    pace: Pace | None = None,
) -> Pass[T]:
    """Apply `finish` to the items of `up`, at most `capacity` of them drawn ahead of requests.

    >>> from jreader import start
    >>> list(lookahead(start(lambda: "abc"), capacity=2, finish=str.upper).items)
    ['A', 'B', 'C']

    Args:
        up: A pass, drawn by the consumer's thread and others in turn.
        capacity: The number of items that may wait; 0 draws each on request.
        finish: A function of an item; several threads may call it at once.
        counters: Counters of the time `finish` takes, and of the waiting items; None for none.
        tunable: Changes the capacity while the pass runs; None for a fixed one.
        drawer: Has begun the pass, draws it and closes it; None for any free thread.
        pace: Remembers whether a thread pays; a `drawer` follows it at each `TURN`.
    """
    if capacity == 0:
        return up.mapped(finish)
    crew = LoaderCrew(up, capacity, finish, counters or Counters(), drawer, pace or Pace())
    if tunable:
        tunable.join(crew, capacity)
    return made_ahead(crew)


class LoaderCrew(ThreadCrew[S]):
    """At most two threads, which start if they pay; until then the consumer draws.

    The window is `capacity`, 0 if no thread may draw, or 1 before an `apart` thread has handed over
    its first item. For the arguments see `lookahead`.

    Attributes:
        apart: Whether a background thread draws, never the consumer's, because of users' code.
        handed: The number of items drawn by threads that the consumer has taken.
        taken: The number of chunks that it has taken, empty ones included.
    """

    leaves_early = False  # what is raised on closing the source reaches the consumer

    def __init__(
        self,
        up: Pass[S],
        capacity: int,
        finish: Callable[[S], Any],
        counters: Counters,
        drawer: Drawer | None,
        pace: Pace,
    ) -> None:
        work = Work("loader", "", "", "threads", 2, deque(maxlen=0), counters.depths)
        super().__init__("loader", "", up, _LIMITS, work, finish, drawer)
        self.where = ""  # source errors look the same as without prefetching
        self.capacity, self.loader, self.pace = capacity, counters, pace
        self.placed = counters.placed
        self.seen = self.paid = 0  # items, and those for which prefetching paid
        self.apart = drawer is not None and drawer.apart
        self.handed = self.taken = 0
        self.away = 0.0  # ns between the consumer's visits, smoothed
        self.left_at = 0  # when it last left, in ns

    def handed_over(self) -> Generator[Any, None, None]:
        """Yield the finished items, in order.

        Items that the consumer draws itself are drawn inline: in a fast loop every call counts.
        """
        latest, source, position, finish = self.latest, self.up.items, self.up.position, self.fn
        lock, clock = self.lock, time.perf_counter_ns
        depths, placed = self.work.depths, self.placed
        held: list[Any] = []  # so that no local keeps an item that was handed over
        with self:
            while not self.fork_guard.forked:
                came = clock()
                with lock:
                    ahead = self.apart or self.window or self.claims > self.taken
                    self.consumer_reads = not ahead
                if not self.consumer_reads:
                    if (chunk := self._next(came)) is None:
                        return
                    held, after = chunk.results, chunk.positions[0]
                else:
                    held.append(next(source, _END))
                    if held[0] is _END:
                        return
                    if held[0] is TURN:
                        held.clear()
                        self._choose()
                        continue
                    after, drawn = position(), clock()
                    held.append(finish(held.pop()))
                    left = clock()
                    placed.append(left - drawn)
                    depths.append(0)
                    if self._learn(came, left, left - came):
                        return
                if held:
                    latest[0] = after
                    yield held.pop()
            self.fork_guard.check("this pass")

    def begin(self) -> None:
        """Let a thread draw from now on, if the consumer may not."""
        self.left_at = time.perf_counter_ns()
        if self.apart and not self.fork_guard.forked:
            with self.lock:
                self.widen(1)  # the first item is handed over before the next one is drawn
                self._begin_threads()

    def _next(self, came: int) -> DrawnChunk[S] | None:
        """Return the threads' next item, none if the consumer may draw; None at the end."""
        waiting, turn = self.waiting, self.handed
        self.work.depths.append(len(waiting) + self.done.qsize())
        while turn not in waiting:
            if (chunk := self.done.get()) is None:
                return None
            waiting[chunk.first] = chunk
        chunk = waiting.pop(turn)
        if chunk.error is not None:
            chunk.fail()
        with self.lock:
            self.taken += 1
            self.handed, self.free = turn + len(chunk.results), self.free + len(chunk.results)
            if not turn and self.apart:
                self.widen(self.capacity)
        if chunk.results:
            self._learn(came, time.perf_counter_ns(), 1e9 * chunk.seconds if self.apart else 0.0)
        return None if chunk.ends else chunk

    def _learn(self, came: int, left: int, spent: float) -> bool:
        """Start a thread if that pays; return whether the pass was closed.

        Args:
            came: When the consumer came, in ns.
            left: When it leaves, in ns.
            spent: How long its item took to draw, in ns; 0 for a thread's item if not `apart`.
        """
        away: float = came - self.left_at
        if spent * _CHEAP_SHARE > away:  # noqa: PLR1730  # runs per item; `max` is a call
            away = spent * _CHEAP_SHARE
        if away > _MAX_AWAY:  # noqa: PLR1730  # as above
            away = _MAX_AWAY
        with self.lock:
            self.consumer_reads, self.left_at = False, left
            if self.drawer:
                self.seen += 1
                self.paid += away > _MIN_AWAY
            else:
                self.away += (away - self.away) / 4 if self.away else away
                if (self.away > _MIN_AWAY) != (self.window > 0):
                    self.widen(0 if self.window else self.capacity)
            if self.window:
                self.freed.notify()
                if not self.threads:
                    self._begin_threads()
            return self.closed

    def _choose(self) -> None:
        """Choose who draws the next pass over users' code; no pass is being drawn meanwhile."""
        with self.lock:
            self.consumer_reads = False
            self._remember()
            if self.drawer:
                self.apart = self.drawer.apart = self.pace.pays
                self.widen(self.capacity if self.apart else 0)
            if self.window:
                self._begin_threads()

    def cancel(self) -> None:
        """Make the consumer come for the end."""
        self._remember()
        with self.lock:
            self.claims += 1

    def _remember(self) -> None:
        """Record for the next pass whether prefetching paid in this one."""
        if self.seen >= _TRIAL_ITEMS:
            self.pace.pays = 2 * self.paid > self.seen
            self.seen = self.paid = 0

    def tune(self, value: int) -> None:
        """Keep so many items ready from now on; surplus ones are handed over first."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.capacity = value
            if self.window:  # otherwise nothing was requested, or no thread may draw
                self.widen(value)

    def held_bytes(self) -> float:
        """Return the bytes prefetched, if all feeds are as large as the first."""
        return self.capacity * (self.loader.feed_bytes or 0)

    def _begin_threads(self) -> None:
        """Start one thread, if none has started."""
        if not (self.threads or self.over):
            self.start_all(0 if self.drawer else 1)

    def next_drawn(self) -> DrawnChunk[S] | None:
        """Draw an item; behind a slow source, another thread finishes the drawn ones."""
        with self.drawing:
            while many := self.claimed():
                chunk = self.read(many)
                if chunk and chunk.items and chunk.items[0] is TURN:
                    self._turn(chunk)
                    continue
                if chunk and chunk.seconds > _SLOW and len(self.threads) == 1:
                    with suppress(RuntimeError):  # the system allows no more threads
                        self.start_threads(1)
                if chunk is None or chunk.positions:
                    return chunk
                self.done.put(chunk)
        return None

    def _turn(self, chunk: DrawnChunk[S]) -> None:
        """Send the consumer an empty chunk, since it may have to draw from now on."""
        chunk.items = []
        with self.lock:
            self.drawn, self.free = self.drawn - 1, self.free + 1
            self._choose()
        self.done.put(chunk)

    def map(self, chunk: DrawnChunk[S]) -> None:
        """Finish an item, and record the time that takes."""
        began = time.perf_counter_ns()
        try:
            chunk.results.append(self.fn(chunk.items.pop()))
        except BaseException as error:
            self.fail(chunk, error)
        self.placed.append(time.perf_counter_ns() - began)
        self.done.put(chunk)
