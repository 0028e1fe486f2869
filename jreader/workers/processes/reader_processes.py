"""`multiprocess_reader`: several readers, each read by its own worker process."""

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
        """Check that the platform has such processes."""
        if sys.platform == "win32":
            raise NotImplementedError(
                "multiprocess_reader does not run on Windows: use buffered or xmap_readers there."
            )
        return {}

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass; positions are (the next reader, (whether it ended, position) of each)."""
        turn, begun_at = self._parts(at)
        apart = [_ReaderInProcess(self, k, *begun) for k, begun in enumerate(begun_at)]
        processes: _ReaderProcesses[T] = _ReaderProcesses(apart, turn, in_turn=self.use_pipe)
        position = processes.position
        if not self.use_pipe:
            position = partial(refused, self, "use_pipe=True")
        return stoppable_pass(processes.handed_over(), position, processes.close)

    def _parts(self, at: Position) -> tuple[int, Sequence[tuple[bool, Position]]]:
        """Return the parts of a position: the next reader, and where each reader begins."""
        if isinstance(at, str):
            raise errors.NotResumable(at)  # a position from JSON
        first = (0, ((False, None),) * len(self.readers))
        turn, begun_at = checked_position(at, first)
        if turn >= len(self.readers):
            raise bad_position(at, first)
        return turn, begun_at

    def length(self) -> int | None:
        """Return the sum of all lengths, if all are known."""
        known = [length(reader) for reader in self.readers]
        return None if None in known else sum(n for n in known if n is not None)


_Arrival: TypeAlias = tuple[int, list[SentValue] | None, Sequence[Position]]
"""A reader's index, some of its samples, and the position after each; None: the reader ended."""


class _ReaderInProcess(Generic[T]):
    """A reader in a process: its received samples, and the position after the latest one taken.

    Attributes:
        position: Its position; None until the process has reported where it begins.
        ready: The received samples, with the position after each.
        task: The task of the process; once it is `over`, nothing more comes.
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
        """Return the function that reads it, ready to be sent."""
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
        """Return the task that reads it, in a pool; its samples are put into a queue."""
        index = self.index  # not `self`, which holds the task: nothing then waits for gc

        def take(samples: list[SentValue] | None, positions: Sequence[Position]) -> None:
            arrivals.put((index, samples, positions))

        self.task = task = TaskFuture(pool.wake, function, _NO_ARGUMENTS, take, self.name)
        self.report_taken = partial(pool.report_taken, task)
        task.add_done_callback(lambda _: take(None, ()))
        return task

    def take(self, samples: list[SentValue] | None, positions: Sequence[Position]) -> None:
        """Take samples that came, the position at which it begins, or None at its end."""
        if samples is None:
            self.over = True
            return
        if not (samples or self.has_position):
            (self.position,) = positions
        self.has_position = True
        self.ready.extend(zip(samples, positions, strict=False))

    def pop(self) -> T:
        """Return the next sample; `position` is then the one after it."""
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
        """Record that the reader has ended, and raise the error that ended it."""
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
        self.arrivals: SimpleQueue[_Arrival | None] = SimpleQueue()  # None once closed
        self.pool: WorkerPool | None = None
        self.closed = False
        self.threads: list[threading.Thread] = []  # other threads may wait here
        self.fork_guard = ForkGuard()

    def handed_over(self) -> Generator[T, None, None]:
        """Yield the samples: one from each reader in turn, or as they arrive."""
        with contextlib.closing(self):
            while reader := self.next_reader():
                yield reader.pop()

    def next_reader(self) -> _ReaderInProcess[T] | None:
        """Return the reader of the next sample, once that has come; None once all have ended."""
        while not self.closed:
            self.fork_guard.check("this pass")
            wanted = (self.readers[self.turn],) if self.in_turn else self.readers
            for reader in wanted:
                if reader.ready:
                    self._pass_turn()
                    return reader
            for reader in self.readers:  # a death is raised at once, whichever reader it is
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
        """Return the position of the pass, once each process has reported where it begins."""
        for reader in self.readers:
            while not (reader.has_position or reader.over or self.closed):
                self.receive()
            if not reader.has_position:
                reader.end(dead_only=False)
        return self.turn, tuple((reader.ended, reader.position) for reader in self.readers)

    def receive(self) -> None:
        """Wait until something arrives, and take all that has; nothing if the pass is closed."""
        if self.pool is None:
            self._begin()
        arrived = self.arrivals.get()
        while arrived is not None:
            index, samples, positions = arrived
            self.readers[index].take(samples, positions)
            arrived = None if self.arrivals.empty() else self.arrivals.get()

    def _begin(self) -> None:
        """Start the processes, each with the task to read."""
        begun = [(reader, reader.pickled()) for reader in self.readers if not reader.ended]
        self.pool = pool = WorkerPool(len(begun), None, self)
        weakref.finalize(self, pool.stop)
        stop_at_exit(self)
        with pool.lock:  # a process whose reader ends at once gets no other one
            for reader, function in begun:
                pool.submit(reader.task_for(pool, function, self.arrivals))
        if self.closed:
            pool.stop()

    def close(self) -> None:
        """End the processes, and wake any thread that waits for them."""
        if self.fork_guard.forked:
            return
        self.closed = True
        self.arrivals.put(None)
        if self.pool:
            self.pool.stop()

    stop = close
