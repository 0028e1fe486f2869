"""Samples that are kept and handed over again: what their user changes does not reach what is kept.

Arrays are handed over as read-only views, which takes less than a microsecond each and copies no
values; containers are rebuilt; numbers and texts are what they are. Of any other object the user
gets a copy. A function that writes to its sample so gives the same in every epoch, or NumPy's
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
    """An array as a view that cannot be written to; anything else, or such a view, as it is.

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
    """A tree of columns whose arrays cannot be written to; the tree itself if none can."""
    for each in leaves(tree):
        if isinstance(each, np.ndarray) and each.flags.writeable:
            return map_tree(read_only, tree)
    return tree


def is_fixed(samples: Any) -> bool:
    """Whether none of these samples can be changed at all, so that they need no protection.

    >>> is_fixed([1, "a"]), is_fixed([1, [2]])
    (True, False)
    """
    return _UNCHANGEABLE.issuperset(map(type, samples))


def protected(sample: Any) -> Any:
    """A sample for a user, of which no change reaches the one that is kept.

    >>> kept = {"x": np.arange(3), "words": ["a", "b"]}
    >>> given = protected(kept)
    >>> given["words"].append("c")
    >>> kept["words"], given["x"].base is kept["x"], given["x"].flags.writeable
    (['a', 'b'], True, False)

    An object that cannot be copied (it holds a lock or an open file, say) is handed over as it is.
    Of containers that hold themselves, or are nested too deep for Python, all is copied.
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
    if kind.__module__.partition(".")[0] in ("jax", "jaxlib"):  # its arrays never change
        return sample
    return _shallow_copy(sample)


def _shallow_copy(sample: Any) -> Any:
    with suppress(Exception):  # of classes that a user wrote
        return _own_copy(sample)
    return sample


def _own_copy(sample: Any) -> Any:
    if hasattr(sample, "detach"):  # a tensor: a deep copy has all that it is a view of
        return sample.clone()
    if hasattr(sample, "__array_interface__"):  # a picture: a deep copy takes ten times as long
        return sample.copy()
    return copy.deepcopy(sample)


_MAKE: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _read_only_array,
    np.memmap: _read_only_array,
    dict: _dict,
    tuple: lambda sample: tuple(map(_protected_part, sample)),
    list: lambda sample: list(map(_protected_part, sample)),
}
