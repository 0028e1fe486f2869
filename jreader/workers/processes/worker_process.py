"""One worker of a pool: its process, detecting its death, its messages, and its task.

Its death is detected through the process itself (a pidfd), not only through the end of its
connection, which a process that it started may hold open. The parent never waits for bytes: half a
frame of a killed process must not block it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np

from jreader._worker.connection import FrameReceiver, ancillary, to_frame
from jreader._worker.shared_memory import BlockUpdates, SharedPickle, map_memory
from jreader._worker.unpickling import unpickled
from jreader.errors import WorkerDied
from jreader.progress import VARIABLE
from jreader.readers import Position, described
from jreader.staging import Array, Memory, leased
from jreader.workers.processes.pickled_functions import PickledFunction

SentValue: TypeAlias = tuple[bytes, Sequence[Array]]
"""A pickled value from a worker, and the memory of its arrays."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jreader._worker.task_worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_GRACE = 1.5  # seconds to end by itself after its connection is closed
_KILL_AFTER = 2.0  # seconds that a cancelled task may run before its worker is killed
_RUN = secrets.randbits(48)
_BYTES = np.dtype(np.uint8)


class TaskFuture(Future[Any]):
    """The future of a call in a worker.

    Args:
        wake: Makes the pool look for cancelled tasks.
        function: The function to call.
        arguments: The pickled arguments.
        take: For a reading task, takes samples, and the position after each, before the task ends.
        reads: What a reading task reads, whose worker is not replaced; "" for any other task.

    Attributes:
        tries: How many workers have died of it.
        died: Whether that is its error.
        kill_at: When to kill its worker, since its result is not wanted.
    """

    tries = 0
    died = False
    kill_at: float | None = None

    def __init__(
        self,
        wake: Callable[[], object],
        function: PickledFunction,
        arguments: bytes,
        take: Callable[[list[SentValue], Sequence[Position]], object] | None = None,
        reads: str = "",
    ) -> None:
        super().__init__()
        self.wake, self.function, self.arguments = wake, function, arguments
        self.take, self.reads = take, reads
        self.most_tries = 1 if reads else 3

    def cancel(self) -> bool:
        """Cancel as any future does; a running call continues for two seconds at most."""
        if super().cancel():
            return True
        if self.running():
            self.kill_at = time.monotonic() + _KILL_AFTER
            self.wake()
        return False

    def death_error(self, how: str) -> WorkerDied:
        """Return the error for a last worker that died in this way."""
        if self.reads:
            return WorkerDied(f"the process of {self.reads}, {how} before its reader did.")
        if self.kill_at is not None:
            return WorkerDied(
                f"a worker process was stopped: the result of {self} was not needed any more."
            )
        return WorkerDied(
            f"{self.tries} worker processes died one after another while they worked on {self}; "
            f"the last one {how}."
        )

    def __str__(self) -> str:
        try:
            arguments, options = unpickled(self.arguments)
        except Exception:  # users' code, only for display
            return f"{self.function.name}(...)"
        given = [*map(described, arguments), *(f"{k}={described(v)}" for k, v in options.items())]
        return f"{self.function.name}({', '.join(given)})"


