"""A worker of a crew, and the task that it is given."""

from __future__ import annotations

import socket
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Protocol

from jreader._worker.pickling import beside, packed
from jreader.readers import described
from jreader.workers.processes.pickled_functions import Parcel
from jreader.workers.processes.worker_process import Launched, unpickled

_LEFT = 2.0  # seconds that a task goes on for nobody, before its worker is killed


class Waking(Protocol):
    """Who is told that a task was given up."""

    def wake(self) -> None:
        """Looks around."""


class Task(Future[Any]):
    """A call that is to be made, or was."""

    def __init__(self, crew: Waking, number: int, parcel: Parcel, arguments: bytes) -> None:
        super().__init__()
        self.crew, self.number, self.parcel, self.arguments = crew, number, parcel, arguments
        self.tries = 0
        self.left: float | None = None  # when its worker is killed, as nobody waits for it

    def cancel(self) -> bool:
        """As of any future; a call that was begun may go on for some seconds, not for ever."""
        if super().cancel():
            return True
        if self.running():
            self.left = time.monotonic() + _LEFT
            self.crew.wake()
        return False

    def __str__(self) -> str:
        try:
            arguments, options = unpickled(self.arguments, [])
        except Exception:  # what a user wrote; it is only to be told
            return f"{self.parcel.name}(...)"
        given = [*map(described, arguments), *(f"{k}={described(v)}" for k, v in options.items())]
        return f"{self.parcel.name}({', '.join(given)})"


class Member(Launched):
    """One worker."""

    def __init__(self, number: int, of: int, init: bytes) -> None:
        super().__init__("tasks", number, of)
        self.number = number
        self.ready = False
        self.task: Task | None = None
        self.known: set[int] = set()
        self.forgotten: list[int] = []
        self.outgoing: deque[tuple[memoryview, list[int]]] = deque()
        self.post(self.first(init))

    def give(self, task: Task) -> None:
        """Has it do a task."""
        self.task = task
        parcel = task.parcel
        try:
            if parcel.number not in self.known:
                self.known.add(parcel.number)
                self.post(*parcel.frame())
            forgotten, self.forgotten = tuple(self.forgotten), []
            returned = self.memory.given_back()
            frame = ("task", task.number, parcel.number, task.arguments, returned, forgotten)
            self.post(packed(frame))
        except BaseException:  # an interrupt: what was sent might be sent again, and answered twice
            self.process.kill()
            raise

    def post(self, frame: bytes, descriptors: list[int] | None = None) -> None:
        """Sends a frame, as much of it as the connection takes now."""
        self.outgoing.append((memoryview(frame), descriptors or []))
        self.flush()

    def flush(self) -> None:
        """Sends what waits to be sent, without waiting."""
        while self.outgoing:
            frame, descriptors = self.outgoing[0]
            try:
                # not `socket.send_fds`, which forgets its flags
                sent = self.connection.sendmsg([frame], beside(descriptors), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it died, or has to: what it waits for cannot be sent
                self.outgoing.clear()
                self.process.kill()
                return
            if sent == len(frame):
                self.outgoing.popleft()
            else:
                self.outgoing[0] = frame[sent:], []
