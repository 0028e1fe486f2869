"""The base classes of data sets: `Dataset` by index, `IterableDataset` as a stream.

Any object with `__getitem__` and `__len__` is a data set, even a list or the data set of another
library. Extending `Dataset` makes this explicit, and makes the data set a reader as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, SupportsIndex, TypeVar

import numpy as np

from jreader.readers import Columns, described, set_fields
from jreader.readers.protected import read_only
from jreader.sources.columns import mismatch

T = TypeVar("T")
_NESTED = 32  # deeper nested data sets are flattened: Python's stack is limited


class _Samples(Generic[T]):
    """The base of all data sets: each is a reader, and true even when empty."""

    def __iter__(self) -> Iterator[T]:
        """Start a pass over the samples."""
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")

    def __call__(self) -> Iterator[T]:
        """Start a pass over the samples, as calling any reader does."""
        return iter(self)

    def __bool__(self) -> bool:
        """Return True, even for an empty data set, so that `if dataset` never counts samples."""
        return True

    def __repr__(self) -> str:
        """Return the name of the class; its arguments are not known here."""
        return f"{type(self).__name__}()"


class Dataset(_Samples[T]):
    """A data set whose samples are found by index: define `__getitem__` and `__len__`.

    It is a reader as well, so you can pass it to everything that takes a reader.

    >>> from jreader import DataLoader, batch
    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return index**2
    ...     def __len__(self):
    ...         return 5
    >>> list(Squares()), list(batch(Squares(), 2)())
    ([0, 1, 4, 9, 16], [[0, 1], [4, 9], [16]])
    >>> [squares.tolist() for squares in DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4, 9], [16]]

    A data set that can fetch several samples in one call may also define `__getitems__(indices)`.
    It takes a list of indices and returns one sample for each, in the same order.
    """

    def __getitem__(self, index: Any) -> T:
        """Return the sample at `index`, an int from 0 to `len(self) - 1`."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, index)")

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __iter__(self) -> Iterator[T]:
        """Yield the samples in order, from index 0 to `len(self) - 1`."""
        # Python's default ends at an IndexError, which a computing __getitem__ never raises
        return (self[index] for index in range(len(self)))

    def __add__(self, other: Any) -> Dataset[Any]:
        """Return a `ConcatDataset`: the samples of this data set, then those of the other."""
        from jreader.datasets.combinators import ConcatDataset  # noqa: PLC0415  # it extends this

        return ConcatDataset([*_summands(self, ConcatDataset), other])


class IterableDataset(_Samples[T]):
    """A data set that is read as a stream, from the beginning: define `__iter__`.

    It is a reader as well. It has no length and no indices, so it cannot be shuffled as a whole;
    `jreader.shuffle(dataset, buf_size=1000)` shuffles it in windows of 1,000 samples.

    >>> from jreader import DataLoader
    >>> class Countdown(IterableDataset):
    ...     def __iter__(self):
    ...         yield from (3, 2, 1)
    >>> [numbers.tolist() for numbers in DataLoader(Countdown(), batch_size=2)]
    [[3, 2], [1]]
    """

    def __add__(self, other: Any) -> IterableDataset[Any]:
        """Return a `ChainDataset`: the samples of this data set, then those of the other."""
        from jreader.datasets.combinators import ChainDataset  # noqa: PLC0415  # it extends this

        return ChainDataset([*_summands(self, ChainDataset), other])


class OfOthers(Dataset[T]):
    """A data set that fetches its samples from others, its `datasets`."""

    def _samples_at(self, indices: Sequence[Any]) -> Sequence[T]:
        """Return the samples at several indices, in one call per data set."""
        raise NotImplementedError

    def __getitem__(self, index: SupportsIndex) -> T:
        """Return the sample at an index."""
        (sample,) = self._samples_at([index])
        return sample

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[T]:
        """Return the samples at several indices, in one call per data set that has any."""
        return self._samples_at(indices)

    def __repr__(self) -> str:
        """Return the call that makes this data set."""
        return call_that_makes(self)


def call_that_makes(made: Any) -> str:
    """Return the call that makes a data set of others."""
    return f"{type(made).__name__}([{', '.join(map(described, made.datasets))}])"


def _summands(dataset: Any, kind: Any) -> list[Any]:
    """Return [dataset]; or the data sets that `+` joined, if nested too deeply for calls."""
    parts, depth = [dataset], 0
    while type(parts[0]) is kind:
        parts[:1] = parts[0].datasets
        depth += 1
    return parts if depth >= _NESTED else [dataset]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TensorDataset(Dataset[tuple[Any, ...]]):
    """The rows of several arrays side by side: sample i is the tuple of their rows i.

    Each array gathers the rows of a batch in one call. A row is a read-only view: copy it before
    you write to it.

    >>> dataset = TensorDataset(np.array([[1, 2], [3, 4]]), np.array([5, 6]))
    >>> len(dataset), dataset[1]
    (2, (array([3, 4]), np.int64(6)))

    Args:
        *arrays: Arrays with the same number of rows, or anything that `np.asarray` takes; as in
            torch. A single list or tuple of arrays is accepted too, as in Paddle.
        tensors: Paddle's name for that list.

    Raises:
        TypeError: Both `*arrays` and `tensors` are given.
        ValueError: The arrays differ in length, or there are none.
    """

    tensors: tuple[np.ndarray[Any, Any], ...]

    def __init__(self, *arrays: Any, tensors: Sequence[Any] | None = None) -> None:
        if tensors is None:
            listed = len(arrays) == 1 and isinstance(arrays[0], (list, tuple))
            tensors = arrays[0] if listed else arrays
        elif arrays:
            raise TypeError(
                "TensorDataset takes positional arrays, or tensors=[...], not both: type "
                "TensorDataset(images, labels)."
            )
        columns = tuple(map(np.asarray, tensors))
        if wrong := mismatch(columns):
            raise ValueError(f"TensorDataset(tensors) {wrong}")
        set_fields(self, tensors=columns)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        """Return row `index` of every array, read-only."""
        return tuple(read_only(column[index]) for column in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> Columns[tuple[Any, ...]]:
        """Return the rows at several indices, gathered from each array in one call."""
        rows = np.asarray(indices, np.intp)
        return Columns(tuple(column[rows] for column in self.tensors))

    def __len__(self) -> int:
        """Return the number of rows in each array."""
        return len(self.tensors[0])

    def __repr__(self) -> str:
        """Return the dtypes and shapes of the arrays."""
        return f"TensorDataset([{', '.join(map(described, self.tensors))}])"
