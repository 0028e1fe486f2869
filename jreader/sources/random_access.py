"""Read samples from any object that finds them by index: data sets, databases, array files.

`source` turns such an object into a reader. jreader asks it only for the samples of the current
batch, so you can shuffle, shard, and resume a plan over it at any sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from jreader.errors import MissingSample, ReaderError, is_async, missing
from jreader.readers import Columns, Node, Plane, argument, described, length, op, truth
from jreader.readers.columns import Array, Column, each_column
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.located import located
from jreader.readers.protected import protected, read_only
from jreader.readers.refills import watched
from jreader.readers.streams_with_state import kinds_of_grain
from jreader.readers.trees import Rows
from jreader.sources.columns import Table
from jreader.sources.file_checks import check_map

_ARRAYS = frozenset({np.ndarray})
_SIDE_BY_SIDE = frozenset({tuple, dict})


def _checked_data(_call: str, data: Any) -> Any:
    """Check that the data have indices and a length; return them."""
    if isinstance(data, Node):
        raise TypeError(
            f"source(data) needs a data set, and {described(data)} is a reader already: use it as "
            f"it is."
        )
    rows = hasattr(data, "__len__") or getattr(data, "shape", None)
    if isinstance(data, dict) or not rows or not hasattr(data, "__getitem__"):
        raise TypeError(
            f"source(data) needs __getitem__ that takes an index, and __len__, which "
            f"{described(data)} lacks: give a list, an array or a map-style data set, or use a "
            f"generator function as a reader."
        )
    check_getitem("source(data)", data)
    return data


_ALL_EPOCHS = 1 << 48  # rows of a `MapDataset`; few enough to concatenate sources in 64 bits
_FILTERED = (
    "source(data) got None for row {} of a {}, which a filter of Grain dropped: type "
    "Pipeline(data.to_iter_dataset()), or .filter(fn) of jreader in place of that filter."
)


@op
class source(Table[Any]):
    """Read `data[0]`, `data[1]`, ... of any object that supports indexing.

    The reader is indexed: you can shuffle it as a whole, shard it, and resume at any sample, and it
    reads only the samples that a pass needs.

    Your functions cannot change the samples of a list or a tuple: arrays come as read-only views;
    dicts, lists and tuples are copied (some 2 us for a dict of three fields), and so are other
    objects, where possible. Samples from `__getitem__` of any other class are passed on unchanged.

    >>> list(source(["a", "b", "c"])())
    ['a', 'b', 'c']

    >>> from jreader import batch
    >>> class Squares:
    ...     def __len__(self):
    ...         return 10**9
    ...     def __getitem__(self, rows):
    ...         return {"root": rows, "square": rows**2}
    >>> next(iter(batch(source(Squares(), batched=True), 3)())).columns["square"]
    array([0, 1, 4])

    Over a Grain `MapDataset`, epoch e is Grain's own epoch e, with Grain's shuffles and random
    maps.

    Args:
        data: Anything with `__getitem__` and `__len__` (or a `shape`): a list, an array, a data set
            of another library.
        batched: Whether `data[rows]`, with an int64 array of indices, returns all those rows in one
            call: an array, or a dict or tuple of arrays or lists with one item per row. Arrays of
            h5py and zarr do this, and Hugging Face data sets. If `data` refuses unsorted indices,
            as h5py does, it gets sorted ones.

    Raises:
        TypeError: `data` has no `__getitem__` or no length, or is a dict or a reader.
    """

    data: Any = argument(_checked_data)
    batched: bool = truth(default=False)
    epoch: int | None = field(default=None, init=False)  # a Grain data set continues past its end

    def check_arguments(self) -> dict[str, Any]:
        """Start at the first epoch if the data have epochs of their own."""
        return {"epoch": 0} if "MapDataset" in kinds_of_grain(self.data) else {}

    @cached_property
    def columns(self) -> Column:
        """The column whose rows are fetched from `data`."""
        return _Items(self)

    def check_files(self) -> None:
        """Check the file of a mapped array; other objects check their own files."""
        check_map(self.data)

    def length(self) -> int | None:
        """Return the number of samples in an epoch."""
        return super().length() if self.epoch is None else min(len(self.data), ENDLESS)

    def plane(self) -> Plane:
        """Return the index plane; sample i of epoch e of a Grain data set is row e * length + i."""
        plane, many = super().plane(), self.length()
        if self.epoch is None or many is None:
            return plane
        before = self.epoch * many
        return Plane(plane.columns, many, lambda indices: [indices + before])

    @property
    def lazy_length(self) -> bool:
        """False: the length is known without reading samples."""
        return False


class _Items(Column):
    """The data as a column that fetches rows on demand."""

    def __init__(self, node: source) -> None:
        self.node, self.data, self.batched = node, read_only(node.data), node.batched
        self.holds = holds_samples(node.data)
        self.found = self.data
        if hasattr(self.data, "iloc") and not hasattr(self.data, "columns"):
            # a pandas Series: [] takes labels, so find rows by position
            self.found = self.data.to_numpy() if self.batched else self.data.iloc
        self.rising = False  # True once `data` has refused unsorted indices
        asks = getattr(type(node.data), "__getitem__", None)
        self.asks_users_class = isinstance(asks, FunctionType) and not (self.batched or self.holds)

    def __len__(self) -> int:
        if self.node.epoch is not None:
            return _ALL_EPOCHS
        try:
            return len(self.data) if hasattr(self.data, "__len__") else int(self.data.shape[0])
        except StopIteration as stopped:  # would silently end the caller's loop
            raise RuntimeError(
                f"{self} raised StopIteration when it was asked for its length"
            ) from stopped

    def __repr__(self) -> str:
        return described(self.data)

    def gather(self, rows: Array) -> Any:
        """Return the rows: stacked if `data` is batched, else as a list of samples."""
        if self.batched:
            return self._gather_rows(rows)
        each = self.each(rows)
        if is_first_batch(self, len(rows)):
            each = watched(each, len(rows), "a batch of source", self.node.made_at)
        return list(each)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield the samples of the rows."""
        if not self.batched:
            for row in rows.tolist():  # not `map`: a StopIteration of the data would end it
                try:
                    sample = self.found[row]
                except Exception as error:
                    located(error, self.node)
                    check_in_range(self, [row], error)
                    raise
                if sample is None and self.node.epoch is not None:
                    raise ReaderError(_FILTERED.format(row, type(self.data).__name__))
                yield protected(sample) if self.holds else sample
            return
        yield from super().each(rows)

    def _gather_rows(self, rows: Array) -> Any:
        try:
            given = self._getitem_rows(rows)
        except Exception as error:
            located(error, self.node)
            check_in_range(self, rows.tolist(), error)
            raise
        parts = given.values() if type(given) is dict else given
        arrays = type(given) in _SIDE_BY_SIDE and _ARRAYS.issuperset(map(type, parts))
        if arrays and {part.shape[:1] for part in parts} == {rows.shape}:  # the common case
            return given
        samples = _as_samples(given, self.data)
        if len(samples) != len(rows):
            raise ValueError(
                f"source(data, batched=True) asked {described(self.data)} for {len(rows)} rows at "
                f"once, and got {len(samples)}: data[rows] has to return one row for each "
                f"index, in that order. Leave batched out where data takes only one index."
            )
        return samples.columns if isinstance(samples, Columns) else samples

    def _getitem_rows(self, rows: Array) -> Any:
        """Return `data[rows]`; sort the rows once `data` has refused their order."""
        if not self.rising:
            try:
                return self.found[rows]
            except (TypeError, ValueError, IndexError) as error:
                if (np.diff(rows) > 0).all():
                    raise
                try:
                    given = self._in_order(rows)
                except Exception:  # then the order was not the cause
                    raise error from None
                self.rising = True
                return given
        return self._in_order(rows)

    def _in_order(self, rows: Array) -> Any:
        """Request each row once, in increasing order, and restore the order of `rows`."""
        once, which = np.unique(rows, return_inverse=True)
        given = self.found[once]
        if len(once) == len(rows) and (which[1:] > which[:-1]).all():
            return given
        return each_column(lambda column: _picked(column, which), given)


