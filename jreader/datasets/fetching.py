"""Fetch samples from a data set: several in one call if possible, otherwise one by one.

`fetch` uses the fastest way that a data set offers: rows of arrays, `__getitems__(indices)`, or
`__getitem__(index)` for each index. The functions here accept the data sets of any library.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from jreader.errors import FeedMismatch, noted
from jreader.readers import Columns, Node, described, length, lookup_of, map_tree
from jreader.readers.columns import Array
from jreader.readers.nodes import plane_of
from jreader.readers.overrides import stands_for
from jreader.readers.protected import protected
from jreader.readers.refills import watched
from jreader.readers.streams_with_state import is_declared_stream, kinds_of_grain
from jreader.sources.columns import Table
from jreader.sources.random_access import check_getitem, check_in_range, is_first_batch, source


def fetch(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """Return the samples at several indices, in one call if the data set can.

    >>> fetch("abcdef", [5, 0])
    ['f', 'a']
    >>> fetch(np.arange(6) * 10, [5, 0]).columns
    array([50,  0])

    Raises:
        FeedMismatch: `__getitems__` returned a wrong number of samples.
        MissingSample: An index is out of range.
    """
    try:
        return _fetched(dataset, indices)
    except Exception as error:
        check_in_range(dataset, indices, error)
        raise


def _fetched(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    if _is_rows(dataset):
        return _rows_of_columns(dataset, np.asarray(indices, np.intp))
    plane = None if isinstance(dataset, Table) else plane_of(dataset)
    if plane is not None:
        return plane.take(np.asarray(indices, np.intp))
    if stands_for(type(dataset), "__getitems__", "__getitem__"):
        return _by_getitems(dataset, indices)
    if is_first_batch(dataset, len(indices)):
        each = (fetch_one(dataset, index) for index in indices)
        return list(watched(each, len(indices), f"a batch of {type(dataset).__name__}"))
    fetched, index = [], None
    try:
        for index in indices:  # a Python call for each would cost as much as many samples
            fetched.append(dataset[index])
    except Exception as error:
        _explain(dataset, index, error)
        raise
    # inlines `holds_samples`, to save a call per batch
    return list(map(protected, fetched)) if isinstance(dataset, (list, tuple)) else fetched


def _rows_of_columns(dataset: Any, rows: Array) -> Sequence[Any]:
    if isinstance(dataset, source):  # only its plane knows whether rows are stacked
        return dataset.plane().take(np.where(rows < 0, rows + len(dataset), rows))
    columns = dataset if isinstance(dataset, np.ndarray) else dataset.columns
    return Columns(map_tree(lambda column: column[rows], columns))


def _by_getitems(dataset: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """Return the samples from `__getitems__`."""
    samples: Sequence[Any] = dataset.__getitems__(indices)
    if len(samples) != len(indices):
        raise FeedMismatch(
            f"{type(dataset).__name__}.__getitems__ returned {len(samples)} samples for "
            f"{len(indices)} indices: return one for each index, in their order."
        )
    return samples


def gathers(dataset: object) -> bool:
    """Return whether `fetch` gets all samples of a batch in one call.

    >>> gathers(np.arange(3)), gathers([1, 2, 3])
    (True, False)
    """
    return _is_rows(dataset) or stands_for(type(dataset), "__getitems__", "__getitem__")


def _is_rows(dataset: object) -> bool:
    """Return whether samples are rows of columns, and no subclass overrides how they are read."""
    if isinstance(dataset, np.ndarray):
        return type(dataset).__getitem__ in (np.ndarray.__getitem__, np.memmap.__getitem__)
    return isinstance(dataset, Table) and stands_for(
        type(dataset), "plane", "start", "__call__", "__iter__", "__getitem__"
    )


def fetch_one(dataset: Any, index: Any) -> Any:
    """Return the sample at one index; errors get a note that names data set and index."""
    try:
        return dataset[index]
    except Exception as error:
        _explain(dataset, index, error)
        raise


def _explain(dataset: Any, index: Any, error: Exception) -> None:
    noted(error, f"raised by {type(dataset).__name__}[{described(index)}]")
    check_in_range(dataset, [index], error)


def is_stream(dataset: object) -> bool:
    """Return whether a data set is read from its beginning, not by index.

    Streams of other libraries are recognized by the name of a base class: they inherit a
    `__getitem__`, and importing the library just to check the class would be slow.

    >>> from jreader import IterableDataset
    >>> is_stream(IterableDataset()), is_stream([1, 2])
    (True, False)
    """
    if is_declared_stream(dataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def check_dataset(call: str, dataset: object) -> None:
    """Raise TypeError if an object is neither a data set by index nor a stream.

    >>> check_dataset("DataLoader(dataset)", 5)
    Traceback (most recent call last):
    TypeError: DataLoader(dataset) needs a data set, that is, an object with __getitem__ and \
