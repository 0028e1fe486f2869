"""The order of a `bucket` over samples whose lengths are known: any batch is found at once.

Samples are sorted by bucket once (a counting sort), permuted inside each bucket, cut into batches,
and the batches of all buckets are permuted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader import orders
from jreader.readers import Position
from jreader.readers.columns import Array
from jreader.readers.joined_columns import parted

_AT_ONCE = 16384  # samples whose order is computed in one go, at least


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
    >>> len(known), sorted((number, len(each)) for number, each in known.found(np.arange(3)))
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
        self.begins: Array = np.concatenate([[0], np.cumsum(many)])

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

    def rests(self) -> list[tuple[int, int]]:
        """The buckets with a short batch, and its samples."""
        rests = (self.order.counts % self.order.rows).tolist() if self._short else []
        return [(number, rest) for number, rest in enumerate(rests) if rest]

    def _located(self, indices: Array) -> tuple[Array, Array]:
        """The bucket of each batch, and its number among those of its bucket."""
        mixed = orders.permutation(indices, len(self), orders.key(*self._path, 0))
        numbers = np.searchsorted(self.begins, mixed, "right") - 1
        return numbers, mixed - self.begins[numbers]

    def cursor_at(self, index: int) -> tuple[Position, int]:
        """The position before a batch, and how many samples the batches before it have."""
        numbers, places = self._located(np.arange(index))
        rows = self.order.rows[numbers]
        before = np.minimum(rows, self.order.counts[numbers] - places * rows).sum()
        return (index, self.order.check), int(before)

    def at(self, index: int) -> tuple[int, Array]:
        """The bucket of a batch, and the indices of its samples."""
        (found,) = self.found(np.array([index]))
        return found

    def from_batch(self, index: int) -> Iterator[tuple[int, Array]]:
        """The same of one batch after another, some found at once."""
        many = max(_AT_ONCE // int(self.order.rows.max()), 1)
        for low in range(index, len(self), many):
            yield from self.found(np.arange(low, min(low + many, len(self))))

    def found(self, indices: Array) -> list[tuple[int, Array]]:
        """The bucket of each batch, and the indices of its samples."""
        order, (numbers, places) = self.order, self._located(indices)
        firsts = np.cumsum(order.counts) - order.counts
        made: list[Any] = [None] * len(indices)
        for number, here in parted(numbers):
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
