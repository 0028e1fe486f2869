"""Work ahead of the consumer: shared by all ops that prefetch, or map on workers.

A `Crew` draws chunks of items, each with the position after it, so that looking ahead cannot spoil
a position, and has somebody work on them. What is done goes through one queue; whoever wants order
sorts on the consumer's side, without a lock. An error comes in its place.
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
        first: The number of the first one, of all items of the pass.
        items: The items; none once they were worked on.
        positions: After each of them.
        results: What was made of them; fewer where an error came.
        error: What was raised after those.
        ends: Whether nothing is drawn after it.
        seconds: How long it took to draw them.
        bytes: What they weigh.
        future: Of the task that an executor was given; None where there is none.
        tries: How often it was given to one.
        sent_at: When it was given to one.
        done_at: When that was done with it.
        refused: What the executor raised that takes no more.
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
        """A chunk of the items that were not worked on; this one ends before them."""
        items, positions = self.items[done:], self.positions[done:]
        rest = DrawnChunk(self.first + done, items, positions, self.error, ends=self.ends)
        self.positions, self.error, self.ends = self.positions[:done], None, False
        return rest

    def fail(self) -> None:
        """Raises the error that came, once."""
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
    """Draws the items of a pass, and works on them, before they are requested.

    Args:
        op: Which op this is for, in errors.
        made_at: Where in the user's program that was made.
        up: The pass, read by one thread at a time.
        limits: How many work, and how far they may be ahead.
        work: The counters of the op.
    """

    look = inf  # seconds between two looks whether the workers are there
    # fields that few passes change are those of the class: an object with many is slower
    ordered = True  # whether results keep the order of the items
    source_closed = waits = False  # whether the source is closed, and is waited for
    working = 0  # threads beside that of the drawer, which may need the source for their items
    drawer_maps = False  # whether that of the drawer works on items right now
    leaves_early = True  # whether a thread closes a source that is over, before the consumer comes

    def __init__(self, op: str, made_at: str, up: Pass[S], limits: Limits, work: Work) -> None:
        self.op, self.made_at, self.where = op, made_at, f"{op}, made at {made_at}"
        self.up, self.limits, self.work = up, limits, work
        self.latest = [up.position()]  # the position of the consumer
        self.window, self.chunksize, self.item_bytes = limits.window, 1, 1.0
        self.lock = threading.RLock()  # of all below; reentrant: gc may drop a pass anywhere
        self.free = self.window  # how many more items may be drawn
        self.drawn = 0
        self.thread_reads = self.consumer_reads = False  # who is in the source, if anybody
        self.over = self.closed = False  # nothing is drawn, or handed over, any more
        self.done: SimpleQueue[DrawnChunk[S] | None] = SimpleQueue()  # None where it is closed
        self.waiting: dict[int, DrawnChunk[S]] = {}  # those that are done before their turn
        self.in_work: dict[int, DrawnChunk[S]] = {}  # an error may have to name these
        self.threads: list[threading.Thread] = []  # to wait for at exit
        self.fork_guard = ForkGuard()

    def begin(self) -> None:
        """Begins to work; has the pass stopped if the program exits meanwhile."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)

    def __enter__(self) -> None:
        """The consumer comes for the first item."""
        try:
            self.begin()
        except BaseException as error:  # an interrupt, say: threads that have begun end
            self.__exit__(type(error))
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The consumer leaves, and is in the source no more; gc, which comes anywhere, goes on."""
        self.waiting.clear()
        self.consumer_reads, self.waits = False, kind is not GeneratorExit
        self.stop()

    def send(self) -> None:
        """Does what the consumer does for the workers, whenever it comes for a chunk."""

    def take(self, chunk: DrawnChunk[S]) -> None:
        """Takes what the workers made of a chunk, in its turn."""
        self.in_work.pop(chunk.first, None)

    def check_workers(self, turn: int) -> None:
        """Raises if the workers that make item `turn` are gone."""

    def cancel(self) -> None:
        """Cancels unfinished work when the pass is closed."""

    def draw(self, many: int) -> DrawnChunk[S] | None:
        """Draws so many items on the consumer's thread, or fewer as `read`; None if it is over."""
        with self.lock:
            if self.over:
                return None
            self.consumer_reads = True
        return self.read(many)

    def read(self, many: int, seconds: float = inf) -> DrawnChunk[S] | None:
        """Draws so many items, or fewer if they are not as those before them; None if it is over.

        Only one thread reads at a time, which has set `thread_reads`, or `consumer_reads`.

        Args:
            many: How many.
            seconds: How long that may take.
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
        except BaseException as error:  # an exit too: it comes after the items before it
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
        """The chunk that begins with item `turn`, or any if not in order; None if it is closed."""
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
        """The chunk that is done next; None if the pass was closed.

        Raises:
            TimeoutError: Item `turn` was waited for until then.
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
        """The results for the consumer, who gets errors in their place."""
        turn, last = 0, sys.maxsize  # the item that comes next, and the one behind the last one
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
            finally:  # or a traceback would hold this frame, and that an error
                chunk = item = failed = None

    def resize(self, wanted: float) -> None:
        """Sets the size of chunks, unless items are too heavy."""
        wanted = min(2 * self.chunksize, wanted)
        self.chunksize = self.limits.chunksize_of(wanted, self.item_bytes)
        self.widen(self.limits.window_of(self.chunksize, self.item_bytes))

    def widen(self, window: int) -> None:
        """Sets how many items may be ahead of the consumer."""
        if window != self.window:
            with self.lock:
                more, self.window = window - self.window, window
                self.give_slots(more)

    def give_slots(self, slots: int) -> None:
        """Permits so many more draws, and wakes the threads that wait for them."""
        with self.lock:
            self.free += slots

    def close(self) -> None:
        """Stops; waits until the source is closed, unless a thread is working with it."""
        self.waits = True
        self.stop()

    def stop(self) -> None:
        """Stops all work, wakes waiting threads, and closes the source."""
        if self.fork_guard.forked:
            return
        with self.lock:
            closed, self.over, self.closed = self.closed, True, True
            last = not self.source_closed and self._is_last()  # before anybody is woken
        if not closed:
            self.give_slots(0)
            with suppress(Empty):
                while True:  # results that are not taken hold no memory
                    self.done.get_nowait()
            self.done.put(None)
            self.cancel()
        if last:
            self.close_source()

    def leave(self) -> None:
        """Closes the source once it is over; if a thread is using it, that thread closes it.

        A generator cannot be closed while a thread is inside of it; and items that are worked on
        may need what it holds open.
        """
        if self._is_last():
            self.close_source()

    def _is_last(self) -> bool:
        """Whether a source that is over is unused: the first thread to ask closes it."""
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
        """Closes the source; called once."""
        self.up.close()


def made_ahead(crew: Crew[Any], *, ordered: bool = True) -> Pass[Any]:
    """The results of a crew, which starts at the first request.

    Args:
        crew: Who makes it.
        ordered: Whether results keep the order of the items. Otherwise they come as they get ready,
            and an error after all that was drawn.
    """
    if not ordered:
        crew.ordered = False
    position = partial(getitem, crew.latest, 0)  # none of Python, since loops ask at every item
    return stoppable_pass(crew.handed_over(), position, crew.close)


def stoppable_pass(
    items: Generator[T, None, None], position: Callable[[], Position], stop: Callable[[], object]
) -> Pass[T]:
    """A pass that any thread may close, even while another one waits for its next item.

    Args:
        items: Ends once it was stopped.
        position: As of any `Pass`.
        stop: Wakes whoever waits in `items`.
    """

    def close() -> None:
        stop()
        with suppress(ValueError):  # another thread waits in it, and has been notified
            items.close()

    return Pass(items, position, close)
