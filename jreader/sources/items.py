"""Samples that something else finds by their number: data sets, data bases, array files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.readers import Columns, described
from jreader.readers.planes import Gathers
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
        data: Anything with `__getitem__` and `__len__`, a list or another library's data set.
        batched: Whether `data[rows]`, with an int64 array of numbers in any order, gives the tree
            of those rows stacked (as h5py, zarr and Hugging Face data sets do).

    Raises:
        TypeError: `data` lacks one of the two methods.
    """

    data: Any
    batched: bool = False

    def __post_init__(self) -> None:
        """Refuses what cannot be asked by number."""
        missing = [name for name in ("__getitem__", "__len__") if not hasattr(self.data, name)]
        if missing or isinstance(self.data, dict):
            raise TypeError(
                f"source(data) needs __getitem__ by number and __len__, which "
                f"{described(self.data)} lacks: give a list, an array or a map-style data set, or "
                f"use a generator function as a reader."
            )
        object.__setattr__(self, "batched", bool(self.batched))

    @property
    def columns(self) -> Gathers:
        """One column, which asks the data."""
        return _Items(self.data, self.batched)

    @property
    def unread(self) -> bool:  # type: ignore[override]  # a flag elsewhere
        """Never: its length is known without its samples."""
        return False


class _Items:
    """The data as a column of the index plane."""

    def __init__(self, data: Any, batched: bool) -> None:
        self.data, self.batched = data, batched

    def __len__(self) -> int:
        return len(self.data)

    def gather(self, rows: np.ndarray[Any, Any]) -> Any:
        """The stacked rows, or a list of samples."""
        return self._stacked(rows) if self.batched else list(self.each(rows))

    def each(self, rows: np.ndarray[Any, Any]) -> Iterator[Any]:
        """One sample after another."""
        if not self.batched:
            for row in rows.tolist():  # not `map`: a StopIteration of the data would end it
                yield self.data[row]
            return
        for low in range(0, len(rows), _AT_ONCE):
            yield from Columns(self._stacked(rows[low : low + _AT_ONCE]))

    def _stacked(self, rows: np.ndarray[Any, Any]) -> Any:
        stacked = self.data[rows]
        if len(Columns(stacked)) != len(rows):
            raise ValueError(
                f"source(data, batched=True) asked {described(self.data)} for {len(rows)} rows at "
                f"once, and got {len(Columns(stacked))}: data[rows] has to give a row for each "
                f"number, in that order. Leave batched out where data takes one number only."
            )
        return stacked
