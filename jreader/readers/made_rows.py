"""Rows made by functions, whose numbers of rows are known before the calls.

So an op that needs only lengths can plan before anything is made, as `pack` does for images whose
headers show how many patches they become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

from jreader.readers.columns import Array, ArrayColumn, offsets_of
from jreader.readers.nodes import Node, Reader, ops_of
from jreader.readers.rewriting import rewritten


def made_lazily(reader: Reader[Any], also: tuple[type[Node[Any]], ...] = ()) -> Reader[Any]:
    """Return the plan whose samples compute fields on access.

    Args:
        reader: Any reader.
        also: Ops of several readers that hand on their samples without looking into them.
    """

    def change(op: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        hands_on = op.moves == "rows" or op.from_reader == "all" or isinstance(op, also)
        return op.lazily() or ({} if hands_on else op)

    return rewritten(reader, change)


def may_be_lazy(reader: Reader[Any]) -> bool:
    """Return whether a function below can make fields on access, whatever lies between."""
    functions = (getattr(op, name, None) for op in ops_of(reader) for name in ("fn", "func"))
    return any(hasattr(function, "lazily") for function in functions)


class MadeRows(ArrayColumn):
    """The rows made by some functions, end to end; each is called when its rows are read.

    >>> rows = MadeRows([lambda: np.zeros(2), lambda: np.ones(3)], [2, 3], (np.dtype(float), ()))
    >>> rows, rows.whole(), rows.gather(np.array([4, 0]))
    (float64[5], array([0., 0., 1., 1., 1.]), array([1., 0.]))

    Args:
        makers: Each returns an array.
        lengths: The number of rows that each makes.
        kind: The dtype of all rows, and the shape of one.
        threads: The number of threads that make rows at once; 0 for only this one.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Array]],
        lengths: Sequence[int],
        kind: tuple[np.dtype[Any], tuple[int, ...]],
        threads: int = 0,
    ) -> None:
        self.makers, self.lengths, self.threads = makers, lengths, threads
        self._offsets, self.kind = offsets_of(lengths), kind
        self.dtype, self.shape = kind[0], (int(self._offsets[-1]), *kind[1])

    def spans(self, begins: Array, ends: Array) -> Iterator[Array]:
        """Yield the rows from each begin to its end; all threads make what holds them."""
        first = self._offsets.searchsorted(begins, "right") - 1
        last = np.where(ends > begins, self._offsets.searchsorted(ends), first)
        makers = [self.makers[low:high] for low, high in zip(first, last, strict=True)]
        made = self._made([*chain.from_iterable(makers)])
        empty = np.empty((0, *self.shape[1:]), self.dtype)
        for low, high, start, each in zip(begins, ends, self._offsets[first], makers, strict=True):
            yield np.concatenate([empty, *(next(made) for _ in each)])[low - start : high - start]

    def _made(self, makers: Sequence[Callable[[], Array]]) -> Iterator[Array]:
        if self.threads < 2 or len(makers) < 2:
            yield from (make() for make in makers)
            return
        with ThreadPoolExecutor(min(self.threads, len(makers))) as pool:
            yield from pool.map(lambda make: make(), makers)

    def whole(self) -> Array:
        """Return all rows."""
        return next(self.spans(np.array([0]), np.array([len(self)])))

    def gather(self, rows: Array) -> Array:
        """Return these rows; each call that they need is made once."""
        return np.concatenate([*self.spans(rows, rows + 1)])

    @staticmethod
    def of(rows: Any) -> MadeRows:
        """Return the rows of an array or column as such a column."""
        if isinstance(rows, MadeRows):
            return rows
        return MadeRows([lambda: rows[:]], [len(rows)], (rows.dtype, rows.shape[1:]))

    @staticmethod
    def concat(columns: Sequence[MadeRows]) -> MadeRows:
        """Join columns of one kind."""
        makers = [*chain.from_iterable(column.makers for column in columns)]
        lengths = [*chain.from_iterable(column.lengths for column in columns)]
        return MadeRows(makers, lengths, columns[0].kind, max(each.threads for each in columns))
