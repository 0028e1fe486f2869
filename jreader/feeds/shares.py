"""Shares: the rows of a global batch that the devices of one process have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Share:
    """The rows of each batch of `size` that one process feeds.

    >>> share = Share.over(8, {(4, 6), (0, 2), (1, 3)})
    >>> share.spans, share.rows().tolist(), len(share)
    (((0, 3), (4, 6)), [0, 1, 2, 4, 5], 5)

    Attributes:
        size: The rows of a whole batch.
        spans: The rows, as (from, up to), in order and apart.
    """

    size: int
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def over(cls, size: int, spans: set[tuple[int, int]]) -> Share:
        """The share that spans make up, in any order and overlapping or not."""
        apart: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if apart and first <= apart[-1][1]:
                apart[-1] = (apart[-1][0], max(apart[-1][1], last))
            elif first < last:
                apart.append((first, last))
        return cls(size, tuple(apart))

    def rows(self) -> np.ndarray[Any, Any]:
        """The numbers of the rows."""
        return np.concatenate([np.arange(0), *(np.arange(*span) for span in self.spans)])

    def __len__(self) -> int:
        """How many rows there are."""
        return sum(last - first for first, last in self.spans)

    def found(self, index: slice) -> slice:
        """Where rows of the whole batch, given as one slice, lie among these."""
        low, high, _ = index.indices(self.size)
        before = 0
        for first, last in self.spans:
            if first <= low <= high <= last:
                return slice(before + low - first, before + high - first)
            before += last - first
        raise IndexError(f"rows {low} to {high} are not among {self.spans}")
