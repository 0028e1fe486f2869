"""Data sets: samples by index, or one after another, and the one way to fetch several of them.

Whatever has `__getitem__` and `__len__` is a data set, a list as much as the data set of another
library; `Dataset` only says so, and makes it a reader too. Samples are fetched a batch at a time,
in one call where the data set can: `__getitems__(indices)`, rows of arrays, columns of a reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from jreader.errors import FeedMismatch, noted
from jreader.readers import Columns, Node, described, map_tree
from jreader.readers.overrides import stands_for
from jreader.readers.refills import watched
from jreader.sources import Table, source
from jreader.sources.columns import mismatch
from jreader.sources.random_access import refuse_absent

T = TypeVar("T")


class Dataset(Generic[T]):
    """Samples by index: extend it, and define `__getitem__` and `__len__`.

    It is a reader as well, so everything that takes readers takes it.

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

    A data set that can gather several samples at once also defines `__getitems__(indices)`, which
    takes a list of indices, and gives as many samples.
    """

    def __getitem__(self, index: Any) -> T:
        """The sample at an index."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, index)")

    def __len__(self) -> int:
        """The number of samples."""
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __iter__(self) -> Iterator[T]:
        """The samples in order: not until an IndexError, which an index that is computed lacks."""
        return (self[index] for index in range(len(self)))

    def __call__(self) -> Iterator[T]:
        """Begins a pass, as a reader does."""
        return iter(self)

    def __add__(self, other: Any) -> Dataset[Any]:
        """The samples of this one, then those of another."""
        from jreader.datasets.combinators import ConcatDataset  # noqa: PLC0415  # it is made of these

        return ConcatDataset([self, other])

    def __bool__(self) -> bool:
        """A data set is true, also an empty one."""
        return True

    def __repr__(self) -> str:
        """What it is."""
        return f"{type(self).__name__}()"


class IterableDataset(Generic[T]):
    """Samples one after another: extend it, and define `__iter__`, which begins a pass.

    It is a reader as well. It has no length and no indices, so nothing shuffles it as a whole:
    `jreader.shuffle(dataset, buf_size=1000)` does in windows.

    >>> from jreader import DataLoader
    >>> class Countdown(IterableDataset):
    ...     def __iter__(self):
    ...         yield from (3, 2, 1)
    >>> [numbers.tolist() for numbers in DataLoader(Countdown(), batch_size=2)]
    [[3, 2], [1]]
    """

    def __iter__(self) -> Iterator[T]:
        """Begins a pass."""
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")

    def __call__(self) -> Iterator[T]:
        """Begins a pass, as a reader does."""
        return iter(self)

    def __add__(self, other: Any) -> IterableDataset[Any]:
        """The samples of this one, then those of another."""
        from jreader.datasets.combinators import ChainDataset  # noqa: PLC0415  # it is made of these

        return ChainDataset([self, other])

    def __bool__(self) -> bool:
        """A data set is true, also an empty one."""
        return True

    def __repr__(self) -> str:
        """What it is."""
        return f"{type(self).__name__}()"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TensorDataset(Dataset[tuple[Any, ...]]):
    """The rows of arrays side by side, as tuples; a batch of them is gathered at once.

    >>> dataset = TensorDataset(np.array([[1, 2], [3, 4]]), np.array([5, 6]))
    >>> len(dataset), dataset[1]
    (2, (array([3, 4]), np.int64(6)))

    Args:
        *arrays: Arrays, as in torch; or one list or tuple of them, or of what `np.asarray` takes,
            as in Paddle.
        tensors: Paddle's name for that list.

    Raises:
        TypeError: Both were given.
        ValueError: The arrays differ in length, or there are none.
    """

    tensors: tuple[np.ndarray[Any, Any], ...]

    def __init__(self, *arrays: Any, tensors: Sequence[Any] | None = None) -> None:
        """Refuses what has no rows, or not the same number of them."""
        if tensors is None:
            listed = len(arrays) == 1 and isinstance(arrays[0], (list, tuple))
            tensors = arrays[0] if listed else arrays
        elif arrays:
            raise TypeError("TensorDataset takes arrays by place, or tensors=[...], not both.")
        columns = tuple(map(np.asarray, tensors))
        if wrong := mismatch(columns):
            raise ValueError(f"TensorDataset(tensors) {wrong}")
        object.__setattr__(self, "tensors", columns)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        """A row of every array."""
        return tuple(column[index] for column in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> Columns[tuple[Any, ...]]:
        """Several rows, gathered from each array at once."""
        rows = np.asarray(indices, np.intp)
        return Columns(tuple(column[rows] for column in self.tensors))

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.tensors[0])

    def __repr__(self) -> str:
        """The arrays as shapes."""
        return f"TensorDataset([{', '.join(map(described, self.tensors))}])"


