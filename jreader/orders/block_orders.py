"""The order of samples in blocks: blocks in random order, then samples among a few blocks.

Blocks are permuted, and grouped so many at a time; the samples of a group are permuted. So a pass
that keeps the blocks of one group open reads each block once, and still any place of the order can
be computed directly, from a table of one number per block (redrawn for each epoch).

In lanes, the permuted blocks are laid end to end and cut into ranges of equal length, whatever the
blocks: lane v owns one, groups are formed inside it, and the places v, v + lanes, ... of the order
are its samples. So a lane is read by itself, and two lanes share only the block at their border:
with `lanes` lanes, at most `lanes` - 1 blocks are read twice. Lanes of whole blocks would share
none, but differ in length, so their places would differ between epochs.

This is the block shuffle of Levanter (https://github.com/stanford-crfm/levanter), which permutes
inside each window of blocks. WebDataset's shards with a shuffle buffer give a similar mixing, but
their places cannot be computed.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jreader.orders.keys import Key, key
from jreader.orders.permutations import Lengths, permutation, permutation_of_each

Array = Any  # of NumPy or jax

_FEW = 8  # groups; up to so many are computed one by one
_KEPT = 4  # tables to keep


class BlockTable(NamedTuple):
    """The blocks in the order of an epoch.

    Attributes:
        ends: Where each ends, in the order; for several orders, in rows.
        shifts: What to add to a place in a block to get its row.
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
        starts: The first sample of each block; begins with 0; blocks may be empty.
        length: The number of samples.
        together: The number of blocks in a group.
        lanes: The number of lanes that the blocks are dealt to.
    """

    def __init__(self, starts: Array, length: int, together: int, lanes: int = 1) -> None:
        sizes = np.diff(starts, append=length)
        filled = sizes > 0
        self.starts, self.sizes = starts[filled], sizes[filled]
        self.length, self.together, self.lanes = length, together, lanes
        rising, rest = np.sort(self.sizes), len(self.sizes) % together or together
        self._least = int(rising[:rest].sum()) if lanes == 1 else 0
        self._most = int(rising[-together:].sum())
        each, more = divmod(length, lanes)
        parts = np.arange(lanes + 1)
        self._begins = parts * each + np.minimum(parts, more)
        # a block cut at either end, and as many small ones between as fit into a lane
        most = min(int(rising.cumsum().searchsorted(each + 1, "right")) + 2, len(rising))
        self._groups = -(-most // together)
        self._table = lru_cache(_KEPT)(lambda path: self._drawn(key(*path, 0), np))

    def rows(self, indices: Array, path: tuple[Any, ...]) -> Array:
        """Return the samples at these places of the order.

        Args:
            indices: Places: an array of integers, of NumPy or jax, traced or not.
            path: Seed, epoch and place of the op; the epoch may be traced.
        """
        if not self.length:
            return indices
        if self.lanes > 1:  # the place of each, with the blocks laid end to end
            begins = indices.__array_namespace__().asarray(self._begins)
            indices = (begins[indices % self.lanes] + indices // self.lanes).astype(indices.dtype)
        if isinstance(indices, np.ndarray) and all(isinstance(number, int) for number in path):
            return self._on_host(indices, path)
        return self._traced(indices, path)

    def places(self, rows: Array, path: tuple[int, ...]) -> Array:
        """Return the places of these samples in the order: the inverse of `rows`, on the host.

        >>> order = BlockOrder(np.array([0, 3, 5, 9]), 12, 2)
        >>> order.places(order.rows(np.arange(5), (0, 0, 1)), (0, 0, 1)).tolist()
        [0, 1, 2, 3, 4]
        """
        table = self._table(path)
        block = self.starts.searchsorted(rows, "right") - 1
        block = permutation(block, len(self.sizes), key(*path, 0), inverse=True)
        moved = rows - table.shifts[block]
        indices = np.empty_like(rows)
        which = table.group_ends.searchsorted(moved, "right")
        for group in np.unique(which).tolist():
            here = which == group
            indices[here] = self._in_group(moved[here], group, table, path, inverse=True)
        lane = self._begins.searchsorted(indices, "right") - 1
        return (indices - self._begins[lane]) * self.lanes + lane

    def _on_host(self, indices: Array, path: tuple[int, ...]) -> Array:
        if not indices.size:
            return indices
        table = self._table(path)
        low, high = table.group_ends.searchsorted([indices.min(), indices.max()], "right").tolist()
        if low == high:
            return self._in_group(indices, low, table, path)
        which = table.group_ends.searchsorted(indices, "right")
        groups = np.flatnonzero(np.bincount(which - low)) + low
        if len(groups) > _FEW and self._most < 1 << 31:
            return self._in_each(indices, which, table, path, groups)
        rows = np.empty_like(indices)
        for group in groups.tolist():
            here = which == group
            rows[here] = self._in_group(indices[here], group, table, path)
        return rows

    def _in_group(
        self,
        indices: Array,
        group: int,
        table: BlockTable,
        path: tuple[int, ...],
        *,
        inverse: bool = False,
    ) -> Array:
        first = int(table.group_ends[group - 1]) if group else 0
        size = int(table.group_ends[group]) - first
        chosen = key(*path, group + 1)
        moved = permutation(indices - first, size, chosen, inverse=inverse) + first
        if inverse:
            return moved
        low, high = table.ends.searchsorted([first, first + size - 1], "right").tolist()
        near = slice(low, high + 1)
        rows: Array = moved + table.shifts[near][table.ends[near].searchsorted(moved, "right")]
        return rows

    def _in_each(
        self,
        indices: Array,
        which: Array,
        table: BlockTable,
        path: tuple[Any, ...],
        groups: Array | None = None,
    ) -> Array:
        """Return samples of many groups in one call; on the host, only of these groups."""
        namespace = indices.__array_namespace__()
        ends = table.group_ends
        firsts = namespace.concatenate([ends[:1] * 0, ends[:-1]])
        numbers, least = namespace.arange(1, len(ends) + 1), self._least
        if groups is not None:
            which = groups.searchsorted(which)
            firsts, ends, numbers = firsts[groups], ends[groups], numbers[groups]
            least = int((ends - firsts).min())
        lengths = Lengths(ends - firsts, key(*path, numbers), least, self._most)
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
        # each index has its own epoch, and so its own table
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

    def _drawn(self, chosen: Key, namespace: Any) -> BlockTable:
        """Return the table of an epoch; for keys in a column, a row for each."""
        blocks = permutation(namespace.arange(len(self.sizes)), len(self.sizes), chosen)
        sizes = namespace.asarray(self.sizes)[blocks]
        ends = sizes.cumsum(-1)
        shifts = namespace.asarray(self.starts)[blocks] - (ends - sizes)
        return BlockTable(ends, shifts, self._group_ends(ends, namespace))

    def _group_ends(self, ends: Array, namespace: Any) -> Array:
        """Return where the groups of each lane end; groups that it lacks are empty, at its end."""
        begins, numbers = namespace.asarray(self._begins), namespace.arange(1, self._groups + 1)
        if ends.ndim == 1:
            first = namespace.searchsorted(ends, begins[:-1], side="right")
        else:
            first = (ends[..., None, :] <= begins[:-1, None]).sum(-1)
        last = namespace.minimum(
            first[..., None] + self.together * numbers - 1, len(self.sizes) - 1
        )
        flat = last.reshape(*ends.shape[:-1], -1)
        inside = namespace.take_along_axis(ends, flat, -1).reshape(last.shape)
        return namespace.minimum(inside, begins[1:, None]).reshape(flat.shape)


_orders: deque[tuple[Array, BlockOrder]] = deque(maxlen=_KEPT)


def block_order(starts: Array, length: int, together: int, lanes: int = 1) -> BlockOrder:
    """Return a `BlockOrder`; recent ones are cached, with their tables."""
    asked = length, together, lanes
    for known, order in list(_orders):
        same = (order.length, order.together, order.lanes) == asked
        if same and np.array_equal(known, starts):
            return order
    order = BlockOrder(starts, *asked)
    _orders.append((starts, order))
    return order
