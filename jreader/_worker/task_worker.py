"""A worker runs tasks: calls of functions, each of which it receives once.

A task returns one result, at its end. A reading task (`reading.py`) sends samples before.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jreader._worker import stacking
from jreader._worker.connection import FrameReceiver, send
from jreader._worker.remote_errors import pickled_error
from jreader._worker.shared_memory import (
    Blocks,
    BlockUpdates,
    SharedPickle,
    blocks_for_each,
    map_memory,
)
from jreader._worker.unpickling import unpickled
from jreader._worker.worker_info import WorkerInfo, set_worker_info
from jreader.errors import noting
from jreader.readers import Position

_GRACE = 1.0  # seconds to clean up once the parent is gone
_GONE = getattr(select, "POLLRDHUP", 0)  # POLLHUP is reported unasked

# A worker receives one of these tuples:
# "function", its number, its pickle and arrays (a `bytearray` each, or their place in shared
#     memory: (first, bytes)), and the bytes of that memory sent along (0: none)
# "task", the number of the function, arguments, blocks given back, functions to forget
# "taken", how many more samples of a reading task were handed over, blocks given back


class Answer(NamedTuple):
    """A worker's message on a task; the first one says that it is ready.

    Attributes:
        values: The result; of a reading task, samples; values without shared memory are bytes.
        positions: The position after each of them; without samples, that of the beginning.
        updates: Changes to the blocks that hold their arrays.
        error: The pickled error.
        ends: Whether the task has ended.
    """

    values: Sequence[bytes | SharedPickle] = ()
    positions: Sequence[Position] = ()
    updates: BlockUpdates = BlockUpdates()
    error: bytes | None = None
    ends: bool = True


class TaskWorker:
    """The state of this process's tasks.

    Attributes:
        current: The one of this process; None if it is no worker.
        connection: The socket to the parent.
        receiver: Receives from there.
        blocks: The memory that it shares with the parent.
    """

    current: ClassVar[TaskWorker | None] = None
    blocks: Blocks

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.receiver = connection, FrameReceiver(connection)
        self.functions: dict[int, _ReceivedFunction] = {}

    def run(self) -> None:
        """Receive what this worker is, and run tasks until the connection ends."""
        beginning = self.receiver.next_frame()
        error = self._begin(*beginning) if beginning else b""  # it was closed before it began
        while error is None and (message := self.receiver.next_frame()):
            kind, *rest = message
            if kind == "function":
                number, shared, size = rest
                self.functions[number] = _ReceivedFunction(shared, size, self.receiver)
            elif kind == "task":
                self._run(*rest)
            else:  # for the last samples of a task that has ended
                _, returned = rest
                self.blocks.returned.extend(returned)

    def _begin(self, number: int, of: int, seed: int, init: bytes) -> bytes | None:
        """Call `init`, a pickled function of the number or None; return its pickled error."""
        set_worker_info(WorkerInfo(number, of, seed))
        TaskWorker.current = self
        self.blocks = stacking.blocks = Blocks(most=blocks_for_each(of))
        error: bytes | None = None
        try:
            first = unpickled(init)
            if first is not None:
                first(number)
        except BaseException as raised:
            error = pickled_error(raised)
        self.send(Answer(error=error))
        return error

    def _run(
        self,
        function: int,
        arguments: bytes,
        returned: tuple[int, ...],
        forgotten: tuple[int, ...],
    ) -> None:
        self.blocks.returned.extend(returned)
        error: bytes | None = None
        values: list[SharedPickle] = []
        try:
            values.append(self.functions[function].called(unpickled(arguments), self.blocks))
        except BaseException as raised:
            error = pickled_error(raised)
        updates, descriptors = self.blocks.updates()
        self.send(Answer(values, (), updates, error), descriptors)
        for key in forgotten:
            self.functions.pop(key, None)

    def send(self, answer: Answer, descriptors: Sequence[int] = ()) -> None:
        """Send a message on the task, and the descriptors of new blocks."""
        send(self.connection, answer, [*descriptors])


class _ReceivedFunction:
    """A function that was received; its first call unpickles it, and raises any error of that."""

    def __init__(self, parts: list[Any], size: int, receiver: FrameReceiver) -> None:
        self.parts = parts
        self.function: Any = None
        if size:
            descriptor = receiver.descriptors.popleft()
            room = np.frombuffer(map_memory(descriptor, size, private=True).owner, np.uint8)
            self.parts = [room[first : first + size].data for first, size in parts]
            os.close(descriptor)

    def called(self, given: tuple[tuple[Any, ...], dict[str, Any]], blocks: Blocks) -> SharedPickle:
        """Call the function, and pickle the result, which nothing here keeps."""
        if self.parts:
            self.function, self.parts = self._unpickled(*self.parts), []
        arguments, options = given
        return blocks.pickled(self.function(*arguments, **options), "result")

    def _unpickled(self, data: Any, *buffers: Any) -> Any:
        note = (
            "a worker process imports the modules that a function uses: put the module on "
            "sys.path, or send it along with cloudpickle.register_pickle_by_value(module)"
        )
        with noting(note, ImportError, AttributeError):
            return unpickled(data, buffers)


def main(descriptor: int, parent: int) -> None:
    """Run the tasks of a worker until its connection ends.

    Args:
        descriptor: The file descriptor of the socket to the parent.
        parent: The process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # blocked until here
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_exit_with_parent, args=(connection, parent), daemon=True).start()
    TaskWorker(connection).run()


def _exit_with_parent(connection: socket.socket, parent: int) -> None:
    """End this process, after a grace period, when the connection or the parent ends."""
    events = select.poll()
    events.register(connection, _GONE)
    with contextlib.suppress(OSError, AttributeError):  # not supported, or already gone
        events.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() == parent:
        events.poll()
    threading.Event().wait(_GRACE)  # the main thread sees it too, and may exit before
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(0)
