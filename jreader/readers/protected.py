"""Samples that are kept and handed over again, protected from changes by their user.

Arrays are handed over as read-only views, which takes less than a microsecond each and copies no
values. Containers are rebuilt; numbers and texts are immutable. Of any other object the user gets a
copy. So a function that writes to its sample has the same result in every epoch, or raises NumPy's
error, whoever calls it: this thread, another one, or a process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any

import numpy as np

from jreader.readers.trees import Columns, leaves, map_tree

_UNCHANGEABLE = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, slice, type, type(...)),
        *(date, datetime, time, timedelta, Path, PosixPath, PurePosixPath),
        *(kind for kind in np.sctypeDict.values() if kind not in (np.void, np.object_)),
    }
)


def read_only(value: Any) -> Any:
    """Return an array as a read-only view; anything else, or such a view, unchanged.

    >>> row = read_only(np.arange(3))
    >>> row[0] = 7
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    view = value.view()
    view.setflags(write=False)
    return view


def read_only_columns(tree: Any) -> Any:
    """Return a tree of columns with read-only arrays; the tree itself if they already are."""
    for each in leaves(tree):
        if isinstance(each, np.ndarray) and each.flags.writeable:
            return map_tree(read_only, tree)
    return tree


def is_fixed(samples: Any) -> bool:
    """Return whether none of these samples can change at all, so they need no protection.

    >>> is_fixed([1, "a"]), is_fixed([1, [2]])
    (True, False)
    """
    return _UNCHANGEABLE.issuperset(map(type, samples))


def protected(sample: Any) -> Any:
    """Return a sample for a user whose changes do not reach the one that is kept.

    >>> kept = {"x": np.arange(3), "words": ["a", "b"]}
    >>> given = protected(kept)
    >>> given["words"].append("c")
    >>> kept["words"], given["x"].base is kept["x"], given["x"].flags.writeable
    (['a', 'b'], True, False)

    An object that cannot be copied, such as one with a lock or an open file, is handed over as it
    is. Containers that hold themselves, or are nested too deep for Python, are deep-copied.
    """
    kind = type(sample)
    if kind in _UNCHANGEABLE:
        return sample
    try:
        return _MAKE.get(kind, _of_any_class)(sample)
    except RecursionError:
        return _shallow_copy(sample)


def _protected_part(sample: Any) -> Any:
    kind = type(sample)
    return sample if kind in _UNCHANGEABLE else _MAKE.get(kind, _of_any_class)(sample)


def _read_only_array(sample: Any) -> Any:
    if sample.dtype.hasobject:
        return copy.deepcopy(sample)
    view = sample.view()
    if view.flags.writeable:
        view.setflags(write=False)  # a quarter of a microsecond
    return view


def _dict(sample: dict[Any, Any]) -> Any:
    return {key: _protected_part(part) for key, part in sample.items()}


def _of_any_class(sample: Any) -> Any:
    if isinstance(sample, Columns):
        return sample.having(_protected_part(sample.columns))
    kind = type(sample)
    if isinstance(sample, tuple) and hasattr(kind, "_make"):
        return kind._make(map(_protected_part, sample))
    if kind.__module__.partition(".")[0] in ("jax", "jaxlib"):  # its arrays are immutable
        return sample
    return _shallow_copy(sample)


def _shallow_copy(sample: Any) -> Any:
    with suppress(Exception):  # a user's class may raise
        return _own_copy(sample)
    return sample


def _own_copy(sample: Any) -> Any:
    if hasattr(sample, "detach"):  # a tensor: a deep copy copies all of its base
        return sample.clone()
    if hasattr(sample, "__array_interface__"):  # an image: a deep copy takes ten times as long
        return sample.copy()
    return copy.deepcopy(sample)


_MAKE: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _read_only_array,
    np.memmap: _read_only_array,
    dict: _dict,
    tuple: lambda sample: tuple(map(_protected_part, sample)),
    list: lambda sample: list(map(_protected_part, sample)),
}
