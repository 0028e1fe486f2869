"""Readers in processes of their own, one each."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from jreader import errors
from jreader._worker.pickling import packed, sent_function, unpickled_error
from jreader._worker.reader_worker import Report
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    length,
    op,
    refused,
)
from jreader.staging import Array
from jreader.workers.processes.worker_process import Launched, ended, unpickled
from jreader.workers.threads import ForkGuard, stop_at_exit

T = TypeVar("T")


@op
class multiprocess_reader(Node[T]):
    """The samples of several readers, each read in a process of its own.

    Readers travel by cloudpickle, so lambdas and notebook cells work; the main script is not run
    again. Samples come back with their types, and large arrays
    without a copy, through shared memory. A process that dies is noticed at once.

    >>> readers = [lambda: range(0, 3), lambda: range(10, 12)]
    >>> list(multiprocess_reader(readers)())
    [0, 10, 1, 11, 2]

    Args:
        readers: At least one reader.
        use_pipe: True: strictly in turn, one sample of each reader that has not ended, and the pass
            can be resumed. False: in order of arrival (each reader's own order is kept), so that a
            slow reader holds nobody up.
        queue_size: How many samples each process may read ahead, and no more than 32 MiB of them,
            or one that is larger.

    Raises:
        WorkerDied: A process ended before its reader did (while iterating).
        NotImplementedError: On Windows, where descriptors cannot be handed to a child; use
            `buffered` or `xmap_readers` there.
    """

    readers: tuple[Reader[T], ...]
    use_pipe: bool = True
    queue_size: int = 1000
    cursor_ignores = ("use_pipe", "queue_size")

    def __post_init__(self) -> None:
        """Refuses what is no list of readers, and no size."""
        call = "multiprocess_reader(readers)"
        if not isinstance(self.readers, (list, tuple)) or not self.readers:
            raise TypeError(f"{call} needs a list of readers, at least one, not {self.readers!r}.")
        for reader in self.readers:
            errors.check_reader(call, reader)
        size = errors.check_number("queue_size of multiprocess_reader", self.queue_size, 1)
        if sys.platform == "win32":
            raise NotImplementedError(
                "multiprocess_reader does not run on Windows: use buffered or xmap_readers there."
            )
        object.__setattr__(self, "readers", tuple(self.readers))
        object.__setattr__(self, "queue_size", size)
        object.__setattr__(self, "use_pipe", bool(self.use_pipe))

    def start(self, at: Position) -> Pass[T]:
        """The position is (whose turn it is, (whether it ended, position) of each reader)."""
        if isinstance(at, str):
            raise errors.NotResumable(at)  # which has been through JSON
        turn, places = at or (0, [(False, None)] * len(self.readers))
        crew = _Crew([_Child(self, k, *place) for k, place in enumerate(places)])

        def in_turn() -> Iterator[T]:
            nonlocal turn
            with contextlib.closing(crew):
                while not all(child.ended for child in crew.children):
                    child = crew.children[turn]
                    found = crew.wait_for([child])
                    if crew.closed:
                        return
                    turn = (turn + 1) % len(crew.children)
                    if found:
                        yield child.pop()

        def as_ready() -> Iterator[T]:
            with contextlib.closing(crew):
                while child := crew.wait_for(crew.children):
                    yield child.pop()

        def position() -> Position:
            crew.wait_for_places()
            return turn, tuple((child.ended, child.position) for child in crew.children)

        if self.use_pipe:
            return Pass(in_turn(), position, crew.close)
        lost = refused(self, "use_pipe=True")
        return Pass(as_ready(), lambda: lost, crew.close)

    def length(self) -> int | None:
        """The sum of all, where all are known."""
        known = [length(reader) for reader in self.readers]
        return None if None in known else sum(n for n in known if n is not None)


class _Child(Generic[T]):
    """One process: what it has sent, and where it is."""

    def __init__(
        self, node: multiprocess_reader[T], place: int, ended: bool, position: Position
    ) -> None:
        self.name = f"reader {place} ({node.readers[place]!r}) of multiprocess_reader"
        self.made_at = node.made_at
        self.number = place, len(node.readers)
        self.job: Any = (node.readers[place], position, node.queue_size)
        self.ended, self.position = ended, position
        self.placed = ended or position is not None
        self.ready: deque[tuple[bytes, list[Array], Position]] = deque()
        self.unacknowledged = 0
        self.last: Report | None = None
        self.dead = False

    def begin(self) -> None:
        """Starts the process."""
        try:
            self.job = sent_function(self.job)
        except Exception as error:
            errors.noted(
                error,
                f"{self.name}, made at {self.made_at}, cannot be sent to a process: open files, "
                f"locks and connections inside the reader, when it is called",
            )
            raise
        self.worker = Launched("reader", *self.number)

    def send_job(self) -> None:
        """Sends the reader, once every process is on its way."""
        job, self.job = self.job, None
        with contextlib.suppress(OSError):  # it died already: `_Crew` notices
            self.worker.connection.sendall(self.worker.first(job))

    def receive(self, *, everything: bool) -> None:
        """Takes what has arrived, or one frame of it, without waiting.

        One frame at a time keeps the rest with the process that reads ahead, and memory small.
        """
        unpacked = False
        while (everything or not unpacked) and self.worker.arrivals.read(wait=False):
            for report in self.worker.arrivals.whole():
                unpacked = True
                self._take(Report(*report))

    def _take(self, report: Report) -> None:
        shared = self.worker.memory
        shared.learn(report.news, self.worker.arrivals)
        if not self.placed and not report.samples and report.positions:
            (self.position,) = report.positions
            self.placed = True
        for told, position in zip(report.samples, report.positions, strict=False):
            self.ready.append((told.data, shared.buffers(told), position))
        shared.leave(report.news)
        if report.end:
            self.last = report

    def pop(self) -> T:
        """The next sample; its position is now the child's."""
        data, buffers, self.position = self.ready.popleft()
        self.unacknowledged += 1
        if not self.ready:
            number, self.unacknowledged = self.unacknowledged, 0
            with contextlib.suppress(OSError):
                returned = self.worker.memory.given_back()
                self.worker.connection.sendall(packed((number, returned)))
        try:
            sample: T = unpickled(data, buffers)
        except Exception as error:
            errors.noted(
                error,
                f"raised while a sample of {self.name}, made at {self.made_at}, was read here: its "
                f"class has to be here too, and to be made of what it pickles",
            )
            raise
        return sample

    def finish(self) -> None:
        """The reader has ended, well or with an error."""
        self.ended = True
        if self.last and self.last.error:
            error = unpickled_error(self.last.error)
            errors.noted(error, f"raised by {self.name}, made at {self.made_at}")
            raise error

    def died(self) -> errors.WorkerDied:
        """The error for a process that ended before its reader."""
        how = self.worker.how_it_ended()
        return errors.WorkerDied(
            f"the process of {self.name}, made at {self.made_at}, {how} before its reader did."
        )


class _Crew(Generic[T]):
    """The processes of one pass; begun when first needed, ended when nobody holds the pass."""

    def __init__(self, children: list[_Child[T]]) -> None:
        self.children = children
        self.events: selectors.BaseSelector | None = None
        self.finish: Any = lambda: None
        self.lock = threading.RLock()  # reentrant: gc may drop a pass anywhere
        self.inside = self.closed = False
        self.wakers: Sequence[socket.socket] = ()
        self.threads: list[threading.Thread] = []  # those of others may wait here
        self.fork_guard = ForkGuard()

    def begin(self) -> selectors.BaseSelector:
        """Starts the processes, once."""
        if self.events is None:
            self.events = selectors.DefaultSelector()
            self.wakers = socket.socketpair()
            self.events.register(self.wakers[1], selectors.EVENT_READ)
            living: list[Launched] = []
            self.finish = weakref.finalize(
                self, _end, living, self.events, self.wakers, ForkGuard()
            )
            stop_at_exit(self)
            begun = [child for child in self.children if not child.ended]
            for child in begun:
                child.begin()
                living.append(child.worker)
                self.events.register(child.worker.connection, selectors.EVENT_READ, child)
                self.events.register(child.worker.death, selectors.EVENT_READ, child)
            for child in begun:
                child.send_job()
        return self.events

    def wait_for_places(self) -> None:
        """Waits until every child has told where it begins."""
        for child in self.children:
            while not child.placed and self.listen():
                if child.last and not child.placed:
                    child.finish()

    def wait_for(self, wanted: list[_Child[T]]) -> _Child[T] | None:
        """The one of the wanted that has a sample; None once all of them have ended.

        Also where another thread closes the pass meanwhile.
        """
        self.fork_guard.check("this pass")
        while True:
            for child in wanted:
                if child.ready:
                    return child
            for child in wanted:
                if child.last and not child.ended:
                    child.finish()
            if all(child.ended for child in wanted):
                return None
            if not self.listen():
                return None

    def listen(self) -> bool:
        """Waits until something arrives; false where the pass is closed.

        Raises:
            WorkerDied: A process died before its reader ended.
        """
        self.fork_guard.check("this pass")
        with self.lock:
            if self.closed:
                return False
            self.inside = True
        try:
            self._listen()
        finally:
            with self.lock:
                self.inside = False
            if self.closed:
                self.finish()
        return not self.closed

    def _listen(self) -> None:
        events = self.begin()
        if self.closed:
            return
        for child in self.children:
            if child.dead and not child.last:
                raise child.died()
        for key, _ in events.select():
            child = key.data
            if child is None:
                return
            child.receive(everything=key.fileobj is child.worker.death)
            if key.fileobj is child.worker.death:
                child.dead = True
                events.unregister(child.worker.death)
            elif not child.worker.arrivals.open:
                events.unregister(child.worker.connection)

    def close(self) -> None:
        """Ends the processes; a thread that waits for them does it, on its way out."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.closed = True
            waited_for = self.inside
        if not waited_for:
            self.finish()
        elif self.wakers:
            with contextlib.suppress(OSError):  # it is on its way out
                self.wakers[0].send(b"!")

    stop = close


def _end(
    workers: list[Launched],
    events: selectors.BaseSelector,
    wakers: Sequence[socket.socket],
    fork_guard: ForkGuard,
) -> None:
    if fork_guard.forked:
        return
    events.close()
    for waker in wakers:
        waker.close()
    ended(workers)