def _as_samples(given: Any, data: Any) -> Sequence[Any]:
    """Convert the result of `data[rows]` to samples; a list in it is a column, not a tree."""
    if isinstance(given, list):
        return given
    if hasattr(given, "columns"):  # a data frame, a table
        raise TypeError(
            f"source(data, batched=True) got {described(given)} from {described(data)}, and needs "
            f"arrays: a data set of Hugging Face gives them after "
            f'.with_format("numpy").'
        )
    seen: list[bool] = []

    def as_rows(column: Any) -> Any:
        seen.append(isinstance(column, list))
        return Rows(column) if seen[-1] else column

    samples: Columns[Any] = Columns(each_column(as_rows, given))
    return list(samples) if any(seen) else samples


def _picked(column: Any, which: Array) -> Any:
    return [column[at] for at in which.tolist()] if isinstance(column, list) else column[which]


def check_getitem(call: str, data: Any) -> None:
    """Raise TypeError if `data[index]` is not a sample: a table's column, or a coroutine."""
    if hasattr(data, "columns") and (hasattr(data, "__arrow_c_stream__") or hasattr(data, "iloc")):
        raise TypeError(
            f"{call} needs rows by number, and a {type(data).__name__} has columns: type "
            "arrays(table), whose samples are dicts."
        )
    if is_async(getattr(type(data), "__getitem__", None)):
        raise TypeError(
            f"{call} needs a plain __getitem__, and that of {described(data)} is async: it returns "
            "a coroutine, which is not awaited. Type return asyncio.run(...) there."
        )


def holds_samples(data: Any) -> bool:
    """Return whether `data` stores its samples as objects, so that changing one would persist.

    Like other libraries, this assumes that `__getitem__` of any other class returns new objects.
    """
    return isinstance(data, (list, tuple)) or hasattr(data, "detach")  # tensors return views


_SEEN: WeakValueDictionary[int, Any] = WeakValueDictionary()


def is_first_batch(data: Any, n: int) -> bool:
    """Return whether this is the first batch of several samples requested from `data`.

    That batch is checked for a data set that writes all samples into one array. Data are identified
    by id, since they may not be hashable. Lists are never checked: they cannot overwrite their
    samples.

    >>> from jreader import Dataset
    >>> dataset = Dataset()
    >>> [is_first_batch(dataset, 2), is_first_batch(dataset, 2), is_first_batch([1, 2], 2)]
    [True, False, False]
    """
    if n < 2 or _SEEN.get(id(data)) is data:
        return False
    with suppress(TypeError):  # lists have no weak references
        _SEEN[id(data)] = data
        return True
    return False


def check_in_range(data: Any, indices: Sequence[Any], error: Exception) -> None:
    """Raise MissingSample from `error` if an index is out of the range of `data`.

    >>> check_in_range("abc", [-3, 2], KeyError()) is None
    True
    >>> check_in_range("abc", [0, 3], KeyError())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jreader.errors.MissingSample: sample 3 of 'abc' was asked for, and there are 3: ...
    """
    n = None if isinstance(error, MissingSample) else length(data)
    if n is None:
        return
    for index in indices:
        if isinstance(index, (int, np.integer)) and not -n <= index < n:
            gone = missing(described(data), int(index), n)
            gone.__notes__ = list(getattr(error, "__notes__", ()))
            raise gone from error
