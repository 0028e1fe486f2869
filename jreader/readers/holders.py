"""Which samples hold a row: the inverse of a route, which replaces a search.

An op that moves samples defines where they go, as its `plane()` defines where they come from. So a
row is followed from its source upwards, through the inverse of each op. On the way it may be
dropped, or end up in several samples, as in several epochs, or in windows that overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jreader.readers.columns import Array

_PLACES_PER_SEARCH = 1 << 16  # places of an order searched per call


@dataclass(frozen=True, eq=False)
class Held:
    """Rows that were asked for, and the samples that hold them: arrays of one length.

    Attributes:
        asked: The number of the row, among those that were asked for.
        index: The index of the sample that holds it.
        begin: For a row that is a part of the sample, such as a document in a window, the value of
            the sample at which it begins; else 0.
        end: The value before which it ends; 0 if the row is the whole sample.
    """

    asked: Array
    index: Array
    begin: Array
    end: Array

    def __iter__(self) -> Iterator[Array]:
        return iter(vars(self).values())

    @classmethod
    def of(cls, rows: Array) -> Held:
        """Take each row as the sample of that index.

        >>> held = Held.of(np.array([3, 5])).repeated(np.array([2, 1]), 10)
        >>> held.asked.tolist(), held.index.tolist(), held.within(10).index.tolist()
        ([0, 0, 1], [3, 13, 5], [3, 5])
        """
        none = np.zeros(len(rows), np.int64)
        return cls(np.arange(len(rows)), rows, none, none)

    @classmethod
    def joined(cls, parts: Sequence[Held]) -> Held:
        """Join several into one."""
        return cls(*map(np.concatenate, zip(cls.of(np.zeros(0, np.int64)), *parts, strict=True)))

    def taken(self, which: Array) -> Held:
        """Return those at these numbers, or under this mask."""
        return Held(*(part[which] for part in self))

    def at(self, index: Array) -> Held:
        """Return the same rows in samples of other indices."""
        return replace(self, index=index)

    def within(self, length: int) -> Held:
        """Return those with indices of at least 0, and below a length."""
        return self.taken((self.index >= 0) & (self.index < length))

    def strided(self, first: int, step: int = 1) -> Held:
        """Return those on the steps of a range from `first` on, at their places in it."""
        place, rest = np.divmod(self.index - first, step)
        return self.at(place).taken(rest == 0)

    def repeated(self, many: Array, step: int = 1) -> Held:
        """Return each several times, at an index that grows by `step` each time."""
        repeated = self.taken(np.repeat(np.arange(len(many)), many))
        nth = np.arange(len(repeated.index)) - np.repeat(np.cumsum(many) - many, many)
        return repeated.at(repeated.index + nth * step)

    def searched(self, order: Callable[[Array], Array], length: int) -> Held:
        """Find the samples in an order that has no inverse, by searching all of its places.

        >>> table = np.array([7, 5, 7])
        >>> Held.of(np.array([6, 7])).searched(table.__getitem__, 3).index.tolist()
        [0, 2]
        """
        rising = self.taken(self.index.argsort(kind="stable"))
        found = []
        for low in range(0, length, _PLACES_PER_SEARCH):
            places = np.arange(low, min(low + _PLACES_PER_SEARCH, length))
            index = order(places)
            first = rising.index.searchsorted(index)
            many = rising.index.searchsorted(index, "right") - first
            here = Held.of(first).repeated(many)
            found.append(rising.taken(here.index).at(places[here.asked]))
        return Held.joined(found)
