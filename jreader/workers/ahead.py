"""Working ahead of the consumer: shared by all ops that prefetch, or map on workers.

A `Crew` draws chunks of items, each with the position after it, so that prefetching cannot spoil a
position, and has workers process them. Results go through one queue; if they must be in order, the
consumer's side sorts them, without a lock. An error is raised in its place among them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from operator import getitem
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from jreader.counters import Work
from jreader.errors import noted
from jreader.readers import Pass, Position, described
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.workers.limits import Limits
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

S = TypeVar("S")
T = TypeVar("T")


@dataclass(eq=False, repr=False)
class DrawnChunk(Generic[S]):
    """Items that are drawn at once, and what becomes of them.

    Attributes:
        first: The index in the pass of the first item.
        items: The items; empty once they are processed.
        positions: The position after each of them.
        results: Their results; fewer if an error came.
        error: The error raised after those.
        ends: Whether nothing is drawn after it.
        seconds: The time it took to draw them.
        bytes: Their estimated size.
        future: The future of its task on an executor; None without one.
        tries: How often it was submitted.
        sent_at: When it was submitted.
        done_at: When the executor finished it.
        refused: The error of an executor that accepts no more tasks.
    """

    first: int
    items: list[S]
    positions: list[Position]
    error: BaseException | None = None
    ends: bool = False
    results: list[Any] = field(default_factory=list, init=False)
    future: Future[Any] | None = field(default=None, init=False)
    refused: Exception | None = field(default=None, init=False)
    seconds = bytes = sent_at = done_at = 0.0
    tries = 0

    def rest(self, done: int) -> DrawnChunk[S]:
        """Split off the items that were not processed as a chunk; this one ends before them."""
        items, positions = self.items[done:], self.positions[done:]
        rest = DrawnChunk(self.first + done, items, positions, self.error, ends=self.ends)
        self.positions, self.error, self.ends = self.positions[:done], None, False
        return rest

    def fail(self) -> None:
        """Raise its error, once."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # or the traceback would hold this frame, and the frame the error

    def __str__(self) -> str:
        last = self.first + len(self.positions) - 1
        return f"sample {last}" if last == self.first else f"samples {self.first} to {last}"


