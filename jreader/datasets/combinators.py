"""Data sets made from others: parts of one; several, concatenated or side by side."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import orders
from jreader.datasets.dataset import IterableDataset, OfOthers, call_that_makes
from jreader.datasets.fetching import check_dataset, fetch, index_within, is_stream, with_indices
from jreader.errors import warn
from jreader.orders.parts import part_sizes
from jreader.readers import described, length, set_fields
from jreader.readers.epochs import iterable_in_epoch
from jreader.readers.plain_functions import epoch_of_caller
from jreader.transforms.selections import int_array, split_key

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Subset(OfOthers[T]):
    """A data set of the samples at some indices of another, in the order of the indices.

    An index may occur more than once.

    >>> list(Subset("abcdef", [4, 0, 0]))
    ['e', 'a', 'a']

    Args:
        dataset: A data set with `__getitem__` and `__len__`.
        indices: Ints, a list or an array of them; negative ones count from the end.

    Raises:
        TypeError: The indices are not ints, or `dataset` is a stream or not a data set.
        IndexError: An index is out of range.
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
        """Return the samples at some of the indices, in one call."""
        chosen = [index_within(index, len(self), self) for index in indices]
        samples: Sequence[T] = fetch(self.dataset, self.indices[chosen].tolist())
        return samples

    def __len__(self) -> int:
        """Return the number of indices."""
        return len(self.indices)

    def __repr__(self) -> str:
        """Return the data set, and the dtype and number of the indices."""
        return f"Subset({described(self.dataset)}, {described(self.indices)})"


