"""What runs in a worker process: one pass over one reader, sent to the parent sample by sample.

Three threads: the main one reads (users' signal handlers and event loops expect that), one sends
whatever is ready as one frame, one receives the parent's acknowledgements. When the connection
ends, the parent has closed the pass or is gone, and the process ends within a second. SIGINT is the
parent's to handle. Samples are pickled as soon as they are read: their reader may reuse the memory.

A frame is its size (8 bytes) and a pickled tuple: to the worker `(reader, position, slots)`, from
it a `Report`. The parent acknowledges with the number of samples handed over (8 bytes).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import threading
import traceback
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import cloudpickle

from jreader.errors import ReaderError
from jreader.readers import Position, described, start

_GRACE = 1.0  # seconds that a reader has to clean up once nobody listens
_FULL = 1 << 20  # bytes of samples that make a frame worth sending; more in one only costs memory

NUMBER = struct.Struct("<Q")


class Report(NamedTuple):
    """What a worker has read: each sample pickled by itself, with the position after it."""

    samples: list[bytes]
    positions: list[Position]
    end: bool = False
    error: bytes | None = None


def packed(message: object) -> bytes:
    """A message as a frame."""
    data: bytes = cloudpickle.dumps(message)
    return NUMBER.pack(len(data)) + data


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes; fewer where the connection ends before.

    Not `makefile`: its lock, held by a thread that waits, would block the end of the process.
    """
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < size and (more := connection.recv(size - len(data))):
            data += more
    return bytes(data)


def main(descriptor: int) -> None:
    """Reads the job from the connection, and sends what its reader gives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    head = received(connection, NUMBER.size)
    if len(head) < NUMBER.size:
        return  # the pass was closed before it began
    job = received(connection, NUMBER.unpack(head)[0])
    worker = _Worker(connection)
    try:
        reader, at, slots = pickle.loads(job)  # noqa: S301  # from our parent
    except Exception as error:
        worker.finish(error)
    else:
        worker.run(reader, at, slots)


class _Worker:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.outbox: SimpleQueue[Report | None] = SimpleQueue()
        self.slots = threading.Semaphore(0)
        self.alone = threading.Event()  # nobody listens any more
        self.over = threading.Event()
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def run(self, reader: Any, at: Position, slots: int) -> None:
        """One pass over the reader."""
        self.slots.release(slots)
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            up = start(reader, at)
            self.outbox.put(Report([], [up.position()]))
            try:
                while self.slots.acquire() and not self.alone.is_set():
                    try:
                        sample = next(up.items)
                    except StopIteration:
                        break
                    self.outbox.put(Report([_pickled(sample)], [up.position()]))
            finally:
                up.close()
        except BaseException as error:
            self.finish(error)
        else:
            self.finish(None)

    def finish(self, error: BaseException | None) -> None:
        """Sends how it ended, after all that was read before."""
        self.outbox.put(Report([], [], end=True, error=_pickled_error(error) if error else None))
        self.outbox.put(None)
        self.sender.join()
        self.over.set()

    def _listen(self) -> None:
        """Takes acknowledgements; ends the process, with some grace, when the parent is gone."""
        while len(data := received(self.connection, NUMBER.size)) == NUMBER.size:
            self.slots.release(NUMBER.unpack(data)[0])
        self.alone.set()
        self.slots.release()
        self.over.wait(_GRACE)
        os._exit(0)

    def _send(self) -> None:
        more = True
        while more:
            reports, more = self._ready()
            whole = Report(
                [sample for report in reports for sample in report.samples],
                [position for report in reports for position in report.positions],
                any(report.end for report in reports),
                next((report.error for report in reports if report.error), None),
            )
            with contextlib.suppress(OSError):  # nobody listens: `_listen` ends the process
                self.connection.sendall(packed(whole))

    def _ready(self) -> tuple[list[Report], bool]:
        """What waits to be sent, at least one report; false once nothing comes after it."""
        reports, size = [], 0
        report = self.outbox.get()
        while report:
            reports.append(report)
            size += sum(map(len, report.samples))
            if size > _FULL or (not report.samples and not report.end):
                return reports, True  # the position of the start travels alone
            try:
                report = self.outbox.get_nowait()
            except Empty:
                return reports, True
        return reports, False


def _pickled(sample: object) -> bytes:
    try:
        return pickle.dumps(sample, protocol=5)
    except Exception:
        try:
            return bytes(cloudpickle.dumps(sample))
        except Exception as error:
            raise TypeError(
                f"the sample {described(sample)} cannot be sent from a worker process ({error}): "
                f"map it to arrays, numbers, texts, or containers of them inside the reader"
            ) from error


def _pickled_error(error: BaseException) -> bytes:
    """The error with its traceback as a note; another one where it cannot travel."""
    told = "".join(traceback.format_exception(error))
    if isinstance(error, Exception):
        error.add_note(f"in a worker process:\n{told}")
        for sent in (error, _Bare(error)):
            with contextlib.suppress(Exception):
                data = bytes(cloudpickle.dumps(sent))
                if isinstance(pickle.loads(data), type(error)):  # noqa: S301  # our own
                    return data
    return bytes(cloudpickle.dumps(ReaderError(f"a worker process raised:\n{told}")))


class _Bare:
    """An error whose class cannot be called with its `args`, as an own `__init__` makes it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self.error), self.error.args, self.error.__dict__)


def _revived(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
