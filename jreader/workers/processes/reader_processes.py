"""`multiprocess_reader`: several readers, each read by a worker process of its own."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Generator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from jreader import errors
from jreader._worker.pickling import pickled_for_worker
from jreader._worker.reading import Reading
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
from jreader.workers.closing import stoppable_pass
from jreader.workers.processes.pickled_functions import PickledFunction
from jreader.workers.processes.pool_worker import SentValue, TaskFuture
from jreader.workers.processes.worker_pool import WorkerPool

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
        apart = [_ReadApart(self, k, *begun) for k, begun in enumerate(begun_at)]
        processes: _ReaderProcesses[T] = _ReaderProcesses(apart, turn, in_turn=self.use_pipe)
        position = processes.position
        if not self.use_pipe:
            position = partial(refused, self, "use_pipe=True")
        return stoppable_pass(processes.handed_over(), position, processes.close)

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


class _ReadApart(Generic[T]):
    """A reader that a process reads: what came of it, and the position after what was handed over.

    Attributes:
        position: Where it is; None at first, until the process has said where it begins.
        ready: The samples that came, and the position after each.
        task: That of the process; once it is `over`, nothing more comes.
    """

    def __init__(
        self, node: multiprocess_reader[T], index: int, ended: bool, position: Position
    ) -> None:
        self.name = f"reader {index} ({node.readers[index]!r}) of multiprocess_reader"
        self.name += f", made at {node.made_at}"
        self.reading = Reading(
            node.readers[index], position, index, len(node.readers), node.queue_size
        )
        self.ended, self.position = ended, position
        self.has_position = ended or position is not None
        self.ready: deque[tuple[SentValue, Position]] = deque()
        self.untold = 0  # samples handed over of which the process was not told
        self.task: TaskFuture | None = None
        self.over = False

    def pickled(self) -> PickledFunction:
        """The task that reads it, ready to be sent."""
        function = PickledFunction(
            self.reading,
            f"{self.name}, cannot be sent to a process: open files, locks and connections inside "
            "the reader, when it is called",
        )
        function.prepare(self.reading)
        return function

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
        self.untold += 1
        if self.task and not self.ready:
            self.task.tell_taken(self.untold)
            self.untold = 0
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

    @property
    def died(self) -> bool:
        """Whether the process ended before the reader, which all are told at once."""
        return self.task is not None and self.task.died

    def end(self) -> None:
        """Notes that the reader has ended, and raises the error that it ended with."""
        self.ended = True
        if self.task and (error := self.task.exception()):
            if not self.died:
                errors.noted(error, f"raised by {self.name}")
            raise error


class _ReadingFuture(TaskFuture):
    """The future of a task that reads, which puts all that comes of it into a queue."""

    most_tries = 1

    def __init__(self, arrivals: SimpleQueue[Any], index: int, name: str, *given: Any) -> None:
        super().__init__(*given)
        self.arrivals, self.index, self.name = arrivals, index, name
        self.add_done_callback(lambda _: arrivals.put((index, None, ())))

    def take(self, samples: list[SentValue], positions: Sequence[Position]) -> None:
        """Takes samples, or the position where the pass begins."""
        self.arrivals.put((self.index, samples, positions))

    def death_error(self, how: str) -> errors.WorkerDied:
        """The error of a process that ended before its reader did."""
        return errors.WorkerDied(f"the process of {self.name}, {how} before its reader did.")


class _ReaderProcesses(Generic[T]):
    """The processes of one pass; begun with its first sample, ended when nobody holds it."""

    def __init__(self, readers: list[_ReadApart[T]], turn: int, *, in_turn: bool) -> None:
        self.readers, self.turn, self.in_turn = readers, turn, in_turn
        self.arrivals: SimpleQueue[tuple[int, list[SentValue] | None, Sequence[Position]] | None]
        self.arrivals = SimpleQueue()  # None where the pass is closed
        self.pool: WorkerPool | None = None
        self.closed = False
        self.threads: list[threading.Thread] = []  # those of others may wait here
        self.fork_guard = ForkGuard()

    def handed_over(self) -> Generator[T, None, None]:
        """The samples: one of each reader in turn, or as they arrive."""
        with contextlib.closing(self):
            while reader := self.next_reader():
                yield reader.pop()

    def next_reader(self) -> _ReadApart[T] | None:
        """The reader whose sample is next, once it is there; None once all have ended."""
        self.fork_guard.check("this pass")
        while not (self.closed or all(reader.ended for reader in self.readers)):
            wanted = [self.readers[self.turn]] if self.in_turn else self.readers
            found = next((reader for reader in wanted if reader.ready), None)
            if found is None:
                self._end_readers(wanted)
            if found or all(reader.ended for reader in wanted):
                self._pass_turn()
            else:
                self.receive()
            if found:
                return found
        return None

    def _end_readers(self, wanted: list[_ReadApart[T]]) -> None:
        """Notes which of the wanted have ended, and raises their errors; a death, of any."""
        for reader in self.readers:
            if reader.over and not reader.ended and (reader in wanted or reader.died):
                reader.end()

    def _pass_turn(self) -> None:
        self.turn = (self.turn + 1) % len(self.readers)

    def position(self) -> Position:
        """Where the pass is, once each process has said where it begins."""
        for reader in self.readers:
            while not (reader.has_position or reader.over or self.closed):
                self.receive()
            if reader.over and not reader.has_position:
                reader.end()
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
        begun = [
            (partial(_ReadingFuture, self.arrivals, index, reader.name), reader, reader.pickled())
            for index, reader in enumerate(self.readers)
            if not reader.ended
        ]
        self.pool = pool = WorkerPool(len(begun), None)
        weakref.finalize(self, pool.stop)
        stop_at_exit(self)
        arguments = pickled_for_worker(((), {}))
        with pool.lock:  # a process whose reader ends at once is given no other
            for future, reader, function in begun:
                reader.task = pool.submit(function, arguments, future)
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
