"""Maps on threads: the crew behind every op that prefetches, or maps, on threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from typing import Any, TypeVar

from jreader.counters import Counters, Work, counters_of_pass, working
from jreader.profiling import profiler
from jreader.readers import Node, Pass
from jreader.readers.exits_and_forks import stop_at_exit
from jreader.readers.located import located_errors
from jreader.tunables import Tunable
from jreader.workers.ahead import Crew, DrawnChunk, made_ahead
from jreader.workers.limits import Limits
from jreader.workers.memory_estimates import estimated_bytes, raised_average
from jreader.workers.threads.drawers import Drawer, drawn_apart

T = TypeVar("T")
S = TypeVar("S")

_WORTH = 500e-6  # seconds of work for which a hand-over between threads (some 50 us) is cheap


def map_on_threads(
    node: Node[T],
    begin: Callable[[], Pass[S]],
    fn: Callable[[S], T],
    limits: Limits,
    *,
    function: str = "",
    ordered: bool = True,
    limits_of: Callable[[int], Limits] | None = None,
    held: int | None = None,
) -> Pass[T]:
    """Apply `fn` to the items of a pass, on threads that start with the first request.

    Args:
        node: The op, for errors.
        begin: Begins a pass over the op's reader; one thread draws it if it runs users' code,
            otherwise one thread at a time.
        fn: A function of an item; several threads may call it at once.
        limits: The number of threads, and how far ahead they may be; without threads, each item is
            made here on request.
        function: The name of the user's function, for the counters; "" for none.
        ordered: Whether the results keep the order of the items; otherwise they come as they are
            ready, without a time limit.
        limits_of: The limits for any number of threads, if a loader may tune that; else None.
        held: How many items of the reader may be needed at once, which it must not refill
            (`Pass.watched`); None for the window, and one more.

    Raises:
        TimeoutError: A result took longer than `limits.timeout` (while iterating).
    """
    if not limits.workers:
        return begin().mapped(fn, located_errors(node))
    up, drawer = drawn_apart(node, lambda: begin().watched(node, held or limits.window + 1))
    op, made_at = type(node).__name__, node.made_at
    work = working(op, function, made_at, "threads", limits.workers)
    crew = ThreadCrew(op, made_at, up, limits, work, fn, drawer)
    if limits_of:
        crew.tuned(limits_of)
    return made_ahead(crew, ordered=ordered)


class ThreadCrew(Crew[S]):
    """The threads of one pass: one at a time draws items, all of them map.

    If the pass runs users' code, one extra thread draws for all of them, or the only one does both.

    Items that take less time than a hand-over between threads are drawn in chunks, and a chunk
    frees all of its slots at once.

    Args:
        op: The name of the op, for errors.
        made_at: The line of the user's program that made the op.
        up: A pass, read by one thread at a time.
        limits: The number of threads, and how far ahead they may be.
        work: The counters of the op.
        fn: A function of an item.
        drawer: Has begun the pass, draws it and closes it; None for any of the threads.
    """

    tunable: Tunable | None = None
    limits_of: Callable[[int], Limits] | None = None
    counters: Counters | None = None

    def __init__(
        self,
        op: str,
        made_at: str,
        up: Pass[S],
        limits: Limits,
        work: Work,
        fn: Callable[[S], Any],
        drawer: Drawer | None = None,
    ) -> None:
        super().__init__(op, made_at, up, limits, work)
        self.fn, self.drawer = fn, drawer
        self.chunks: SimpleQueue[DrawnChunk[S] | None] = SimpleQueue()  # drawn by the drawer
        self.freed = threading.Condition(self.lock)  # the drawing thread waits here for a slot
        self.drawing = threading.Lock()  # held by the thread that draws, or waits for a slot
        self.claims = 0  # chunks that threads have begun to draw

    def tuned(self, limits_of: Callable[[int], Limits]) -> None:
        """Let a loader set the number of threads, if it tunes."""
        self.counters = counters_of_pass()
        tunables = self.counters.tunables if self.counters else None
        if tunables is None:
            return
        self.limits_of, has = limits_of, self.limits.workers
        widest = None if self.limits.max_bytes < inf else self.limits.window
        self.tunable = tunables.of("threads", self.work.function, self.made_at, has, widest)
        self.tunable.join(self, has)

    def tune(self, value: int) -> None:
        """Use so many threads from now on; surplus ones leave at their next turn."""
        limits_of = self.limits_of
        if self.fork_guard.forked or limits_of is None:
            return
        self.limits = limits = limits_of(value)
        if self.counters:
            self.work = self.counters.has(self.work, value)
        self.widen(limits.window_of(self.chunksize, self.item_bytes))
        with self.lock:
            more = value - self.working if self.working and not self.over else 0
            begun = [each for each in self.threads if each.is_alive() or not each.ident]
            self.threads = begun
        with suppress(RuntimeError):  # the system allows no more threads: the running ones continue
            self.start_threads(more)

    def held_bytes(self) -> float:
        """Return the bytes that may be ahead, estimated from results."""
        return self.window * self.item_bytes

    def begin(self) -> None:
        """Start the threads."""
        self.fork_guard.check("this pass")
        alone = self.drawer is not None and self.limits.workers == 1 and not self.tunable
        if not self.closed:
            self.start_all(0 if alone else self.limits.workers)

    def start_all(self, many: int) -> None:
        """Start the drawer's thread, if there is a drawer, and so many others."""
        stop_at_exit(self)
        if self.drawer:
            self.threads.append(self.drawer.work(self.draw_all))
        self.start_threads(many)

    def give_slots(self, slots: int) -> None:
        """Allow so many more items to be drawn."""
        with self.lock:
            self.free += slots
            self.freed.notify()

    def close_source(self) -> None:
        """Close the source; a drawer does so on its thread."""
        if self.drawer:
            self.drawer.close(wait=self.waits)
        else:
            self.up.close()

    def start_threads(self, many: int) -> None:
        """Start so many threads that map, and draw if there is no drawer."""
        for _ in range(many):
            thread = threading.Thread(target=self._work, name=f"jreader {self.op}", daemon=True)
            with self.lock:
                self.working += 1
                self.threads.append(thread)
            try:
                thread.start()
            except BaseException:
                with self.lock:
                    if thread.ident is None:  # otherwise it is already at work
                        self.working -= 1
                        self.threads.remove(thread)  # it could not be joined
                raise

    def _work(self) -> None:
        with self.lock:
            if threading.current_thread() not in self.threads:
                return  # it was counted out when an interrupt came while it began
        while not self._is_surplus():
            chunk = self.chunks.get() if self.drawer else self.next_drawn()
            if chunk is None:
                self.chunks.put(None)  # the next waiting thread leaves
                with self.lock:
                    self.working -= 1
                break
            if not self.closed:
                self.map(chunk)
            del chunk  # so that its memory may be freed while the next one is drawn
        self.leave()

    def draw_all(self) -> None:
        """Draw on the drawer's thread; map there, too, if there is no other thread."""
        while chunk := self.next_drawn():
            if self.working:
                self.chunks.put(chunk)
            else:
                self._map_here(chunk)
            del chunk
        self.chunks.put(None)
        self.leave()

    def _map_here(self, chunk: DrawnChunk[S]) -> None:
        """Map a chunk on the drawer's thread; closing the pass does not wait for it."""
        with self.lock:
            self.drawer_maps = not self.closed
        if self.drawer_maps:
            self.map(chunk)
            self.drawer_maps = False

    def _is_surplus(self) -> bool:
        """Return whether this thread is surplus, and must leave; never for the last one."""
        if self.working <= self.limits.workers:
            return False
        with self.lock:
            surplus = self.working > self.limits.workers
            self.working -= surplus
        return surplus

    def claimed(self) -> int:
        """Wait for slots; return how many items this thread may draw, 0 if the pass is over."""
        with self.lock:
            while (self.free <= 0 or self.consumer_reads) and not self.over:
                self.freed.wait()
            if self.over:
                return 0
            self.thread_reads = True
            self.claims += 1
            return min(self.free, self.chunksize)

    def next_drawn(self) -> DrawnChunk[S] | None:
        """Draw a chunk, once a slot is free; return None once there is nothing more to do."""
        with self.drawing:
            if not (many := self.claimed()):
                return None
            with profiler.during("read"):
                chunk = self.read(many, 4 * _WORTH)
            if chunk and chunk.bytes > self.item_bytes * len(chunk.positions):
                # now, since more may be drawn before any of it is mapped
                self.item_bytes = chunk.bytes / max(len(chunk.positions), 1)
                self.resize(self.chunksize)
        if chunk is None or chunk.positions:
            if chunk and self.limits.timeout:
                self.in_work[chunk.first] = chunk
            return chunk
        self.done.put(chunk)
        return None

    def map(self, chunk: DrawnChunk[S]) -> None:
        """Hand over the results for the items of a chunk, up to an error."""
        began, results, fn = time.perf_counter(), chunk.results, self.fn
        item_bytes = 0.0
        try:
            for item in chunk.items:
                results.append(fn(item))
        except BaseException as error:
            self.fail(chunk, error)
        if results and self.limits.max_bytes < inf:
            item_bytes = max(map(estimated_bytes, (results[0], results[-1])))
        many, took = len(chunk.positions), time.perf_counter() - began
        chunk.items = []  # free their memory
        self.done.put(chunk)
        self.work.tasks.append((round(1e9 * took), many))
        if self.tunable:
            self.tunable.spent += took  # without a lock: losing one chunk of many does not matter
        self.item_bytes = max(1.0, raised_average(self.item_bytes, item_bytes))
        # one by one if an error must name the late item
        self.resize(1 if self.limits.timeout else _WORTH * many / (chunk.seconds + took))

    def fail(self, chunk: DrawnChunk[S], error: BaseException) -> None:
        """Draw nothing more, since the function raised in a chunk."""
        chunk.error, self.over = error, True
        self.give_slots(0)  # waiting threads leave
