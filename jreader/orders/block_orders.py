"""The order of samples that lie in blocks: blocks in random order, then samples among a few blocks.

Blocks are permuted, and laid out in groups of so many; the samples of a group are permuted. So a
pass that keeps the blocks of one group open reads each block once, and still any place of the order
is computed by itself, from a table of one number for each block (drawn anew for each epoch).

That is the block shuffle of Levanter (https://github.com/stanford-crfm/levanter), which permutes
inside each window of blocks; WebDataset's shards with a shuffle buffer give a similar mixing, but
no place can be computed there.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from jreader.orders.keys import Key, key
from jreader.orders.permutations import Lengths, permutation, permutation_of_each

Array = Any  # of NumPy or jax

_FEW = 8  # groups that are computed one by one
_KEPT = 4  # tables that are kept


class BlockTable(NamedTuple):
    """The blocks in the order of an epoch.

    Attributes:
        ends: Where each ends, in the order; several orders make rows.
        shifts: What to add to a place in a block for its row.
        group_ends: Where each group of blocks ends.
    """

    ends: Array
    shifts: Array
    group_ends: Array


class BlockOrder:
    """The order of samples in blocks that begin at `starts`, with `together` blocks in a group.

    >>> order = BlockOrder(np.array([0, 3, 5, 9]), 12, 2)
    >>> order.rows(np.arange(12), (0, 0, 1)).tolist()
    [9, 11, 6, 8, 7, 5, 10, 2, 3, 1, 0, 4]

    Args:
        starts: The sample at which each block begins; the first 0; blocks may be empty.
        length: The number of samples.
        together: How many blocks make a group.
    """

    def __init__(self, starts: Array, length: int, together: int) -> None:
        sizes = np.diff(starts, append=length)
        filled = sizes > 0
        self.starts, self.sizes = starts[filled], sizes[filled]
        self.length, self.together = length, together
        rest = len(self.sizes) % together or together
        rising = np.sort(self.sizes)
        self._least, self._most = int(rising[:rest].sum()), int(rising[-together:].sum())
        self._tables: deque[tuple[tuple[int, ...], BlockTable]] = deque(maxlen=_KEPT)

    def rows(self, indices: Array, path: tuple[Any, ...]) -> Array:
        """The samples at these places of the order.

        Args:
            indices: Places: an array of integers, of NumPy or jax, traced or not.
            path: Seed, epoch and place of the op; the epoch may be traced.
        """
        if not self.length:
            return indices
        if isinstance(indices, np.ndarray) and all(isinstance(number, int) for number in path):
            return self._on_host(indices, path)
        return self._traced(indices, path)

    def _on_host(self, indices: Array, path: tuple[int, ...]) -> Array:
        if not indices.size:
            return indices
        table = self._table(path)
        low, high = table.group_ends.searchsorted([indices.min(), indices.max()], "right").tolist()
        if low == high:
            return self._in_group(indices, low, table, path)
        which = table.group_ends.searchsorted(indices, "right")
        groups = np.unique(which).tolist() if high - low >= _FEW else range(low, high + 1)
        if len(groups) > _FEW and self._most < 1 << 31:
            return self._in_each(indices, which, table, path)
        rows = np.empty_like(indices)
        for group in groups:
            here = which == group
            rows[here] = self._in_group(indices[here], group, table, path)
        return rows

    def _in_group(
        self, indices: Array, group: int, table: BlockTable, path: tuple[int, ...]
    ) -> Array:
        first = int(table.group_ends[group - 1]) if group else 0
        size = int(table.group_ends[group]) - first
        moved = permutation(indices - first, size, key(*path, group + 1)) + first
        block = group * self.together
        ends = table.ends[block : block + self.together]
        shifts = table.shifts[block : block + self.together]
        rows: Array = moved + shifts[ends.searchsorted(moved, "right")]
        return rows

    def _in_each(
        self, indices: Array, which: Array, table: BlockTable, path: tuple[Any, ...]
    ) -> Array:
        """Samples of many groups in one go."""
        namespace = indices.__array_namespace__()
        ends = table.group_ends
        firsts = namespace.concatenate([ends[:1] * 0, ends[:-1]])
        keys = key(*path, namespace.arange(1, len(ends) + 1))
        lengths = Lengths(ends - firsts, keys, self._least, self._most)
        first = firsts[which]
        moved = permutation_of_each(indices - first, which, lengths) + first
        return moved + table.shifts[namespace.searchsorted(table.ends, moved, side="right")]

    def _traced(self, indices: Array, path: tuple[Any, ...]) -> Array:
        namespace = indices.__array_namespace__()
        chosen = key(*path, 0)
        table = self._drawn(Key(*(word.reshape(-1, 1) for word in chosen)), namespace)
        if len(table.ends) == 1:
            one = BlockTable(*(part[0] for part in table))
            which = namespace.searchsorted(one.group_ends, indices, side="right")
            return self._in_each(indices, which, one, path)
        # an epoch for each index, and so a table for each
        which = (indices[:, None] >= table.group_ends).sum(-1)
        ends = namespace.take_along_axis(table.group_ends, which[:, None], 1)[:, 0]
        before = namespace.take_along_axis(
            table.group_ends, namespace.maximum(which - 1, 0)[:, None], 1
        )
        first = namespace.where(which > 0, before[:, 0], 0)
        lengths = Lengths(ends - first, key(*path, which + 1), self._least, self._most)
        numbers = namespace.arange(len(indices))
        moved = permutation_of_each(indices - first, numbers, lengths) + first
        block = (moved[:, None] >= table.ends).sum(-1)
        return moved + namespace.take_along_axis(table.shifts, block[:, None], 1)[:, 0]

    def _table(self, path: tuple[int, ...]) -> BlockTable:
        for known, table in list(self._tables):
            if known == path:
                return table
        table = self._drawn(key(*path, 0), np)
        self._tables.append((path, table))
        return table

    def _drawn(self, chosen: Key, namespace: Any) -> BlockTable:
        """The table of an epoch; of keys in a column, a row for each."""
        blocks = permutation(namespace.arange(len(self.sizes)), len(self.sizes), chosen)
        sizes = namespace.asarray(self.sizes)[blocks]
        ends = sizes.cumsum(-1)
        shifts = namespace.asarray(self.starts)[blocks] - (ends - sizes)
        last = [ends[..., -1:]] if len(self.sizes) % self.together else []
        group_ends = [ends[..., self.together - 1 :: self.together], *last]
        return BlockTable(ends, shifts, namespace.concatenate(group_ends, -1))


_orders: deque[tuple[Array, BlockOrder]] = deque(maxlen=_KEPT)


def block_order(starts: Array, length: int, together: int) -> BlockOrder:
    """A `BlockOrder`; one that was asked for lately is found again, with its tables."""
    for known, order in list(_orders):
        if (order.length, order.together) == (length, together) and np.array_equal(known, starts):
            return order
    order = BlockOrder(starts, length, together)
    _orders.append((starts, order))
    return order
