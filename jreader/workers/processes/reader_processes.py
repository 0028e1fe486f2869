"""`multiprocess_reader`: several readers, each read by a worker process of its own."""

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
from jreader._worker.connection import to_frame
from jreader._worker.pickling import pickled_function
from jreader._worker.reader_worker import ReaderReport
from jreader._worker.remote_errors import unpickled_error
from jreader._worker.unpickling import unpickled
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    checked_position,
    foreign,
    length,
    op,
    refused,
    truth,
    whole,
)
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.staging import Array
from jreader.workers.processes.worker_process import WorkerProcess, end_all

T = TypeVar("T")


def _checked_list(call: str, readers: Any) -> tuple[Reader[Any], ...]:
    if not isinstance(readers, (list, tuple)) or not readers:
        raise TypeError(f"{call} needs a list of readers, at least one, not {readers!r}.")
    for reader in readers:
        errors.check_reader(call, reader)
    return tuple(readers)


@op
class multiprocess_reader(Node[T]):
    """Reads several readers at the same time, each in a process of its own.

    Readers are sent by cloudpickle, so lambdas and notebook cells work; the main script is not run
    again. Samples come back with their types, and large arrays without a copy, through shared
    memory. A process that dies is noticed at once.

    >>> readers = [lambda: range(0, 3), lambda: range(10, 12)]
    >>> list(multiprocess_reader(readers)())
    [0, 10, 1, 11, 2]

    Cost: one process for each reader, which reads up to `queue_size` samples ahead. Resuming costs
    what it costs in the readers.

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

    readers: Sequence[Reader[T]] = argument(_checked_list)
    use_pipe: bool = truth(default=True, cursor="never")
    queue_size: int = whole(default=1000, least=1, cursor="never")

    def check_arguments(self) -> dict[str, Any]:
        """Checks that the platform has such processes."""
        if sys.platform == "win32":
            raise NotImplementedError(
                "multiprocess_reader does not run on Windows: use buffered or xmap_readers there."
            )
        return {}

    def start(self, at: Position) -> Pass[T]:
        """Positions are (the reader whose turn it is, (whether it ended, position) of each)."""
        turn, begun_at = self._parts(at)
        processes = _ReaderProcesses([_Child(self, k, *begun) for k, begun in enumerate(begun_at)])

        def in_turn() -> Iterator[T]:
            nonlocal turn
            with contextlib.closing(processes):
                while not all(child.ended for child in processes.children):
                    child = processes.children[turn]
                    found = processes.wait_for([child])
                    if processes.closed:
                        return
                    turn = (turn + 1) % len(processes.children)
                    if found:
                        yield child.pop()

        def as_ready() -> Iterator[T]:
            with contextlib.closing(processes):
                while child := processes.wait_for(processes.children):
                    yield child.pop()

        def position() -> Position:
            processes.wait_for_positions()
            return turn, tuple((child.ended, child.position) for child in processes.children)

        if self.use_pipe:
            return Pass(in_turn(), position, processes.close)
        lost = refused(self, "use_pipe=True")
        return Pass(as_ready(), lambda: lost, processes.close)

    def _parts(self, at: Position) -> tuple[int, Sequence[tuple[bool, Position]]]:
        """The parts of a position: whose turn it is, and where each reader begins."""
        if isinstance(at, str):
            raise errors.NotResumable(at)  # which has been through JSON
        first = (0, ((False, None),) * len(self.readers))
        turn, begun_at = checked_position(at, first)
        if turn >= len(self.readers):
            raise foreign(at, first)
        return turn, begun_at

    def length(self) -> int | None:
        """The sum of all lengths, if all are known."""
        known = [length(reader) for reader in self.readers]
        return None if None in known else sum(n for n in known if n is not None)


class _Child(Generic[T]):
    """The process of one reader: the samples that it sent, and the position after them."""

    def __init__(
        self, node: multiprocess_reader[T], index: int, ended: bool, position: Position
    ) -> None:
        self.name = f"reader {index} ({node.readers[index]!r}) of multiprocess_reader"
        self.made_at = node.made_at
        self.number = index, len(node.readers)
        self.worker: WorkerProcess
        self.job: Any = (node.readers[index], position, node.queue_size)
        self.ended, self.position = ended, position
        self.has_position = ended or position is not None
        self.ready: deque[tuple[bytes, list[Array], Position]] = deque()
        self.unacknowledged = 0
        self.last: ReaderReport | None = None
        self.dead = False

    def pickle_job(self) -> None:
        """Pickles the reader, to be sent once all processes are started."""
        try:
            self.job = pickled_function(self.job)
        except Exception as error:
            errors.noted(
                error,
                f"{self.name}, made at {self.made_at}, cannot be sent to a process: open files, "
                f"locks and connections inside the reader, when it is called",
            )
            raise

    def start(self, started: list[WorkerProcess]) -> None:
        """Starts the process, which is added to `started` before."""
        started.append(WorkerProcess("reader", *self.number))
        self.worker = started[-1]
        self.worker.start()

    def send_job(self) -> None:
        """Sends the reader to the process."""
        job, self.job = self.job, None
        with contextlib.suppress(OSError):  # it died already: `_ReaderProcesses` notices
            self.worker.connection.sendall(self.worker.job_frame(job))

    def receive(self, *, everything: bool) -> None:
        """Receives what has arrived, all or one frame, without waiting.

        One frame at a time keeps the rest with the process that reads ahead, and memory small.
        """
        unpacked = False
        while (everything or not unpacked) and self.worker.receiver.receive(wait=False):
            for report in self.worker.receiver.frames():
                unpacked = True
                self._take(ReaderReport(*report))

    def _take(self, report: ReaderReport) -> None:
        memory = self.worker.memory
        memory.update(report.updates, self.worker.receiver)
        if not self.has_position and not report.samples and report.positions:
            (self.position,) = report.positions
            self.has_position = True
        for shared, position in zip(report.samples, report.positions, strict=False):
            self.ready.append((shared.data, memory.arrays(shared), position))
        memory.release(report.updates)
        if report.end:
            self.last = report

    def pop(self) -> T:
        """The next sample; `position` is then the one after it."""
        data, arrays, self.position = self.ready.popleft()
        self.unacknowledged += 1
        if not self.ready:
            number, self.unacknowledged = self.unacknowledged, 0
            with contextlib.suppress(OSError):
                returned = self.worker.memory.take_returned()
                self.worker.connection.sendall(to_frame((number, returned)))
        try:
            sample: T = unpickled(data, arrays)
        except Exception as error:
            errors.noted(
                error,
                f"raised while a sample of {self.name}, made at {self.made_at}, was unpickled "
                "here: its class has to be here too, and its pickle has to be readable",
            )
            raise
        return sample

    def finish(self) -> None:
        """Notes that the reader has ended, and raises the error that it ended with."""
        self.ended = True
        if self.last and self.last.error:
            error = unpickled_error(self.last.error)
            errors.noted(error, f"raised by {self.name}, made at {self.made_at}")
            raise error

    def death_error(self) -> errors.WorkerDied:
        """The error of a process that ended before its reader did."""
        how = self.worker.how_it_ended()
        return errors.WorkerDied(
            f"the process of {self.name}, made at {self.made_at}, {how} before its reader did."
        )


class _ReaderProcesses(Generic[T]):
    """The processes of one pass; started with its first sample, ended when nobody holds it."""

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
        """Starts the processes, at the first call."""
        if self.events is None:
            self.events = selectors.DefaultSelector()
            self.wakers = socket.socketpair()
            self.events.register(self.wakers[1], selectors.EVENT_READ)
            living: list[WorkerProcess] = []
            self.finish = weakref.finalize(
                self, _end, living, self.events, self.wakers, ForkGuard()
            )
            stop_at_exit(self)
            begun = [child for child in self.children if not child.ended]
            for child in begun:
                child.pickle_job()
                child.start(living)
                self.events.register(child.worker.connection, selectors.EVENT_READ, child)
                self.events.register(child.worker.sentinel, selectors.EVENT_READ, child)
            for child in begun:
                child.send_job()
        return self.events

    def wait_for_positions(self) -> None:
        """Waits until every process has told the position where it begins."""
        for child in self.children:
            while not child.has_position and self.listen():
                if child.last and not child.has_position:
                    child.finish()

    def wait_for(self, wanted: list[_Child[T]]) -> _Child[T] | None:
        """Waits until one of the wanted has a sample, and gives it; None once all have ended.

        Also None if another thread closes the pass meanwhile.
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
        """Waits until something arrives; false if the pass is closed.

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
                raise child.death_error()
        for key, _ in events.select():
            child = key.data
            if child is None:
                return
            child.receive(everything=key.fileobj is child.worker.sentinel)
            if key.fileobj is child.worker.sentinel:
                child.dead = True
                events.unregister(child.worker.sentinel)
            elif not child.worker.receiver.open:
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
    workers: list[WorkerProcess],
    events: selectors.BaseSelector,
    wakers: Sequence[socket.socket],
    fork_guard: ForkGuard,
) -> None:
    if fork_guard.forked:
        return
    events.close()
    for waker in wakers:
        waker.close()
    end_all(workers)
