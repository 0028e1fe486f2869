"""The order of a `bucket` over samples whose lengths are known: any batch is found at once.

Samples are sorted by bucket once (a counting sort), permuted inside each bucket, cut into batches,
and the batches of all buckets are permuted.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from jreader import orders
from jreader.readers.joined_columns import parted
from jreader.readers.planes import Array

CALL = "bucket(reader, bounds)"


class Buckets(Protocol):
    """What an order asks of the op."""

    @property
    def bounds(self) -> tuple[int, ...]:
        """The lengths of the buckets."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The samples of a full batch, for each bucket."""

    @property
    def longer(self) -> Literal["error", "truncate", "drop"]:
        """What becomes of samples that are longer than the last bound."""

    @property
    def drop_last(self) -> bool | None:
        """Whether short batches are left out."""

    @property
    def path(self) -> tuple[int, int, int]:
        """What makes the keys: seed, epoch, and the place of the op in the plan."""


@dataclass(frozen=True, eq=False)
class BucketOrder:
    """The samples of a reader, sorted by bucket.

    Attributes:
        samples: The indices of the samples, bucket by bucket.
        counts: The number of samples in each bucket.
        check: A number that differs where the counts do.
    """

    samples: Array
    counts: Array
    check: int

    @classmethod
    def of(cls, op: Buckets, lengths: Array, known: int) -> BucketOrder:
        """Sorts the samples of these lengths.

        Raises:
            ValueError: One is longer than the last bound, and that is an error.
        """
        numbers = np.searchsorted(np.array(op.bounds), lengths)
        last = len(op.bounds) - 1
        over = numbers > last
        if op.longer == "error" and over.any():
            first = int(over.argmax())
            raise ValueError(
                f"{CALL}: {int(over.sum()):,} of {known:,} samples are longer than the last bound, "
                f"{op.bounds[-1]}, such as sample {first} with {lengths[first]}: type bounds=[..., "
                f"{int(lengths.max())}], longer='truncate' to cut them, or longer='drop' to leave "
                "them out."
            )
        if op.longer == "truncate":
            numbers = np.minimum(numbers, last)
        narrow = numbers.astype(np.uint8 if last < 255 else np.uint32)  # 8 bits sort fastest
        counts = np.bincount(narrow, minlength=last + 2)[: last + 1]
        samples = np.argsort(narrow, kind="stable")[: counts.sum()].astype(np.uint32)
        return cls(samples, counts, zlib.crc32(counts.tobytes()))

    def batches(self, op: Buckets) -> Array:
        """How many batches the buckets before each one have; the last number is that of all."""
        rows = np.array(op.rows)
        many = self.counts // rows if op.drop_last else -(-self.counts // rows)
        return np.concatenate([[0], np.cumsum(many)])

    def located(self, op: Buckets, indices: Array) -> tuple[Array, Array]:
        """The bucket of each batch, and its number among those of its bucket."""
        begins = self.batches(op)
        mixed = orders.permutation(indices, int(begins[-1]), orders.key(*op.path, 0))
        numbers = np.searchsorted(begins, mixed, "right") - 1
        return numbers, mixed - begins[numbers]

    def before(self, op: Buckets, index: int) -> int:
        """How many samples the batches before one of them have."""
        numbers, places = self.located(op, np.arange(index))
        rows = np.array(op.rows)[numbers]
        return int(np.minimum(rows, self.counts[numbers] - places * rows).sum())

    def found(self, op: Buckets, indices: Array) -> list[tuple[int, Array]]:
        """The bucket of each batch, and the indices of its samples."""
        numbers, places = self.located(op, indices)
        firsts = np.cumsum(self.counts) - self.counts
        made: list[Any] = [None] * len(indices)
        for number, here in parted(numbers):
            rows, count = op.rows[number], int(self.counts[number])
            wanted = places[here][:, None] * rows + np.arange(rows)
            there = wanted < count
            key = orders.key(*op.path, 1 + number)
            moved = orders.permutation(wanted[there], count, key)
            samples = self.samples[firsts[number] + moved].astype(np.int64)
            parts = np.split(samples, np.cumsum(there.sum(1))[:-1])
            for index, part in zip(np.arange(len(indices))[here].tolist(), parts, strict=True):
                made[index] = (number, part)
        return made
