"""Data sets made of data sets: one after another, side by side, and parts of one."""

from __future__ import annotations

import math
import operator
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import orders
from jreader.datasets.dataset import Dataset, IterableDataset, check_dataset, fetch, is_stream
from jreader.errors import warn
from jreader.orders import as_seed
from jreader.readers import described, length
from jreader.readers.epochs import reached
from jreader.readers.plain_functions import epoch_of_caller

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ConcatDataset(Dataset[T]):
    """The samples of several data sets, one data set after another.

    >>> joined = ConcatDataset(["abc", "de"])
    >>> list(joined), joined[-1]
    (['a', 'b', 'c', 'd', 'e'], 'e')

    Args:
        datasets: At least one data set, each with indices.
    """

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        """Refuses what has no indices."""
        object.__setattr__(self, "datasets", _indexed("ConcatDataset(datasets)", datasets))

    def __getitem__(self, index: SupportsIndex) -> T:
        """The sample at an index, counted through all of them."""
        (sample,) = ConcatDataset.__getitems__(self, [index])
        return sample

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[T]:
        """Several samples, fetched from each data set at once."""
        starts = list(accumulate(map(len, self.datasets), initial=0))
        wanted = [_within(index, starts[-1], self) for index in indices]
        members: dict[int, list[int]] = {}
        for index in wanted:
            members.setdefault(bisect_right(starts, index) - 1, []).append(index)
        found: dict[int, T] = {}
        for which, of in members.items():
            samples = fetch(self.datasets[which], [index - starts[which] for index in of])
            found.update(zip(of, samples, strict=True))
        return [found[index] for index in wanted]

    @property
    def cumulative_sizes(self) -> list[int]:
        """Where each of them ends."""
        return list(accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        """The sum of all lengths."""
        return sum(map(len, self.datasets))

    def __repr__(self) -> str:
        """What it is made of."""
        return f"ConcatDataset([{', '.join(map(described, self.datasets))}])"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ChainDataset(IterableDataset[T]):
    """The samples of several iterable data sets, one after another.

    Each is begun when its turn comes.

    >>> class Digits(IterableDataset):
    ...     def __iter__(self):
    ...         yield from (1, 2)
    >>> list(ChainDataset([Digits(), Digits()]))
    [1, 2, 1, 2]

    Args:
        datasets: Data sets without indices; for those with, there is `ConcatDataset`.
    """

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        """Refuses what has indices."""
        given = tuple(datasets)
        for dataset in given:
            check_dataset("ChainDataset(datasets)", dataset)
            if not is_stream(dataset):
                raise TypeError(
                    f"ChainDataset(datasets) needs iterable data sets, and {described(dataset)} "
                    f"has indices: use ConcatDataset(datasets)."
                )
        object.__setattr__(self, "datasets", given)

    def __iter__(self) -> Iterator[T]:
        """Begins a pass."""
        epoch = epoch_of_caller()
        return chain.from_iterable(reached(iter(each), epoch) for each in self.datasets)

    def __len__(self) -> int:
        """The sum of all lengths, where each is known."""
        lengths = list(map(length, self.datasets))
        if None in lengths:
            silent = self.datasets[lengths.index(None)]
            raise TypeError(
                f"the length of {self!r} is not known before it is read: {described(silent)} does "
                f"not tell its own."
            )
        return sum(map(len, self.datasets))

    def __repr__(self) -> str:
        """What it is made of."""
        return f"ChainDataset([{', '.join(map(described, self.datasets))}])"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ComposeDataset(Dataset[tuple[Any, ...]]):
    """The samples of several data sets side by side, as one flat tuple.

    Samples that are tuples or lists are laid into it, one level deep.

    >>> ComposeDataset([[(1, 2), (3, 4)], "ab"])[1]
    (3, 4, 'b')

    Args:
        datasets: At least one data set, each with indices, all of one length.

    Raises:
        ValueError: They differ in length.
    """

    datasets: tuple[Any, ...]

    def __init__(self, datasets: Iterable[Any]) -> None:
        """Refuses what has no indices, or another length."""
        given = _indexed("ComposeDataset(datasets)", datasets)
        _one_length("ComposeDataset(datasets)", given)
        object.__setattr__(self, "datasets", given)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        """The samples at an index, side by side."""
        (sample,) = ComposeDataset.__getitems__(self, [index])
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        """Several samples, fetched from each data set at once."""
        rows = zip(*(fetch(dataset, indices) for dataset in self.datasets), strict=True)
        return [tuple(chain.from_iterable(map(_laid_out, row))) for row in rows]

    def __len__(self) -> int:
        """The length of each."""
        return _one_length("ComposeDataset(datasets)", self.datasets)

    def __repr__(self) -> str:
        """What it is made of."""
        return f"ComposeDataset([{', '.join(map(described, self.datasets))}])"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class StackDataset(Dataset[Any]):
    """The samples of several data sets side by side, as tuples, or as dicts where they have names.

    >>> StackDataset("ab", [5, 6])[1], StackDataset(letter="ab", number=[5, 6])[1]
    (('b', 6), {'letter': 'b', 'number': 6})

    Args:
        *datasets: Data sets with indices, all of one length.
        **named: The same, by the names of the fields.

    Raises:
        TypeError: Some are given by place and some by name.
        ValueError: They differ in length, or there are none.
    """

    datasets: tuple[Any, ...]
    names: tuple[str, ...]

    def __init__(self, /, *datasets: Any, **named: Any) -> None:
        """Refuses what has no indices, or another length."""
        if datasets and named:
            raise TypeError("StackDataset(...) takes data sets by place or by name, not both.")
        given = _indexed("StackDataset(...)", [*datasets, *named.values()])
        _one_length("StackDataset(...)", given)
        object.__setattr__(self, "datasets", given)
        object.__setattr__(self, "names", tuple(named))

    def __getitem__(self, index: Any) -> Any:
        """The samples at an index, side by side."""
        (sample,) = StackDataset.__getitems__(self, [index])
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, fetched from each data set at once."""
        rows = zip(*(fetch(dataset, indices) for dataset in self.datasets), strict=True)
        return [dict(zip(self.names, row, strict=True)) for row in rows] if self.names else [*rows]

    def __len__(self) -> int:
        """The length of each."""
        return _one_length("StackDataset(...)", self.datasets)

    def __repr__(self) -> str:
        """What it is made of."""
        named = [f"{name}=" for name in self.names] or [""] * len(self.datasets)
        parts = map(str.__add__, named, map(described, self.datasets))
        return f"StackDataset({', '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Subset(Dataset[T]):
    """The samples of a data set at some indices, in their order; an index may come twice.

    >>> list(Subset("abcdef", [4, 0, 0]))
    ['e', 'a', 'a']

    Args:
        dataset: A data set with indices.
        indices: Which of them; negative ones count from the end.

    Raises:
        IndexError: An index is beyond the data set.
    """

    dataset: Any
    indices: NDArray[np.intp]

    def __init__(self, dataset: Any, indices: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Refuses what has no such indices."""
        (given,) = _indexed("Subset(dataset, indices)", [dataset])
        places = whole_numbers("Subset(dataset, indices)", indices)
        for place in places[(places < -len(given)) | (places >= len(given))]:
            raise IndexError(
                f"Subset(dataset, indices) has the index {place}, and {described(given)} has "
                f"{len(given)} samples."
            )
        object.__setattr__(self, "dataset", given)
        object.__setattr__(self, "indices", places % max(len(given), 1))

    def __getitem__(self, index: SupportsIndex) -> T:
        """The sample at the index that is at this place."""
        (sample,) = Subset.__getitems__(self, [index])
        return sample

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[T]:
        """Several samples, fetched at once."""
        places = [_within(index, len(self), self) for index in indices]
        return fetch(self.dataset, self.indices[places].tolist())

    def __len__(self) -> int:
        """The number of indices."""
        return len(self.indices)

    def __repr__(self) -> str:
        """Of what, and how many."""
        return f"Subset({described(self.dataset)}, {described(self.indices)})"


def random_split(dataset: Any, lengths: Sequence[float], seed: Any = None) -> list[Subset[Any]]:
    """Parts of a data set, dealt at random, no sample twice.

    >>> train, test = random_split("abcdefghij", [7, 3], seed=0)
    >>> len(train), sorted([*train, *test]) == list("abcdefghij")
    (7, True)
    >>> [len(part) for part in random_split("abcdefghij", [0.55, 0.45], seed=0)]
    [6, 4]

    Args:
        dataset: A data set with indices.
        lengths: How many samples each part gets, as ints; or as fractions (floats), whose remainder
            goes one sample at a time to the first parts.
        seed: An int, or a jax key, fixes the parts; None draws.

    Raises:
        TypeError: A length is no number.
        ValueError: The lengths do not sum to that of the data set, or the fractions to 1.
    """
    (given,) = _indexed("random_split(dataset, lengths)", [dataset])
    call = "random_split(dataset, lengths, seed)"
    drawn = secrets.randbits(52) if seed is None else as_seed(seed, call)
    n = len(given)
    order = orders.permutation(np.arange(n), n, orders.key(drawn, 0, 1, 0))
    ends = list(accumulate(_counts(lengths, n)))
    return [Subset(given, part) for part in np.split(order, ends[:-1])] if ends else []


def _counts(lengths: Sequence[float], n: int) -> list[int]:
    """How many samples each part gets of n."""
    if all(
        isinstance(each, SupportsIndex) and not isinstance(each, (bool, np.bool_))
        for each in lengths
    ):
        counts = [operator.index(each) for each in lengths]  # type: ignore[arg-type]  # just seen
        if sum(counts) != n or min(counts, default=0) < 0:
            raise ValueError(
                f"random_split(dataset, lengths) needs lengths >= 0 that sum to the {n} samples of "
                f"the data set, not {list(lengths)}, which sum to {sum(counts)}; fractions are "
                f"floats that sum to 1.0."
            )
        return counts
    if not all(isinstance(each, (float, int, np.number)) for each in lengths):
        raise TypeError(f"random_split(dataset, lengths) needs numbers, not {list(lengths)}.")
    if not math.isclose(sum(lengths), 1) or not all(0 <= each <= 1 for each in lengths):
        raise ValueError(
            f"random_split(dataset, lengths) needs fractions from 0 to 1 that sum to 1, not "
            f"{list(lengths)}, which sum to {sum(lengths)}."
        )
    counts = [math.floor(n * each) for each in lengths]
    for place in range(n - sum(counts)):
        counts[place % len(counts)] += 1
    for place, count in enumerate(counts):
        if not count:
            warn(
                f"part {place} of random_split has no samples: its fraction of {n} samples is less "
                f"than one. Give a larger fraction, or numbers of samples."
            )
    return counts


def whole_numbers(call: str, indices: Any) -> NDArray[np.intp]:
    """Indices as an array of their own.

    >>> whole_numbers("Subset(dataset, indices)", range(3))
    array([0, 1, 2])

    Raises:
        TypeError: They are no whole numbers.
    """
    array = np.array(indices if hasattr(indices, "__len__") else list(indices))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"{call} needs a list of whole numbers, not {described(indices)}.")
    return array.astype(np.intp)


