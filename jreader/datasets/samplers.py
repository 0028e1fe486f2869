"""Orders of indices: a sampler is a reader of them, and knows which index comes at which place.

All are computed from seed, epoch and place (`orders.py`), so a pass goes on from any place at once,
and no global generator is asked. `at_epoch` gives the order of another epoch, and a `DataLoader`
asks for those of its epochs by itself. With the seed of a `shuffle` over the whole of a reader,
`RandomSampler` deals the same order, so the doors of the loader agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import errors, orders
from jreader.datasets.combinators import whole_numbers
from jreader.orders import as_seed
from jreader.readers import Node, Pass, Position, counted, length
from jreader.readers.starting import native

T = TypeVar("T")
Places: TypeAlias = NDArray[np.intp]

_BLOCK = 16384  # places computed at once: NumPy's call overhead vanishes
_PLACE, _WINDOW = 1, 0  # what `shuffle` over the whole of a source has in its key


class Sampler(Node[T]):
    """A reader of indices: extend it, and define `__iter__` and `__len__`, as in torch and Paddle.

    >>> class Evens(Sampler):
    ...     def __init__(self, n):
    ...         self.n = n
    ...     def __iter__(self):
    ...         return iter(range(0, self.n, 2))
    ...     def __len__(self):
    ...         return (self.n + 1) // 2
    >>> list(Evens(5)), len(Evens(5))
    ([0, 2, 4], 3)

    Extended as a frozen dataclass that defines `order` and `length` instead, it goes on at any
    place at once, and the fields `seed` and `epoch` deal each epoch anew.

    >>> @dataclass(frozen=True, eq=False, repr=False)
    ... class backwards(Sampler):
    ...     n: int
    ...     def order(self):
    ...         return lambda places: self.n - 1 - places
    ...     def length(self):
    ...         return self.n
    >>> list(backwards(4))
    [3, 2, 1, 0]
    """

    def __init__(self, data_source: Any = None) -> None:
        """Takes a data set, or none, for subclasses that call it."""
        self.data_source = data_source

    def order(self) -> Callable[[Places], Places]:
        """The function of a pass that gives the indices at an array of places."""
        raise NotImplementedError(
            f"{type(self).__name__} must define __iter__(self), or order(self) and length(self)"
        )

    def start(self, at: Position) -> Pass[T]:
        """The position is the number of indices that are done."""
        order, done, n = self.order(), at or 0, length(self) or 0
        if not 0 <= done <= n:
            raise errors.NotResumable(
                f"cannot go on after index {done} of {self!r}: it has {n}. Start at the beginning "
                f"(at=None), or give it the data set it had."
            )
        blocks = (
            order(np.arange(begin, min(begin + _BLOCK, n))).tolist()
            for begin in range(done, n, _BLOCK)
        )
        items, count = counted(chain.from_iterable(blocks), done)
        return Pass(items, count, lambda: None)

    def __iter__(self) -> Iterator[T]:
        """Begins a pass."""
        return native(self)


@dataclass(frozen=True, eq=False, repr=False)
class SequenceSampler(Sampler[int]):
    """The indices of a data set from first to last.

    >>> list(SequenceSampler("abc"))
    [0, 1, 2]

    Args:
        data_source: Anything with a length.
    """

    data_source: Sized

    def __post_init__(self) -> None:
        """Refuses what has no length."""
        object.__setattr__(self, "data_source", indices_of(self, self.data_source))

    def order(self) -> Callable[[Places], Places]:
        """Places are the indices."""
        return lambda places: places

    def length(self) -> int:
        """That of the data set."""
        return len(self.data_source)


@dataclass(frozen=True, eq=False, repr=False)
class RandomSampler(Sampler[int]):
    """The indices of a data set, dealt at random.

    >>> sampler = RandomSampler("abcdef", seed=7)
    >>> list(sampler), sorted(sampler)
    ([3, 2, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5])

    Args:
        data_source: Anything with a length.
        replacement: Whether each place draws among all indices, those that were given included.
        num_samples: How many indices to give; None for as many as the data set has.
        seed: An int, or a jax key, fixes the order; epochs vary it. None draws anew for each pass.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: `num_samples` is not positive, or more than there are without replacement.
    """

    data_source: Sized
    replacement: bool = False
    num_samples: int | None = None
    seed: Any = None
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Refuses what has no length, and what cannot be drawn from it."""
        object.__setattr__(self, "data_source", indices_of(self, self.data_source))
        _check_drawing(self, self.replacement, self.num_samples, len(self.data_source))
        _set_seed(self)

    def order(self) -> Callable[[Places], Places]:
        """A permutation, or a draw for each place."""
        n, path = len(self.data_source), (self.seed, self.epoch, _PLACE, _WINDOW)
        _check_drawing(self, self.replacement, self.num_samples, n)  # it may have shrunk
        if self.replacement:
            draw = (*path, n)
            return lambda places: np.minimum(uniform(places, *draw) * n, n - 1).astype(np.intp)
        key = orders.key(*path)
        return lambda places: orders.permutation(places, n, key)

    def length(self) -> int:
        """`num_samples`, or that of the data set."""
        return len(self.data_source) if self.num_samples is None else self.num_samples


