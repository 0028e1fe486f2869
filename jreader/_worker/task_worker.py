"""A worker that is given tasks: functions, sent once each, and what to call them with."""

from __future__ import annotations

import os
import pickle
import socket
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader._worker import stacking
from jreader._worker.pickling import Arrivals, pickled_error, send
from jreader._worker.shared_memory import Blocks, News, Told, mapped, share
from jreader.errors import noted
from jreader.staging import Memory

Function: TypeAlias = tuple[Literal["function"], int, Told, int]
"""Its number, itself, and the bytes of shared memory sent along (0: none)."""

Task: TypeAlias = tuple[Literal["task"], int, int, bytes, tuple[int, ...], tuple[int, ...]]
"""Number, that of the function, arguments; blocks given back; functions to forget."""

Answer: TypeAlias = tuple[int, bool, Told, News]
"""The number of the task, whether it went well, result or error, blocks."""

READY = -1  # the number of what is sent before the first task


def work(connection: socket.socket, arrivals: Arrivals, begin: bytes) -> None:
    """Does tasks until the connection ends.

    Args:
        connection: To the parent.
        arrivals: What comes from there.
        begin: A pickled function of the worker's number to call first, or None.
    """
    info = stacking.get_worker_info()
    blocks = Blocks(most=share(info.num_workers if info else 1))
    stacking.blocks = blocks
    functions: dict[int, _Function] = {}
    try:
        first = pickle.loads(begin)  # noqa: S301  # from our parent
        if first is not None and info is not None:
            first(info.id)
    except BaseException as error:
        send(connection, (READY, False, Told(pickled_error(error)), News()), [])
        return
    send(connection, (READY, True, Told(b""), News()), [])
    while message := arrivals.next():
        if message[0] == "function":
            _, number, told, size = message
            functions[number] = _Function(told, size, arrivals)
            continue
        _, number, function, arguments, returned, forgotten = message
        blocks.returned.extend(returned)
        try:
            told = functions[function].told(pickle.loads(arguments), blocks)  # noqa: S301  # likewise
            good = True
        except BaseException as error:
            good, told = False, Told(pickled_error(error))
        news, descriptors = blocks.news()
        answer: Answer = (number, good, told, news)
        send(connection, answer, descriptors)
        for key in forgotten:
            functions.pop(key, None)


class _Function:
    """A function, unpickled when it is called first: so an error of that is the task's."""

    def __init__(self, sent: Told, size: int, arrivals: Arrivals) -> None:
        self.sent: Told | None = sent
        self.function: Any = None
        self.memory: Memory | None = None
        if size:
            descriptor = arrivals.descriptors.popleft()
            self.memory = mapped(descriptor, size, private=True)
            os.close(descriptor)

    def told(self, given: tuple[tuple[Any, ...], dict[str, Any]], blocks: Blocks) -> Told:
        """What it gives, on its way; nothing here holds it any longer."""
        if self.sent is not None:
            self.function, self.sent = self._unpickled(self.sent), None
        arguments, options = given
        return blocks.told(self.function(*arguments, **options), "result")

    def _unpickled(self, sent: Told) -> Any:
        data: Any = sent.data
        buffers = []
        if self.memory is not None:
            room = np.frombuffer(self.memory.owner, np.uint8)
            data, *buffers = [room[first : first + size].data for _, first, size in sent.places]
        try:
            return pickle.loads(data, buffers=buffers)  # noqa: S301  # from our parent
        except (ImportError, AttributeError) as error:
            noted(
                error,
                "a worker process imports what a function names: have its module on sys.path, or "
                "send it along with cloudpickle.register_pickle_by_value(module)",
            )
            raise
