"""A worker of the pool, and the future of a task that it is given."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from jreader._worker.connection import ancillary, to_frame
from jreader._worker.unpickling import unpickled
from jreader.errors import WorkerDied
from jreader.readers import Position, described
from jreader.staging import Array
from jreader.workers.processes.pickled_functions import PickledFunction
from jreader.workers.processes.worker_process import WorkerProcess

SentValue: TypeAlias = tuple[bytes, list[Array]]
"""A pickled value that a worker has sent, and the memory of its arrays."""

_KILL_AFTER = 2.0  # seconds that a task goes on for nobody, before its worker is killed


class Pool(Protocol):
    """What a task tells that changes while it runs."""

    def wake(self) -> None:
        """Has it look for what was cancelled."""

    def tell_taken(self, task: TaskFuture, number: int) -> None:
        """Tells the worker of a task that so many more of its samples were handed over."""


class TaskFuture(Future[Any]):
    """The future of a call that a worker makes.

    Attributes:
        most_tries: How many workers may die of it before that is its error.
        died: Whether so many have.
    """

    most_tries = 3
    died = False

    def __init__(
        self, pool: Pool, number: int, function: PickledFunction, arguments: bytes
    ) -> None:
        super().__init__()
        self.pool, self.number, self.function, self.arguments = pool, number, function, arguments
        self.tries = 0
        self.kill_at: float | None = None  # when its worker is killed, as nobody waits for it

    def cancel(self) -> bool:
        """As of any future; a call that was begun goes on for two seconds at most."""
        if super().cancel():
            return True
        if self.running():
            self.kill_at = time.monotonic() + _KILL_AFTER
            self.pool.wake()
        return False

    def take(self, samples: list[SentValue], positions: Sequence[Position]) -> None:
        """Takes what a task that reads has sent before it ends."""

    def tell_taken(self, number: int) -> None:
        """Tells its worker that so many more samples were handed over."""
        self.pool.tell_taken(self, number)

    def death_error(self, how: str) -> WorkerDied:
        """Its error if its last worker died, in that way."""
        if self.kill_at is not None:
            return WorkerDied(f"a worker process was ended: nobody waited for {self} any more.")
        return WorkerDied(
            f"{self.tries} worker processes died one after another while they worked on {self}; "
            f"the last one {how}."
        )

    def __str__(self) -> str:
        try:
            arguments, options = unpickled(self.arguments)
        except Exception:  # what a user wrote; it is only to be told
            return f"{self.function.name}(...)"
        given = [*map(described, arguments), *(f"{k}={described(v)}" for k, v in options.items())]
        return f"{self.function.name}({', '.join(given)})"


class PoolWorker(WorkerProcess):
    """A worker process of the pool, which has one task at a time."""

    def __init__(self, number: int, of: int) -> None:
        super().__init__(number, of)
        self.number = number
        self.ready = False
        self.task: TaskFuture | None = None
        self.known_functions: set[int] = set()
        self.forgotten: list[int] = []
        self.outgoing: deque[tuple[memoryview, list[int]]] = deque()

    def begin(self, init: bytes) -> None:
        """Starts the process; it first calls `init`, a pickled function of its number, or None."""
        self.start()
        self.send(self.first_frame(init))

    def assign(self, task: TaskFuture) -> None:
        """Sends a task, and its function if the worker does not have it yet."""
        self.task = task
        function = task.function
        try:
            if function.number not in self.known_functions:
                self.known_functions.add(function.number)
                self.send(*function.frame())
            forgotten, self.forgotten = tuple(self.forgotten), []
            returned = self.memory.take_returned()
            frame = ("task", task.number, function.number, task.arguments, returned, forgotten)
            self.send(to_frame(frame))
        except BaseException:  # an interrupt: what was sent might be sent again, and answered twice
            self.kill()
            raise

    def send(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        """Sends a frame, as much of it as the connection takes now; the rest waits."""
        self.outgoing.append((memoryview(frame), descriptors or []))
        self.flush()

    def flush(self) -> None:
        """Sends what waits to be sent, as much as the connection takes now."""
        while self.outgoing:
            frame, descriptors = self.outgoing[0]
            try:
                # not `socket.send_fds`, which forgets its flags
                sent = self.connection.sendmsg([frame], ancillary(descriptors), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it died, or has to: what it waits for cannot be sent
                self.outgoing.clear()
                self.kill()
                return
            if sent == len(frame):
                self.outgoing.popleft()
            else:
                self.outgoing[0] = frame[sent:], []
