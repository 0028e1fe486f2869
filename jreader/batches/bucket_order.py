"""Which samples make the batches of a `bucket`.

Where their lengths are known, any batch is found at once: samples are sorted by bucket once (a
counting sort), permuted inside each bucket, cut into batches, and the batches of all buckets are
permuted.

Of a stream, samples wait until their bucket is full. What waits is bounded: less than a batch for
each bucket. The position is exact without storing samples: that of the reader before the oldest one
that waits, how many were read since, and how many of each bucket were handed over since; who
resumes reads those again.
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

_CHUNK = 16384  # samples whose order is computed in one go, at least
_RESUME_POINT_EVERY = 64  # samples of a stream between two marks


@dataclass(frozen=True, eq=False)
class BucketOrder:
    """The samples of a reader, sorted by bucket.

    >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
    >>> order.samples.tolist(), order.counts.tolist()
    ([1, 0, 2, 3], [1, 3])

    Attributes:
        samples: The indices of the samples, bucket by bucket.
        counts: The number of samples in each bucket.
        rows: The samples of a full batch, for each bucket.
        check: A number that differs where the counts do.
    """

    samples: Array
    counts: Array
    rows: Array
    check: int

    @classmethod
    def of(cls, numbers: Array, rows: Array) -> BucketOrder:
        """Sorts samples by the numbers of their buckets; one that is too high leaves one out."""
        many = len(rows)
        narrow = numbers.astype(np.uint8 if many < 256 else np.uint32)  # 8 bits sort fastest
        counts = np.bincount(narrow, minlength=many + 1)[:many]
        samples = np.argsort(narrow, kind="stable")[: counts.sum()].astype(np.uint32)
        return cls(samples, counts, rows, zlib.crc32(counts.tobytes()))


class KnownBatches:
    """The batches of an order, those of all buckets mixed.

    >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
    >>> known = KnownBatches(order, (0, 0, 0), short=True)
    >>> len(known), sorted((number, len(each)) for number, each in known.locate(np.arange(3)))
    (3, [(0, 1), (1, 1), (1, 2)])

    Attributes:
        order: The samples, sorted by bucket.
        begins: How many batches the buckets before each one have; the last number is that of all.
    """

    def __init__(self, order: BucketOrder, path: tuple[int, int, int], *, short: bool) -> None:
        """Cuts the samples of each bucket into batches.

        Args:
            order: The samples.
            path: What makes the keys: seed, epoch, and the place of the op in the plan.
            short: Whether there are batches with fewer samples.
        """
        self.order, self._path, self._short = order, path, short
        many = -(-order.counts // order.rows) if short else order.counts // order.rows
        self.begins = offsets_of(many)

    def __len__(self) -> int:
        """How many batches there are."""
        return int(self.begins[-1])

    def buckets(self) -> list[int]:
        """The numbers of the buckets that have a batch in an epoch."""
        return np.flatnonzero(np.diff(self.begins)).tolist()

    def never(self) -> list[int]:
        """The numbers of the buckets whose samples fill no batch."""
        counts = self.order.counts
        return np.flatnonzero((counts > 0) & (counts < self.order.rows)).tolist()

    def short_batches(self) -> list[tuple[int, int]]:
        """The buckets with a short batch, and its samples."""
        short_batches = (self.order.counts % self.order.rows).tolist() if self._short else []
        return [(number, rest) for number, rest in enumerate(short_batches) if rest]

    def _located(self, indices: Array) -> tuple[Array, Array]:
        """The bucket of each batch, and its number among those of its bucket."""
        mixed = orders.permutation(indices, len(self), orders.key(*self._path, 0))
        numbers = np.searchsorted(self.begins, mixed, "right") - 1
        return numbers, mixed - self.begins[numbers]

    def places(self, samples: Array) -> tuple[Array, Array]:
        """The batch of each of these samples, and its row there: the inverse of `locate`.

        Those that are in no batch have row -1.

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
            rows[mine[batches[mine] >= self.begins[number + 1]]] = -1  # of a short one
        there = rows >= 0
        batches[there] = self._unpermuted(batches[there], len(self), 0)
        return batches, rows

    def _unpermuted(self, moved: Array, n: int, number: int) -> Array:
        return orders.permutation(moved, n, orders.key(*self._path, number), inverse=True)

    def cursor_at(self, index: int) -> tuple[Position, int]:
        """The position before a batch, and how many samples the batches before it have."""
        numbers, places = self._located(np.arange(index))
        rows = self.order.rows[numbers]
        before = np.minimum(rows, self.order.counts[numbers] - places * rows).sum()
        return (index, self.order.check), int(before)

    def at(self, index: int) -> tuple[int, Array]:
        """The bucket of a batch, and the indices of its samples."""
        (found,) = self.locate(np.array([index]))
        return found

    def from_batch(self, index: int) -> Iterator[tuple[int, Array]]:
        """The same of one batch after another, some found at once."""
        many = max(_CHUNK // int(self.order.rows.max()), 1)
        for low in range(index, len(self), many):
            yield from self.locate(np.arange(low, min(low + many, len(self))))

    def locate(self, indices: Array) -> list[tuple[int, Array]]:
        """The bucket of each batch, and the indices of its samples."""
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
        self.waiting: list[deque[tuple[int, ResumePoint, Any]]] = [deque() for _ in rows]

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
        mark = self._resume_point()
        for sample in self.up.items:
            number = number_of(sample)
            self._read += 1
            if number is not None:
                seen[number] += 1
                if seen[number] > given[number]:  # else it was handed over before
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
