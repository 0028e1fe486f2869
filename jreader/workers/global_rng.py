"""Seeds for the global random generators of worker processes, for data sets that draw from them.

These are NumPy's and Python's. Each item is sent with a seed: a hash of the loader's seed, the
epoch, and the position of the item. So a data set draws the same numbers in any worker, in every
run, and after resuming. Afterwards the generators are restored: other loaders share the process.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from jreader.readers import Pass, described


class SeededItem(NamedTuple):
    """An item, and the seed of the global generators for it."""

    item: Any
    seed: bytes

    def __repr__(self) -> str:
        """Show the item as errors do."""
        return described(self.item)


def seeded_items(up: Pass[Any], seed: int, epoch: int) -> Pass[SeededItem]:
    """Pair the items of a pass with seeds."""

    def deal() -> Iterator[SeededItem]:
        position = up.position()
        for item in up.items:
            # processes of one training run are at the same position, with different items
            first = item[0] if isinstance(item, list) and item else item
            yield SeededItem(item, seed_bytes(seed, epoch, position, repr(first)))
            position = up.position()

    return Pass(deal(), up.position, up.close)


def seed_bytes(*path: Any) -> bytes:
    """Hash values that JSON can write, or else their repr, to 16 bytes.

    >>> seed_bytes(7, 0, (1, None)) == seed_bytes(7, 0, [1, None])
    True
    >>> seed_bytes(7, 0, 1) == seed_bytes(7, 1, 1)
    False
    """
    return blake2b(json.dumps(path, default=repr).encode(), digest_size=16).digest()


def seed_global_generators(by: bytes) -> None:
    """Seed NumPy's and Python's global generators."""
    np.random.seed(np.frombuffer(by, np.uint32))  # noqa: NPY002  # the generator that data sets draw from
    random.seed(by)


def generator_states() -> tuple[Any, ...]:
    """Return the state that changes when either generator draws."""
    state: Any = np.random.get_state()  # noqa: NPY002  # the global state is the subject
    kind, words, *place = state
    return kind, words.tobytes(), place, random.getstate()


def changes_generators(begin: Callable[[], object]) -> bool:
    """Call a function; return whether that changed the state of the generators."""
    before = generator_states()
    begin()
    return generator_states() != before


def draws_differently(fn: Callable[[Any], object], sample: Any) -> bool:
    """Return whether each run of a function draws other numbers.

    It does not if it seeds the generators, or if something it called drew only once, on import.
    """
    states = []
    for _ in range(2):
        seed_global_generators(os.urandom(16))
        seeded = generator_states()
        with suppress(Exception):  # only the draws matter
            fn(sample)
        states.append(generator_states())
        if states[-1] == seeded:
            return False
    return states[0] != states[1]


@cache
def _generator() -> np.random.MT19937:
    """Return the generator behind NumPy's global functions in `seeded_generators`."""
    return np.random.MT19937()


@contextmanager
def seeded_generators(by: bytes) -> Iterator[None]:
    """Seed the global generators for a block, and restore them afterwards."""
    # np.random.get_state takes ten times as long
    swap: Any = np.random  # the stubs lack both functions
    numpys, pythons = swap.get_bit_generator(), random.getstate()
    swap.set_bit_generator(_generator())
    seed_global_generators(by)
    try:
        yield
    finally:
        swap.set_bit_generator(numpys)
        random.setstate(pythons)