def _indexed(call: str, datasets: Iterable[Any]) -> tuple[Any, ...]:
    given = tuple(datasets)
    if not given:
        raise ValueError(f"{call} needs at least one data set.")
    for dataset in given:
        check_dataset(call, dataset)
        if is_stream(dataset):
            raise TypeError(
                f"{call} needs data sets with indices, and {described(dataset)} has none: give "
                f"list(dataset), or use ChainDataset."
            )
    return given


def _one_length(call: str, datasets: Iterable[Any]) -> int:
    lengths = list(map(len, datasets))
    if len(set(lengths)) > 1:
        raise ValueError(
            f"{call} needs data sets of one length, not {lengths}: cut the longer ones with "
            f"Subset(dataset, range({min(lengths)}))."
        )
    return lengths[0]


def _within(index: SupportsIndex, n: int, dataset: object) -> int:
    """An index from 0 to n - 1; negative ones count from the end."""
    if isinstance(index, slice):
        raise TypeError(
            f"{described(dataset)} takes an index, not a slice: a part of it is "
            f"Subset(dataset, {range(n)[index]})."
        )
    place = operator.index(index)
    if not -n <= place < n:
        raise IndexError(f"index {place} is beyond {described(dataset)}, which has {n} samples.")
    return place % n


def _laid_out(sample: Any) -> Sequence[Any]:
    return sample if isinstance(sample, (tuple, list)) else (sample,)
