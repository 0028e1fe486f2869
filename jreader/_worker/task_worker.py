"""A worker runs tasks: calls of functions, which it is sent once each.

A task gives one result, at its end. One that reads (`reading.py`) sends what it has before.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

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
from jreader._worker.worker_info import WorkerInfo
from jreader.errors import noted
from jreader.readers import Position
from jreader.staging import Memory

FunctionMessage: TypeAlias = tuple[Literal["function"], int, SharedPickle, int]
"""Its number, itself, and the bytes of shared memory sent along (0: none)."""

TaskMessage: TypeAlias = tuple[Literal["task"], int, bytes, tuple[int, ...], tuple[int, ...]]
"""The number of the function, arguments; blocks given back; functions to forget."""

TakenMessage: TypeAlias = tuple[Literal["taken"], int, tuple[int, ...]]
"""How many more samples of a task that reads were handed over; blocks given back."""


class Answer(NamedTuple):
    """What a worker sends of a task; the first one says that it is ready.

    Attributes:
        values: Its result; of a task that reads, samples; those without shared memory are bytes.
        positions: After each of them; of no sample, that of the beginning.
        updates: What changed of the blocks that hold their arrays.
        error: What it raised, pickled.
        ends: Whether the task has ended.
    """

    values: Sequence[bytes | SharedPickle] = ()
    positions: Sequence[Position] = ()
    updates: BlockUpdates = BlockUpdates()
    error: bytes | None = None
    ends: bool = True


class TaskWorker:
    """What this process has of its tasks.

    Attributes:
        current: That of this process; None where it is no worker.
        connection: To the parent.
        receiver: What comes from there.
        blocks: The memory that it shares with the parent.
    """

    current: ClassVar[TaskWorker | None] = None

    def __init__(self, connection: socket.socket, receiver: FrameReceiver, processes: int) -> None:
        self.connection, self.receiver = connection, receiver
        self.blocks = stacking.blocks = Blocks(most=blocks_for_each(processes))
        self.functions: dict[int, _ReceivedFunction] = {}

    def run(self) -> None:
        """Runs tasks until the connection ends."""
        while message := self.receiver.next_frame():
            kind, *rest = message
            if kind == "function":
                number, shared, size = rest
                self.functions[number] = _ReceivedFunction(shared, size, self.receiver)
            elif kind == "task":
                self._run(*rest)
            else:  # of the last samples of a task that has ended
                _, returned = rest
                self.blocks.returned.extend(returned)

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

    def send(self, answer: Answer, descriptors: list[int]) -> None:
        """Sends what there is of the task, and the descriptors of new blocks."""
        send(self.connection, answer, descriptors)


def run_tasks(
    connection: socket.socket, receiver: FrameReceiver, info: WorkerInfo, init: bytes
) -> None:
    """Runs tasks until the connection ends.

    Args:
        connection: To the parent.
        receiver: What comes from there.
        info: What this worker is.
        init: A pickled function of the worker's number to call first, or None.
    """
    TaskWorker.current = worker = TaskWorker(connection, receiver, info.num_workers)
    error: bytes | None = None
    try:
        first = unpickled(init)
        if first is not None:
            first(info.id)
    except BaseException as raised:
        error = pickled_error(raised)
    worker.send(Answer(error=error), [])
    if error is None:
        worker.run()


class _ReceivedFunction:
    """A function that was sent; it is unpickled at its first call, which is told of any error."""

    def __init__(self, sent: SharedPickle, size: int, receiver: FrameReceiver) -> None:
        self.sent: SharedPickle | None = sent
        self.function: Any = None
        self.memory: Memory | None = None
        if size:
            descriptor = receiver.descriptors.popleft()
            self.memory = map_memory(descriptor, size, private=True)
            os.close(descriptor)

    def called(self, given: tuple[tuple[Any, ...], dict[str, Any]], blocks: Blocks) -> SharedPickle:
        """Calls the function, and pickles the result, which nothing here holds any longer."""
        if self.sent is not None:
            self.function, self.sent = self._unpickled(self.sent), None
            self.memory = None  # the arrays that lie there hold it
        arguments, options = given
        return blocks.pickled(self.function(*arguments, **options), "result")

    def _unpickled(self, sent: SharedPickle) -> Any:
        data: Any = sent.data
        buffers = []
        if self.memory is not None:
            room = np.frombuffer(self.memory.owner, np.uint8)
            data, *buffers = [room[first : first + size].data for _, first, size in sent.buffers]
        try:
            return unpickled(data, buffers)
        except (ImportError, AttributeError) as error:
            noted(
                error,
                "a worker process imports the modules that a function uses: put the module on "
                "sys.path, or send it along with cloudpickle.register_pickle_by_value(module)",
            )
            raise
