"""`select` and `fixed_order`: pick samples by index, or in one random order for all epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import errors, orders
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    bad_position,
    checked_position,
    counted,
    described,
    indexed,
    length,
    lookup_of,
    op,
    set_fields,
    start,
    whole,
)
from jreader.readers.columns import Indices
from jreader.readers.holders import Held
from jreader.readers.planes import Plane
from jreader.readers.seeds import seeded
from jreader.transforms.leaking_parts import note_part

T = TypeVar("T")

_CHUNK = 16384  # indices to compute at a time


class _ByNumber(Node[T]):
    """Yield samples of a reader of known length, in an order of their numbers."""

    reader: Reader[T]

    def order(self, places: Indices) -> Indices:
        """Return the numbers in `reader` of samples at these places: an int, or an array."""
        raise NotImplementedError

    def length(self) -> int:
        """Return the number of samples, which is known."""
        raise NotImplementedError

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is the number of samples yielded."""
        done, many = checked_position(at, 0), self.length()
        if done > many:
            raise bad_position(at, many)
        find = lookup_of(self.reader)
        up: Pass[Any] = Pass(iter(()), lambda: None, lambda: None) if find else start(self.reader)

        def deal() -> Iterator[T]:
            get = find or list(up.items).__getitem__
            for low in range(done, many, _CHUNK):
                for index in self.order(np.arange(low, min(low + _CHUNK, many))).tolist():
                    yield get(index)

        items, count = counted(deal(), done)
        return Pass(items, count, up.close)

    def lookup(self) -> Callable[[int], T] | None:
        """Find samples as `reader` does."""
        find = lookup_of(self.reader)
        return find and (lambda index: find(self.order(index)))

    def back(self, held: Held) -> Held:
        """Map what `reader` holds to places of this order: the inverse of `order`."""
        return held.searched(self.order, self.length())

    def reach(self, end: int) -> int:
        """Return how many samples of an endless `reader` suffice for the places before `end`."""
        return int(self.order(np.arange(end)).max(initial=-1)) + 1

    def plane(self) -> Plane | None:
        """Return the plane of `reader` in that order."""
        up = indexed(self.reader)
        return up and up.reordered(self.length(), self.order, self.back, self.reach)


