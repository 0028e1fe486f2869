"""A worker of the pool, and the future of a task that it is given."""

from __future__ import annotations

import socket
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Protocol

from jreader._worker.connection import ancillary, to_frame
from jreader._worker.unpickling import unpickled
from jreader.readers import described
from jreader.workers.processes.pickled_functions import PickledFunction
from jreader.workers.processes.worker_process import WorkerProcess

_KILL_AFTER = 2.0  # seconds that a task goes on for nobody, before its worker is killed


class Wakeable(Protocol):
    """What a cancelled task wakes: its pool."""

    def wake(self) -> None:
        """Has it look for what was cancelled."""


class TaskFuture(Future[Any]):
    """The future of a call that a worker makes."""

    def __init__(
        self, pool: Wakeable, number: int, function: PickledFunction, arguments: bytes
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
        super().__init__("tasks", number, of)
        self.number = number
        self.ready = False
        self.task: TaskFuture | None = None
        self.known_functions: set[int] = set()
        self.forgotten: list[int] = []
        self.outgoing: deque[tuple[memoryview, list[int]]] = deque()

    def begin(self, init: bytes) -> None:
        """Starts the process; it first calls `init`, a pickled function of its number, or None."""
        self.start()
        self.send(self.job_frame(init))

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