def random_split(
    dataset: SupportsLenAndGetItem[T], lengths: Sequence[float], seed: Any = None
) -> list[Subset[T]]:
    """Split a data set randomly into parts without common samples.

    >>> train, test = random_split("abcdefghij", [7, 3], seed=0)
    >>> len(train), sorted([*train, *test]) == list("abcdefghij")
    (7, True)
    >>> [len(part) for part in random_split("abcdefghij", [0.55, 0.45], seed=0)]
    [6, 4]

    Args:
        dataset: A data set with `__getitem__` and `__len__`.
        lengths: The number of samples in each part, as ints; or its fraction of the samples, as
            floats. Samples left over by rounding go to the first parts, one to each.
        seed: An int or a jax key: the same seed gives the same parts. None gives a new split each
            time.

    Returns:
        A `Subset` for each length.

    Raises:
        TypeError: A length is not a number.
        ValueError: The lengths do not sum to the number of samples, or the fractions to 1.
    """
    (given,) = with_indices("random_split(dataset, lengths)", [dataset])
    call = "random_split(dataset, lengths, seed)"
    drawn = secrets.randbits(52) if seed is None else orders.as_seed(seed, call)
    n = len(given)
    counts = part_sizes("random_split(dataset, lengths)", lengths, n)
    for part, (wanted, count) in enumerate(zip(lengths, counts, strict=True)):
        if not count and not isinstance(wanted, SupportsIndex):
            warn(
                f"part {part} of random_split has no samples: its fraction of {n} samples is less "
                f"than one. Give a larger fraction, or numbers of samples."
            )
    order = orders.permutation(np.arange(n), n, split_key(drawn))
    ends = list(accumulate(counts))
    return [Subset(given, part) for part in np.split(order, ends[:-1])] if ends else []


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ConcatDataset(OfOthers[T]):
    """A data set of the samples of several data sets, concatenated.

    >>> joined = ConcatDataset(["abc", "de"])
    >>> list(joined), joined[-1]
    (['a', 'b', 'c', 'd', 'e'], 'e')

    Args:
        datasets: At least one data set; each has `__getitem__` and `__len__`.

    Raises:
        TypeError: One of them is not a data set, or is a stream (see `ChainDataset`).
        ValueError: There are none.
    """

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        set_fields(self, datasets=with_indices("ConcatDataset(datasets)", datasets))

    def _samples_at(self, indices: Sequence[SupportsIndex]) -> list[T]:
        """Return the samples at several indices, counted across the data sets."""
        starts = [0, *self.cumulative_sizes]
        wanted = [index_within(index, starts[-1], self) for index in indices]
        wanted_of: dict[int, list[int]] = {}
        for index in wanted:
            wanted_of.setdefault(bisect_right(starts, index) - 1, []).append(index)
        found: dict[int, T] = {}
        for which, some in wanted_of.items():
            samples = fetch(self.datasets[which], [index - starts[which] for index in some])
            found.update(zip(some, samples, strict=True))
        return [found[index] for index in wanted]

    @property
    def cumulative_sizes(self) -> list[int]:
        """For each data set, the number of samples up to its end."""
        return list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        """Return the sum of the lengths of the data sets."""
        return sum(map(len, self.datasets))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ChainDataset(IterableDataset[T]):
    """A data set of the samples of several streams, concatenated.

    Each stream is opened once the previous one has ended.

    >>> class Digits(IterableDataset):
    ...     def __iter__(self):
    ...         yield from (1, 2)
    >>> list(ChainDataset([Digits(), Digits()]))
    [1, 2, 1, 2]

    Args:
        datasets: Data sets with `__iter__` and without indices.

    Raises:
        TypeError: One of them is not a data set, or has indices (see `ConcatDataset`).
    """

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        given = tuple(datasets)
        for dataset in given:
            check_dataset("ChainDataset(datasets)", dataset)
            if not is_stream(dataset):
                raise TypeError(
                    f"ChainDataset(datasets) needs iterable data sets, and {described(dataset)} "
                    f"has indices: use ConcatDataset(datasets)."
                )
        set_fields(self, datasets=given)

    def __iter__(self) -> Iterator[T]:
        """Start a pass over all of them, in the epoch of the calling reader."""
        epoch = epoch_of_caller()
        # itertools.chain cannot be closed
        return (sample for each in self.datasets for sample in iterable_in_epoch(iter(each), epoch))

    def __len__(self) -> int:
        """Return the sum of the lengths; raise TypeError if one is unknown."""
        lengths = list(map(length, self.datasets))
        if None in lengths:
            silent = self.datasets[lengths.index(None)]
            raise TypeError(
                f"the length of {self!r} is not known, since {described(silent)} has none: define "
                f"its __len__, or count the samples while you read them."
            )
        return sum(map(len, self.datasets))

    __repr__ = call_that_makes


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _SideBySide(OfOthers[T]):
    """A data set of the samples of others side by side, which have equal lengths."""

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        call = f"{type(self).__name__}(...)"
        given = with_indices(call, datasets)
        _one_length(call, given)
        set_fields(self, datasets=given)

    def _rows_at(self, indices: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the samples of all data sets at several indices."""
        return zip(*(fetch(dataset, indices) for dataset in self.datasets), strict=True)

    def __len__(self) -> int:
        """Return the length of each data set, which is the same for all."""
        return _one_length(f"{type(self).__name__}(...)", self.datasets)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ComposeDataset(_SideBySide[tuple[Any, ...]]):
    """A data set of the samples of several data sets side by side, each as a flat tuple.

    Samples that are tuples or lists are flattened, one level deep.

    >>> ComposeDataset([[(1, 2), (3, 4)], "ab"])[1]
    (3, 4, 'b')

    Args:
        datasets: At least one data set; each has `__getitem__`, and all have the same length.

    Raises:
        TypeError: One of them is not a data set, or is a stream.
        ValueError: They differ in length, or there are none.
    """

    def _samples_at(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the samples of all data sets at several indices, each as a flat tuple."""
        rows = self._rows_at(indices)
        return [tuple(chain.from_iterable(map(_as_fields, row))) for row in rows]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class StackDataset(_SideBySide[Any]):
    """A data set of the samples of several data sets side by side.

    Samples are tuples if you pass positional arguments, and dicts if you pass keyword arguments.

    >>> StackDataset("ab", [5, 6])[1], StackDataset(letter="ab", number=[5, 6])[1]
    (('b', 6), {'letter': 'b', 'number': 6})

    Args:
        *datasets: Data sets with `__getitem__`, all of the same length.
        **named: The same, as keyword arguments: the names are the keys of the samples.

    Raises:
        TypeError: Some arguments are positional and some keyword, or one is not a data set.
        ValueError: They differ in length, or there are none.
    """

    names: tuple[str, ...]

    def __init__(self, /, *datasets: Any, **named: Any) -> None:
        if datasets and named:
            raise TypeError(
                "StackDataset(...) takes positional or named data sets, not both: type "
                "StackDataset(a, b) for tuples, StackDataset(x=a, y=b) for dicts."
            )
        super().__init__([*datasets, *named.values()])
        set_fields(self, names=tuple(named))

    def _samples_at(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of all data sets at several indices, each as a tuple or dict."""
        rows = self._rows_at(indices)
        return [dict(zip(self.names, row, strict=True)) for row in rows] if self.names else [*rows]

    def __repr__(self) -> str:
        """Return the call that makes this data set."""
        named = [f"{name}=" for name in self.names] or [""] * len(self.datasets)
        parts = map(str.__add__, named, map(described, self.datasets))
        return f"StackDataset({', '.join(parts)})"


def _one_length(call: str, datasets: Iterable[Any]) -> int:
    lengths = list(map(len, datasets))
    if len(set(lengths)) > 1:
        raise ValueError(
            f"{call} needs data sets of one length, not {lengths}: cut the longer ones with "
            f"Subset(dataset, range({min(lengths)}))."
        )
    return lengths[0]


def _as_fields(sample: Any) -> Sequence[Any]:
    return sample if isinstance(sample, (tuple, list)) else (sample,)
