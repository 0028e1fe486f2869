"""`shuffle`: the same samples in a random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    counted,
    foreign,
    length,
    op,
    start,
    whole,
)
from jreader.readers.planes import Indices, Plane, indexed
from jreader.readers.seeds import seeded_below

T = TypeVar("T")


@op
class shuffle(Node[T]):
    """The samples of `reader` in random order, within windows of `buf_size` samples.

    A window is read whole and handed over in random order before the next one is read: memory is
    `buf_size` samples, and no sample leaves its window. The order depends on indices alone, not on
    samples (`orders.permutation`), so readers of equal length and equal seeds have equal orders:
    `compose(shuffle(images, seed=7), shuffle(labels, seed=7))` keeps the pairs.

    >>> list(shuffle(lambda: "abcdef", buf_size=3, seed=7)())
    ['a', 'c', 'b', 'e', 'd', 'f']

    Args:
        reader: Any reader.
        buf_size: Samples per window; None for the whole reader, whose length must be known. 0 and 1
            keep the order, as in Paddle, and warn.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
            anew for each pass, which can be resumed all the same.

    Raises:
        ValueError: `buf_size` is negative, or None although the length of `reader` is unknown.
        TypeError: `buf_size` is not a whole number, or `seed` is neither an int nor a jax key.
    """

    reader: Reader[T]
    buf_size: int | None = whole(default=None)
    seed: Any = None
    epoch: int = field(default=0, init=False)
    from_reader = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buf_size is None and length(self.reader) is None:
            raise ValueError(
                f"shuffle({self.reader!r}) needs a buf_size: the length of the reader is not known "
                f"before it is read. Give shuffle(reader, buf_size=1000), or a reader with a "
                f"length, as jreader.arrays(...) has."
            )
        if self.seed is not None:
            object.__setattr__(
                self, "seed", orders.as_seed(self.seed, "shuffle(reader, buf_size, seed)")
            )
        if self.buf_size in (0, 1):
            meant = "." if self.seed is not None else f": was seed={self.buf_size} meant?"
            errors.warn(
                f"shuffle(reader, buf_size={self.buf_size}) deals windows of {self.buf_size} "
                f"samples, and so keeps the order{meant} Give buf_size=1000, or seed=0 alone for "
                f"the whole of a reader with a length; to keep the order, leave shuffle out."
            )

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (that before a window, its number, samples of it)."""
        size = length(self.reader) if self.buf_size is None else self.buf_size
        if size is None or size < 2:
            return start(self.reader, at)
        origin, window, done = checked_position(at, (None, 0, 0))
        if done >= size:
            raise foreign(at, (None, 0, size - 1))
        up = start(self.reader, origin).watched(self, size)
        origin = up.position()
        held: list[T] = []
        before = -done  # how many samples of earlier windows this pass has handed over

        def dealt() -> Iterator[list[T]]:
            nonlocal origin, window, before, held
            path = (self.seed, self.epoch, seeded_below(self))
            full = orders.windows(size, *path, first=window)
            skipped = done
            while held := list(islice(up.items, size)):
                if len(held) == size:
                    order = next(full)
                else:
                    key = orders.key(*path, window)
                    order = orders.permutation(np.arange(len(held)), len(held), key)
                yield list(map(held.__getitem__, order[skipped:].tolist()))
                origin, window, before, skipped = up.position(), window + 1, count(), 0

        def position() -> Position:
            # after the last sample of a full window, what lies before it need not be read again
            if len(held) == size == count() - before:
                return up.position(), window + 1, 0
            return origin, window, count() - before

        items, count = counted(chain.from_iterable(dealt()))
        return Pass(items, position, up.close)

    def length(self) -> int | None:
        """The length of `reader`."""
        return length(self.reader)

    def plane(self) -> Plane | None:
        """The plane of `reader` in the order of the windows; None if the seed is not drawn yet."""
        up = None if self.seed is None else indexed(self.reader)
        return up and up.reordered(up.length, lambda indices: self._order(indices, up.length))

    def _order(self, indices: Indices, known: int) -> Indices:
        size = known if self.buf_size is None else min(self.buf_size, known)
        if size < 2:
            return indices
        path = (self.seed, self.epoch, seeded_below(self))
        if size == known:
            return orders.permutation(indices, known, orders.key(*path, 0))
        window, index = indices // size, indices % size
        keys = _keys(path, window)
        if not (short := known % size):
            return window * size + orders.permutation(index, size, keys)
        namespace = indices.__array_namespace__()
        last = window == known // size
        # every index in a window of either size, since a trace computes both
        moved = orders.permutation(index, size, keys)
        if namespace is not np or last.any():
            rest = orders.permutation(namespace.minimum(index, short - 1), short, keys)
            moved = namespace.where(last, rest, moved)
        return window * size + moved


def _keys(path: tuple[Any, ...], window: Indices) -> orders.Key:
    """A key for each index; computed once for each window, on the host, where indices are runs."""
    if not isinstance(window, np.ndarray) or not window.size:
        return orders.key(*path, window)
    first, last = int(window.min()), int(window.max())
    if last - first >= window.size:
        return orders.key(*path, window)
    keys = orders.key(*path, np.arange(first, last + 1))
    return orders.Key(*(word[window - first] for word in keys))