@op
class select(_ByNumber[T]):
    """Pick the samples of `reader` at some indices, in the order of the indices.

    An index may occur more than once. `pipeline[[3, 1, 2]]` creates it.

    >>> from jreader import arrays
    >>> [int(sample) for sample in select(arrays([10, 20, 30]), [2, 0, 0])()]
    [30, 10, 10]

    Cost: over an indexed reader, it reads only these samples, and resuming is immediate. A list of
    indices takes 8 bytes per index, a range none. A stream of known length is read and kept whole,
    also when resuming.

    Args:
        reader: A reader whose length is known.
        indices: Ints: a list, an array or a range; negative ones count from the end.

    Raises:
        TypeError: The indices are not ints.
        IndexError: An index is out of range.
        ValueError: The length of `reader` is not known.
    """

    reader: Reader[T]
    indices: Any
    n: int = field(default=0, init=False)  # the length of the reader, at which a range wraps
    from_reader = "some"
    moves = "rows"

    def check_arguments(self) -> dict[str, Any]:
        """Find the length of the reader, and convert negative indices."""
        call, chosen = "select(reader, indices)", self.indices
        n = _known_length(call, self.reader)
        if isinstance(chosen, range):
            ends = np.array([*chosen[:1], *chosen[-1:]], np.intp)
        else:
            ends = chosen = int_array(call, chosen)
        for index in ends[(ends < -n) | (ends >= n)]:
            raise IndexError(
                f"{call} has the index {index}, and {described(self.reader)} has {n:,} samples."
            )
        if not isinstance(chosen, range):
            chosen[chosen < 0] += n
        set_fields(self, indices=chosen, n=n)
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Select the places of its samples from a range or array of places."""
        chosen = self.order(np.arange(len(self.indices)))
        return chosen * below.step + below.start if isinstance(below, range) else below[chosen]

    def length(self) -> int:
        """Return the number of indices."""
        return len(self.indices)

    def cursor_extra(self) -> str:
        """Return a hash of all indices, of which a cursor shows only some."""
        listed = not isinstance(self.indices, range)
        return blake2b(self.indices.tobytes(), digest_size=8).hexdigest() if listed else ""

    def plane(self) -> Plane | None:
        """Map sample i to sample `indices[i]` of `reader`; in their blocks, if indices increase."""
        plane, up = super().plane(), indexed(self.reader)
        listed = not isinstance(self.indices, range)
        if not up or up.blocks is None or not listed or np.any(np.diff(self.indices) < 0):
            return plane
        starts = np.searchsorted(self.indices, up.blocks)
        return plane and replace(plane, blocks=np.unique([0, *starts[starts < len(self.indices)]]))

    def back(self, held: Held) -> Held:
        """Invert a range by arithmetic; search a list."""
        if not isinstance(self.indices, range):
            return super().back(held)
        both = Held.joined([held, held.at(held.index - self.n)])  # counted from the end
        return both.strided(self.indices.start, self.indices.step)

    def order(self, places: Indices) -> Indices:
        """Return the indices at these places."""
        if isinstance(self.indices, range):
            return (places * self.indices.step + self.indices.start) % self.n
        if not np.ndim(places):
            return int(self.indices[places])
        return places.__array_namespace__().asarray(self.indices)[places]


@op
class fixed_order(_ByNumber[T]):
    """Yield the samples of `reader` in one random order, the same in every epoch.

    >>> from jreader import arrays, at_epoch
    >>> dealt = fixed_order(arrays([10, 20, 30, 40]), 7)
    >>> list(map(int, dealt())) == list(map(int, at_epoch(dealt, 1)()))
    True

    Cost: over an indexed reader, it computes each index, needs no memory, and resuming is
    immediate. A stream of known length is read and kept whole, also when resuming.

    Args:
        reader: A reader whose length is known.
        key: A whole number that selects the order.

    Raises:
        ValueError: The length of `reader` is not known.
        ReaderError: The length of `reader` has changed since this was built (while iterating).
    """

    reader: Reader[T]
    key: int = whole()
    n: int = field(default=0, init=False)
    from_reader = "all"
    moves = "rows"

    def check_arguments(self) -> dict[str, Any]:
        """Find the length of the reader."""
        return {"n": _known_length("fixed_order(reader, key)", self.reader)}

    def length(self) -> int:
        """Return the length of `reader`."""
        return self.n

    def plane(self) -> Plane | None:
        """Return the plane of `reader` in that order."""
        up = indexed(self.reader)
        if up is not None and up.length != self.n:
            raise errors.ReaderError(
                f"{described(self.reader)} had {self.n:,} samples when {self!r} was made, at "
                f"{self.made_at}, and has {up.length:,} now: data may grow or shrink between runs. "
                f"Make the pipeline again."
            )
        return super().plane()

    def back(self, held: Held) -> Held:
        """Apply the inverse of the permutation."""
        key = split_key(self.key)
        return held.at(orders.permutation(held.index, self.n, key, inverse=True))

    def order(self, places: Indices) -> Indices:
        """Permute the places."""
        if not np.ndim(places):
            return int(self.order(np.array([places]))[0])
        return orders.permutation(places, self.n, split_key(self.key))


def split_key(seed: int) -> orders.Key:
    """Return the key of a random order that is the same in all epochs.

    It is the key of epoch 0 of a shuffle, as in `random_split`.
    """
    return orders.key(seed, 0, 1, 0)


def int_array(call: str, indices: Any) -> NDArray[np.intp]:
    """Copy a list of ints to an array.

    >>> int_array("Subset(dataset, indices)", range(3))
    array([0, 1, 2])

    Raises:
        TypeError: They are not a list of ints.
    """
    array = np.array(indices if hasattr(indices, "__len__") else list(indices))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        meant = ": type np.flatnonzero(mask)" if array.dtype == bool else ""
        raise TypeError(f"{call} needs a list of ints, not {described(indices)}{meant}.")
    return array.astype(np.intp)


def _known_length(call: str, reader: Reader[Any]) -> int:
    """Return the length of a reader; `ENDLESS` for an indexed one without an end.

    Raises:
        ValueError: It is not known before reading.
    """
    known = extent_of(reader)
    if known is None:
        raise ValueError(
            f"{call} needs a length, and that of {described(reader)} is not known before it is "
            f"read: begin with arrays(...), npy or source, or give the reader a __len__."
        )
    return known


def extent_of(reader: Reader[Any]) -> int | None:
    """Return the number of samples in a reader; `ENDLESS` for an indexed one without an end.

    A part of an endless reader has it by its plane; None if it is unknown.
    """
    known = length(reader)
    if known is None and (plane := indexed(seeded(reader, 0))):
        known = plane.length
    return known
