"""Samples with a key beside them, which goes where the sample goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple


class Keyed(NamedTuple):
    """A sample, and the key of its generator."""

    sample: Any
    seed: int
    path: tuple[int, int, int]


class BesideKey:
    """A function of samples that leaves the key beside each of them alone.

    >>> BesideKey(str.upper)(Keyed("a", 7, (0, 1, 0)))
    Keyed(sample='A', seed=7, path=(0, 1, 0))

    Args:
        fn: A function of a sample.
        shown: The user's function, whose name errors show.
    """

    def __init__(self, fn: Callable[[Any], Any], shown: Any = None) -> None:
        update_wrapper(self, shown or fn)
        self.fn, self.shown = fn, shown or fn  # after that, which copies attributes

    def __call__(self, keyed: Keyed) -> Keyed:
        """The same key beside the result."""
        return keyed._replace(sample=self.fn(keyed.sample))

    def __repr__(self) -> str:
        """The user's function."""
        return repr(self.shown)


def without_keys(sample: Any) -> Any:
    """The sample that a user's function was given."""
    while isinstance(sample, Keyed):
        sample = sample.sample
    return sample
