"""Which samples make up each batch of a `bucket`.

If the lengths are known, any batch is found directly: a counting sort orders the samples by bucket
once; a permutation shuffles each bucket, which is cut into batches, and another shuffles the
batches of all buckets.

In a stream, samples wait until their bucket is full: less than a batch for each bucket. The
position is exact without storing samples: the reader's position before the oldest waiting sample,
the samples read since, and how many of each bucket were yielded since. Resuming reads those samples
again.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jreader import orders
from jreader.readers import Pass, Position
from jreader.readers.columns import Array, offsets_of
from jreader.readers.joined_columns import by_part

_CHUNK = 16384  # samples to order at a time, at least
_RESUME_POINT_EVERY = 64  # samples of a stream between two resume points


@dataclass(frozen=True, eq=False)
class BucketOrder:
    """The samples of a reader, sorted by bucket.

    >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
    >>> order.samples.tolist(), order.counts.tolist()
    ([1, 0, 2, 3], [1, 3])

    Attributes:
        samples: The sample indices, bucket by bucket.
        counts: The number of samples in each bucket.
        rows: Samples per full batch, for each bucket.
        check: A checksum of the counts.
    """

    samples: Array
    counts: Array
    rows: Array
    check: int

    @classmethod
    def of(cls, numbers: Array, rows: Array) -> BucketOrder:
        """Sort samples by bucket number; the number after the last bucket leaves a sample out."""
        many = len(rows)
        narrow = numbers.astype(np.uint8 if many < 256 else np.uint32)  # 8 bits sort fastest
        counts = np.bincount(narrow, minlength=many + 1)[:many]
        samples = np.argsort(narrow, kind="stable")[: counts.sum()].astype(np.uint32)
        return cls(samples, counts, rows, zlib.crc32(counts.tobytes()))


class KnownBatches:
    """The batches of all buckets, shuffled together.

    >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
    >>> known = KnownBatches(order, (0, 0, 0), short=True)
    >>> len(known), sorted((number, len(each)) for number, each in known.locate(np.arange(3)))
    (3, [(0, 1), (1, 1), (1, 2)])

    Attributes:
        order: The samples, sorted by bucket.
        begins: The number of batches in earlier buckets, for each bucket; last, the total.
    """

    def __init__(self, order: BucketOrder, path: tuple[int, int, int], *, short: bool) -> None:
        """Cut the samples of each bucket into batches.

        Args:
            order: The samples.
            path: The parts of the random keys: seed, epoch, and the place of the op in the plan.
            short: Whether to include short batches.
        """
        self.order, self._path, self._short = order, path, short
        many = -(-order.counts // order.rows) if short else order.counts // order.rows
        self.begins = offsets_of(many)

    def __len__(self) -> int:
        """Return the number of batches."""
        return int(self.begins[-1])

    def buckets(self) -> list[int]:
        """Return the numbers of the buckets that have a batch in an epoch."""
        return np.flatnonzero(np.diff(self.begins)).tolist()

    def never(self) -> list[int]:
        """Return the numbers of the buckets that never fill a batch."""
        counts = self.order.counts
        return np.flatnonzero((counts > 0) & (counts < self.order.rows)).tolist()

    def short_batches(self) -> list[tuple[int, int]]:
        """Return the buckets with a short batch, and its size."""
        short_batches = (self.order.counts % self.order.rows).tolist() if self._short else []
        return [(number, rest) for number, rest in enumerate(short_batches) if rest]

    def _located(self, indices: Array) -> tuple[Array, Array]:
        """Return the bucket of each batch, and its number within the bucket."""
        mixed = orders.permutation(indices, len(self), orders.key(*self._path, 0))
        numbers = np.searchsorted(self.begins, mixed, "right") - 1
        return numbers, mixed - self.begins[numbers]

    def places(self, samples: Array) -> tuple[Array, Array]:
        """Find the batch and row of each sample: the inverse of `locate`.

        Samples in no batch have row -1.

        >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
        >>> known = KnownBatches(order, (0, 0, 0), short=False)
        >>> known.at(0), known.places(np.array([1, 3]))
        ((1, array([2, 3])), (array([-1,  0]), array([-1,  1])))
        """
        order, asked, begins = self.order, samples.astype(np.uint32), offsets_of(self.order.counts)
        batches, rows = np.full((2, len(samples)), -1)
        for number in self.buckets():
            held, chosen = order.samples[slice(*begins[number : number + 2])], 1 + number
            place = held.searchsorted(asked)
            mine = np.flatnonzero(held.take(place, mode="clip") == asked)
            place = self._unpermuted(place[mine], len(held), chosen)
            nth, rows[mine] = np.divmod(place, order.rows[number])
            batches[mine] = nth + self.begins[number]
            rows[mine[batches[mine] >= self.begins[number + 1]]] = -1  # in a dropped short batch
        there = rows >= 0
        batches[there] = self._unpermuted(batches[there], len(self), 0)
        return batches, rows

    def _unpermuted(self, moved: Array, n: int, number: int) -> Array:
        return orders.permutation(moved, n, orders.key(*self._path, number), inverse=True)

    def cursor_at(self, index: int) -> tuple[Position, int]:
        """Return the position before a batch, and the number of samples in earlier batches."""
        numbers, places = self._located(np.arange(index))
        rows = self.order.rows[numbers]
        before = np.minimum(rows, self.order.counts[numbers] - places * rows).sum()
        return (index, self.order.check), int(before)

    def at(self, index: int) -> tuple[int, Array]:
        """Return the bucket of a batch, and the indices of its samples."""
        (found,) = self.locate(np.array([index]))
        return found

    def from_batch(self, index: int) -> Iterator[tuple[int, Array]]:
        """Yield (bucket, indices) for each batch from this one on, several computed at a time."""
        many = max(_CHUNK // int(self.order.rows.max()), 1)
        for low in range(index, len(self), many):
            yield from self.locate(np.arange(low, min(low + many, len(self))))

    def locate(self, indices: Array) -> list[tuple[int, Array]]:
        """Return (bucket, indices of samples) for each batch."""
        order, (numbers, places) = self.order, self._located(indices)
        firsts = offsets_of(order.counts)
        made: list[Any] = [None] * len(indices)
        for number, here in by_part(numbers):
            rows, count = int(order.rows[number]), int(order.counts[number])
            wanted = places[here][:, None] * rows + np.arange(rows)
            there = wanted < count
            key = orders.key(*self._path, 1 + number)
            moved = orders.permutation(wanted[there], count, key)
            samples = order.samples[firsts[number] + moved].astype(np.int64)
            parts = np.split(samples, np.cumsum(there.sum(1))[:-1])
            for index, part in zip(np.arange(len(indices))[here].tolist(), parts, strict=True):
                made[index] = (number, part)
        return made


class ResumePoint(NamedTuple):
    """A place in a stream to resume at; each waiting sample refers to the last one before it.

    Attributes:
        origin: The reader's position.
        read: The samples read before it since the start of the pass.
        seen: How many of them fell into each bucket.
    """

    origin: Position
    read: int
    seen: tuple[int, ...]


class StreamBuckets:
    """A pass over a stream, with the samples that wait for their bucket to fill.

    Attributes:
        waiting: The waiting samples of each bucket, each with its number and resume point.
    """

    def __init__(
        self,
        up: Pass[Any],
        at: tuple[Position, int, Sequence[int]],
        rows: Sequence[int],
        number_of: Callable[[Any], int | None],
        made: Callable[[Sequence[Any], int], Any],
    ) -> None:
        """Prepare a pass from a position; nothing is read yet.

        Args:
            up: A pass over the samples, from `at` on.
            at: The position: the reader's position, the samples read since, and how many of each
                bucket were yielded.
            rows: Samples per full batch, for each bucket.
            number_of: Returns the bucket number of a sample; None to drop it.
            made: Makes a batch from samples and their bucket number.
        """
        self.up, self._first, self._rows = up, at, rows
        self._number_of, self._made = number_of, made
        _, self._behind, given = at
        self._given, self._seen, self._read = list(given), [0] * len(rows), 0
        self.waiting: list[deque[tuple[int, ResumePoint, Any]]] = [deque() for _ in rows]

    def position(self) -> Position:
        """Return a resume point before the oldest waiting sample, and what was done since."""
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
        """Yield the batches; short ones come last, or are dropped."""
        waiting, seen, given, number_of = self.waiting, self._seen, self._given, self._number_of
        mark = self._resume_point()
        for sample in self.up.items:
            number = number_of(sample)
            self._read += 1
            if number is not None:
                seen[number] += 1
                if seen[number] > given[number]:  # otherwise it was yielded before
                    waiting[number].append((self._read, mark, sample))
                if self._read > self._behind and len(waiting[number]) == self._rows[number]:
                    yield self._batch(number)
            if not self._read % _RESUME_POINT_EVERY:
                mark = self._resume_point()
        for number in range(len(waiting)) if short else ():
            if waiting[number]:
                yield self._batch(number)

    def _resume_point(self) -> ResumePoint:
        return ResumePoint(self.up.position(), self._read, tuple(self._seen))

    def _batch(self, number: int) -> Any:
        samples = [sample for _, _, sample in self.waiting[number]]
        self.waiting[number].clear()
        self._given[number] += len(samples)
        return self._made(samples, number)
