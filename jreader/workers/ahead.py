"""Working ahead of the consumer: what every op does that reads ahead, or maps on other workers.

A `Crew` draws chunks of items, each with the position after it, so that looking ahead cannot spoil
a position, and has somebody work on them. What is done goes through one queue; whoever wants order
sorts on the consumer's side, without a lock. An error comes in its place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from itertools import islice
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from jreader.counters import Work
from jreader.errors import noted
from jreader.readers import Pass, Position, described
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.workers.closing import ClosableSource, stoppable_pass
from jreader.workers.limits import Limits
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

S = TypeVar("S")


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

    seconds = bytes = sent_at = done_at = 0.0
    tries = 0
    future: Future[Any] | None = None
    refused: Exception | None = None

    def __init__(
        self,
        first: int,
        items: list[S],
        positions: list[Position],
        error: BaseException | None = None,
        *,
        ends: bool = False,
    ) -> None:
        self.first, self.items, self.positions = first, items, positions
        self.error, self.ends = error, ends
        self.results: list[Any] = []

    def rest(self, done: int) -> DrawnChunk[S]:
        """A chunk of the items that were not worked on; this one ends before them."""
        items, positions = self.items[done:], self.positions[done:]
        rest = DrawnChunk(self.first + done, items, positions, self.error, ends=self.ends)
        self.positions, self.error, self.ends = self.positions[:done], None, False
        return rest

    def __str__(self) -> str:
        last = self.first + len(self.positions) - 1
        return f"sample {last}" if last == self.first else f"samples {self.first} to {last}"


class Crew(Generic[S]):
    """Who draws the items of a pass, and works on them, before they are asked for.

    Args:
        op: Which op this is for, in errors.
        made_at: Where in the user's program that was made.
        up: The pass, read by one thread at a time.
        limits: How many work, and how far they may be ahead.
        work: The counters of the op.
    """

    look = inf  # seconds between two looks whether the workers are there

    def __init__(self, op: str, made_at: str, up: Pass[S], limits: Limits, work: Work) -> None:
        self.op, self.made_at, self.where = op, made_at, f"{op}, made at {made_at}"
        self.source, self.limits, self.work = ClosableSource(up), limits, work
        self.window, self.chunksize, self.item_bytes = limits.window, 1, 1.0
        self.lock = threading.RLock()  # of all below; reentrant: gc may drop a pass anywhere
        self.free = self.window  # how many more items may be drawn
        self.drawn = 0
        self.over = self.closed = False  # nothing is drawn, or handed over, any more
        self.done: SimpleQueue[DrawnChunk[S] | None] = SimpleQueue()  # None where it is closed
        self.waiting: dict[int, DrawnChunk[S]] = {}  # those that are done before their turn
        self.in_work: dict[int, DrawnChunk[S]] = {}  # those of which an error may have to tell
        self.threads: list[threading.Thread] = []  # to wait for at exit
        self.fork_guard = ForkGuard()

    def begin(self) -> None:
        """Begins to work; has the pass stopped if the program exits meanwhile."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)

    def send(self) -> None:
        """Does what the consumer does for the workers, whenever it comes for a chunk."""

    def take(self, chunk: DrawnChunk[S]) -> None:
        """Takes what the workers made of a chunk, in its turn."""
        self.in_work.pop(chunk.first, None)

    def check_workers(self, turn: int) -> None:
        """Raises if the workers are gone, who are waited for with item `turn`."""

    def cancel(self) -> None:
        """Gives up what is not done, as the pass is closed."""

    def draw(self, up: Pass[S], many: int, seconds: float = inf) -> DrawnChunk[S] | None:
        """Draws so many items, or fewer if they are not as those before them; None if it is over.

        Args:
            up: The pass.
            many: How many.
            seconds: How long that may take.
        """
        began = time.perf_counter()
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
            noted(error, f"raised while {self.where}, read ahead")
            failed, ends = error, True
        with self.lock:
            if self.over:
                return None
            chunk = DrawnChunk(self.drawn, items, positions, failed, ends=ends)
            chunk.seconds, chunk.bytes = time.perf_counter() - began, size
            self.drawn += len(items)
            self.free -= len(items)
            self.over = chunk.ends
        return chunk

    def awaited(self, turn: int, *, ordered: bool) -> DrawnChunk[S] | None:
        """The chunk that begins with item `turn`, or any if not `ordered`; None if it is closed."""
        self.send()
        waiting, until = self.waiting, time.monotonic() + (self.limits.timeout or inf)
        self.work.depths.append(len(waiting) + self.done.qsize())
        while turn not in waiting:
            if (chunk := self.received(turn, until)) is None:
                return None
            waiting[chunk.first if ordered else turn] = chunk
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

    def resize(self, wanted: float) -> None:
        """Has chunks of as many items as are wanted, if they are not too heavy."""
        wanted = min(2 * self.chunksize, wanted)
        self.chunksize = self.limits.chunksize_of(wanted, self.item_bytes)
        self.widen(self.limits.window_of(self.chunksize, self.item_bytes))

    def widen(self, window: int) -> None:
        """Has so many items ahead of the consumer."""
        if window != self.window:
            with self.lock:
                more, self.window = window - self.window, window
                self.give_slots(more)

    def give_slots(self, slots: int) -> None:
        """Has so many more items drawn; whoever waits for that goes on, or leaves."""
        with self.lock:
            self.free += slots

    def stop(self) -> None:
        """Has nothing more done, wakes who waits for it, and closes the source."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.over = self.closed = True
        self.give_slots(0)
        self.done.put(None)
        self.cancel()
        self.source.close()


def made_ahead(crew: Crew[Any], *, ordered: bool = True) -> Pass[Any]:
    """What a crew makes of its items; it begins with the first one that is asked for.

    Args:
        crew: Who makes it.
        ordered: Whether results keep the order of the items. Otherwise they come as they get ready,
            and an error after all that was drawn.
    """
    position = crew.source.up.position()

    def handed_over() -> Generator[Any, None, None]:
        nonlocal position
        turn, last = 0, sys.maxsize  # the item that comes next, and the one behind the last one
        chunk: DrawnChunk[Any] | None = None
        item: Any = None
        failed: BaseException | None = None
        try:
            crew.begin()
            while turn < last and (chunk := crew.awaited(turn, ordered=ordered)):
                turn, end = turn + len(chunk.positions), len(chunk.results) - 1
                for index, item in enumerate(chunk.results):
                    if index == end:
                        crew.give_slots(len(chunk.positions))
                    position = chunk.positions[index]
                    yield item
                if chunk.ends or chunk.error is not None:
                    failed, chunk.error = failed or chunk.error, None
                    with crew.lock:
                        crew.over = True
                        last = turn if ordered else crew.drawn
            if failed is not None:
                raise failed
        finally:
            chunk = item = failed = None  # or a traceback would hold this frame, and that an error
            crew.waiting.clear()
            crew.stop()

    return stoppable_pass(handed_over(), lambda: position, crew.stop)
