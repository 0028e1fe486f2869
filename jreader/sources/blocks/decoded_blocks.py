"""`Decoded`: a block as columns, and rows of several blocks as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
        kind = (_structure(tree), *of_arrays)
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

    def taken(self, rows: Array) -> Decoded | list[Any]:
        """Those rows as a block of their own; as a list of samples where not all are arrays."""
        if not self.arrays:
            return list(self.each(rows))
        arrays = [array.take(rows, 0, None, "clip") for array in self.arrays]
        return Decoded(rebuilt(self.tree, iter(arrays)), arrays, len(rows), arrays, self.kind)

    def gather(self, rows: Array) -> Any:
        """Those rows: a tree of arrays, or a list of samples."""
        if self.arrays:  # to make a `Gathering` for each batch would cost more than the rows
            return rebuilt(self.tree, (array.take(rows, 0, None, "clip") for array in self.arrays))
        given = Gathering(self.tree, len(rows))([rows] * len(self.columns))
        return given.columns if isinstance(given, Columns) else given


def _structure(tree: Any) -> Any:
    """What is equal for trees with the same branches."""
    parts = branches(tree)
    return parts and (type(tree), *((key, _structure(part)) for key, part in parts.items()))


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


def dealt(parts: Sequence[Decoded | list[Any]], order: Array) -> Any:
    """Rows of several blocks, as `taken` gives them, of which the one with number i is at order[i].

    >>> block = Decoded.of(np.arange(3), 3, "")
    >>> dealt([block.taken(np.array([2, 0])), block.taken(np.array([1]))], np.array([2, 0, 1]))
    array([0, 1, 2])

    Args:
        parts: At least one.
        order: Their places.
    """
    blocks = [part for part in parts if isinstance(part, Decoded)]
    if len(blocks) == len(parts) and len({block.kind for block in blocks}) == 1:
        turned = list[Array]()
        for columns in zip(*(block.arrays for block in blocks), strict=True):
            ordered = np.concatenate(columns)
            turned.append(np.empty_like(ordered))
            turned[-1][order] = ordered
        return rebuilt(blocks[0].tree, iter(turned))
    each = (part if isinstance(part, list) else zipped(part.tree, part.arrays) for part in parts)
    samples: list[Any] = [None] * len(order)
    for place, sample in zip(order.tolist(), chain.from_iterable(each), strict=True):
        samples[place] = sample
    return samples
