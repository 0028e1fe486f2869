"""The buckets of a stream: samples wait until their bucket is full.

What waits is bounded: less than a batch for each bucket. The position is exact without storing
samples: that of the reader before the oldest one that waits, how many were read since, and how many
of each bucket were handed over since; who resumes reads those again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jreader.readers import Pass, Position

_MARKED = 64  # samples of a stream between two marks


class Mark(NamedTuple):
    """A place in a stream to resume at; each sample that waits holds the last one before it.

    Attributes:
        origin: The position of the reader.
        read: How many samples were read before it, since the place where the pass began.
        seen: How many of each bucket were among them.
    """

    origin: Position
    read: int
    seen: tuple[int, ...]


class StreamBuckets:
    """A pass over a stream: the samples that wait for their bucket to be full.

    Attributes:
        waiting: For each bucket, the samples that wait, each with its number and a mark.
    """

    def __init__(
        self,
        up: Pass[Any],
        at: tuple[Position, int, Sequence[int]],
        rows: Sequence[int],
        number_of: Callable[[Any], int | None],
        made: Callable[[Sequence[Any], int], Any],
    ) -> None:
        """Begins at a position; nothing is read yet.

        Args:
            up: A pass over the samples, from `at` on.
            at: The position: that of the reader, the samples that were read since, and how many of
                each bucket were handed over.
            rows: The samples of a full batch, for each bucket.
            number_of: Gives the number of the bucket of a sample; None for none.
            made: Makes a batch of samples and the number of their bucket.
        """
        self.up, self._first, self._rows = up, at, rows
        self._number_of, self._made = number_of, made
        _, self._behind, given = at
        self._given, self._seen, self._read = list(given), [0] * len(rows), 0
        self.waiting: list[deque[tuple[int, Mark, Any]]] = [deque() for _ in rows]

    def position(self) -> Position:
        """A place before the oldest sample that waits, and what was done since."""
        if not self._read or self._read < self._behind:
            origin, behind, given = self._first
            return origin, behind, tuple(given)
        oldest = [samples[0][:2] for samples in self.waiting if samples]
        if not oldest:
            return self.up.position(), 0, (0,) * len(self._given)
        origin, read, seen = min(oldest)[1]
        given = [done - before for done, before in zip(self._given, seen, strict=True)]
        return origin, self._read - read, tuple(given)

    def batches(self, *, short: bool) -> Iterator[Any]:
        """The batches; those that are short come last, or are left out."""
        waiting, seen, given, number_of = self.waiting, self._seen, self._given, self._number_of
        mark = self._mark()
        for sample in self.up.items:
            number = number_of(sample)
            self._read += 1
            if number is not None:
                seen[number] += 1
                if seen[number] > given[number]:  # else it was handed over before
                    waiting[number].append((self._read, mark, sample))
                if self._read > self._behind and len(waiting[number]) == self._rows[number]:
                    yield self._batch(number)
            if not self._read % _MARKED:
                mark = self._mark()
        for number in range(len(waiting)) if short else ():
            if waiting[number]:
                yield self._batch(number)

    def _mark(self) -> Mark:
        return Mark(self.up.position(), self._read, tuple(self._seen))

    def _batch(self, number: int) -> Any:
        samples = [sample for _, _, sample in self.waiting[number]]
        self.waiting[number].clear()
        self._given[number] += len(samples)
        return self._made(samples, number)
