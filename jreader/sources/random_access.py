"""Samples of any object that finds them by index: data sets, databases, array files.

`source` makes such an object a reader. jreader asks it only for the samples of the current batch,
so a plan over it can be shuffled as a whole, sharded, and resumed at any sample.
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
    """Checks that the data have indices and a length; returns them."""
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


_ALL_EPOCHS = 1 << 48  # rows of a `MapDataset`, so few that those of many sources stay in 64 bits
_FILTERED = (
    "source(data) got None for row {} of a {}, which a filter of Grain dropped: type "
    "Pipeline(data.to_iter_dataset()), or .filter(fn) of jreader in place of that filter."
)


@op
class source(Table[Any]):
    """Read `data[0]`, `data[1]`, ... of any object that has indices.

    The reader is indexed: it can be shuffled as a whole, sharded, and resumed at any sample, and
    only the samples that a pass needs are read.

    Your functions cannot change the samples of a list or a tuple: arrays come as read-only views,
    dicts, lists and tuples are copied (some 2 us for a dict of three fields), and so are other
    objects, if they can be. Samples from `__getitem__` of any other class are passed on as they
    are.

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

    Epoch e of a `MapDataset` of Grain is its own epoch e, with the shuffles and random maps that it
    has there.

    Args:
        data: Anything with `__getitem__` and `__len__` (or a `shape`): a list, an array, a data set
            of another library.
        batched: Whether `data[rows]`, with an int64 array of indices, returns all those rows in
            one call: an array, or a dict or tuple of arrays or lists with one item per row. Arrays
            of h5py and zarr, and data sets of Hugging Face, do. If `data` refuses unsorted indices,
            as h5py does, it gets sorted ones.

    Raises:
        TypeError: `data` has no `__getitem__` or no length, or is a dict or a reader.
    """

    data: Any = argument(_checked_data)
    batched: bool = truth(default=False)
    epoch: int | None = field(default=None, init=False)  # of Grain, which counts on behind the end

    def check_arguments(self) -> dict[str, Any]:
        """Begins at the first epoch of what has epochs of its own."""
        return {"epoch": 0} if "MapDataset" in kinds_of_grain(self.data) else {}

    @cached_property
    def columns(self) -> Column:
        """A single column, whose rows are fetched from `data`."""
        return _Items(self)

    def check_files(self) -> None:
        """Checks the file of a mapped array; other objects check their own files."""
        check_map(self.data)

    def length(self) -> int | None:
        """The number of samples of an epoch."""
        return super().length() if self.epoch is None else min(len(self.data), ENDLESS)

    def plane(self) -> Plane:
        """The index plane; sample i of epoch e of Grain is row e * length + i."""
        plane, many = super().plane(), self.length()
        if self.epoch is None or many is None:
            return plane
        before = self.epoch * many
        return Plane(plane.columns, many, lambda indices: [indices + before])

    @property
    def lazy_length(self) -> bool:
        """Always False: the length is known without reading any sample."""
        return False


class _Items(Column):
    """The data as a column that gathers its rows when it is asked."""

    def __init__(self, node: source) -> None:
        self.node, self.data, self.batched = node, read_only(node.data), node.batched
        self.holds = holds_samples(node.data)
        self.found = self.data
        if hasattr(self.data, "iloc") and not hasattr(self.data, "columns"):
            # a series of pandas, whose [] takes labels; its rows are found by their position
            self.found = self.data.to_numpy() if self.batched else self.data.iloc
        self.rising = False  # whether `data` accepts only increasing indices
        asks = getattr(type(node.data), "__getitem__", None)
        self.asks_users_class = isinstance(asks, FunctionType) and not (self.batched or self.holds)

    def __len__(self) -> int:
        if self.node.epoch is not None:
            return _ALL_EPOCHS
        try:
            return len(self.data) if hasattr(self.data, "__len__") else int(self.data.shape[0])
        except StopIteration as stopped:  # it would end the caller's loop silently
            raise RuntimeError(
                f"{self} raised StopIteration when it was asked for its length"
            ) from stopped

    def __repr__(self) -> str:
        return described(self.data)

    def gather(self, rows: Array) -> Any:
        """Returns the rows stacked if `data` is batched, and a list of samples otherwise."""
        if self.batched:
            return self._gather_rows(rows)
        each = self.each(rows)
        if is_first_batch(self, len(rows)):
            each = watched(each, len(rows), "a batch of source", self.node.made_at)
        return list(each)

    def each(self, rows: Array) -> Iterator[Any]:
        """Yields the samples of the rows, one after another."""
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
        if arrays and {part.shape[:1] for part in parts} == {rows.shape}:  # as most data give them
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
        """Returns `data[rows]`; from the first refusal of another order on, with rows sorted."""
        if not self.rising:
            try:
                return self.found[rows]
            except (TypeError, ValueError, IndexError) as error:
                if (np.diff(rows) > 0).all():
                    raise
                try:
                    given = self._in_order(rows)
                except Exception:  # it was not the order, then
                    raise error from None
                self.rising = True
                return given
        return self._in_order(rows)

    def _in_order(self, rows: Array) -> Any:
        """Asks for each row once, in increasing order, and puts the answer in the order of rows."""
        once, which = np.unique(rows, return_inverse=True)
        given = self.found[once]
        if len(once) == len(rows) and (which[1:] > which[:-1]).all():
            return given
        return each_column(lambda column: _picked(column, which), given)


def _as_samples(given: Any, data: Any) -> Sequence[Any]:
    """The answer of `data[rows]` as a sequence of samples; a list in it is a column, not a tree."""
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
    """Raises TypeError if `data[index]` is no sample: a column of a table, or to be awaited."""
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
    """Whether samples are objects that `data` holds, so that a change of one would be there again.

    What `__getitem__` of any other class returns is taken for new, as other libraries do.
    """
    return isinstance(data, (list, tuple)) or hasattr(data, "detach")  # a tensor gives views


_SEEN: WeakValueDictionary[int, Any] = WeakValueDictionary()


def is_first_batch(data: Any, n: int) -> bool:
    """Whether `data` has not been asked for a batch of several samples before.

    That batch is watched for a data set that writes all samples into one array. Data are known by
    identity, since they may not be hashable. A list cannot overwrite its samples, so it is never
    watched.

    >>> from jreader import Dataset
    >>> dataset = Dataset()
    >>> [is_first_batch(dataset, 2), is_first_batch(dataset, 2), is_first_batch([1, 2], 2)]
    [True, False, False]
    """
    if n < 2 or _SEEN.get(id(data)) is data:
        return False
    with suppress(TypeError):  # a list, say, cannot be referred to weakly
        _SEEN[id(data)] = data
        return True
    return False


def check_in_range(data: Any, indices: Sequence[Any], error: Exception) -> None:
    """Raises MissingSample from `error` if one of the indices lies beyond `data`.

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
