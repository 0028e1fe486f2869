"""A worker that runs tasks: calls of functions, which it is sent once each."""

from __future__ import annotations

import os
import socket
from typing import Any, Literal, TypeAlias

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
from jreader._worker.worker_info import get_worker_info
from jreader.errors import noted
from jreader.staging import Memory

FunctionMessage: TypeAlias = tuple[Literal["function"], int, SharedPickle, int]
"""Its number, itself, and the bytes of shared memory sent along (0: none)."""

TaskMessage: TypeAlias = tuple[Literal["task"], int, int, bytes, tuple[int, ...], tuple[int, ...]]
"""Number, that of the function, arguments; blocks given back; functions to forget."""

AnswerMessage: TypeAlias = tuple[int, bool, SharedPickle, BlockUpdates]
"""The number of the task, whether it went well, result or error, blocks."""

READY = -1  # the number of what is sent before the first task


def run_tasks(connection: socket.socket, receiver: FrameReceiver, begin: bytes) -> None:
    """Runs tasks until the connection ends.

    Args:
        connection: To the parent.
        receiver: What comes from there.
        begin: A pickled function of the worker's number to call first, or None.
    """
    info = get_worker_info()
    blocks = Blocks(most=blocks_for_each(info.num_workers if info else 1))
    stacking.blocks = blocks
    functions: dict[int, _ReceivedFunction] = {}
    try:
        first = unpickled(begin)
        if first is not None and info is not None:
            first(info.id)
    except BaseException as error:
        send(connection, (READY, False, SharedPickle(pickled_error(error)), BlockUpdates()), [])
        return
    send(connection, (READY, True, SharedPickle(b""), BlockUpdates()), [])
    while message := receiver.next_frame():
        if message[0] == "function":
            _, number, shared, size = message
            functions[number] = _ReceivedFunction(shared, size, receiver)
            continue
        _, number, function, arguments, returned, forgotten = message
        blocks.returned.extend(returned)
        try:
            shared = functions[function].called(unpickled(arguments), blocks)
            good = True
        except BaseException as error:
            good, shared = False, SharedPickle(pickled_error(error))
        updates, descriptors = blocks.updates()
        answer: AnswerMessage = (number, good, shared, updates)
        send(connection, answer, descriptors)
        for key in forgotten:
            functions.pop(key, None)


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
