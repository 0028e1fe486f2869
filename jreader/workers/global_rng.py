"""The global generators of worker processes, NumPy's and Python's, for data sets that draw of them.

An item is sent with the words to seed them by: a hash of the loader's seed, the epoch, and the
place of the item. So it draws the same in any worker, in every run, and after resuming. Afterwards
they are what they were: other loaders share the process.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from jreader.readers import Pass, described


class Seeded:
    """An item, and the words that the generators are seeded by for it."""

    __slots__ = ("item", "words")

    def __init__(self, item: Any, words: bytes) -> None:
        self.item, self.words = item, words

    def __reduce__(self) -> tuple[Any, ...]:
        return Seeded, (self.item, self.words)

    def __repr__(self) -> str:
        """What an error calls the item."""
        return described(self.item)


def seeded_items(up: Pass[Any], seed: int, epoch: int) -> Pass[Seeded]:
    """The items of a pass, each with its words."""

    def deal() -> Iterator[Seeded]:
        place = up.position()
        for item in up.items:
            # processes of one training are at one place, with other items
            first = item[0] if isinstance(item, list) and item else item
            yield Seeded(item, words(seed, epoch, place, repr(first)))
            place = up.position()

    return Pass(deal(), up.position, up.close)


def words(*path: Any) -> bytes:
    """A hash of what JSON can write, or shows.

    >>> words(7, 0, (1, None)) == words(7, 0, [1, None]), words(7, 0, 1) == words(7, 1, 1)
    (True, False)
    """
    return blake2b(json.dumps(path, default=repr).encode(), digest_size=16).digest()


def seed_generators(by: bytes) -> None:
    """Seeds both."""
    np.random.seed(np.frombuffer(by, np.uint32))  # noqa: NPY002  # what data sets draw of
    random.seed(by)


def states() -> tuple[Any, ...]:
    """What both would draw next."""
    return np.random.get_state(), random.getstate()  # noqa: NPY002  # likewise


def seeds_itself(begin: Callable[[], object]) -> bool:
    """Whether a function leaves the generators in another state, once it was called."""
    (_, before, *at), others = states()
    begin()
    (_, after, *now), others_now = states()
    return bool(at != now or others != others_now or (before != after).any())


class Seeding:
    """A function of items, for each of which the generators are seeded.

    Attributes:
        dataset: That of the function.
        left_alone: Whether they are not, since the user's function of a worker did that.
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn
        self.dataset = getattr(fn, "dataset", None)
        self.left_alone = False

    def __call__(self, seeded: Seeded) -> Any:
        """What the function gives."""
        if self.left_alone:
            return self.fn(seeded.item)
        # not np.random.get_state, which takes ten times as long
        swap: Any = np.random  # its stubs lack both functions
        numpys, pythons = swap.get_bit_generator(), random.getstate()
        swap.set_bit_generator(self.generator)
        seed_generators(seeded.words)
        try:
            return self.fn(seeded.item)
        finally:
            swap.set_bit_generator(numpys)
            random.setstate(pythons)

    @cached_property
    def generator(self) -> np.random.MT19937:
        """What NumPy's global functions draw of meanwhile."""
        return np.random.MT19937()

    def __reduce__(self) -> tuple[Any, ...]:
        return Seeding, (self.fn,)

    def __repr__(self) -> str:
        """What an error calls it."""
        return described(self.fn)
