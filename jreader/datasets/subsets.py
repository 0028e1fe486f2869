"""Parts of a data set: `Subset` and `random_split`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import orders
from jreader.datasets.dataset import OfOthers
from jreader.datasets.fetching import fetch, index_within, with_indices
from jreader.errors import warn
from jreader.orders import as_seed
from jreader.orders.parts import part_sizes
from jreader.readers import described, set_fields
from jreader.transforms.selections import int_array, split_key

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Subset(OfOthers[T]):
    """A data set of the samples of another one at some indices, in the order of the indices.

    An index may occur more than once.

    >>> list(Subset("abcdef", [4, 0, 0]))
    ['e', 'a', 'a']

    Args:
        dataset: A data set with `__getitem__` and `__len__`.
        indices: Ints, a list or an array of them; negative ones count from the end.

    Raises:
        TypeError: The indices are not ints, or `dataset` is a stream or not a data set.
        IndexError: An index lies beyond the data set.
    """

    dataset: Any
    indices: NDArray[np.intp]

    def __init__(self, dataset: Any, indices: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        (given,) = with_indices("Subset(dataset, indices)", [dataset])
        chosen = int_array("Subset(dataset, indices)", indices)
        for index in chosen[(chosen < -len(given)) | (chosen >= len(given))]:
            raise IndexError(
                f"Subset(dataset, indices) has the index {index}, and {described(given)} has "
                f"{len(given)} samples."
            )
        set_fields(self, dataset=given, indices=chosen % max(len(given), 1))

    def _samples_at(self, indices: Sequence[SupportsIndex]) -> Sequence[T]:
        """The samples of the data set at some of the indices, in one call."""
        chosen = [index_within(index, len(self), self) for index in indices]
        samples: Sequence[T] = fetch(self.dataset, self.indices[chosen].tolist())
        return samples

    def __len__(self) -> int:
        """The number of indices."""
        return len(self.indices)

    def __repr__(self) -> str:
        """The data set, and dtype and number of the indices."""
        return f"Subset({described(self.dataset)}, {described(self.indices)})"


def random_split(dataset: Any, lengths: Sequence[float], seed: Any = None) -> list[Subset[Any]]:
    """Splits a data set at random into parts without common samples.

    >>> train, test = random_split("abcdefghij", [7, 3], seed=0)
    >>> len(train), sorted([*train, *test]) == list("abcdefghij")
    (7, True)
    >>> [len(part) for part in random_split("abcdefghij", [0.55, 0.45], seed=0)]
    [6, 4]

    Args:
        dataset: A data set with `__getitem__` and `__len__`.
        lengths: The number of samples of each part, as ints; or its fraction of the samples, as
            floats. Samples that are left over by rounding go to the first parts, one to each.
        seed: An int or a jax key: the same seed gives the same parts. None splits anew each time.

    Returns:
        A `Subset` for each length.

    Raises:
        TypeError: A length is not a number.
        ValueError: The lengths do not sum to the number of samples, or the fractions to 1.
    """
    (given,) = with_indices("random_split(dataset, lengths)", [dataset])
    call = "random_split(dataset, lengths, seed)"
    drawn = secrets.randbits(52) if seed is None else as_seed(seed, call)
    n = len(given)
    counts = part_sizes("random_split(dataset, lengths)", lengths, n)
    for part, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        if not count and not isinstance(length, SupportsIndex):
            warn(
                f"part {part} of random_split has no samples: its fraction of {n} samples is less "
                f"than one. Give a larger fraction, or numbers of samples."
            )
    order = orders.permutation(np.arange(n), n, split_key(drawn))
    ends = list(accumulate(counts))
    return [Subset(given, part) for part in np.split(order, ends[:-1])] if ends else []
