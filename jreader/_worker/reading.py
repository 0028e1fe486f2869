"""A reading task: it sends the samples of one pass over a reader while it reads on.

The main thread reads (users' signal handlers and event loops expect that), and another thread sends
all ready samples as one frame: a sample does not wait for the next one. Samples are pickled as soon
as they are read: their reader may reuse the memory.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from queue import SimpleQueue
from typing import Any, NamedTuple

from jreader._worker import stacking
from jreader._worker.shared_memory import MAX_BYTES_AHEAD, BlockUpdates, SharedPickle
from jreader._worker.task_worker import Answer, TaskWorker
from jreader._worker.worker_info import get_worker_info, set_worker_info
from jreader.readers import Position, Reader, start

_MOST_BYTES = 1 << 20  # bytes of samples that make a frame worth sending; more only cost memory
_MOST_SAMPLES = 64  # the same in samples, whose arrays may be in shared memory
_MOST_DESCRIPTORS = 16  # per frame; the system takes no more than 253
_BLOCK = 4 << 20  # bytes of a block: samples share blocks, as each costs a descriptor
_LOOK = 1e-3  # seconds between two checks for messages of the parent


@dataclass
class Reading:
    """Reads one pass over a reader, in a worker that does nothing else.

    Attributes:
        reader: The reader.
        at: The position at which the pass begins.
        number: The number of the reader.
        of: The number of readers, each with a worker.
        most: How many samples may be sent ahead of those handed over.
    """

    reader: Reader[Any]
    at: Position
    number: int
    of: int
    most: int

    def __call__(self) -> None:
        """Send the position of the beginning, and then each sample with the position after it."""
        worker, info = TaskWorker.current, get_worker_info()
        if worker is None or info is None:
            raise RuntimeError("a reading is a task of a worker process")
        seed = info.seed - info.id + self.number
        set_worker_info(replace(info, id=self.number, num_workers=self.of, seed=seed))
        stacking.blocks = None  # a reader may stack on its own threads
        worker.blocks.room = _BLOCK
        with closing(start(self.reader, self.at)) as up:
            worker.send(Answer(positions=[up.position()], ends=False))
            with _Outbox(worker, self.most) as outbox:
                for sample in up.items:
                    outbox.put(sample, up.position())
                    del sample
                    if not outbox.has_room():
                        return


class _Sample(NamedTuple):
    value: bytes | SharedPickle
    size: int
    position: Position
    updates: BlockUpdates
    descriptors: list[int]


class _Outbox:
    """Samples on their way to the parent, which a thread sends in as few frames as it can.

    Their number and bytes are bounded until they are handed over; one larger sample may always be
    sent.
    """

    def __init__(self, worker: TaskWorker, most: int) -> None:
        self.worker, self.most, self.bytes = worker, most, 0
        self.sizes: deque[int] = deque()  # of samples that are not handed over yet
        self.unsent = 0
        self.sent: SimpleQueue[int] = SimpleQueue()  # samples per frame
        self.look_at = 0.0
        self.waiting: SimpleQueue[_Sample | None] = SimpleQueue()
        self.sender = threading.Thread(target=self._send_all, daemon=True)

    def __enter__(self) -> _Outbox:
        self.sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.waiting.put(None)
        self.sender.join()

    def put(self, sample: Any, position: Position) -> None:
        """Pickle a sample, and queue it for sending."""
        blocks = self.worker.blocks
        shared = blocks.pickled(sample, "sample")
        size = len(shared.data) + sum(size for _, _, size in shared.buffers)
        self.sizes.append(size)
        self.bytes += size
        self.unsent += 1
        value = shared if shared.buffers else shared.data
        self.waiting.put(_Sample(value, len(shared.data), position, *blocks.updates()))

    def has_room(self) -> bool:
        """Wait until one more sample may be sent; False if the reader is no longer wanted."""
        receiver = self.worker.receiver
        while True:
            full = len(self.sizes) >= self.most or self.bytes >= MAX_BYTES_AHEAD
            if not (full or time.monotonic() >= self.look_at):
                return True
            self._count_sent(all_of_them=full)
            receiver.receive(wait=full)
            if not receiver.open:
                return False
            for _, taken, returned in receiver.frames():
                self.bytes -= sum(self.sizes.popleft() for _ in range(taken))
                self.worker.blocks.returned.extend(returned)
            self.look_at = time.monotonic() + _LOOK

    def _count_sent(self, *, all_of_them: bool) -> None:
        """Count samples as sent; may wait for all: a reader that ends its process loses none."""
        while not self.sent.empty() or (all_of_them and self.unsent > 0):
            self.unsent -= self.sent.get()

    def _send_all(self) -> None:
        try:
            self._send_frames()
        finally:
            self.sent.put(sys.maxsize)  # no reader is left

    def _send_frames(self) -> None:
        for samples in self._frames():
            values, _, positions, updates, descriptors = zip(*samples, strict=True)
            made, full, gone = map(chain.from_iterable, zip(*updates, strict=True))
            changes = BlockUpdates(tuple(made), tuple(full), tuple(gone))
            answer = Answer(values, positions, changes, ends=False)
            self.worker.send(answer, [*chain.from_iterable(descriptors)])
            self.sent.put(len(samples))

    def _frames(self) -> Iterator[list[_Sample]]:
        """Yield the samples that are ready at once, as long as they are worth one frame."""
        samples: list[_Sample] = []
        size = descriptors = 0
        while sample := self.waiting.get():
            samples.append(sample)
            size += sample.size
            descriptors += len(sample.descriptors)
            if (
                size > _MOST_BYTES
                or descriptors >= _MOST_DESCRIPTORS
                or len(samples) >= _MOST_SAMPLES
                or self.waiting.empty()
            ):
                yield samples
                samples, size, descriptors = [], 0, 0
        if samples:
            yield samples
