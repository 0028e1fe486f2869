"""`Decoded`: a block as columns, and rows of several blocks as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.planes import Array, Gathering, one_by_one
from jreader.readers.protected import protected, read_only
from jreader.readers.trees import Columns, branches, joined, leaves, rebuilt, zipped


class Objects(Sequence[Any]):
    """A list of objects as a column: a leaf, where a list in a tree would be a branch."""

    stacks = False

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""
        return map(protected, map(self.rows.__getitem__, rows.tolist()))

    def gather(self, rows: Array) -> list[Any]:
        """Those rows."""
        return list(self.each(rows))


@dataclass(frozen=True, eq=False)
class Decoded:
    """A block as a tree of columns.

    Attributes:
        tree: The columns.
        columns: The leaves of the tree.
        rows: How many rows each has.
        arrays: The columns if all are arrays; else an empty list.
        kind: The structure of the tree, and dtypes and shapes: of equal ones, rows can be stacked.
        lent: Whether others may write over the arrays later, so that no row may be a view of them.
    """

    tree: Any
    columns: list[Any]
    rows: int
    arrays: list[Array]
    kind: tuple[Any, ...]
    lent: bool = False

    @classmethod
    def of(cls, given: Any, rows: int, name: str) -> Decoded:
        """What a function gave as the columns of a block.

        Raises:
            DamagedData: It has another number of rows.
            TypeError: It has no columns.
        """
        tree = each_column(_as_column, given)
        columns = leaves(tree)
        lengths = {len(column) for column in columns}
        if lengths != {rows} and (columns or rows):
            raise DamagedData(
                f"{name} has {' and '.join(map(str, sorted(lengths))) or 'no'} rows, and was "
                f"announced with {rows}: the file was changed, or is damaged."
            )
        plain = all(type(column) is np.ndarray for column in columns)
        of_arrays = [(column.dtype, column.shape[1:]) for column in columns] if plain else []
        kind = (_structure_of(tree), *of_arrays)
        return cls(tree, columns, rows, columns if plain else [], kind)

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one."""
        if self.lent:
            return zipped(self.tree, [read_only(array.take(rows, 0)) for array in self.arrays])
        return zipped(self.tree, [one_by_one(column, rows) for column in self.columns])

    def over(self, arrays: list[Array]) -> Decoded:
        """The same block in other arrays, which are lent."""
        tree = rebuilt(self.tree, iter(arrays))
        return Decoded(tree, arrays, self.rows, arrays, self.kind, lent=True)

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays, or a list of samples."""
        if self.arrays:  # to make a `Gathering` for each batch would cost more than the rows
            return rebuilt(self.tree, (array.take(rows, 0, None, "clip") for array in self.arrays))
        given = Gathering(self.tree, len(rows))([rows] * len(self.columns))
        return given.columns if isinstance(given, Columns) else given


def _structure_of(tree: Any) -> Any:
    """What is equal for trees with the same branches."""
    parts = branches(tree)
    return parts and (type(tree), *((key, _structure_of(part)) for key, part in parts.items()))


def each_column(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree of what `fn` makes of each column; a list is one column.

    >>> each_column(len, {"ids": [5, 6, 7], "pair": (np.zeros(3), "abc")})
    {'ids': 3, 'pair': (3, 3)}
    """
    if isinstance(tree, Mapping):
        tree = dict(tree)
    parts = None if isinstance(tree, list) else branches(tree)
    if parts is None:
        return fn(tree)
    return joined(tree, {key: each_column(fn, part) for key, part in parts.items()})


def _as_column(column: Any) -> Any:
    if isinstance(column, list):
        return Objects(column)
    return column if hasattr(column, "gather") else read_only(np.asanyarray(column))


class Stack:
    """Rows of several blocks as one batch; each block may be closed once its rows are in.

    >>> stack = Stack(3)
    >>> stack.put(Decoded.of(np.arange(3), 3, ""), np.array([2, 0]), 0)
    >>> stack.put(Decoded.of(np.arange(3) + 10, 3, ""), np.array([1]), 2)
    >>> stack.dealt(np.array([2, 0, 1]))
    array([ 0, 11,  2])

    Args:
        many: The number of rows.
    """

    def __init__(self, many: int) -> None:
        self.many = many
        self._kind: tuple[Any, ...] = ()
        self._tree: Any = None
        self._arrays: list[Array] = []
        self._samples: list[Any] | None = None
        self._filled: list[tuple[int, int]] = []

    def put(self, block: Decoded, rows: Array, low: int) -> None:
        """Takes these rows of a block as those from `low` on."""
        high = low + len(rows)
        if self._samples is None and block.arrays:
            if not self._arrays:
                self._kind, self._tree = block.kind, block.tree
                self._arrays = [
                    np.empty((self.many, *column.shape[1:]), column.dtype)
                    for column in block.arrays
                ]
            if block.kind == self._kind:
                for column, array in zip(block.arrays, self._arrays, strict=True):
                    column.take(rows, 0, array[low:high], "clip")
                self._filled.append((low, high))
                return
        samples = self._as_samples()
        samples[low:high] = block.each(rows)

    def dealt(self, order: Array) -> Any:
        """A tree of arrays, or a list of samples, in which row `order[i]` is that with number i."""
        if self._samples is None:
            turned = [np.empty_like(array) for array in self._arrays]
            for array, ordered in zip(turned, self._arrays, strict=True):
                array[order] = ordered
            return rebuilt(self._tree, iter(turned))
        dealt: list[Any] = [None] * self.many
        for place, sample in zip(order.tolist(), self._samples, strict=True):
            dealt[place] = sample
        return dealt

    def _as_samples(self) -> list[Any]:
        """The rows as a list: no array has them all."""
        if self._samples is None:
            self._samples = [None] * self.many
            for low, high in self._filled:
                parts = [array[low:high] for array in self._arrays]
                self._samples[low:high] = zipped(self._tree, parts)
        return self._samples
