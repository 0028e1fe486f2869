"""`multiprocess_reader`: several readers, each read by a worker process of its own."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from jreader import errors
from jreader._worker.pickling import LARGE, pickled_for_worker
from jreader._worker.reading import Reading
from jreader._worker.unpickling import unpickled
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    bad_position,
    checked_position,
    length,
    op,
    refused,
    truth,
    whole,
)
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.workers.ahead import stoppable_pass
from jreader.workers.processes.pickled_functions import PickledFunction
from jreader.workers.processes.worker_pool import WorkerPool
from jreader.workers.processes.worker_process import SentValue, TaskFuture

T = TypeVar("T")

_REPORT_EVERY = 64  # samples handed over per report to a process; fewer if some are large
_NO_ARGUMENTS = pickled_for_worker(((), {}))


def _checked_list(call: str, readers: Any) -> tuple[Reader[Any], ...]:
    if not isinstance(readers, (list, tuple)) or not readers:
        raise TypeError(f"{call} needs a list of readers, at least one, not {readers!r}.")
    for reader in readers:
        errors.check_reader(call, reader)
    return tuple(readers)


@op
class multiprocess_reader(Node[T]):
    """Read several readers in parallel, each in a process of its own.

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
        use_pipe: True takes one sample of each remaining reader in turn, and the pass can resume.
            False takes samples as they arrive (in each reader's own order), so a slow reader delays
            no other.
        queue_size: How many samples each process may read ahead, and no more than 32 MiB of them,
            or one that is larger.

    Raises:
        WorkerDied: A process ended before its reader did (while iterating).
        NotImplementedError: On Windows, where a child cannot inherit descriptors; use
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
        apart = [_ReaderInProcess(self, k, *begun) for k, begun in enumerate(begun_at)]
        processes: _ReaderProcesses[T] = _ReaderProcesses(apart, turn, in_turn=self.use_pipe)
        position = processes.position
        if not self.use_pipe:
            position = partial(refused, self, "use_pipe=True")
        return stoppable_pass(processes.handed_over(), position, processes.close)

    def _parts(self, at: Position) -> tuple[int, Sequence[tuple[bool, Position]]]:
        """The parts of a position: whose turn it is, and where each reader begins."""
        if isinstance(at, str):
            raise errors.NotResumable(at)  # a position from JSON
        first = (0, ((False, None),) * len(self.readers))
        turn, begun_at = checked_position(at, first)
        if turn >= len(self.readers):
            raise bad_position(at, first)
        return turn, begun_at

    def length(self) -> int | None:
        """The sum of all lengths, if all are known."""
        known = [length(reader) for reader in self.readers]
        return None if None in known else sum(n for n in known if n is not None)


_Arrival: TypeAlias = tuple[int, list[SentValue] | None, Sequence[Position]]
"""The index of a reader, samples of it, and the position after each; None for samples: it ended."""


class _ReaderInProcess(Generic[T]):
    """A reader that a process reads: what came of it, and the position after what was handed over.

    Attributes:
        position: Where it is; None at first, until the process has said where it begins.
        ready: The samples that came, and the position after each.
        task: That of the process; once it is `over`, nothing more comes.
        unreported: Samples handed over since the last report to the process.
        report_at: Samples per report; fewer once one of them is large.
    """

    task: TaskFuture
    report_taken: Callable[[int], object]
    over = has_large = False
    unreported = 0

    def __init__(
        self, node: multiprocess_reader[T], index: int, ended: bool, position: Position
    ) -> None:
        reader, of, most = node.readers[index], len(node.readers), node.queue_size
        self.name = f"reader {index} ({reader!r}) of multiprocess_reader, made at {node.made_at}"
        self.reading = Reading(reader, position, index, of, most)
        self.index = index
        self.ended, self.position = ended, position
        self.has_position = ended or position is not None
        self.ready: deque[tuple[SentValue, Position]] = deque()
        self.report_at = min(_REPORT_EVERY, -(-most // 4))

    def pickled(self) -> PickledFunction:
        """What reads it, ready to be sent."""
        function = PickledFunction(
            self.reading,
            f"{self.name}, cannot be sent to a process: open files, locks and connections inside "
            "the reader, when it is called",
        )
        function.prepare()
        return function

    def task_for(
        self, pool: WorkerPool, function: PickledFunction, arrivals: SimpleQueue[_Arrival | None]
    ) -> TaskFuture:
        """The task that reads it, in a pool; what comes of it is put into a queue."""
        index = self.index  # without `self`, which has the task: nothing waits for gc

        def take(samples: list[SentValue] | None, positions: Sequence[Position]) -> None:
            arrivals.put((index, samples, positions))

        self.task = task = TaskFuture(pool.wake, function, _NO_ARGUMENTS, take, self.name)
        self.report_taken = partial(pool.report_taken, task)
        task.add_done_callback(lambda _: take(None, ()))
        return task

    def take(self, samples: list[SentValue] | None, positions: Sequence[Position]) -> None:
        """Takes samples that came, the position where it begins, or None: it is over."""
        if samples is None:
            self.over = True
            return
        if not (samples or self.has_position):
            (self.position,) = positions
        self.has_position = True
        self.ready.extend(zip(samples, positions, strict=False))

    def pop(self) -> T:
        """The next sample; `position` is then the one after it."""
        (data, arrays), self.position = self.ready.popleft()
        self.unreported += 1
        if arrays or len(data) >= LARGE:
            self.has_large = True
        if not self.ready and (self.has_large or self.unreported >= self.report_at):
            self.report_taken(self.unreported)
            self.unreported, self.has_large = 0, False
        try:
            sample: T = unpickled(data, arrays)
        except Exception as error:
            errors.noted(
                error,
                f"raised while a sample of {self.name}, was unpickled here: its class has to be "
                "here too, and its pickle has to be readable",
            )
            raise
        return sample

    def end(self, *, dead_only: bool) -> None:
        """Notes that the reader has ended, and raises the error that it ended with."""
        if self.ended or not self.over or (dead_only and not self.task.died):
            return
        self.ended = True
        if error := self.task.exception():
            if not self.task.died:
                errors.noted(error, f"raised by {self.name}")
            raise error


class _ReaderProcesses(Generic[T]):
    """The processes of one pass: started by its first sample, ended with its last reference."""

    def __init__(self, readers: list[_ReaderInProcess[T]], turn: int, *, in_turn: bool) -> None:
        self.readers, self.turn, self.in_turn = readers, turn, in_turn
        self.arrivals: SimpleQueue[_Arrival | None] = SimpleQueue()  # None where it is closed
        self.pool: WorkerPool | None = None
        self.closed = False
        self.threads: list[threading.Thread] = []  # those of others may wait here
        self.fork_guard = ForkGuard()

    def handed_over(self) -> Generator[T, None, None]:
        """The samples: one of each reader in turn, or as they arrive."""
        with contextlib.closing(self):
            while reader := self.next_reader():
                yield reader.pop()

    def next_reader(self) -> _ReaderInProcess[T] | None:
        """The reader whose sample is next, once it is there; None once all have ended."""
        while not self.closed:
            self.fork_guard.check("this pass")
            wanted = (self.readers[self.turn],) if self.in_turn else self.readers
            for reader in wanted:
                if reader.ready:
                    self._pass_turn()
                    return reader
            for reader in self.readers:  # the death of any is raised at once
                reader.end(dead_only=reader not in wanted)
            if all(reader.ended for reader in self.readers):
                return None
            if all(reader.ended for reader in wanted):
                self._pass_turn()
            else:
                self.receive()
        return None

    def _pass_turn(self) -> None:
        self.turn = (self.turn + 1) % len(self.readers)

    def position(self) -> Position:
        """Where the pass is, once each process has said where it begins."""
        for reader in self.readers:
            while not (reader.has_position or reader.over or self.closed):
                self.receive()
            if not reader.has_position:
                reader.end(dead_only=False)
        return self.turn, tuple((reader.ended, reader.position) for reader in self.readers)

    def receive(self) -> None:
        """Waits until something arrives, and takes all that has; nothing if the pass is closed."""
        if self.pool is None:
            self._begin()
        arrived = self.arrivals.get()
        while arrived is not None:
            index, samples, positions = arrived
            self.readers[index].take(samples, positions)
            arrived = None if self.arrivals.empty() else self.arrivals.get()

    def _begin(self) -> None:
        """Begins the processes, each of which has the task to read."""
        begun = [(reader, reader.pickled()) for reader in self.readers if not reader.ended]
        self.pool = pool = WorkerPool(len(begun), None, self)
        weakref.finalize(self, pool.stop)
        stop_at_exit(self)
        with pool.lock:  # a process whose reader ends at once is given no other
            for reader, function in begun:
                pool.submit(reader.task_for(pool, function, self.arrivals))
        if self.closed:
            pool.stop()

    def close(self) -> None:
        """Ends the processes, and wakes who waits for them."""
        if self.fork_guard.forked:
            return
        self.closed = True
        self.arrivals.put(None)
        if self.pool:
            self.pool.stop()

    stop = close
