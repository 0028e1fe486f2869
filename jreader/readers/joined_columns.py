"""Columns end to end, as one column: rows are sorted by part, and gathered part by part.

The calls of NumPy cost as much as their work on a batch of small rows. So the rows of many batches
are sorted at once, and those of small columns are gathered for several batches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import inf, prod
from operator import getitem
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.staging import Staging

Array: TypeAlias = np.ndarray[Any, Any]


class Pieces(NamedTuple):
    """Some rows of joined columns, sorted by part.

    Attributes:
        many: How many they are.
        each: (part, where its rows begin in that order, where they end, its rows as it counts
            them), for each part that has some.
    """

    many: int
    each: list[tuple[int, int, int, Array]]


class Cut(NamedTuple):
    """The rows of a batch of joined columns: sorted by part, maybe with those of its neighbours.

    Attributes:
        pieces: The rows, by part.
        back: Where each row of the batch is among them; None if they are the rows in order.
    """

    pieces: Pieces
    back: Array | None


class Seams:
    """Where the parts of joined columns meet; one object for columns with equally long parts.

    So rows that are the same for several columns are sorted once.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self.starts = np.array(starts)
        self._latest: tuple[Array, Cut] | None = None

    def cut(self, rows: Array) -> Cut:
        """These rows by part."""
        latest = self._latest
        if latest is not None and latest[0] is rows:
            return latest[1]
        order = rows.argsort()
        counts = np.diff(rows.take(order).searchsorted(self.starts), append=len(rows))
        local = rows.take(order) - self.starts.repeat(counts)
        back = np.empty_like(order)
        back[order] = np.arange(len(rows))
        made = Cut(_pieces(counts.tolist(), local), back)
        self._latest = rows, made
        return made

    def cuts(self, rows: Array, size: int, together: int) -> Iterator[Cut]:
        """The rows of each batch of `size` by part; all batches are sorted at once.

        Args:
            rows: Those of many batches.
            size: That of a batch.
            together: How many rows have their pieces in common: a multiple of `size`.
        """
        starts, many = self.starts, len(rows)
        key = np.zeros(many, np.uint16)  # of 16 bits, so that it is sorted by counting
        for start in starts[1:]:
            key += rows >= start
        local = rows - starts.take(key)
        groups = -(-many // together)
        group = np.arange(groups).repeat(together)[:many]
        key += (group * len(starts)).astype(np.uint16)
        order = key.argsort(kind="stable")
        local, back = local.take(order), np.empty_like(order)
        back[order] = np.arange(many) - group * together
        counts = np.bincount(key, minlength=groups * len(starts)).reshape(groups, -1).tolist()
        for first, each in zip(range(0, many, together), counts, strict=True):
            here = slice(first, min(first + together, many))
            pieces = _pieces(each, local[here])
            for low in range(here.start, here.stop, size):
                batch = slice(low, min(low + size, here.stop))
                if len(pieces.each) > 1:
                    yield Cut(pieces, back[batch])
                else:
                    count = batch.stop - low
                    only = pieces.each[0][0], 0, count, local[batch]
                    yield Cut(Pieces(count, [only]), None)


def _pieces(counts: list[int], local: Array) -> Pieces:
    low, each = 0, []
    for part, count in enumerate(counts):
        if count:
            high = low + count
            each.append((part, low, high, local[low:high]))
            low = high
    return Pieces(low, each)


class Joined:
    """Columns end to end, as one column."""

    def __init__(self, parts: Sequence[Any]) -> None:
        flat = [each for part in parts for each in getattr(part, "parts", (part,))]
        self.parts, self.seams = flat, Seams([0, *accumulate(map(len, flat[:-1]))])
        self.shape = (sum(map(len, flat)), *flat[0].shape[1:])
        self.ndim = len(self.shape)
        self.dtype = flat[0].dtype
        self._axes = axes_as_stored(flat[0])
        self._stored = [stored_whole(part, self._axes) for part in flat]

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def starts(self) -> Array:
        """Where each part begins."""
        return self.seams.starts

    @property
    def width(self) -> float:
        """The bytes of a row; inf if rows are not at hand, and none are to be read ahead."""
        at_hand = all(part is not None for part in self._stored)
        return prod(self.shape[1:]) * self.dtype.itemsize if at_hand else inf

    def __len__(self) -> int:
        return int(self.starts[-1]) + len(self.parts[-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.asarray(part, dtype) for part in self.parts])

    def __getitem__(self, rows: slice) -> Array:
        """Consecutive rows: a view where one part has them all."""
        first, last, _ = rows.indices(len(self))
        which = int(np.searchsorted(self.starts, first, "right")) - 1
        pieces: list[Array] = []
        while first < last or not pieces:
            part, start = self.parts[which], int(self.starts[which])
            pieces.append(part[first - start : last - start])
            first, which = start + len(part), which + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows as their parts have them."""
        which, local = self.found(rows)
        return map(getitem, map(self.parts.__getitem__, which.tolist()), local.tolist())

    def gatherer(self, size: int) -> Callable[[Array | Cut], Array]:
        """A function of up to `size` rows, which gathers them into staged memory, as stored."""
        axes = self._axes
        latest: tuple[Pieces | None, Any] = None, None
        staged = Staging(size, tuple(self.shape[axis] for axis in axes[1:]), self.dtype)
        back = None if axes == tuple(range(len(axes))) else np.argsort(axes)

        def gather(rows: Array | Cut) -> Array:
            """A few rows from many parts one by one, many from few part by part."""
            nonlocal latest
            if not isinstance(rows, Cut):
                if len(self.parts) * 4 > len(rows):
                    out = staged(len(rows))
                    turned = out if back is None else out.transpose(back)
                    which, local = self.found(rows)
                    each = zip(which.tolist(), local.tolist(), strict=True)
                    for index, (part, row) in enumerate(each):
                        turned[index] = self.parts[part][row]
                    return turned
                rows = self.seams.cut(rows)
            pieces, places = rows
            if places is None:
                out = self._by_part(pieces, staged(pieces.many))
            else:
                known, ordered = latest
                if known is not pieces:
                    if ordered is None or len(ordered) < pieces.many:
                        ordered = np.empty((pieces.many, *staged.shape), self.dtype)
                    self._by_part(pieces, ordered)
                # what is small is kept: fresh pages cost more than to fill them
                latest = (pieces, ordered) if pieces.many > len(places) else (None, None)
                out = staged(len(places))
                ordered.take(places, 0, out, "clip")
            return out if back is None else out.transpose(back)

        return gather

    def _by_part(self, pieces: Pieces, out: Array) -> Array:
        for part, low, high, local in pieces.each:
            stored = self._stored[part]
            if stored is None:
                out[low:high] = self.parts[part][local].transpose(self._axes)
            else:  # clip, since the rows were checked
                stored.take(local, 0, out[low:high], "clip")
        return out

    def found(self, rows: Array) -> tuple[Array, Array]:
        """Which part each row is of, and which row of it."""
        return found(self.starts, rows)


def found(starts: Array, rows: Array) -> tuple[Array, Array]:
    """Which part each row is of, where parts begin so, and which row of it."""
    which = np.searchsorted(starts, rows, "right") - 1
    return which, rows - starts[which]


def stored_whole(column: Array, axes: tuple[int, ...]) -> Array | None:
    """An array with these axes if that is how it lies in memory, whole; else None.

    Otherwise `take` would copy it, all of it, for every batch. A part of a `Joined` may be a map
    that is not open yet, and so no array.
    """
    if not isinstance(column, np.ndarray):
        return None
    stored = np.asarray(column).transpose(axes)
    whole = stored.flags.c_contiguous and stored.flags.aligned and not column.dtype.hasobject
    return stored if whole else None


def axes_as_stored(column: Array) -> tuple[int, ...]:
    """The axes of a column in the order of memory, as far as its rows stay rows."""
    inner = range(1, column.ndim)
    return 0, *sorted(inner, key=lambda axis: -abs(column.strides[axis]))
