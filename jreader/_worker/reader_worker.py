"""A worker that reads one reader, once, and sends the samples to its parent.

Three threads: the main one reads (users' signal handlers and event loops expect that), one sends
whatever is ready as one frame, one receives the parent's acknowledgements. Samples are pickled as
soon as they are read: their reader may reuse the memory.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from jreader._worker.connection import FrameReceiver, send
from jreader._worker.remote_errors import pickled_error
from jreader._worker.shared_memory import (
    MAX_BYTES_AHEAD,
    Blocks,
    BlockUpdates,
    SharedPickle,
    blocks_for_each,
)
from jreader._worker.unpickling import unpickled
from jreader._worker.worker_info import get_worker_info
from jreader.readers import Position, start

_MOST_BYTES = (
    1 << 20
)  # bytes of samples that make a frame worth sending; more in one only costs memory
_MOST_SAMPLES = 64  # samples likewise, should their arrays be in shared memory
_MOST_DESCRIPTORS = 16  # descriptors of one frame; the system takes no more than 253
_BLOCK = 4 << 20  # bytes of a block: samples share them, for a block costs a descriptor


class ReaderReport(NamedTuple):
    """A message of samples, each pickled by itself, with the position after it.

    Attributes:
        samples: The samples.
        positions: The position after each; of no sample, that of the beginning.
        updates: What changed of the blocks that hold their arrays.
        end: Whether the reader has ended.
        error: What it raised, pickled.
    """

    samples: list[SharedPickle]
    positions: list[Position]
    updates: BlockUpdates = BlockUpdates()
    end: bool = False
    error: bytes | None = None


def run_reader(connection: socket.socket, receiver: FrameReceiver, job: bytes) -> None:
    """Reads one pass over a reader, and sends its samples.

    Args:
        connection: To the parent.
        receiver: What comes from there: samples handed over, and blocks given back.
        job: The pickled reader, position, and number of samples to read ahead.
    """
    worker = _ReaderWorker(connection, receiver)
    try:
        reader, at, slots = unpickled(job)
    except Exception as error:
        worker.finish(error)
    else:
        worker.run(reader, at, slots)


class _ReadAhead:
    """Bounds how far a worker reads ahead, in samples and bytes; one larger sample may always."""

    def __init__(self) -> None:
        self.most_samples, self.bytes, self.ended = 0, 0, False
        self.sizes: deque[int] = deque()  # of samples that are not handed over yet
        self.changed = threading.Condition()

    def wait(self) -> bool:
        """Waits until one more sample may be read; always true, to stand in a condition."""
        with self.changed:
            while not self.ended and (
                len(self.sizes) >= self.most_samples
                or (self.bytes >= MAX_BYTES_AHEAD and self.sizes)
            ):
                self.changed.wait()
        return True

    def take(self, size: int) -> None:
        """Counts one more sample of so many bytes."""
        with self.changed:
            self.sizes.append(size)
            self.bytes += size

    def give(self, number: int) -> None:
        """Counts so many samples as handed over."""
        with self.changed:
            self.bytes -= sum(self.sizes.popleft() for _ in range(number))
            self.changed.notify()

    def stop(self) -> None:
        """Ends the wait: nobody asks for samples any more."""
        with self.changed:
            self.ended = True
            self.changed.notify()


class _ReaderWorker:
    def __init__(self, connection: socket.socket, receiver: FrameReceiver) -> None:
        self.connection, self.receiver = connection, receiver
        info = get_worker_info()
        self.blocks = Blocks(_BLOCK, blocks_for_each(info.num_workers if info else 1))
        self.outbox: SimpleQueue[tuple[ReaderReport, list[int]] | None] = SimpleQueue()
        self.slots = _ReadAhead()
        self.parent_gone = threading.Event()  # nobody listens any more
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def run(self, reader: Any, at: Position, slots: int) -> None:
        """Reads one pass over the reader."""
        self.slots.most_samples = slots
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            up = start(reader, at)
            self.outbox.put((ReaderReport([], [up.position()]), []))
            try:
                while self.slots.wait() and not self.parent_gone.is_set():
                    try:
                        sample = next(up.items)
                    except StopIteration:
                        break
                    shared = self.blocks.pickled(sample, "sample")
                    del sample
                    self.slots.take(len(shared.data) + sum(size for _, _, size in shared.buffers))
                    updates, descriptors = self.blocks.updates()
                    self.outbox.put((ReaderReport([shared], [up.position()], updates), descriptors))
            finally:
                up.close()
        except BaseException as error:
            self.finish(error)
        else:
            self.finish(None)

    def finish(self, error: BaseException | None) -> None:
        """Sends how the pass ended, after all samples before."""
        last = ReaderReport([], [], end=True, error=pickled_error(error) if error else None)
        self.outbox.put((last, []))
        self.outbox.put(None)
        self.sender.join()

    def _listen(self) -> None:
        """Receives acknowledgements until the parent is gone."""
        while message := self.receiver.next_frame():
            number, returned = message
            self.blocks.returned.extend(returned)
            self.slots.give(number)
        self.parent_gone.set()
        self.slots.stop()

    def _send(self) -> None:
        more = True
        while more:
            reports, descriptors, more = self._ready()
            whole = ReaderReport(
                list(chain.from_iterable(report.samples for report in reports)),
                list(chain.from_iterable(report.positions for report in reports)),
                BlockUpdates(
                    tuple(chain.from_iterable(report.updates.made for report in reports)),
                    tuple(chain.from_iterable(report.updates.full for report in reports)),
                    tuple(chain.from_iterable(report.updates.gone for report in reports)),
                ),
                any(report.end for report in reports),
                next((report.error for report in reports if report.error), None),
            )
            send(self.connection, whole, descriptors)

    def _ready(self) -> tuple[list[ReaderReport], list[int], bool]:
        """Reports that wait to be sent, at least one, and whether more will come."""
        reports: list[ReaderReport] = []
        descriptors: list[int] = []
        size = 0
        waiting = self.outbox.get()
        while waiting:
            report, more = waiting
            reports.append(report)
            descriptors += more
            size += sum(len(sample.data) for sample in report.samples)
            parent_gone = not report.samples and not report.end  # the position of the start
            if (
                parent_gone
                or size > _MOST_BYTES
                or len(descriptors) >= _MOST_DESCRIPTORS
                or len(reports) >= _MOST_SAMPLES
            ):
                return reports, descriptors, True
            try:
                waiting = self.outbox.get_nowait()
            except Empty:
                return reports, descriptors, True
        return reports, descriptors, False
