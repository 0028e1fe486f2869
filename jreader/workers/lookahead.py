"""Prefetching a loader's feeds on threads, only where that pays: the look-ahead.

Moving a cheap host loop behind a queue costs 25 to 40 % on two cores, while a jitted step returns
at once anyway. So whoever is free draws: a consumer that comes back quickly draws for itself, as if
there were no thread; one that stays away (a step that is awaited), or a source that takes its time,
calls a thread in, which then keeps `capacity` items ready. Drawing goes in turn, so the order is
the source's, and each item carries the position after it.

A pass that runs users' code has one thread that draws it (`threads/drawers.py`). Which one is
chosen when the pass begins, from what was seen of the one before (`Pace`): a thread at first, and
where the consumer stays away or the source takes its time; else the consumer's, for the whole pass.

What is done to an item once it is drawn (`finish`: the placing of a feed, 200 us) is nobody's in
particular. Behind a slow source one thread draws on at once, and a second one, or the consumer if
it waits already, finishes what was drawn: else the placing would be added to the source's time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from operator import getitem
from typing import Any, Generic, TypeVar

from jreader.counters import Counters, Sampling
from jreader.readers import Pass, Position
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.tunables import Tunable
from jreader.workers.threads import Drawer, stoppable_pass

T = TypeVar("T")
S = TypeVar("S")

_PAYS = 300e-6  # seconds away; handing an item from one thread to another costs 50 to 150 us
_LONG = 4 * _PAYS  # seconds away that count; a longer break is not remembered for longer
_SMALL = 0.1  # a hand-over that takes so much of the time to draw an item is nothing beside it
_SLOW = _PAYS / _SMALL  # seconds to draw such an item
_SEEN = 4  # items, after which it is known whether looking ahead pays

TURN: Any = object()
"""An item of a pass that is none: what comes next is another pass over users' code."""


class Pace:
    """What a loader's latest pass has seen of its source and its consumer.

    Attributes:
        pays: Whether a thread that looks ahead was worth it for most items; also if not known.
    """

    pays = True


def lookahead(
    up: Pass[S],
    capacity: int,
    finish: Callable[[S], T],
    name: str = "loader",
    counters: Counters | None = None,
    tunable: Tunable | None = None,
    drawer: Drawer | None = None,
    pace: Pace | None = None,
) -> Pass[T]:
    """`finish` of the items of `up`, at most `capacity` of them drawn before they are asked for.

    >>> from jreader import start
    >>> list(lookahead(start(lambda: "abc"), capacity=2, finish=str.upper).items)
    ['A', 'B', 'C']

    Args:
        up: A pass, drawn by the consumer's thread and others in turn.
        capacity: How many items may wait; 0 draws each when it is asked for.
        finish: A function of an item; several threads call it at once.
        name: What the threads are called.
        counters: What counts how long `finish` takes, and how many items wait; None for nothing.
        tunable: What may change the capacity while the pass runs; None for nothing.
        drawer: Who has begun the pass, and draws and closes it; None for whoever is free.
        pace: What remembers whether a thread is worth it; a `drawer` goes by it at each `TURN`.
    """
    if capacity == 0:
        return up.mapped(finish)
    state = _Lookahead(up, capacity, finish, name, counters or Counters(), drawer, pace or Pace())
    if tunable:
        tunable.join(state, capacity)
    latest = [up.position()]
    position = partial(getitem, latest, 0)  # no function of Python, since it is asked at every item
    return stoppable_pass(_handed_over(state, latest), position, state.close)


def _handed_over(  # noqa: C901, PLR0912  # each function is one more call a feed
    state: _Lookahead[S, T], latest: list[Position]
) -> Generator[T, None, None]:
    """The finished items, in order; `latest[0]` becomes the position after each.

    What a consumer draws for itself is drawn right here: every call would count in a fast loop.
    """
    source, position, lock, clock = state.up.items, state.up.position, state.lock, time.perf_counter
    placed, depths, exact = state.counters.placed, state.counters.depths, time.perf_counter_ns
    mine = False  # whether the consumer draws
    sampling = Sampling()  # of those that it finishes
    held: list[Any] = []  # so that nothing here holds an item that was handed over
    try:
        while True:
            if state.fork_guard.forked:
                state.fork_guard.check("this pass")
            came = clock()
            with lock:
                if not (state.room or state.drawn or state.busy or state.over):
                    mine = state.busy = not state.apart
            if mine:
                held.append(next(source, _END))
                if held[0] is _END:
                    return
                if held[0] is TURN:
                    held.clear()
                    mine = state.turned()
                    continue
                after = position()
                began = 0 if sampling.left else exact()
                held.append(state.finish(held.pop()))
                depths.append(0)
                if began:
                    placed.append(exact() - began)
                    sampling.timed(0, state.counters.most_skips)
                else:
                    sampling.left -= 1
                with lock:
                    if state.closed:
                        return
                    mine = state.busy = False
                    state.learn(came, clock() - came)
            elif (drawn := state.next(came)) is not None:
                held.append(drawn.item)
                after, drawn = drawn.position, None
            else:
                return
            latest[0], state.left = after, clock()
            yield held.pop()
    except GeneratorExit:
        state.stop(mine)  # gc may come anywhere: it waits for nobody
        mine = False
        raise
    finally:
        held.clear()
        state.close(mine)


