"""Samplers: readers of indices of a data set, in the order in which to read the samples.

The index at each position is computed from seed, epoch and position (see `jreader.orders`), so a
pass can resume at any position immediately, and no global generator is used. A `DataLoader` passes
its epochs to the sampler; `at_epoch` gives the order of a single epoch. `RandomSampler` and
`shuffle(reader, seed=seed)` produce the same order from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import field
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import errors, orders
from jreader.orders import random_seed
from jreader.readers import (
    Node,
    Pass,
    Position,
    argument,
    checked_position,
    counted,
    flag,
    length,
    op,
    whole,
)
from jreader.readers.starting import native
from jreader.transforms.selections import int_array

T = TypeVar("T")
IntArray: TypeAlias = NDArray[np.intp]

_BLOCK = 16384  # indices to compute at a time: enough to make NumPy's overhead per call small
_PLACE, _WINDOW = 1, 0  # as in the key of a `shuffle` over a whole source, for equal orders


class Sampler(Node[T]):
    """A reader of indices: define `__iter__` and `__len__`, as in PyTorch and Paddle.

    >>> class Evens(Sampler):
    ...     def __init__(self, n):
    ...         self.n = n
    ...     def __iter__(self):
    ...         return iter(range(0, self.n, 2))
    ...     def __len__(self):
    ...         return (self.n + 1) // 2
    >>> list(Evens(5)), len(Evens(5))
    ([0, 2, 4], 3)

    A sampler that is made by `@op`, and defines `order` and `length` instead, can resume at any
    position without computing the indices before it. If it has the fields `seed` and `epoch`, each
    epoch gets its own order.

    >>> from jreader.readers import op
    >>> @op
    ... class backwards(Sampler):
    ...     n: int
    ...     def order(self):
    ...         return lambda positions: self.n - 1 - positions
    ...     def length(self):
    ...         return self.n
    >>> list(backwards(4))
    [3, 2, 1, 0]
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return the function of a pass that maps an array of positions to their indices."""
        raise NotImplementedError(
            f"{type(self).__name__} must define __iter__(self), or order(self) and length(self)"
        )

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is the number of indices yielded."""
        order, n = self.order(), length(self) or 0
        if isinstance(at, int) and not 0 <= at <= n:
            raise errors.NotResumable(
                f"cannot resume after index {at} of {self!r}, which has {n} indices. Start at the "
                f"beginning (at=None), or give it the data set that it had."
            )
        done = checked_position(at, 0)
        blocks = (
            order(np.arange(begin, min(begin + _BLOCK, n))).tolist()
            for begin in range(done, n, _BLOCK)
        )
        items, count = counted(chain.from_iterable(blocks), done)
        return Pass(items, count, lambda: None)

    def __iter__(self) -> Iterator[T]:
        """Start a pass over the indices."""
        return native(self)


class Indices:
    """The indices of a data set at its current length.

    Pickling keeps the length but not the data set, which worker processes may not have.
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __repr__(self) -> str:
        return repr(range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Indices, (range(len(self)),)


def indices_of(call: str, data_source: Any) -> Sized:
    """Return the indices of a data set, which are all that a sampler needs.

    Raises:
        TypeError: The data set has no length.
    """
    if not hasattr(data_source, "__len__"):
        raise TypeError(
            f"{call} needs a data set with a length, not the {type(data_source).__name__} "
            f"{data_source!r}: give range(n) for n indices."
        )
    len(data_source)  # raises the errors of __len__ here
    return Indices(data_source)


@op
class SequenceSampler(Sampler[int]):
    """Yield the indices of a data set in order, from 0 to its length - 1.

    >>> list(SequenceSampler("abc"))
    [0, 1, 2]

    Args:
        data_source: Anything with a length.
    """

    data_source: Sized = argument(indices_of)

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return the identity: the index at each position is the position."""
        return lambda positions: positions

    def length(self) -> int:
        """Return the length of the data set."""
        return len(self.data_source)