class Worker:
    """A worker process, which runs one task at a time.

    Its owner records it before it begins, so an interrupt leaves none behind.

    Args:
        number: Its own number, from 0.
        of: The number of workers.

    Attributes:
        connection: The socket to it.
        process: The process, once it has begun.
        sentinel: Becomes readable when the process ends; None before it has begun.
        receiver: Receives its frames.
        memory: The blocks that it shares.
        ready: Whether it has called its `init`.
        task: Its current task.
    """

    process: subprocess.Popen[bytes]
    sentinel: Any = None
    ready = False
    task: TaskFuture | None = None

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of
        self.connection, self._child_socket = socket.socketpair()
        self.receiver = FrameReceiver(self.connection)
        self.memory = _WorkerMemory()
        self.known_functions: set[int] = set()
        self.outgoing: deque[tuple[memoryview, list[int]]] = deque()

    def begin(self, init: bytes) -> None:
        """Start the process; it first calls `init`, a pickled function of its number, or None."""
        # a terminal sends Ctrl-C to all: block it until the worker ignores it
        with self._child_socket, _blocked(signal.SIGINT):
            self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _BOOT,
                    json.dumps(sys.path),
                    str(self._child_socket.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[self._child_socket.fileno()],
                env={**os.environ, "JAX_PLATFORMS": "cpu", VARIABLE: "0"},
            )
        self.sentinel = _sentinel_of(self.process)
        self.send(to_frame((self.number, self.of, _RUN + self.number, init)))

    def assign(self, task: TaskFuture, functions: Container[int]) -> None:
        """Send a task, and its function if the worker lacks it.

        Args:
            task: The task.
            functions: The numbers of the living ones; the worker forgets all others.
        """
        self.task = task
        function = task.function
        forgotten = tuple(each for each in self.known_functions if each not in functions)
        self.known_functions.difference_update(forgotten)
        try:
            if function.number not in self.known_functions:
                self.known_functions.add(function.number)
                self.send(*function.frame())
            returned = self.memory.take_returned()
            self.send(to_frame(("task", function.number, task.arguments, returned, forgotten)))
        except BaseException:  # an interrupt: it might be sent again, and answered twice
            self.kill()
            raise

    def send(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send as much of a frame as the connection takes now; the rest waits."""
        self.outgoing.append((memoryview(frame), [*descriptors]))
        self.flush()

    def flush(self) -> None:
        """Send as much of what waits as the connection takes now."""
        while self.outgoing:
            frame, descriptors = self.outgoing[0]
            try:
                # `socket.send_fds` ignores its flags
                sent = self.connection.sendmsg([frame], ancillary(descriptors), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # it died, or must: what it waits for cannot be sent
                self.outgoing.clear()
                self.kill()
                return
            if sent == len(frame):
                self.outgoing.popleft()
            else:
                self.outgoing[0] = frame[sent:], []

    def end(self) -> None:
        """Close the connection: the process sees that, and ends."""
        self.connection.close()
        self._child_socket.close()
        self.receiver.close()

    def kill(self) -> None:
        """End the process at once, if it has begun."""
        if self.sentinel:
            self.process.kill()

    def how_it_ended(self) -> str:
        """Wait for the exit code; return it with its likely meaning."""
        code = self.process.wait()
        return f"ended with exit code {code}{_MEANINGS.get(code, '')}"


_MEANINGS = {
    -9: " (killed: perhaps out of memory)",
    -11: " (a segmentation fault, in a library that it calls)",
    -7: " (a bus error: a file that it mapped is shorter now, or memory ran out)",
    -6: " (aborted, by a library that it calls)",
}


@contextlib.contextmanager
def _blocked(number: int) -> Iterator[None]:
    """Block a signal on this thread, and in the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerMemory:
    """The shared memory of a worker, on the parent's side."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[Memory, int]] = {}
        self.open: dict[int, Array] = {}
        self.returned: deque[int] = deque()  # by finalizers, on any thread, without a lock

    def update(self, updates: BlockUpdates, receiver: FrameReceiver) -> None:
        """Map new blocks, and free those that the worker has freed."""
        for number, size in updates.made:
            if not receiver.descriptors:
                raise OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)} (see `ulimit -n`)")
            descriptor = receiver.descriptors.popleft()
            try:
                self.blocks[number] = map_memory(descriptor, size), size
            finally:
                os.close(descriptor)
        for number in updates.gone:
            del self.blocks[number]

    def value(self, sent: bytes | SharedPickle) -> SentValue:
        """Return a value; the memory of its arrays goes back to the worker when nothing uses it."""
        if isinstance(sent, bytes):
            return sent, ()
        arrays = [self._whole(block)[first : first + size] for block, first, size in sent.buffers]
        return sent.data, arrays

    def release(self, updates: BlockUpdates) -> None:
        """Return full blocks to the worker as soon as no array uses them."""
        for number in updates.full:
            self.open.pop(number, None)

    def _whole(self, number: int) -> Array:
        if number not in self.open:
            memory, size = self.blocks[number]
            returned = self.returned
            self.open[number] = leased(memory, lambda _: returned.append(number), (size,), _BYTES)
        return self.open[number]

    def take_returned(self) -> tuple[int, ...]:
        """Return the blocks that became free since the last call."""
        return tuple(self.returned.popleft() for _ in range(len(self.returned)))


def reap(workers: Sequence[Worker]) -> None:
    """Wait for processes whose connections are closed, and kill those that do not end."""
    limit = time.monotonic() + _GRACE
    for worker in [each for each in workers if each.sentinel]:
        try:
            worker.process.wait(timeout=max(0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.sentinel.close()


def _sentinel_of(process: subprocess.Popen[bytes]) -> Any:
    """Return a file that becomes readable when the process ends."""
    if hasattr(os, "pidfd_open"):
        return os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0)  # closed by `reap`
    mine, theirs = socket.socketpair()

    def watch() -> None:
        process.wait()
        theirs.close()

    threading.Thread(target=watch, daemon=True).start()
    return mine