def fetch(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """The samples at several indices, gathered in one call where the data set can.

    >>> fetch("abcdef", [5, 0])
    ['f', 'a']
    >>> fetch(np.arange(6) * 10, [5, 0]).columns
    array([50,  0])

    Raises:
        FeedMismatch: `__getitems__` gave another number of samples than it was asked for.
    """
    try:
        return _fetched(dataset, indices)
    except Exception as error:
        refuse_absent(dataset, indices, error)
        raise


def _fetched(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    if _is_rows(dataset):
        rows = np.asarray(indices, np.intp)
        if isinstance(dataset, source):  # only its plane knows whether it gives stacked rows
            return dataset.plane().take(np.where(rows < 0, rows + len(dataset), rows))
        columns = dataset if isinstance(dataset, np.ndarray) else dataset.columns
        return Columns(map_tree(lambda column: column[rows], columns))
    if stands_for(type(dataset), "__getitems__", "__getitem__"):
        samples: Sequence[Any] = dataset.__getitems__(indices)
        if len(samples) != len(indices):
            raise FeedMismatch(
                f"{type(dataset).__name__}.__getitems__ gave {len(samples)} samples for "
                f"{len(indices)} indices: give one for each, in their order."
            )
        return samples
    if not _is_new(dataset):
        return [fetch_one(dataset, index) for index in indices]
    each = (fetch_one(dataset, index) for index in indices)
    return list(watched(each, len(indices), f"a batch of {type(dataset).__name__}"))


_SEEN: WeakValueDictionary[int, Any] = WeakValueDictionary()


def _is_new(dataset: object) -> bool:
    """Whether no batch of it was made yet: the first one tells whether its samples are one."""
    if _SEEN.get(id(dataset)) is dataset:
        return False
    with suppress(TypeError):  # a list, say
        _SEEN[id(dataset)] = dataset
        return True
    return False


def gathers(dataset: object) -> bool:
    """Whether `fetch` takes all samples of a batch at once.

    >>> gathers(np.arange(3)), gathers([1, 2, 3])
    (True, False)
    """
    return _is_rows(dataset) or stands_for(type(dataset), "__getitems__", "__getitem__")


def _is_rows(dataset: object) -> bool:
    """Whether samples are rows of columns, which nothing of a subclass's own gives otherwise."""
    if isinstance(dataset, np.ndarray):
        return type(dataset).__getitem__ in (np.ndarray.__getitem__, np.memmap.__getitem__)
    return isinstance(dataset, Table) and stands_for(
        type(dataset), "plane", "start", "__call__", "__iter__", "__getitem__"
    )


def fetch_one(dataset: Any, index: Any) -> Any:
    """The sample at an index."""
    try:
        return dataset[index]
    except Exception as error:
        noted(error, f"raised by {type(dataset).__name__}[{described(index)}]")
        refuse_absent(dataset, [index], error)
        raise


def is_stream(dataset: object) -> bool:
    """Whether a data set is read from its beginning, not by index.

    Those of other libraries are known by the name of a class they extend: they inherit
    `__getitem__` from their map-style kin, and importing a library to ask it would be slow.

    >>> is_stream(IterableDataset()), is_stream([1, 2])
    (True, False)
    """
    if any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def check_dataset(call: str, dataset: object) -> None:
    """Refuses what has neither samples by index nor passes over them.

    >>> check_dataset("DataLoader(dataset)", 5)
    Traceback (most recent call last):
    TypeError: DataLoader(dataset) needs a data set, that is, an object with __getitem__ and \
__len__, or one with __iter__ that begins a pass, not the int 5.
    """
    kind = type(dataset).__name__
    stream = is_stream(dataset) and not isinstance(dataset, Node)
    if isinstance(dataset, Table) or (stream and not hasattr(dataset, "__next__")):
        return
    needed = (
        f"{call} needs a data set, that is, an object with __getitem__ and __len__, or one with "
        f"__iter__ that begins a pass, not the {kind} {described(dataset)}"
    )
    if isinstance(dataset, type):
        raise TypeError(f"{needed}: make one, as in {dataset.__name__}(...).")
    if isinstance(dataset, Node) or (callable(dataset) and not hasattr(dataset, "__getitem__")):
        raise TypeError(f"{needed}. For a reader use Pipeline(reader).batch(batch_size).load().")
    if hasattr(dataset, "__next__"):
        raise TypeError(f"{needed}: it can be read once only. Give list({kind}), or a Dataset.")
    if isinstance(dataset, dict):
        raise TypeError(f"{needed}: for columns by name, give jreader.arrays(**columns).")
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TypeError(f"{needed}.")
