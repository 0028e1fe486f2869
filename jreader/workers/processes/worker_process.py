"""How a worker process begins and ends, and how its death is seen.

It is seen through the process itself (a pidfd), not only through the end of its connection, which a
process that it started may hold open. The parent never waits for bytes: half a frame of a killed
process must not block it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jreader._worker.pickling import Arrivals, packed
from jreader._worker.shared_memory import News, Told, mapped
from jreader.staging import Array, Memory, leased

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jreader._worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_GRACE = 1.5  # seconds to end by itself once its connection is closed
_RUN = secrets.randbits(48)
_BYTES = np.dtype(np.uint8)


class Launched:
    """A worker process: its connection, its end, and the memory that it shares.

    Args:
        kind: What it does: "tasks" or "reader".
        number: Its own, from 0.
        of: How many there are.
    """

    def __init__(self, kind: str, number: int, of: int) -> None:
        """Starts it."""
        self.job = kind, (number, of, _RUN + number)
        self.connection, theirs = socket.socketpair()
        try:
            # until it ignores Ctrl-C, which a terminal sends to all, it is held back from it
            with theirs, _blocked(signal.SIGINT):
                self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
                    [
                        *(sys.executable, "-P", "-c", _BOOT),
                        *(json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "JAX_PLATFORMS": "cpu"},
                )
            self.death = _death_of(self.process)
        except BaseException:
            self.connection.close()
            raise
        self.arrivals = Arrivals(self.connection)
        self.memory = _Shared()

    def first(self, rest: bytes) -> bytes:
        """The frame that gives it its job."""
        return packed((*self.job, rest))

    def end(self) -> None:
        """Closes the connection: the process sees that, and ends."""
        self.connection.close()
        self.arrivals.close()

    def how_it_ended(self) -> str:
        """Its exit code, and what that may mean."""
        code = self.process.wait()
        return f"ended with exit code {code}{_HINTS.get(code, '')}"


_HINTS = {
    -9: " (killed: perhaps out of memory)",
    -11: " (a segmentation fault, in a library that it calls)",
    -7: " (a bus error: a file that it mapped is shorter now, or memory ran out)",
    -6: " (aborted, by a library that it calls)",
}


@contextlib.contextmanager
def _blocked(number: int) -> Iterator[None]:
    """Has a signal wait, in this thread, and in the processes that it starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Shared:
    """The memory of a worker, as it is seen here."""

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[Memory, int]] = {}
        self.open: dict[int, Array] = {}
        self.returned: deque[int] = deque()  # by finalizers, on any thread, without a lock

    def learn(self, news: News, arrivals: Arrivals) -> None:
        """Takes new blocks, and lets go those that are gone."""
        for number, size in news.made:
            if not arrivals.descriptors:
                raise OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)} (see `ulimit -n`)")
            descriptor = arrivals.descriptors.popleft()
            try:
                self.blocks[number] = mapped(descriptor, size), size
            finally:
                os.close(descriptor)
        for number in news.gone:
            del self.blocks[number]

    def buffers(self, told: Told) -> list[Array]:
        """The memory of the arrays of a value; it is given back when nothing lies over it."""
        return [self._whole(number)[first : first + size] for number, first, size in told.places]

    def leave(self, news: News) -> None:
        """Leaves full blocks to the arrays that were made of them."""
        for number in news.full:
            self.open.pop(number, None)

    def _whole(self, number: int) -> Array:
        if number not in self.open:
            memory, size = self.blocks[number]
            returned = self.returned
            give_back = lambda _: returned.append(number)  # noqa: E731  # likewise
            self.open[number] = leased(memory, give_back, (size,), _BYTES)
        return self.open[number]

    def given_back(self) -> tuple[int, ...]:
        """The blocks that are free since this was asked last."""
        return tuple(self.returned.popleft() for _ in range(len(self.returned)))


def unpickled(data: bytes, buffers: Sequence[Array]) -> Any:
    """What a worker sent."""
    return pickle.loads(data, buffers=buffers)  # noqa: S301  # from our own process


def reaped(workers: Sequence[Launched]) -> None:
    """Waits for processes whose connections are closed, and kills those that do not end."""
    limit = time.monotonic() + _GRACE
    for worker in workers:
        try:
            worker.process.wait(timeout=max(0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.death.close()


def ended(workers: Iterable[Launched]) -> None:
    """Lets processes end by themselves, and kills those that do not, without waiting for it."""
    workers = list(workers)
    for worker in workers:
        worker.end()
    with contextlib.suppress(RuntimeError):  # no new threads while the interpreter goes away
        threading.Thread(target=reaped, args=(workers,), daemon=True).start()


def _death_of(process: subprocess.Popen[bytes]) -> Any:
    """Something to select on that becomes readable when the process ends."""
    if hasattr(os, "pidfd_open"):
        return os.fdopen(os.pidfd_open(process.pid), "rb", buffering=0)  # closed by `reaped`
    mine, theirs = socket.socketpair()

    def watch() -> None:
        process.wait()
        theirs.close()

    threading.Thread(target=watch, daemon=True).start()
    return mine
