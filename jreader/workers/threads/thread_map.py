"""One engine for every op that reads or maps on other threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import count, islice
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from jreader.errors import noted
from jreader.readers import Node, Pass, Position, described
from jreader.workers.memory_estimates import EACH, SPARSE, risen, weight
from jreader.workers.threads.shutdown import ForkGuard, stop_at_exit

T = TypeVar("T")
S = TypeVar("S")

_WORTH = 500e-6  # seconds of work that make a hand-over between threads (some 50 us) cheap
_TURNS = 4  # turns of each thread that fit the window: one is in work, others wait


def ahead(
    node: Node[T],
    up: Pass[S],
    fn: Callable[[S], T],
    threads: int,
    window: int,
    ordered: bool = True,
    timeout: float = 0,
    most: int = 0,
    most_bytes: float = inf,
) -> Pass[T]:
    """`fn` of the items of `up`, made on threads that begin with the first item asked for.

    In order, an item that is waited for longer than `timeout` seconds is an error (0: for ever).
    The window may widen up to `most` items where they take next to no time, and narrows where they
    weigh more than `most_bytes`, to two for each thread.
    """
    position = up.position()
    about = type(node).__name__, node.made_at
    state = Ahead(*about, up, fn, threads, window, timeout, most, most_bytes)

    def deal() -> Generator[T, None, None]:
        nonlocal position
        done: _Done | None = None
        try:
            state.begin()
            for done in state.in_order() if ordered else state.as_ready():
                last = len(done.items) - 1
                for place, item in enumerate(done.items):
                    if place == last:
                        state.give(last + 1)
                    position = done.positions[place]
                    yield item
                if done.error:
                    raise done.error
        finally:
            done = None  # or the traceback would hold this frame, and the frame the error
            state.stop()

    items = deal()

    def close() -> None:
        state.stop()
        with suppress(ValueError):  # another thread waits in it, and has been told
            items.close()

    return Pass(items, lambda: position, close)


class _Done(NamedTuple):
    """What became of the items of one turn; of the end itself, where `end` is set."""

    turn: int
    items: list[Any]
    positions: list[Position]
    error: BaseException | None = None  # after the items
    end: bool = False


_CLOSED = _Done(-1, [], [], end=True)  # goes to whoever waits while another thread closes the pass


class Ahead(Generic[S, T]):
    """Items drawn by one thread at a time, and mapped by several, at most `window` ahead.

    A thread takes slots before it draws, so exactly `window` items are ahead, and sends each item
    with the position after it, so that looking ahead cannot spoil a position. What is done goes
    through one queue; whoever wants order sorts on the consumer's side, without a lock.

    Items that take less than a hand-over between threads are drawn several at a turn; their slots
    are free again together.
    """

    def __init__(
        self,
        op: str,
        made_at: str,
        up: Pass[S],
        fn: Callable[[S], T],
        threads: int,
        window: int,
        timeout: float = 0,
        most: int = 0,
        most_bytes: float = inf,
    ) -> None:
        self.op, self.made_at, self.up, self.fn, self.timeout = op, made_at, up, fn, timeout
        self.wanted, self.window, self.most = threads, window, max(window, most)
        self.least, self.most_bytes, self.heavy = window, most_bytes, 1.0  # bytes of an item
        self.share = most_bytes / (2 * _TURNS * threads)  # of a turn
        self.free, self.slots = window, threading.Condition()  # held for a moment
        self.drawing = threading.Lock()  # held while the source makes an item, however long
        self.counting = threading.RLock()  # held for a moment; gc may drop a pass inside it
        self.done: SimpleQueue[_Done] = SimpleQueue()
        self.group = 1  # items of a turn
        self.turns = 0
        self.stopped = self.closed = False
        self.threads: list[threading.Thread] = []
        self.working = 0
        self.fork_guard = ForkGuard()
        self.in_work: dict[int, S] = {}  # kept where there is a clock: an error names what is late

    def begin(self) -> None:
        """Starts the threads."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)
        with self.counting:
            if self.closed:
                return
            self.working = self.wanted  # all of them at once: the last one that leaves must be one
        for begun in range(self.wanted):
            thread = threading.Thread(target=self._work, name=f"jreader {self.op}", daemon=True)
            self.threads.append(thread)
            try:
                thread.start()
            except Exception:  # not an interrupt: that leaves `start` when the thread is at work
                self._leave(self.wanted - begun)
                raise

    def in_order(self) -> Iterator[_Done]:
        """What was done, in the order of the source; an error after all items before it."""
        waiting: dict[int, _Done] = {}
        for turn in count():
            limit = time.monotonic() + self.timeout
            while turn not in waiting:
                done = self._received(turn, limit)
                if done is _CLOSED:
                    return
                waiting[done.turn] = done
            done = waiting.pop(turn)
            self.in_work.pop(turn, None)
            if done.end and not done.error:
                return
            yield done

    def _received(self, turn: int, limit: float) -> _Done:
        """What is done next, unless the clock runs out before."""
        self.fork_guard.check("this pass")
        try:
            return self.done.get(timeout=max(0, limit - time.monotonic()) if self.timeout else None)
        except Empty:
            pass
        what = f", made of {described(self.in_work[turn])}," if turn in self.in_work else ""
        raise TimeoutError(
            f"item {turn} of this pass{what} was waited for longer than {self.timeout} s in "
            f"{self.op}, made at {self.made_at}: give a longer timeout, or find what it waits for."
        )

    def as_ready(self) -> Iterator[_Done]:
        """What was done, as it gets ready; an error after all items already drawn."""
        received, total = 0, sys.maxsize
        failed: BaseException | None = None
        while received < total:
            self.fork_guard.check("this pass")
            done = self.done.get()
            if done is _CLOSED:
                return
            if done.end or done.error:
                failed = failed or done.error
                with self.counting:
                    self.stopped = True
                    total = self.turns
            received += not done.end
            yield done._replace(error=None)
        yield _Done(self.turns, [], [], failed, end=True)

    def take(self) -> int:
        """Waits until there are slots, and takes those of a turn; fewer where there are fewer."""
        with self.slots:
            while self.free <= 0 and not self.stopped:
                self.slots.wait()
            taken = max(0, min(self.free, self.group))
            self.free -= taken
            if self.free > 0:
                self.slots.notify()  # there is one for the next thread too
            return taken

    def give(self, slots: int) -> None:
        """Gives slots back; whoever waits for one goes on, or leaves."""
        with self.slots:
            self.free += slots
            self.slots.notify()

    def stop(self) -> None:
        """Asks the threads to end, of which the last one closes the source."""
        if self.fork_guard.forked:
            return
        with self.counting:
            mine = not (self.closed or self.working or self.threads)
            self.stopped = self.closed = True
        self.give(1)
        self.done.put(_CLOSED)
        if mine:
            self.up.close()

    def _work(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._leave()

    def _turn(self) -> bool:
        """Draws and maps what there are slots for; false once there is nothing more to do."""
        slots = self.take()
        with self.drawing:
            if self.stopped:
                return False
            began = time.perf_counter()
            drawn: list[S] = []
            positions: list[Position] = []
            end, size, late = None, 0.0, began + 4 * _WORTH
            try:
                for item in islice(self.up.items, slots):
                    drawn.append(item)
                    positions.append(self.up.position())
                    if slots > 1 and len(drawn) % SPARSE == 0:
                        size += SPARSE * weight(item)
                        if size > self.share or time.perf_counter() > late:
                            self.give(slots - len(drawn))  # they are not as those before them
                            break
                else:
                    end = _Done(0, [], [], end=True) if len(drawn) < slots else None
            except BaseException as error:
                noted(error, f"raised while {self.op}, made at {self.made_at}, read ahead")
                end = _Done(0, [], [], error, end=True)
            with self.counting:
                if self.stopped:
                    return False
                turn, self.turns = self.turns, self.turns + bool(drawn)
                self.stopped = self.stopped or end is not None
                if self.timeout and drawn:
                    self.in_work[turn] = drawn[0]
            if end:
                self.done.put(end._replace(turn=self.turns))
        if drawn:
            heavy = self._map(turn, drawn, positions)
            self._learn((time.perf_counter() - began) / len(drawn), heavy)
        return True

    def _map(self, turn: int, drawn: list[S], positions: list[Position]) -> float:
        """Hands over what is made of the items of a turn, and tells what one of them weighs."""
        items: list[T] = []
        try:
            for item in drawn:
                items.append(self.fn(item))  # noqa: PERF401  # those before an error are kept
        except BaseException as error:
            with self.counting:
                self.stopped = True
            self.done.put(_Done(turn, items, positions, error))
            return 0.0
        heavy = max(weight(items[0]), weight(items[-1])) if self.most_bytes < inf else 0.0
        self.done.put(_Done(turn, items, positions))
        return heavy

    def _learn(self, each: float, heavy: float) -> None:
        """How many items are worth a turn, if each takes so many seconds and weighs so much."""
        heavy = self.heavy = max(1.0, risen(self.heavy, heavy))
        many = self.most_bytes / heavy  # items that may be ahead
        if not self.timeout:  # else an error is to name the one item that is late
            few = min(self.most, many / 2) // (_TURNS * self.wanted)
            self.group = int(max(1, min(2 * self.group, _WORTH / each, few)))
        window = max(self.least, min(self.most, _TURNS * self.wanted * self.group))
        window = int(min(window, max(EACH * self.wanted, many)))
        with self.slots:
            self.free += window - self.window
            self.window = window
            if self.free > 0:
                self.slots.notify()

    def _leave(self, threads: int = 1) -> None:
        self.give(1)  # whoever waits for a slot leaves next
        with self.counting:
            self.working -= threads
            last = self.working == 0
        if last:
            self.up.close()