@dataclass(frozen=True, eq=False, repr=False)
class WeightedRandomSampler(Sampler[int]):
    """Indices dealt at random, each as often as its weight says.

    >>> sampler = WeightedRandomSampler([0.0, 1.0, 3.0], num_samples=8, seed=0)
    >>> list(sampler)
    [2, 2, 2, 2, 1, 2, 2, 2]
    >>> sorted(WeightedRandomSampler([1.0, 0.0, 3.0], 2, replacement=False, seed=0))
    [0, 2]

    Without replacement an index is drawn among those that are left, in proportion to their weights
    (the keys of Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir").

    Args:
        weights: A weight >= 0 for each index; they need not sum to 1.
        num_samples: How many indices to give.
        replacement: Whether an index that was given can be given again.
        seed: An int, or a jax key, fixes the order; epochs vary it. None draws anew for each pass.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A weight is negative or not finite, none is positive, or there are fewer
            positive ones than `num_samples`, without replacement.
    """

    weights: NDArray[np.float64]
    num_samples: int
    replacement: bool = True
    seed: Any = None
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Refuses weights that nothing can be drawn by."""
        weights = np.array(self.weights, np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError(
                f"{_call(self)} needs one finite number >= 0 for each index as weights, not "
                f"{self.weights!r}."
            )
        object.__setattr__(self, "weights", weights)
        if self.num_samples is None:
            raise TypeError(f"num_samples of {_call(self)} needs a whole number, not None.")
        _check_drawing(self, self.replacement, self.num_samples, int(np.count_nonzero(weights)))
        _set_seed(self)

    def order(self) -> Callable[[Places], Places]:
        """A draw for each place; or all indices sorted by keys that their weights lengthen."""
        path = (self.seed, self.epoch, _PLACE, _WINDOW, len(self.weights))
        if self.replacement:
            ends, last = np.cumsum(self.weights), np.flatnonzero(self.weights)[-1]
            return lambda places: np.minimum(
                np.searchsorted(ends, uniform(places, *path) * ends[-1], side="right"), last
            )
        positive = np.flatnonzero(self.weights)
        keys = -np.log1p(-uniform(positive, *path)) / self.weights[positive]
        dealt = positive[np.argsort(keys, kind="stable")]
        return lambda places: dealt[places]

    def length(self) -> int:
        """`num_samples`."""
        return self.num_samples


@dataclass(frozen=True, eq=False, repr=False)
class SubsetRandomSampler(Sampler[int]):
    """Some indices, dealt at random.

    >>> sorted(SubsetRandomSampler([2, 3, 5], seed=0))
    [2, 3, 5]

    Args:
        indices: Which; one may come twice.
        seed: An int, or a jax key, fixes the order; epochs vary it. None draws anew for each pass.

    Raises:
        TypeError: They are no whole numbers.
    """

    indices: Sequence[int] | Places
    seed: Any = None
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Refuses what are no indices."""
        object.__setattr__(self, "indices", whole_numbers(_call(self), self.indices))
        _set_seed(self)

    def order(self) -> Callable[[Places], Places]:
        """A permutation of the places among them."""
        n, indices = len(self.indices), np.asarray(self.indices)
        key = orders.key(self.seed, self.epoch, _PLACE, _WINDOW)
        return lambda places: indices[orders.permutation(places, n, key)]

    def length(self) -> int:
        """The number of indices."""
        return len(self.indices)


def uniform(places: Places, seed: int, *path: int) -> NDArray[np.float64]:
    """A number from 0 to 1 (exclusive) for each place, a function of place, seed and path alone.

    >>> uniform(np.arange(3), 42).round(3), uniform(np.arange(2, 3), 42).round(3)
    (array([0.063, 0.059, 0.8  ]), array([0.8]))
    """
    key = orders.key(seed, *path, places)
    high, low = np.asarray(key.high, np.float64), np.asarray(key.low >> np.uint32(11), np.float64)
    drawn: NDArray[np.float64] = (high * 2**21 + low) * 2.0**-53
    return drawn


class Indices:
    """The indices that a data set has when it is asked; where it travels, those it had then."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __repr__(self) -> str:
        return repr(range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Indices, (range(len(self)),)


def indices_of(sampler: Node[Any], data_source: Any) -> Sized:
    """The indices of a data set, as many as it has now and then: all that a sampler asks of it.

    Raises:
        TypeError: It has no length.
    """
    if not hasattr(data_source, "__len__"):
        raise TypeError(
            f"{_call(sampler)} needs a data set with a length, not the "
            f"{type(data_source).__name__} {data_source!r}: give range(n) for n indices."
        )
    len(data_source)  # a data set that lacks it says so here
    return Indices(data_source)


def _call(sampler: Node[Any]) -> str:
    return f"{type(sampler).__name__}(...)"


def _check_drawing(sampler: Sampler[int], replacement: Any, num_samples: Any, n: int) -> None:
    """Refuses to draw more indices than there are."""
    errors.check_flag(f"replacement of {_call(sampler)}", replacement)
    if num_samples is None:
        return
    call = f"num_samples of {_call(sampler)}"
    number = errors.check_number(call, num_samples, 1)
    if number > n and (not replacement or n == 0):
        raise ValueError(
            f"{call} is {number}, but there are {n} indices to draw: draw at most {n}"
            f"{', or give replacement=True' if n else ''}."
        )
    object.__setattr__(sampler, "num_samples", number)


def _set_seed(sampler: Any) -> None:
    if sampler.seed is not None:
        object.__setattr__(sampler, "seed", as_seed(sampler.seed, _call(sampler)))