_END = object()


@dataclass(slots=True)
class _Drawn:
    item: Any = None
    position: Position = None
    error: BaseException | None = None
    taken: bool = False  # somebody finishes it, or has
    finished: bool = False


class _Lookahead(Generic[S, T]):
    """What is drawn, under one lock; the threads hold this, never the consumer's iterator."""

    def __init__(
        self,
        up: Pass[S],
        capacity: int,
        finish: Callable[[S], T],
        name: str,
        counters: Counters,
        drawer: Drawer | None,
        pace: Pace,
    ) -> None:
        self.drawer, self.pace = drawer, pace
        self.seen = self.paid = 0  # items, and those for which it was worth it to look ahead
        self.apart = drawer is not None and drawer.apart  # one thread draws, not the consumer's
        self.up, self.capacity, self.finish, self.name = up, capacity, finish, name
        self.counters = counters
        self.lock = threading.RLock()  # reentrant: gc may drop a pass, which stops it, anywhere
        self.ready = threading.Condition(self.lock)  # the consumer waits here
        self.turn = threading.Condition(self.lock)  # the threads wait here
        self.drawn: deque[_Drawn] = deque()
        self.room = 0  # how many items the threads may draw
        self.busy = False  # somebody draws
        self.waiting = False  # the consumer does
        self.over = False  # nothing is drawn any more
        self.closed = False
        self.threads: list[threading.Thread] = []
        self.away = 0.0  # seconds that the consumer stays away, smoothed
        self.took = 0.0  # seconds to draw the latest item
        self.placing = False  # the thread that draws finishes an item
        self.left: float | None = None
        self.fork_guard = ForkGuard()

    def next(self, came: float) -> _Drawn | None:
        """The next item, drawn here if nobody else is at it, or may be; None at the end."""
        with self.lock:
            if self.apart and not self.room:
                self.room = self.capacity
                self._call_in(1)
            alone = not self._comes()
            self.counters.depths.append(len(self.drawn) if self._ready() else 0)
            if not self._come():
                return None
            drawn = self.drawn.popleft()
            took = self.took if self.apart else time.perf_counter() - came if alone else 0.0
            self.learn(came, took)
        if drawn.error:
            self._raise(drawn.error)
        return drawn

    def _come(self) -> bool:
        """Waits until the next item is finished, or draws and finishes it; false at the end."""
        while not self._ready():
            if self.drawn and not self.drawn[0].taken:
                self._finish(self.drawn[0])
            elif self._comes():
                self.waiting = True
                self.ready.wait()
                self.waiting = False
            elif self.over:
                return False
            else:
                self._draw()
        return True

    def _ready(self) -> bool:
        """Whether the next item is finished."""
        return bool(self.drawn) and self.drawn[0].finished

    def _comes(self) -> bool:
        """Whether the next item comes from somebody else, if the consumer waits."""
        return bool(self.drawn) or self.busy or (self.apart and not self.over)

    def learn(self, came: float, spent: float) -> None:
        """Calls a thread in where it pays, given when the consumer came and what it spent here."""
        away = came - self.left if self.left else 0.0
        if spent * _SMALL > away:  # noqa: PLR1730  # for every item, and calls take longer
            away = spent * _SMALL
        if away > _LONG:  # noqa: PLR1730  # likewise
            away = _LONG
        if self.drawer:
            self.seen += 1
            self.paid += away > _PAYS
        else:
            self.away += (away - self.away) / 4 if self.away else away
            self.room = self.capacity if self.away > _PAYS else 0
        if self.room:
            self._call_in(1)

    def turned(self) -> bool:
        """Chooses who draws the next pass over users' code; returns False, as no draw is running.

        Only the caller draws while it is called.
        """
        with self.lock:
            self.busy = False
            self._remember()
            if self.drawer:
                self.apart = self.drawer.apart = self.pace.pays
                self.room = self.capacity if self.apart else 0
            if self.room:
                self._call_in(1)
            self.ready.notify_all()
        return False

    def _remember(self) -> None:
        if self.seen >= _SEEN:
            self.pace.pays = 2 * self.paid > self.seen
            self.seen = self.paid = 0

    def tune(self, value: int) -> None:
        """Keeps so many items ready from now on; more, until the consumer has taken them."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.capacity = value
            self.room = value if self.room else 0
            if len(self.drawn) < self.room:
                self._call_in(1)

    def held_bytes(self) -> float:
        """What its items weigh, if all weigh as much as the first feed."""
        return self.capacity * (self.counters.feed_bytes or 0)

    def _raise(self, error: BaseException) -> None:
        try:
            raise error
        finally:
            del error  # or the traceback would hold this frame, and the frame the error

    def _draw(self) -> None:
        """Draws one item; holds the lock before and after, but not meanwhile."""
        began, self.busy = time.perf_counter(), True
        drawn: _Drawn | None = None
        try:
            self.lock.release()  # in here, since an interrupt may come as soon as it is done
            drawn = _Drawn(next(self.up.items), self.up.position())
        except StopIteration:
            pass
        except BaseException as error:
            drawn = _Drawn(error=error, taken=True, finished=True)
        finally:
            self.lock.acquire()
            self.busy = False
        if drawn and drawn.item is TURN:
            self.turned()
            return
        self.took = time.perf_counter() - began
        self.over = self.over or drawn is None or drawn.error is not None
        if not self.closed:
            self.drawn.extend([drawn] if drawn else [])
        elif not self.apart:
            self.up.close()
        self._tell_of_drawn()

    def _tell_of_drawn(self) -> None:
        """Wakes who waits for an item that was drawn, or for one to draw."""
        if self.over:
            self.ready.notify_all()
            self.turn.notify_all()
        elif len(self.drawn) < self.room:
            self._call_in(2 if self.took > _SLOW else 1)

    def _finish(self, drawn: _Drawn) -> None:
        """Finishes one item, likewise."""
        drawn.taken, began = True, time.perf_counter_ns()
        try:
            self.lock.release()  # likewise
            drawn.item = self.finish(drawn.item)
        except BaseException as error:
            drawn.item, drawn.error = None, error
        finally:
            self.counters.placed.append(time.perf_counter_ns() - began)
            self.lock.acquire()
            drawn.finished = True
            self.over = self.over or drawn.error is not None
        self.ready.notify_all()

    def _call_in(self, threads: int) -> None:
        if self.over:
            return
        if len(self.threads) < threads:
            if self.drawer and not self.threads:
                self.threads.append(self.drawer.work(self._draw_apart))
                stop_at_exit(self)
            else:
                self._begin_thread()
        if self.waiting and self.drawn:
            self.ready.notify_all()  # it finishes what was drawn, rather than wait for a thread
        elif self.drawer:
            self.turn.notify_all()  # one of them alone may draw
        else:
            self.turn.notify()

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"jreader {self.name}", daemon=True)
        self.threads.append(thread)
        stop_at_exit(self)
        thread.start()

    def _work(self) -> None:
        """What a thread does, until nothing is drawn any more."""
        with self.lock:
            while not self.over:
                self._do_next(may_draw=not (self.drawer or self.busy))

    def _draw_apart(self) -> None:
        """What the thread of the drawer does, until the pass is closed."""
        with self.lock:
            while not self.closed:
                self._do_next(may_draw=self.apart and not self.over, drawers=True)

    def _do_next(self, *, may_draw: bool, drawers: bool = False) -> None:
        """Finishes an item, or draws one, or waits until there is something to do."""
        may_draw = may_draw and len(self.drawn) < self.room
        unfinished = next((each for each in self.drawn if not each.taken), None)
        if unfinished and not (may_draw and len(self.threads) > 1):
            self.placing = self.placing or drawers
            self._finish(unfinished)
            self.placing = self.placing and not drawers
        elif may_draw:
            self._draw()
        else:
            self.turn.wait()

    def close(self, drawing: bool = False) -> None:
        """Stops it, and returns once the source is closed, unless somebody is at work with it."""
        self.stop(drawing, wait=True)

    def stop(self, drawing: bool = False, *, wait: bool = False) -> None:
        """Ends the threads; the source is closed here, or by whoever draws from it."""
        if self.fork_guard.forked:
            return
        with self.lock:
            if drawing:  # the consumer, who is on its way out
                self.busy = False
            elif self.closed:
                return
            at_work = self.busy or self.placing
            self._end()
        if self.drawer and (self.apart or not at_work):
            self.drawer.close(wait=wait and not at_work)

    def _end(self) -> None:
        self.closed = self.over = True
        self._remember()
        self.drawn.clear()
        if not (self.busy or self.drawer):
            self.up.close()
        self.turn.notify_all()
        self.ready.notify_all()
