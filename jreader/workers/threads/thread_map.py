"""An ordered map on threads, behind every op that reads ahead or maps on threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import count, islice
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from jreader.counters import counters_of_pass, working
from jreader.errors import noted
from jreader.profiling import profiler
from jreader.readers import Node, Pass, Position, described
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.tunables import Tunable
from jreader.workers.limits import Limits
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes, raised_average
from jreader.workers.threads.closing import stoppable_pass
from jreader.workers.threads.drawers import Drawer, drawn_apart

T = TypeVar("T")
S = TypeVar("S")

_WORTH = 500e-6  # seconds of work that make a hand-over between threads (some 50 us) cheap


def map_on_threads(
    node: Node[T],
    begin: Callable[[], Pass[S]],
    fn: Callable[[S], T],
    limits: Limits,
    *,
    function: str = "",
    ordered: bool = True,
    limits_of: Callable[[int], Limits] | None = None,
) -> Pass[T]:
    """`fn` of the items of a pass, made on threads that begin with the first item asked for.

    Args:
        node: The op, for errors.
        begin: Begins a pass over the reader of the op; one thread draws it, if it runs users' code,
            else one at a time.
        fn: A function of an item; several threads call it at once.
        limits: How many threads, and how far they may be ahead.
        function: The name of the user's function, for the counters; "" where there is none.
        ordered: Whether the results keep the order of the items; otherwise they come as they get
            ready, and may be waited for without a limit.
        limits_of: The limits of any number of threads, where a loader may tune that; else None.

    Raises:
        TimeoutError: A result was waited for longer than `limits.timeout` (while iterating).
    """
    up, drawer = drawn_apart(node, begin)
    position = up.position()
    state = ThreadMap(type(node).__name__, node.made_at, up, fn, limits, function, drawer)
    if limits_of:
        state.tuned(limits_of)

    def deal() -> Generator[T, None, None]:
        nonlocal position
        done: _DoneChunk | None = None
        try:
            state.begin()
            for done in state.in_order() if ordered else state.as_ready():
                last = len(done.items) - 1
                for index, item in enumerate(done.items):
                    if index == last:
                        state.give_slots(last + 1)
                    position = done.positions[index]
                    yield item
                if done.error:
                    raise done.error
        finally:
            done = None  # or the traceback would hold this frame, and the frame the error
            state.stop()

    return stoppable_pass(deal(), lambda: position, state.stop)


class _DoneChunk(NamedTuple):
    """What became of a chunk, the items that a thread draws at once; `end` is one behind the last.

    Attributes:
        number: Which chunk, from 0.
        items: What was made of them.
        positions: After each of them.
        error: What was raised after those.
        end: Whether this is no chunk, but the end of the source.
    """

    number: int
    items: list[Any]
    positions: list[Position]
    error: BaseException | None = None
    end: bool = False


class _Drawn(NamedTuple, Generic[S]):
    """A chunk that is to be mapped: its number, items, positions after them, and seconds."""

    number: int
    items: list[S]
    positions: list[Position]
    seconds: float


_CLOSED = _DoneChunk(-1, [], [], end=True)  # for whoever waits while another thread closes the pass


class ThreadMap(Generic[S, T]):
    """The threads of one pass: one at a time draws items, all of them map.

    If the pass runs users' code, one more thread draws for all of them, or the only one does both.

    A thread takes slots before it draws, so that no more than the window is ahead, and sends each
    item with the position after it, so that looking ahead cannot spoil a position. What is done
    goes through one queue; whoever wants order sorts on the consumer's side, without a lock.

    Items that take less time than a hand-over between threads are drawn in chunks, and the slots of
    a chunk are free again together.

    Args:
        op: Which op this is for, in errors.
        made_at: Where in the user's program that was made.
        up: A pass, read by one thread at a time.
        fn: A function of an item.
        limits: How many threads, and how far they may be ahead.
        function: The name of the user's function, for the counters.
        drawer: Who has begun the pass, and draws and closes it; None for any of the threads.
    """

    def __init__(
        self,
        op: str,
        made_at: str,
        up: Pass[S],
        fn: Callable[[S], T],
        limits: Limits,
        function: str = "",
        drawer: Drawer | None = None,
    ) -> None:
        self.drawer = drawer
        self.drawn: SimpleQueue[_Drawn[S] | None] = SimpleQueue()  # chunks that `drawer` has drawn
        self.work = working(op, function, made_at, "threads", limits.workers)
        self.op, self.made_at, self.up, self.fn, self.limits = op, made_at, up, fn, limits
        self.window, self.chunksize, self.item_bytes = limits.window, 1, 1.0
        self.free_slots, self.slots = self.window, threading.Condition()  # held for a moment
        self.drawing = threading.Lock()  # held while the source makes an item, however long
        self.counting = threading.RLock()  # held for a moment; gc may drop a pass inside it
        self.done: SimpleQueue[_DoneChunk] = SimpleQueue()
        self.draw: Callable[[], _Drawn[S] | None] = self._draw_chunk
        self.chunks = 0  # drawn so far
        self.stopped = self.closed = False
        self.threads: list[threading.Thread] = []
        self.working = 0
        self.fork_guard = ForkGuard()
        self.in_work: dict[int, S] = {}  # kept where there is a clock: an error names what is late
        self.begun = False
        self.tunable: Tunable | None = None
        self.limits_of: Callable[[int], Limits] | None = None
        self.counters = counters_of_pass()

    def tuned(self, limits_of: Callable[[int], Limits]) -> None:
        """Has a loader turn the number of threads, if it is one that tunes."""
        tunables = self.counters.tunables if self.counters else None
        if tunables is None:
            return
        self.limits_of, has = limits_of, self.limits.workers
        widest = None if self.limits.max_bytes < inf else self.limits.window
        self.tunable = tunables.of("threads", self.work.function, self.made_at, has, widest)
        self.tunable.join(self, has)

    def tune(self, value: int) -> None:
        """Has so many threads from now on: those that are too many leave when they come by."""
        limits_of = self.limits_of
        if self.fork_guard.forked or limits_of is None:
            return
        with self.counting:
            self.limits = limits = limits_of(value)
            if self.counters:
                self.work = self.counters.has(self.work, value)
            more = 0
            if self.begun and not self.stopped:
                more = max(0, value - self.working)
                self.working += more
                for left in [each for each in self.threads if each.ident and not each.is_alive()]:
                    self.threads.remove(left)
        self._widen(limits.window_of(self.chunksize, self.item_bytes))
        try:
            self._start(more)
        except RuntimeError:  # the system has no more of them: those at work go on
            for late in [each for each in self.threads if not each.ident]:
                self.threads.remove(late)  # nobody could join it

    def held_bytes(self) -> float:
        """What may be ahead, as its results weigh."""
        return self.window * self.item_bytes

    def begin(self) -> None:
        """Starts the threads."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)
        with self.counting:
            if self.closed:
                return
            # all of them at once: the last one that leaves must be one
            self.working, self.begun = self.limits.workers, True
            many = self.working
        if self.drawer and many == 1 and not self.tunable:
            self.threads.append(self.drawer.work(self._work))
            return
        if self.drawer:
            self.threads.append(self.drawer.work(self._draw_all))
            self.draw = self.drawn.get
        self._start(many)

    def _start(self, many: int) -> None:
        """Starts threads, which count as working already."""
        for begun in range(many):
            thread = threading.Thread(target=self._work, name=f"jreader {self.op}", daemon=True)
            self.threads.append(thread)
            try:
                thread.start()
            except Exception:  # not an interrupt: that leaves `start` when the thread is at work
                self._leave(many - begun)
                raise

    def in_order(self) -> Iterator[_DoneChunk]:
        """The chunks in the order of the source; an error comes after all items before it."""
        waiting: dict[int, _DoneChunk] = {}
        for number in count():
            limit = time.monotonic() + self.limits.timeout
            self.work.depths.append(len(waiting) + self.done.qsize())
            while number not in waiting:
                done = self._received(number, limit)
                if done is _CLOSED:
                    return
                waiting[done.number] = done
            done = waiting.pop(number)
            self.in_work.pop(number, None)
            if done.end and not done.error:
                return
            yield done

    def _received(self, number: int, limit: float) -> _DoneChunk:
        """The chunk that is done next.

        Raises:
            TimeoutError: Item `number` was waited for until `limit`.
        """
        self.fork_guard.check("this pass")
        timeout = self.limits.timeout
        try:
            return self.done.get(timeout=max(0, limit - time.monotonic()) if timeout else None)
        except Empty:
            pass
        what = f", made of {described(self.in_work[number])}," if number in self.in_work else ""
        raise TimeoutError(
            f"item {number} of this pass{what} took longer than {timeout} s in {self.op}, made at "
            f"{self.made_at}: give a longer timeout, or find what it waits for."
        )

    def as_ready(self) -> Iterator[_DoneChunk]:
        """The chunks as they get ready; an error comes after all items that were drawn."""
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
                    total = self.chunks
            received += not done.end
            yield done._replace(error=None)
        yield _DoneChunk(self.chunks, [], [], failed, end=True)

    def take_slots(self) -> int:
        """Waits for free slots, and takes as many as a chunk has, or as there are."""
        with self.slots:
            while self.free_slots <= 0 and not self.stopped:
                self.slots.wait()
            taken = max(0, min(self.free_slots, self.chunksize))
            self.free_slots -= taken
            if self.free_slots > 0:
                self.slots.notify()  # there is one for the next thread too
            return taken

    def give_slots(self, slots: int) -> None:
        """Gives slots back; whoever waits for one goes on, or leaves."""
        with self.slots:
            self.free_slots += slots
            self.slots.notify()

    def stop(self) -> None:
        """Asks the threads to end; the last one closes the source."""
        if self.fork_guard.forked:
            return
        with self.counting:
            mine = not (self.closed or self.working or self.threads)
            self.stopped = self.closed = True
        self.give_slots(1)
        self.done.put(_CLOSED)
        if mine:
            self.up.close()

    def _work(self) -> None:
        surplus = False
        try:
            while not (surplus := self._is_surplus()) and (chunk := self.draw()):
                if not self.closed:
                    self._map_chunk(chunk)
        finally:
            if not surplus:
                self._leave()

    def _draw_all(self) -> None:
        """Draws for all threads, until they are to leave."""
        try:
            while chunk := self._draw_chunk():
                self.drawn.put(chunk)
        finally:
            self.drawn.put(None)

    def _is_surplus(self) -> bool:
        """Whether this thread is one too many, and leaves; never the last one."""
        if self.working <= self.limits.workers:
            return False
        with self.counting:
            surplus = self.working > self.limits.workers
            self.working -= surplus
        return surplus

    def _draw_chunk(self) -> _Drawn[S] | None:
        """Draws a chunk; None once there is nothing more to do."""
        slots = self.take_slots()
        with self.drawing, profiler.during("read"):
            if self.stopped:
                return None
            began = time.perf_counter()
            drawn: list[S] = []
            positions: list[Position] = []
            end, size, late = None, 0.0, began + 4 * _WORTH
            try:
                for item in islice(self.up.items, slots):
                    drawn.append(item)
                    positions.append(self.up.position())
                    if slots > 1 and len(drawn) % ESTIMATE_EVERY == 0:
                        size += ESTIMATE_EVERY * estimated_bytes(item)
                        if size > self.limits.chunk_bytes or time.perf_counter() > late:
                            self.give_slots(slots - len(drawn))  # they are not as those before them
                            break
                else:
                    end = _DoneChunk(0, [], [], end=True) if len(drawn) < slots else None
            except BaseException as error:
                noted(error, f"raised while {self.op}, made at {self.made_at}, read ahead")
                end = _DoneChunk(0, [], [], error, end=True)
            with self.counting:
                if self.stopped:
                    return None
                number, self.chunks = self.chunks, self.chunks + bool(drawn)
                self.stopped = self.stopped or end is not None
                if self.limits.timeout and drawn:
                    self.in_work[number] = drawn[0]
            if end:
                self.done.put(end._replace(number=self.chunks))
        return _Drawn(number, drawn, positions, time.perf_counter() - began) if drawn else None

    def _map_chunk(self, chunk: _Drawn[S]) -> None:
        began, number = time.perf_counter(), len(chunk.items)
        item_bytes = self._map(chunk.number, chunk.items, chunk.positions)
        took = time.perf_counter() - began
        self._count(took, number)
        self._learn((chunk.seconds + took) / number, item_bytes)

    def _map(self, number: int, drawn: list[S], positions: list[Position]) -> float:
        """Hands over what is made of the items of a chunk; gives the bytes of one of them."""
        items: list[T] = []
        try:
            for item in drawn:
                items.append(self.fn(item))  # noqa: PERF401  # those before an error are kept
        except BaseException as error:
            with self.counting:
                self.stopped = True
            self.done.put(_DoneChunk(number, items, positions, error))
            return 0.0
        known = self.limits.max_bytes < inf
        item_bytes = max(map(estimated_bytes, (items[0], items[-1]))) if known else 0.0
        self.done.put(_DoneChunk(number, items, positions))
        return item_bytes

    def _count(self, seconds: float, items: int) -> None:
        self.work.tasks.append((round(1e9 * seconds), items))
        if self.tunable:
            self.tunable.spent += seconds  # without a lock: a chunk that is lost is one of many

    def _learn(self, seconds: float, item_bytes: float) -> None:
        """Sizes chunks and window by what an item took, and what its result weighs."""
        item_bytes = self.item_bytes = max(1.0, raised_average(self.item_bytes, item_bytes))
        if not self.limits.timeout:  # else an error is to name the one item that is late
            wanted = min(2 * self.chunksize, _WORTH / seconds)
            self.chunksize = self.limits.chunksize_of(wanted, item_bytes)
        self._widen(self.limits.window_of(self.chunksize, item_bytes))

    def _widen(self, window: int) -> None:
        with self.slots:
            self.free_slots += window - self.window
            self.window = window
            if self.free_slots > 0:
                self.slots.notify()

    def _leave(self, threads: int = 1) -> None:
        self.give_slots(1)  # whoever waits for a slot leaves next
        with self.counting:
            self.working -= threads
            last = self.working == 0
        if self.drawer:
            self.drawn.put(None)  # whoever waits for a chunk leaves next
        if last and self.drawer:
            self.drawer.close(wait=False)
        elif last:
            self.up.close()
