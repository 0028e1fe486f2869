"""The order of a `bucket` over samples whose lengths are known: any batch is found at once.

Samples are sorted by bucket once (a counting sort), permuted inside each bucket, cut into batches,
and the batches of all buckets are permuted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader import orders
from jreader.readers.columns import Array
from jreader.readers.joined_columns import parted


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


class MixedBatches:
    """The batches of an order, those of all buckets mixed.

    >>> order = BucketOrder.of(np.array([1, 0, 1, 1]), np.array([2, 2]))
    >>> mixed = MixedBatches(order, (0, 0, 0), short=True)
    >>> len(mixed), sorted((number, len(each)) for number, each in mixed.found(np.arange(3)))
    (3, [(0, 1), (1, 1), (1, 2)])

    Attributes:
        begins: How many batches the buckets before each one have; the last number is that of all.
    """

    def __init__(self, order: BucketOrder, path: tuple[int, int, int], *, short: bool) -> None:
        """Cuts the samples of each bucket into batches.

        Args:
            order: The samples.
            path: What makes the keys: seed, epoch, and the place of the op in the plan.
            short: Whether there are batches with fewer samples.
        """
        self._order, self._path = order, path
        many = -(-order.counts // order.rows) if short else order.counts // order.rows
        self.begins: Array = np.concatenate([[0], np.cumsum(many)])

    def __len__(self) -> int:
        """How many batches there are."""
        return int(self.begins[-1])

    def _located(self, indices: Array) -> tuple[Array, Array]:
        """The bucket of each batch, and its number among those of its bucket."""
        mixed = orders.permutation(indices, len(self), orders.key(*self._path, 0))
        numbers = np.searchsorted(self.begins, mixed, "right") - 1
        return numbers, mixed - self.begins[numbers]

    def before(self, index: int) -> int:
        """How many samples the batches before one of them have."""
        numbers, places = self._located(np.arange(index))
        rows = self._order.rows[numbers]
        return int(np.minimum(rows, self._order.counts[numbers] - places * rows).sum())

    def found(self, indices: Array) -> list[tuple[int, Array]]:
        """The bucket of each batch, and the indices of its samples."""
        order, (numbers, places) = self._order, self._located(indices)
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
