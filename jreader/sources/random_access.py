"""Samples that something else finds by their number: data sets, data bases, array files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jreader.errors import MissingSample, missing
from jreader.readers import Columns, Node, branches, described, joined, length
from jreader.readers.planes import Array, Gathers
from jreader.readers.refills import watched
from jreader.sources.changed_files import check_map
from jreader.sources.columns import Table

_AT_ONCE = 64  # rows that are asked for at once where samples are wanted one by one


@dataclass(frozen=True, eq=False, repr=False)
class source(Table[Any]):
    """The samples `data[0]`, `data[1]`, ..., each found by its number.

    So it is indexed: it can be shuffled as a whole, sharded and resumed anywhere, and nothing is
    read but what is asked for.

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

    Args:
        data: Anything with `__getitem__` and `__len__` (or a `shape`), a list or another library's
            data set.
        batched: Whether `data[rows]`, with an int64 array of numbers, gives those rows at once: an
            array, or a dict or tuple of arrays or lists with an item for each row (as arrays of
            h5py and zarr and Hugging Face data sets do). What takes numbers in increasing order
            only, as h5py does, is asked so.

    Raises:
        TypeError: `data` lacks one of the two methods.
    """

    data: Any
    batched: bool = False

    def __post_init__(self) -> None:
        """Refuses what cannot be asked by number."""
        if isinstance(self.data, Node):
            raise TypeError(
                f"source(data) needs a data set, and {described(self.data)} is a reader already: "
                f"use it as it is."
            )
        rows = hasattr(self.data, "__len__") or getattr(self.data, "shape", None)
        if isinstance(self.data, dict) or not rows or not hasattr(self.data, "__getitem__"):
            raise TypeError(
                f"source(data) needs __getitem__ by number and __len__, which "
                f"{described(self.data)} lacks: give a list, an array or a map-style data set, or "
                f"use a generator function as a reader."
            )
        object.__setattr__(self, "batched", bool(self.batched))

    @cached_property
    def columns(self) -> Gathers:
        """One column, which asks the data."""
        return _Items(self)

    def check_files(self) -> None:
        """Of an array that is mapped; what others read is theirs."""
        check_map(self.data)

    @property
    def unread(self) -> bool:  # type: ignore[override]  # a flag elsewhere
        """Never: its length is known without its samples."""
        return False


class _Items:
    """The data as a column of the index plane."""

    def __init__(self, node: source) -> None:
        self.node, self.data, self.batched = node, node.data, node.batched
        self.watched = False  # whether it was looked at whether samples are one, filled anew
        self.rising = False  # whether it has to be asked in increasing order, each row once

    def __len__(self) -> int:
        return len(self.data) if hasattr(self.data, "__len__") else int(self.data.shape[0])

    def __repr__(self) -> str:
        return described(self.data)

    def gather(self, rows: Array) -> Any:
        """The stacked rows, or a list of samples."""
        if self.batched:
            samples = self._samples(rows)
            return samples.columns if isinstance(samples, Columns) else samples
        if self.watched or len(rows) < 2:
            return list(self.each(rows))
        self.watched = True
        return list(watched(self.each(rows), len(rows), "a batch of source", self.node.made_at))

    def each(self, rows: Array) -> Iterator[Any]:
        """One sample after another."""
        if not self.batched:
            for row in rows.tolist():  # not `map`: a StopIteration of the data would end it
                try:
                    sample = self.data[row]
                except Exception as error:
                    refuse_absent(self.data, [row], error)
                    raise
                yield sample
            return
        for low in range(0, len(rows), _AT_ONCE):
            yield from self._samples(rows[low : low + _AT_ONCE])

    def _samples(self, rows: Array) -> Sequence[Any]:
        try:
            given = self._asked(rows)
        except Exception as error:
            refuse_absent(self.data, rows.tolist(), error)
            raise
        samples = _as_samples(given, self.data)
        if len(samples) != len(rows):
            raise ValueError(
                f"source(data, batched=True) asked {described(self.data)} for {len(rows)} rows at "
                f"once, and got {len(samples)}: data[rows] has to give a row for each "
                f"number, in that order. Leave batched out where data takes one number only."
            )
        return samples

    def _asked(self, rows: Array) -> Any:
        if not self.rising:
            try:
                return self.data[rows]
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
        once, which = np.unique(rows, return_inverse=True)
        given = self.data[once]
        if len(once) == len(rows) and (which[1:] > which[:-1]).all():
            return given
        return _each_column(lambda column: _picked(column, which), given)


def _as_samples(given: Any, data: Any) -> Sequence[Any]:
    """A batch of what `data[rows]` gave: lists hold an item for each row, and are no branches."""
    if isinstance(given, list):
        return given
    if hasattr(given, "columns"):  # a frame, a table
        raise TypeError(
            f"source(data, batched=True) got {described(given)} from {described(data)}, whose rows "
            f"are not found by number: have it give arrays, as a data set of Hugging Face does "
            f'after .with_format("numpy"), and arrays(...) takes frame.to_numpy().'
        )
    seen: list[bool] = []

    def as_rows(column: Any) -> Any:
        seen.append(isinstance(column, list))
        return _Rows(column) if seen[-1] else column

    samples: Columns[Any] = Columns(_each_column(as_rows, given))
    return list(samples) if any(seen) else samples


class _Rows(Sequence[Any]):
    """A list that is a leaf."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]


def _each_column(fn: Callable[[Any], Any], tree: Any) -> Any:
    """`fn` of every column of a tree, of which a list is one."""
    if isinstance(tree, Mapping):
        tree = dict(tree)
    parts = None if isinstance(tree, list) else branches(tree)
    if parts is None:
        return fn(tree)
    return joined(tree, {key: _each_column(fn, part) for key, part in parts.items()})


def _picked(column: Any, which: Array) -> Any:
    return [column[at] for at in which.tolist()] if isinstance(column, list) else column[which]


def refuse_absent(data: Any, indices: Sequence[Any], error: Exception) -> None:
    """Raises what an error of `data` comes of, if that is that a sample is not there.

    >>> refuse_absent("abc", [-3, 2], KeyError()) is None
    True
    >>> refuse_absent("abc", [0, 3], KeyError())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    jreader.errors.MissingSample: sample 3 of 'abc' was asked for, out of 3: ...
    """
    n = None if isinstance(error, MissingSample) else length(data)
    if n is None:
        return
    for index in indices:
        if isinstance(index, (int, np.integer)) and not -n <= index < n:
            gone = missing(described(data), int(index), n)
            gone.__notes__ = list(getattr(error, "__notes__", ()))
            raise gone from error