@op
class RandomSampler(Sampler[int]):
    """Yield the indices of a data set in random order.

    >>> sampler = RandomSampler("abcdef", seed=7)
    >>> list(sampler), sorted(sampler)
    ([3, 2, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5])

    Args:
        data_source: Anything with a length.
        replacement: Whether an index may be drawn again; otherwise each index comes at most once.
        num_samples: The number of indices per epoch; None for the length of the data set.
        seed: An int or a jax key fixes the order, and each epoch has its own. None draws a new
            order for every pass.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: `num_samples` is not positive; or, without replacement, larger than the length
            of the data set.
    """

    data_source: Sized = argument(indices_of)
    replacement: bool = flag(default=False)
    num_samples: int | None = whole(default=None, least=1)
    seed: Any = random_seed()
    epoch: int = field(default=0, init=False)

    def check_arguments(self) -> dict[str, Any]:
        """Check that the data set has enough indices to draw."""
        _check_drawing(self, len(self.data_source))
        return {}

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return a permutation of the indices, or an independent draw for each position."""
        n, path = len(self.data_source), (self.seed, self.epoch, _PLACE, _WINDOW)
        _check_drawing(self, n)  # it may have shrunk
        if self.replacement:
            draw = (*path, n)
            return lambda at: np.minimum(uniform(at, *draw) * n, n - 1).astype(np.intp)
        key = orders.key(*path)
        return lambda positions: orders.permutation(positions, n, key)

    def length(self) -> int:
        """Return `num_samples`, or the length of the data set if that is None."""
        return len(self.data_source) if self.num_samples is None else self.num_samples


def _finite_weights(call: str, weights: Any) -> NDArray[np.float64]:
    array = np.array(weights, np.float64)
    if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(
            f"{call} needs one finite number >= 0 for each index as weights, not {weights!r}."
        )
    return array


@op
class WeightedRandomSampler(Sampler[int]):
    """Draw random indices, each with a probability in proportion to its weight.

    >>> sampler = WeightedRandomSampler([0.0, 1.0, 3.0], num_samples=8, seed=0)
    >>> list(sampler)
    [2, 2, 2, 2, 1, 2, 2, 2]
    >>> sorted(WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False, seed=0))
    [0, 2]

    Without replacement, each draw is among the remaining indices, in proportion to their weights
    (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir").

    Args:
        weights: A number >= 0 for each index; they need not sum to 1.
        num_samples: The number of indices per epoch.
        replacement: Whether an index may be drawn again; otherwise each index comes at most once.
        seed: An int or a jax key fixes the order, and each epoch has its own. None draws a new
            order for every pass.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A weight is negative or not finite, or none is positive; or, without
            replacement, fewer weights than `num_samples` are positive.
    """

    weights: NDArray[np.float64] = argument(_finite_weights)
    num_samples: int = whole(least=1)
    replacement: bool = flag(default=True)
    seed: Any = random_seed()
    epoch: int = field(default=0, init=False)

    def check_arguments(self) -> dict[str, Any]:
        """Check that enough indices have a positive weight."""
        _check_drawing(self, int(np.count_nonzero(self.weights)))
        return {}

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return an independent draw for each position; or all indices, sorted by random keys."""
        path = (self.seed, self.epoch, _PLACE, _WINDOW, len(self.weights))
        if self.replacement:
            ends, last = np.cumsum(self.weights), np.flatnonzero(self.weights)[-1]
            return lambda positions: np.minimum(
                np.searchsorted(ends, uniform(positions, *path) * ends[-1], side="right"), last
            )
        positive = np.flatnonzero(self.weights)
        keys = -np.log1p(-uniform(positive, *path)) / self.weights[positive]
        drawn = positive[np.argsort(keys, kind="stable")]
        return lambda positions: drawn[positions]

    def length(self) -> int:
        """Return `num_samples`."""
        return self.num_samples


@op
class SubsetRandomSampler(Sampler[int]):
    """Yield a list of indices in random order.

    >>> sorted(SubsetRandomSampler([2, 3, 5], seed=0))
    [2, 3, 5]

    Args:
        indices: The indices; one that occurs twice is yielded twice.
        seed: An int or a jax key fixes the order, and each epoch has its own. None draws a new
            order for every pass.

    Raises:
        TypeError: The indices are not ints.
    """

    indices: Sequence[int] | IntArray = argument(int_array)
    seed: Any = random_seed()
    epoch: int = field(default=0, init=False)

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return a permutation of the list."""
        n, indices = len(self.indices), np.asarray(self.indices)
        key = orders.key(self.seed, self.epoch, _PLACE, _WINDOW)
        return lambda positions: indices[orders.permutation(positions, n, key)]

    def length(self) -> int:
        """Return the number of indices."""
        return len(self.indices)


def uniform(positions: IntArray, seed: int, *path: int) -> NDArray[np.float64]:
    """Return a random number from 0 to 1 (exclusive) for each position.

    It depends only on the position, the seed and the path.

    >>> uniform(np.arange(3), 42).round(3), uniform(np.arange(2, 3), 42).round(3)
    (array([0.063, 0.059, 0.8  ]), array([0.8]))
    """
    key = orders.key(seed, *path, positions)
    high, low = np.asarray(key.high, np.float64), np.asarray(key.low >> np.uint32(11), np.float64)
    drawn: NDArray[np.float64] = (high * 2**21 + low) * 2.0**-53
    return drawn


def _check_drawing(sampler: RandomSampler | WeightedRandomSampler, n: int) -> None:
    """Raise ValueError if a sampler draws more than the n indices without replacement."""
    number = sampler.num_samples
    if number is not None and number > n and (not sampler.replacement or n == 0):
        raise ValueError(
            f"num_samples of {type(sampler).__name__}(...) is {number}, but there are {n} indices "
            f"to draw: draw at most {n}{', or give replacement=True' if n else ''}."
        )
