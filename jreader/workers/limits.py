"""How far ahead of the consumer workers may be: in samples, in bytes, and in seconds of waiting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from jreader._worker.shared_memory import MAX_BYTES_AHEAD

_CHUNKS = 4  # chunks per worker in the window: one in work, the others waiting
_LEAST = 2  # samples per worker, however large: one in work, one waiting


@dataclass(frozen=True)
class Limits:
    """The bounds of a map on several workers, which hand samples over in chunks.

    >>> limits = Limits(workers=2, window=16, widest=8192, max_bytes=32 << 20)
    >>> limits.window_of(chunksize=1, sample_bytes=100), limits.window_of(1000, 100)
    (16, 8000)
    >>> limits.window_of(chunksize=1, sample_bytes=8 << 20)
    4

    Attributes:
        workers: The number of parallel threads, or tasks of an executor.
        window: The number of samples that may be in work or wait to be handed over.
        widest: The same for samples that take next to no time, if larger.
        max_bytes: The most bytes of those samples, except for two per worker.
        timeout: Seconds to wait for a result; 0 for no limit.
    """

    workers: int
    window: int
    widest: int = 0
    max_bytes: float = inf
    timeout: float = 0

    @classmethod
    def of_each(cls, workers: int, window: int, widest: int, timeout: float = 0) -> Limits:
        """Return limits from the number of samples, and bytes, that each worker may be ahead."""
        most = workers * MAX_BYTES_AHEAD
        return cls(workers, workers * window, workers * widest, most, timeout)

    @cached_property
    def chunk_bytes(self) -> float:
        """The most bytes of a chunk's samples, and likewise of their results."""
        return self.max_bytes / (2 * _CHUNKS * self.workers)

    def window_of(self, chunksize: int, sample_bytes: float) -> int:
        """Return how many samples may be ahead, for this chunk size and these bytes per sample."""
        wanted = max(self.window, min(self.widest, _CHUNKS * self.workers * chunksize))
        return int(min(wanted, max(_LEAST * self.workers, self.max_bytes / sample_bytes)))

    def chunksize_of(self, wanted: float, sample_bytes: float) -> int:
        """Return how many of the wanted samples a chunk may have; at least one."""
        widest = max(self.window, self.widest) // (_CHUNKS * self.workers)
        return int(max(1, min(wanted, widest, self.chunk_bytes / sample_bytes)))
