"""Stacking samples into batches; a worker stacks them in shared memory, and sends from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jreader._worker.shared_memory import Blocks
from jreader.readers import branches, leaves, rebuilt, same_structure
from jreader.readers.trees import restores
from jreader.staging import Array

_LARGE = 4096  # bytes of a leaf; smaller ones are faster to stack all at once


blocks: Blocks | None = None  # of this process, if it is a worker


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array; in a worker, a large one is sent without a copy."""
    room = blocks.empty(shape, dtype) if blocks is not None else None
    return np.empty(shape, dtype) if room is None else room


def stacked_in_shared_memory(values: Sequence[Any]) -> Array | None:
    """Stack arrays of one shape and dtype in the memory that a worker sends.

    Return None if this is no worker, or they are not such arrays, or few: stack them elsewhere.
    """
    first = values[0]
    if blocks is None or type(first) is not np.ndarray:
        return None
    room = blocks.empty((len(values), *first.shape), first.dtype)
    if room is None:
        return None
    try:
        return np.stack(values, out=room, casting="no")
    except (TypeError, ValueError):
        return None


def map_and_stack(
    make: Callable[[Any], Any],
    items: Sequence[Any],
    column: Callable[[Sequence[Any], str], Any] | None = None,
    *,
    small: bool = False,
) -> tuple[Any, list[Any] | None]:
    """Map items to samples and stack those, copying each large array once, when it is made.

    A worker stacks in shared memory, which sends the arrays without another copy.

    >>> (image, label), samples = map_and_stack(lambda n: (np.full(9999, n), n), range(3))
    >>> image.shape, label.tolist(), samples
    ((3, 9999), [0, 1, 2], None)

    Samples that are not alike, have no large arrays, or are in users' own containers are returned
    as they are.

    >>> map_and_stack(lambda n: (n, "a"), range(2))
    (None, [(0, 'a'), (1, 'a')])

    Args:
        make: Makes a sample from an item.
        items: The items, at least one.
        column: Stacks the values of a small leaf, given its name for errors; None stacks numbers,
            and treats samples with any other leaf as not alike.
        small: Whether to also stack samples without large arrays.

    Returns:
        The tree of stacked arrays and None; or None and the list of samples.
    """
    first = make(items[0])
    columns = _Columns(first, len(items), small=small)
    if not (columns.worth and restores(first)):
        return None, [first, *map(make, items[1:])]
    for row, item in enumerate(items[1:], 1):
        sample = make(item)
        if not columns.put(row, sample):
            return None, [*map(columns.sample, range(row)), sample, *map(make, items[row + 1 :])]
    try:
        return columns.stacked(column or _number_column), None
    except NotAlikeError:
        return None, [*map(columns.sample, range(len(items)))]


class NotAlikeError(Exception):
    """Values cannot make a column of numbers."""


def _number_column(values: Sequence[Any], _name: str) -> Array:
    try:
        made = np.asarray(values)
    except ValueError:
        raise NotAlikeError from None
    if made.dtype.kind not in "biufc":
        raise NotAlikeError
    return made


class _Columns:
    """The leaves of samples, as columns: stacked if they are large arrays, else in lists."""

    def __init__(self, first: Any, rows: int, *, small: bool) -> None:
        self.first, self.columns = first, [_empty_column(leaf, rows) for leaf in leaves(first)]
        self.worth = small or any(isinstance(column, np.ndarray) for column in self.columns)
        if self.worth:
            self.put(0, first)

    def put(self, row: int, sample: Any) -> bool:
        """Store a sample; if it is unlike the first, store nothing and return False."""
        if not same_structure(self.first, sample):
            return False
        pairs = list(zip(self.columns, leaves(sample), strict=True))
        if not all(_fits_column(column, leaf) for column, leaf in pairs):
            return False
        for column, leaf in pairs:
            if isinstance(column, list):
                column.append(leaf)
            else:
                column[row] = leaf
        return True

    def sample(self, row: int) -> Any:
        """Return the stored sample of that number."""
        return rebuilt(self.first, (column[row] for column in self.columns))

    def stacked(self, column: Callable[[Sequence[Any], str], Any]) -> Any:
        """Return the tree of all columns, those in lists stacked by `column`."""
        made = (
            column(values, name) if isinstance(values, list) else values
            for values, name in zip(self.columns, _leaf_names(self.first, "a sample"), strict=True)
        )
        return rebuilt(self.first, made)


def _empty_column(leaf: Any, rows: int) -> Any:
    if type(leaf) is not np.ndarray or leaf.nbytes < _LARGE or leaf.dtype.hasobject:
        return []
    if not leaf.ndim:  # a long text: a column's row is no array
        return []
    return empty_array((rows, *leaf.shape), leaf.dtype)


def _fits_column(column: Any, leaf: Any) -> bool:
    if isinstance(column, list):
        return True
    return (
        type(leaf) is np.ndarray and leaf.dtype == column.dtype and leaf.shape == column.shape[1:]
    )


def _leaf_names(tree: Any, name: str) -> Iterator[str]:
    parts = branches(tree)
    if parts is None:
        yield name
    else:
        for key, part in parts.items():
            yield from _leaf_names(part, f"{name}[{key!r}]")
