"""Samples that change while they are held: a source that refills one array for every sample.

Such a source is legal and fast if each sample is used before the next one is read. An op that holds
several (a batch, a window, a cache, read-ahead) would hold the last one many times. The first few
samples of a pass show it: an earlier one changes when the next one is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader.readers.trees import branches, leaves

T = TypeVar("T")

_FEW = 16  # samples to compare: a source may alternate between several arrays
_PICKED = 1024  # values of an array to compare
_LONG = 64  # items; a longer list is not a sample, but a batch


def watched(items: Iterator[T], held: int, by: str, made_at: str = "") -> Iterator[T]:
    """Return the items, for an op that holds several; warn if a later one changes the first.

    >>> import warnings
    >>> from jreader import batch
    >>> row = np.zeros(1, int)
    >>> def filled():
    ...     for row[0] in range(3):
    ...         yield row
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     [[row.item() for row in samples] for samples in batch(filled, 3)()], len(caught)
    ([[2, 2, 2]], 1)

    Args:
        items: An iterator of samples.
        held: How many the op holds at once.
        by: The name of the op.
        made_at: The line where the user made it; "" for the running line.
    """
    if held < 2:
        return items
    return chain(_compared(items, min(held, _FEW), by, made_at), items)


def _compared(items: Iterator[T], many: int, by: str, made_at: str) -> Iterator[T]:
    for first in islice(items, 1):
        yield first
        if isinstance(first, list) and len(first) > _LONG:
            return
        before = _values_of(first)
        if not any(map(_fillable, [first, *_leaves(first)])):
            return
        for item in islice(items, many - 1):
            if refilled := _is_refilled(first, before, item):
                _warn_of_refill(first, by, made_at)
            yield item
            if refilled:
                return


def _values_of(sample: Any) -> list[Any]:
    """Return the state of a sample: some values of its arrays, and its other leaves."""
    return [
        leaf.flat[:: leaf.size // _PICKED + 1].tobytes() if _is_plain_array(leaf) else leaf
        for leaf in _leaves(sample)
    ]


def _leaves(sample: Any) -> list[Any]:
    try:
        return leaves(sample)
    except RecursionError:  # it contains itself
        return []


def _is_refilled(first: Any, before: list[Any], item: Any) -> bool:
    """Return whether the first sample changed along with another one, which shares its memory.

    If samples share only arrays, the other leaves are the user's.
    """
    if item is not first and not any(map(_overlap, _leaves(first), _leaves(item))):
        return False
    states = zip(before, _values_of(first), strict=False)
    return any(
        then is not now and (item is first or type(then) is bytes) and not _equal_bytes(then, now)
        for then, now in states
    )


def _equal_bytes(then: Any, now: Any) -> bool:
    return type(then) is bytes and then == now


def _fillable(leaf: Any) -> bool:
    return _is_plain_array(leaf) or (branches(leaf) is not None and not isinstance(leaf, tuple))


def _is_plain_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject


def _overlap(one: Any, other: Any) -> bool:
    """Return whether two leaves are arrays in the same memory."""
    if not (_is_plain_array(one) and _is_plain_array(other)):
        return False
    try:
        work: Any = 1000  # NumPy's stubs allow only two numbers
        return np.shares_memory(one, other, max_work=work)
    except np.exceptions.TooHardError:
        return False


def _warn_of_refill(sample: Any, by: str, made_at: str) -> None:
    copy = "np.copy" if isinstance(sample, np.ndarray) else "copy.deepcopy"
    errors.warn(
        f"{by} holds several samples at once, but its source writes all of them into the same "
        "memory, so all of them become the last one. Give each its own memory: "
        f"map_readers({copy}, reader) below it, or .map({copy}); or yield, or return, a copy.",
        made_at,
    )
