"""Samples with keys beside them, which move with the samples."""

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
    """A function of samples that leaves their keys unchanged.

    >>> BesideKey(str.upper)(Keyed("a", 7, (0, 1, 0)))
    Keyed(sample='A', seed=7, path=(0, 1, 0))

    Args:
        fn: A function of a sample.
        shown: The user's function, whose name errors show.
    """

    def __init__(self, fn: Callable[[Any], Any], shown: Any = None) -> None:
        update_wrapper(self, shown or fn)
        self.fn, self.shown = fn, shown or fn  # last, as it copies attributes

    def __call__(self, keyed: Keyed) -> Keyed:
        """Apply the function, and keep the key."""
        return keyed._replace(sample=self.fn(keyed.sample))

    def __repr__(self) -> str:
        """Show the user's function."""
        return repr(self.shown)


def without_keys(sample: Any) -> Any:
    """Return the sample as a user's function gets it."""
    while isinstance(sample, Keyed):
        sample = sample.sample
    return sample
