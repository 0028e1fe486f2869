"""One worker process: how it is started and ended, and how its death is noticed.

Its death is noticed through the process itself (a pidfd), not only through the end of its
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
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jreader._worker.connection import FrameReceiver, to_frame
from jreader._worker.shared_memory import BlockUpdates, SharedPickle, map_memory
from jreader.progress import VARIABLE
from jreader.staging import Array, Memory, leased

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jreader._worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_GRACE = 1.5  # seconds to end by itself once its connection is closed
_RUN = secrets.randbits(48)
_BYTES = np.dtype(np.uint8)


class WorkerProcess:
    """A worker process: its connection, its end, and the memory that it shares.

    Whoever will end it takes note of it before it is started: so an interrupt leaves none behind.

    Args:
        number: Its own, from 0.
        of: How many there are.

    Attributes:
        connection: A socket to it.
        process: The process, once it is started.
        sentinel: Becomes readable when the process ends, once it is started.
        started: Whether it is.
        receiver: The frames that it sends.
        memory: The blocks that it shares.
    """

    process: subprocess.Popen[bytes]
    sentinel: Any

    def __init__(self, number: int, of: int) -> None:
        self._beginning = number, of, _RUN + number
        self.connection, self._theirs = socket.socketpair()
        self.receiver = FrameReceiver(self.connection)
        self.memory = _WorkerMemory()
        self.started = False

    def start(self) -> None:
        """Starts the process; where that fails, it sees that its connection ends."""
        try:
            # until it ignores Ctrl-C, which a terminal sends to all, it is held back from it
            with self._theirs, _blocked(signal.SIGINT):
                self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
                    [
                        *(sys.executable, "-P", "-c", _BOOT),
                        *(json.dumps(sys.path), str(self._theirs.fileno()), str(os.getpid())),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[self._theirs.fileno()],
                    env={**os.environ, "JAX_PLATFORMS": "cpu", VARIABLE: "0"},
                )
            self.sentinel = _sentinel_of(self.process)
        except BaseException:
            self.end()
            raise
        self.started = True

    def first_frame(self, init: bytes) -> bytes:
        """The first message to it: what it is, and what it calls first, a pickled function."""
        return to_frame((*self._beginning, init))

    def end(self) -> None:
        """Closes the connection: the process sees that, and ends."""
        self.connection.close()
        self._theirs.close()
        self.receiver.close()

    def kill(self) -> None:
        """Ends the process at once, if it was started."""
        if self.started:
            self.process.kill()

    def how_it_ended(self) -> str:
        """Waits for the exit code, and tells it with what it may mean."""
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
    """Holds a signal back from this thread, and from the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerMemory:
    """The shared memory of a worker, as the parent has it."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[Memory, int]] = {}
        self.open: dict[int, Array] = {}
        self.returned: deque[int] = deque()  # by finalizers, on any thread, without a lock

    def update(self, updates: BlockUpdates, receiver: FrameReceiver) -> None:
        """Maps new blocks, and frees those that the worker has freed."""
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

    def arrays(self, shared: SharedPickle) -> list[Array]:
        """The memory of a value's arrays, which goes back to the worker when nothing uses it."""
        return [self._whole(number)[first : first + size] for number, first, size in shared.buffers]

    def release(self, updates: BlockUpdates) -> None:
        """Lets full blocks go back to the worker as soon as no array uses them."""
        for number in updates.full:
            self.open.pop(number, None)

    def _whole(self, number: int) -> Array:
        if number not in self.open:
            memory, size = self.blocks[number]
            returned = self.returned
            self.open[number] = leased(memory, lambda _: returned.append(number), (size,), _BYTES)
        return self.open[number]

    def take_returned(self) -> tuple[int, ...]:
        """The blocks that became free since this was last called."""
        return tuple(self.returned.popleft() for _ in range(len(self.returned)))


def reap(workers: Sequence[WorkerProcess]) -> None:
    """Waits for processes whose connections are closed, and kills those that do not end."""
    limit = time.monotonic() + _GRACE
    for worker in [each for each in workers if each.started]:
        try:
            worker.process.wait(timeout=max(0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.sentinel.close()


def _sentinel_of(process: subprocess.Popen[bytes]) -> Any:
    """A file that becomes readable when the process ends."""
    if hasattr(os, "pidfd_open"):
        return os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0)  # closed by `reap`
    mine, theirs = socket.socketpair()

    def watch() -> None:
        process.wait()
        theirs.close()

    threading.Thread(target=watch, daemon=True).start()
    return mine