class Crew(Generic[S]):
    """Draw the items of a pass, and process them, before they are requested.

    Args:
        op: The name of the op, for errors.
        made_at: The line of the user's program that made the op.
        up: The pass, read by one thread at a time.
        limits: The number of workers, and how far ahead they may be.
        work: The counters of the op.
    """

    look = inf  # seconds between two checks that the workers are alive
    # class attributes, as few passes change them: an object with many fields is slower
    ordered = True  # whether results keep the order of the items
    source_closed = waits = False  # whether the source is closed; whether `close` waits for that
    working = 0  # threads besides the drawer's that may need the source for their items
    drawer_maps = False  # whether the drawer's thread is processing items
    leaves_early = True  # whether a thread closes an exhausted source before the consumer comes

    def __init__(self, op: str, made_at: str, up: Pass[S], limits: Limits, work: Work) -> None:
        self.op, self.made_at, self.where = op, made_at, f"{op}, made at {made_at}"
        self.up, self.limits, self.work = up, limits, work
        self.latest = [up.position()]  # the consumer's position
        self.window, self.chunksize, self.item_bytes = limits.window, 1, 1.0
        self.lock = threading.RLock()  # guards all below; reentrant: gc may drop a pass anywhere
        self.free = self.window  # slots: the items that may still be drawn
        self.drawn = 0
        self.thread_reads = self.consumer_reads = False  # who is in the source, if any
        self.over = self.closed = False  # nothing more is drawn, or handed over
        self.done: SimpleQueue[DrawnChunk[S] | None] = SimpleQueue()  # None marks the end
        self.waiting: dict[int, DrawnChunk[S]] = {}  # finished before their turn
        self.in_work: dict[int, DrawnChunk[S]] = {}  # for errors that name them
        self.threads: list[threading.Thread] = []  # to join at exit
        self.fork_guard = ForkGuard()

    def begin(self) -> None:
        """Begin to work; stop the pass if the program exits meanwhile."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)

    def __enter__(self) -> None:
        """Start when the consumer comes for the first item."""
        try:
            self.begin()
        except BaseException as error:  # such as an interrupt: end threads that have begun
            self.__exit__(type(error))
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop when the consumer leaves the source; gc, which may come anywhere, does not wait."""
        self.waiting.clear()
        self.consumer_reads, self.waits = False, kind is not GeneratorExit
        self.stop()

    def send(self) -> None:
        """Submit work to the workers, whenever the consumer comes for a chunk."""

    def take(self, chunk: DrawnChunk[S]) -> None:
        """Take the results of a chunk, in its turn."""
        self.in_work.pop(chunk.first, None)

    def check_workers(self, turn: int) -> None:
        """Raise if the workers that process item `turn` are gone."""

    def cancel(self) -> None:
        """Cancels unfinished work when the pass is closed."""

    def draw(self, many: int) -> DrawnChunk[S] | None:
        """Draw up to `many` items on the consumer's thread, as `read`; None if the pass is over."""
        with self.lock:
            if self.over:
                return None
            self.consumer_reads = True
        return self.read(many)

    def read(self, many: int, seconds: float = inf) -> DrawnChunk[S] | None:
        """Draw up to `many` items, fewer if large, late or at the end; None if the pass is over.

        Only one thread reads at a time: the one that has set `thread_reads`, or `consumer_reads`.

        Args:
            many: The number of items.
            seconds: The time that it may take.
        """
        began, up = time.perf_counter(), self.up
        items: list[S] = []
        positions: list[Position] = []
        failed: BaseException | None = None
        ends, size, each = False, 0.0, 0.0
        most, position = self.limits.chunk_bytes, up.position
        weighed = many > 1 or most < inf
        try:
            for item in islice(up.items, many):
                if weighed and not len(items) % ESTIMATE_EVERY:
                    late = time.perf_counter() > began + seconds
                    each = inf if late else estimated_bytes(item)
                items.append(item)
                positions.append(position())
                size += each
                if size >= most:
                    break
            else:
                ends = len(items) < many
        except BaseException as error:  # also an exit: it comes after the items before it
            if self.where:
                noted(error, f"raised while {self.where}, read ahead")
            failed, ends = error, True
        with self.lock:
            self.thread_reads = self.consumer_reads = False
            if self.over:
                return None
            chunk = DrawnChunk(self.drawn, items, positions, failed, ends=ends)
            chunk.seconds, chunk.bytes = time.perf_counter() - began, size
            self.drawn += len(items)
            self.free -= len(items)
            self.over = ends
        return chunk

    def awaited(self, turn: int) -> DrawnChunk[S] | None:
        """Return the chunk at item `turn`, or any if unordered; None if the pass is closed."""
        self.send()
        waiting, until = self.waiting, time.monotonic() + (self.limits.timeout or inf)
        self.work.depths.append(len(waiting) + self.done.qsize())
        while turn not in waiting:
            if (chunk := self.received(turn, until)) is None:
                return None
            waiting[chunk.first if self.ordered else turn] = chunk
        chunk = waiting.pop(turn)
        self.take(chunk)
        return chunk

    def received(self, turn: int, until: float) -> DrawnChunk[S] | None:
        """Return the next finished chunk; None if the pass was closed.

        Raises:
            TimeoutError: Item `turn` has not come by `until`.
        """
        self.fork_guard.check("this pass")
        while True:
            left = min(self.look, until - time.monotonic())
            try:
                return self.done.get(timeout=None if left == inf else max(left, 0))
            except Empty:
                pass
            if time.monotonic() >= until:
                self._raise_late(turn)
            self.check_workers(turn)

    def _raise_late(self, turn: int) -> None:
        chunk, made = self.in_work.get(turn), ""
        if chunk:
            several = "the first " * (len(chunk.positions) > 1)
            made = "".join(f", {several}made of {described(item)}," for item in chunk.items[:1])
        raise TimeoutError(
            f"{chunk or f'sample {turn}'} of this pass{made} took longer than "
            f"{self.limits.timeout} s in {self.where}: give a longer timeout, or find what is "
            "waited for there."
        )

    def handed_over(self) -> Generator[Any, None, None]:
        """Yield the results to the consumer; errors are raised in their place."""
        turn, last = 0, sys.maxsize  # the next item, and the end
        chunk: DrawnChunk[S] | None = None
        item: Any = None
        failed: BaseException | None = None
        latest = self.latest
        with self:
            try:
                while turn < last and (chunk := self.awaited(turn)):
                    positions, end = chunk.positions, len(chunk.results) - 1
                    turn += len(positions)
                    for index, item in enumerate(chunk.results):
                        if index == end:
                            self.give_slots(len(positions))
                        latest[0] = positions[index]
                        yield item
                    if chunk.ends or chunk.error is not None:
                        failed, chunk.error = failed or chunk.error, None
                        with self.lock:
                            self.over = True
                            last = turn if self.ordered else self.drawn
                if failed is not None:
                    raise failed
            finally:  # otherwise a traceback would hold this frame, and the frame an error
                chunk = item = failed = None

    def resize(self, wanted: float) -> None:
        """Set the size of chunks, unless items are too large."""
        wanted = min(2 * self.chunksize, wanted)
        self.chunksize = self.limits.chunksize_of(wanted, self.item_bytes)
        self.widen(self.limits.window_of(self.chunksize, self.item_bytes))

    def widen(self, window: int) -> None:
        """Set how many items may be ahead of the consumer."""
        if window != self.window:
            with self.lock:
                more, self.window = window - self.window, window
                self.give_slots(more)

    def give_slots(self, slots: int) -> None:
        """Permit so many more draws, and wake the threads that wait for them."""
        with self.lock:
            self.free += slots

    def close(self) -> None:
        """Stop, and wait until the source is closed, unless a thread is working with it."""
        self.waits = True
        self.stop()

    def stop(self) -> None:
        """Stop all work, wake waiting threads, and close the source."""
        if self.fork_guard.forked:
            return
        with self.lock:
            closed, self.over, self.closed = self.closed, True, True
            last = not self.source_closed and self._is_last()  # before any thread wakes
        if not closed:
            self.give_slots(0)
            with suppress(Empty):
                while True:  # so that results that are not taken hold no memory
                    self.done.get_nowait()
            self.done.put(None)
            self.cancel()
        if last:
            self.close_source()

    def leave(self) -> None:
        """Close the source once it is over; if a thread is using it, that thread closes it.

        A generator cannot be closed while a thread is inside it; and items in work may need what it
        holds open.
        """
        if self._is_last():
            self.close_source()

    def _is_last(self) -> bool:
        """Return whether a source that is over is unused: the first thread to ask closes it."""
        with self.lock:
            over = self.over if self.leaves_early else self.closed
            needed = (
                self.thread_reads or self.consumer_reads or (self.leaves_early and self.working)
            )
            last = over and not (needed or self.source_closed)
            if last:
                self.source_closed, self.waits = True, self.waits and not self.drawer_maps
        return last

    def close_source(self) -> None:
        """Close the source; called once."""
        self.up.close()


def made_ahead(crew: Crew[Any], *, ordered: bool = True) -> Pass[Any]:
    """Return a pass over the results of a crew, which starts at the first request.

    Args:
        crew: The crew.
        ordered: Whether results keep the order of the items. Otherwise they come as they are ready,
            and an error after all that was drawn.
    """
    if not ordered:
        crew.ordered = False
    position = partial(getitem, crew.latest, 0)  # runs no Python code, as loops ask per item
    return stoppable_pass(crew.handed_over(), position, crew.close)


def stoppable_pass(
    items: Generator[T, None, None], position: Callable[[], Position], stop: Callable[[], object]
) -> Pass[T]:
    """Return a pass that any thread may close, even while another one waits for its next item.

    Args:
        items: The items; they end once the pass is stopped.
        position: As in any `Pass`.
        stop: Wakes whoever waits in `items`.
    """

    def close() -> None:
        stop()
        with suppress(ValueError):  # another thread waits in it, and has been woken
            items.close()

    return Pass(items, position, close)
