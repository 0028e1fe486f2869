"""Looking ahead only where it pays: the loader's engine.

Moving a cheap host loop behind a queue costs 25 to 40 % on two cores, while a jitted step returns
at once anyway. So whoever is free draws: a consumer that comes back quickly draws for itself, as if
there were no thread; one that stays away (a step that is awaited), or a source that takes its time,
calls the thread in, which then keeps `capacity` items ready. Drawing goes in turn, so the order is
the source's, and each item carries the position after it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from typing import Any, Generic, NamedTuple, TypeVar

from jreader.readers import Pass, Position
from jreader.workers.threads import stopped_at_exit

T = TypeVar("T")

_PAYS = 300e-6  # seconds away; handing an item from one thread to another costs 50 to 150 us
_SLOW = 10 * _PAYS  # seconds to draw an item, beside which a hand-over is nothing


def lookahead(up: Pass[T], capacity: int, name: str = "loader") -> Pass[T]:
    """The items of `up`, at most `capacity` of them drawn before they are asked for.

    >>> from jreader import start
    >>> list(lookahead(start(lambda: "abc"), capacity=2).items)
    ['a', 'b', 'c']

    Args:
        up: A pass, drawn by the consumer's thread and another one in turn.
        capacity: How many items may wait; 0 draws each when it is asked for.
        name: What the thread is called.
    """
    if capacity == 0:
        return up
    state = _Lookahead(up, capacity, name)
    position = up.position()

    def deal() -> Generator[T, None, None]:
        nonlocal position
        try:
            while taken := state.next():
                position = taken[0].position
                yield taken.pop().item  # and nothing here holds it any longer
        finally:
            state.stop()

    items = deal()

    def close() -> None:
        items.close()
        state.stop()

    return Pass(items, lambda: position, close)


class _Drawn(NamedTuple):
    item: Any = None
    position: Position = None
    error: BaseException | None = None


class _Lookahead(Generic[T]):
    """What is drawn, under one condition; the thread holds this, never the consumer's iterator."""

    def __init__(self, up: Pass[T], capacity: int, name: str) -> None:
        self.up, self.capacity, self.name = up, capacity, name
        self.turn = threading.Condition()  # reentrant: gc may drop a pass, which stops it, anywhere
        self.ready: deque[_Drawn] = deque()
        self.room = 0  # how many items the thread may keep ready
        self.busy = False  # somebody draws
        self.over = False  # nothing is drawn any more
        self.closed = False
        self.threads: list[threading.Thread] = []
        self.away = 0.0  # seconds that the consumer stays away, smoothed
        self.left: float | None = None

    def next(self) -> list[_Drawn]:
        """The next item in a list, drawn here if nobody else is at it; an empty one at the end."""
        came = time.perf_counter()
        with self.turn:
            alone = not self.ready and not self.busy
            while not self.ready:
                if self.busy:
                    self.turn.wait()
                elif self.over:
                    return []
                else:
                    self._draw()
            spent = time.perf_counter() - came if alone else 0.0
            self._learn(came - self.left if self.left else 0.0, spent)
            drawn = self.ready.popleft()
            if self.room and not self.over:
                self._call_in()
        if drawn.error:
            self._raise(drawn.error)
        self.left = time.perf_counter()
        return [drawn]

    def _learn(self, away: float, spent: float) -> None:
        seen = min(max(away, spent * _PAYS / _SLOW), 4 * _PAYS)
        self.away += (seen - self.away) / (4 if self.away else 1)
        self.room = self.capacity if self.away > _PAYS else 0

    def _raise(self, error: BaseException) -> None:
        try:
            raise error
        finally:
            del error  # or the traceback would hold this frame, and the frame the error

    def _draw(self) -> None:
        """Draws one item; holds the condition before and after, but not meanwhile."""
        self.busy = True
        self.turn.release()
        drawn = None
        try:
            drawn = _Drawn(next(self.up.items), self.up.position())
        except StopIteration:
            pass
        except BaseException as error:
            drawn = _Drawn(error=error)
        finally:
            self.turn.acquire()
            self.busy = False
        if drawn is None or drawn.error:
            self.over = True
        if drawn and not self.closed:
            self.ready.append(drawn)
        if self.closed:
            self.up.close()
        self.turn.notify_all()

    def _call_in(self) -> None:
        if not self.threads:
            thread = threading.Thread(target=self._work, name=f"jreader {self.name}", daemon=True)
            self.threads.append(thread)
            stopped_at_exit(self)
            thread.start()
        self.turn.notify_all()

    def _work(self) -> None:
        with self.turn:
            while not self.over:
                if self.busy or len(self.ready) >= self.room:
                    self.turn.wait()
                else:
                    self._draw()

    def stop(self) -> None:
        """Ends the thread; what it is drawing, it closes."""
        with self.turn:
            if self.closed:
                return
            self.closed = self.over = True
            self.ready.clear()
            if not self.busy:
                self.up.close()
            self.turn.notify_all()
