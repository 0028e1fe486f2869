"""How far workers may be ahead of the consumer: in samples, in bytes, and in seconds of waiting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from jreader._worker.shared_memory import MAX_BYTES_AHEAD

_CHUNKS = 4  # chunks of each worker that fit the window: one is in work, the others wait
_LEAST = 2  # samples of each worker, however many bytes they have: one in work, one behind it


@dataclass(frozen=True)
class Limits:
    """The bounds of a map on several workers, which hand samples over in chunks.

    >>> limits = Limits(workers=2, window=16, widest=8192, max_bytes=32 << 20)
    >>> limits.window_of(chunksize=1, sample_bytes=100), limits.window_of(1000, 100)
    (16, 8000)
    >>> limits.window_of(chunksize=1, sample_bytes=8 << 20)
    4

    Attributes:
        workers: How many threads, or tasks of an executor, work side by side.
        window: How many samples may be in work or wait to be handed over.
        widest: How many where they take next to no time, if more than that.
        max_bytes: What those samples may weigh, but for two of each worker.
        timeout: The seconds that a result may be waited for; 0 for any.
    """

    workers: int
    window: int
    widest: int = 0
    max_bytes: float = inf
    timeout: float = 0

    @classmethod
    def of_each(cls, workers: int, window: int, widest: int, timeout: float = 0) -> Limits:
        """Those where so many samples of each worker may be ahead, and so many bytes of them."""
        most = workers * MAX_BYTES_AHEAD
        return cls(workers, workers * window, workers * widest, most, timeout)

    @cached_property
    def chunk_bytes(self) -> float:
        """What the samples of one chunk may weigh, and likewise their results."""
        return self.max_bytes / (2 * _CHUNKS * self.workers)

    def window_of(self, chunksize: int, sample_bytes: float) -> int:
        """How many samples may be ahead, if a chunk has so many and each has so many bytes."""
        wanted = max(self.window, min(self.widest, _CHUNKS * self.workers * chunksize))
        return int(min(wanted, max(_LEAST * self.workers, self.max_bytes / sample_bytes)))

    def chunksize_of(self, wanted: float, sample_bytes: float) -> int:
        """How many samples a chunk may have, of those that are wanted; at least one."""
        widest = max(self.window, self.widest) // (_CHUNKS * self.workers)
        return int(max(1, min(wanted, widest, self.chunk_bytes / sample_bytes)))
