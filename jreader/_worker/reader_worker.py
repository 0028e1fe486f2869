"""A worker that reads: one pass over one reader, sent to the parent sample by sample.

Three threads: the main one reads (users' signal handlers and event loops expect that), one sends
whatever is ready as one frame, one receives the parent's acknowledgements. Samples are pickled as
soon as they are read: their reader may reuse the memory.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections import deque
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from jreader._worker.pickling import Arrivals, pickled_error, send
from jreader._worker.shared_memory import AHEAD, Blocks, News, Told, share
from jreader._worker.stacking import get_worker_info
from jreader.readers import Position, start

_FULL = 1 << 20  # bytes of samples that make a frame worth sending; more in one only costs memory
_MANY = 64  # samples likewise, should their arrays be in shared memory
_FEW = 16  # descriptors of one frame; the system takes no more than 253
_ROOM = 4 << 20  # bytes of a block: samples share them, for a block costs a descriptor


class Report(NamedTuple):
    """What a worker has read: each sample pickled by itself, with the position after it."""

    samples: list[Told]
    positions: list[Position]
    news: News = News()
    end: bool = False
    error: bytes | None = None


def read(connection: socket.socket, arrivals: Arrivals, job: bytes) -> None:
    """Sends what a reader gives.

    Args:
        connection: To the parent.
        arrivals: What comes from there: samples handed over, and blocks given back.
        job: The pickled reader, position, and number of samples to read ahead.
    """
    worker = _Worker(connection, arrivals)
    try:
        reader, at, slots = pickle.loads(job)  # noqa: S301  # from our parent
    except Exception as error:
        worker.finish(error)
    else:
        worker.run(reader, at, slots)


class _Slots:
    """How far a worker may read ahead: so many samples and bytes of them, or one that is larger."""

    def __init__(self) -> None:
        self.many, self.bytes, self.ended = 0, 0, False
        self.sizes: deque[int] = deque()  # of samples that are not handed over yet
        self.changed = threading.Condition()

    def wait(self) -> bool:
        """Waits until one more sample may be read; true, so that it stands in a condition."""
        with self.changed:
            while not self.ended and (
                len(self.sizes) >= self.many or (self.bytes >= AHEAD and self.sizes)
            ):
                self.changed.wait()
        return True

    def take(self, size: int) -> None:
        """One more was read."""
        with self.changed:
            self.sizes.append(size)
            self.bytes += size

    def give(self, number: int) -> None:
        """So many were handed over."""
        with self.changed:
            self.bytes -= sum(self.sizes.popleft() for _ in range(number))
            self.changed.notify()

    def over(self) -> None:
        """Nobody waits for samples any more."""
        with self.changed:
            self.ended = True
            self.changed.notify()


class _Worker:
    def __init__(self, connection: socket.socket, arrivals: Arrivals) -> None:
        self.connection, self.arrivals = connection, arrivals
        info = get_worker_info()
        self.blocks = Blocks(_ROOM, share(info.num_workers if info else 1))
        self.outbox: SimpleQueue[tuple[Report, list[int]] | None] = SimpleQueue()
        self.slots = _Slots()
        self.alone = threading.Event()  # nobody listens any more
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def run(self, reader: Any, at: Position, slots: int) -> None:
        """One pass over the reader."""
        self.slots.many = slots
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            up = start(reader, at)
            self.outbox.put((Report([], [up.position()]), []))
            try:
                while self.slots.wait() and not self.alone.is_set():
                    try:
                        sample = next(up.items)
                    except StopIteration:
                        break
                    told = self.blocks.told(sample, "sample")
                    del sample
                    self.slots.take(len(told.data) + sum(size for _, _, size in told.places))
                    news, descriptors = self.blocks.news()
                    self.outbox.put((Report([told], [up.position()], news), descriptors))
            finally:
                up.close()
        except BaseException as error:
            self.finish(error)
        else:
            self.finish(None)

    def finish(self, error: BaseException | None) -> None:
        """Sends how it ended, after all that was read before."""
        last = Report([], [], end=True, error=pickled_error(error) if error else None)
        self.outbox.put((last, []))
        self.outbox.put(None)
        self.sender.join()

    def _listen(self) -> None:
        """Takes acknowledgements until the parent is gone."""
        while message := self.arrivals.next():
            number, returned = message
            self.blocks.returned.extend(returned)
            self.slots.give(number)
        self.alone.set()
        self.slots.over()

    def _send(self) -> None:
        more = True
        while more:
            reports, descriptors, more = self._ready()
            whole = Report(
                list(chain.from_iterable(report.samples for report in reports)),
                list(chain.from_iterable(report.positions for report in reports)),
                News(
                    tuple(chain.from_iterable(report.news.made for report in reports)),
                    tuple(chain.from_iterable(report.news.full for report in reports)),
                    tuple(chain.from_iterable(report.news.gone for report in reports)),
                ),
                any(report.end for report in reports),
                next((report.error for report in reports if report.error), None),
            )
            send(self.connection, whole, descriptors)

    def _ready(self) -> tuple[list[Report], list[int], bool]:
        """What waits to be sent, at least one report; false once nothing comes after it."""
        reports: list[Report] = []
        descriptors: list[int] = []
        size = 0
        waiting = self.outbox.get()
        while waiting:
            report, more = waiting
            reports.append(report)
            descriptors += more
            size += sum(len(sample.data) for sample in report.samples)
            alone = not report.samples and not report.end  # the position of the start
            if alone or size > _FULL or len(descriptors) >= _FEW or len(reports) >= _MANY:
                return reports, descriptors, True
            try:
                waiting = self.outbox.get_nowait()
            except Empty:
                return reports, descriptors, True
        return reports, descriptors, False