__len__, or one with __iter__ that begins a pass, not the int 5.
    """
    if isinstance(dataset, Table) or _begins_passes(dataset):
        return
    if (instead := _instead_of(dataset)) is not None:
        kind = type(dataset).__name__
        raise TypeError(
            f"{call} needs a data set, that is, an object with __getitem__ and __len__, or one "
            f"with __iter__ that begins a pass, not the {kind} {described(dataset)}{instead}."
        )
    check_getitem(call, dataset)


def _begins_passes(dataset: object) -> bool:
    """Return whether a stream can be read again; iterators cannot, unless declared so."""
    if isinstance(dataset, Node):
        return False
    return is_declared_stream(dataset) or (is_stream(dataset) and not hasattr(dataset, "__next__"))


def _instead_of(dataset: object) -> str | None:
    """Return what to type instead of an object that is no data set; None for one by index."""
    by_index = hasattr(dataset, "__getitem__")
    if isinstance(dataset, type):
        return f": make one, as in {dataset.__name__}(...)"
    if isinstance(dataset, Node) or (callable(dataset) and not by_index):
        return ". For a reader use Pipeline(reader).batch(batch_size).load()"
    if hasattr(dataset, "__next__"):
        return f": it can be read only once. Give list({type(dataset).__name__}), or a Dataset"
    if "MapDataset" in kinds_of_grain(dataset):  # whose indices continue through its epochs
        return ". For the epochs of Grain, type Pipeline(dataset).batch(batch_size).load()"
    if isinstance(dataset, dict):
        return ": for columns by name, give jreader.arrays(**columns)"
    return None if by_index and hasattr(dataset, "__len__") else ""


def with_indices(call: str, datasets: Iterable[Any]) -> tuple[Any, ...]:
    """Return the data sets as a tuple, if there are any and all of them have indices.

    >>> with_indices("ConcatDataset(datasets)", ["abc", [1, 2]])
    ('abc', [1, 2])

    Raises:
        TypeError: One of them is not a data set, or is a stream.
        ValueError: There are none.
    """
    given = tuple(datasets)
    if not given:
        raise ValueError(f"{call} needs at least one data set.")
    for dataset in given:
        if isinstance(dataset, Node) and hasattr(dataset, "__getitem__"):  # a pipeline
            if lookup_of(dataset) is not None and length(dataset) is not None:
                continue
            raise TypeError(
                f"{call} needs samples that are found by their index, and {described(dataset)} has "
                f"to be read: begin with arrays(...), npy or source, and give shuffles a seed."
            )
        check_dataset(call, dataset)
        if is_stream(dataset):
            raise TypeError(
                f"{call} needs data sets with indices, and {described(dataset)} has none: give "
                f"list(dataset), or use ChainDataset."
            )
    return given


def index_within(index: SupportsIndex, n: int, dataset: object) -> int:
    """Check an index into n samples; return it as an int from 0 to n - 1.

    >>> index_within(-1, 3, "abc")
    2

    Raises:
        TypeError: It is a slice, or not an int.
        IndexError: It is out of range.
    """
    if isinstance(index, slice):
        raise TypeError(
            f"{described(dataset)} takes an index, not a slice: a part of it is "
            f"Subset(dataset, {range(n)[index]})."
        )
    number = operator.index(index)
    if not -n <= number < n:
        raise IndexError(f"index {number} is beyond {described(dataset)}, which has {n} samples.")
    return number % n
