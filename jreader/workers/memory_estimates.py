"""Estimates of the memory that a value takes: quick rather than exact."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

ESTIMATE_EVERY = 8  # one of so many consecutive items is estimated

_SMALL = 64
_NUMBERS = frozenset({bool, int, float, complex, type(None), np.float32, np.int64})
_SAMPLED_PARTS = 16  # parts of one value to look at; more are taken to be alike
_MAX_PARTS = 256  # nested parts


def estimated_bytes(value: Any) -> float:
    """Estimate the bytes of memory that a value takes.

    >>> estimated_bytes(np.zeros(1000)), estimated_bytes((np.zeros(1000), 3))
    (8000, 8064.0)
    >>> estimated_bytes([b"x" * 967] * 100)
    100000.0

    Args:
        value: Anything: a sample, or a result.
    """
    try:
        size = _without_parts(value)
        return _with_parts(value) if size is None else size
    except Exception:  # a user's class without a size
        return _SMALL


def raised_average(smoothed: float, seen: float) -> float:
    """Return a moving average that rises at once to a larger value, and falls slowly."""
    return max(seen, smoothed + (seen - smoothed) / 4)


def _without_parts(value: Any) -> int | None:
    """Return the bytes of a value without parts; None if it has parts."""
    kind = type(value)
    if kind in _NUMBERS:
        return _SMALL
    if kind is str or kind is bytes:
        return sys.getsizeof(value)
    size = getattr(value, "nbytes", None)  # an array of any library
    return size if isinstance(size, int) else None


def _with_parts(value: Any) -> float:
    total, queue = 0.0, [(value, 1.0)]
    for part, times in queue:  # the queue grows meanwhile
        size = _without_parts(part)
        if size is None and len(queue) < 2 * _MAX_PARTS:
            size, parts, number = _parts_of(part)
            looked = min(number, _SAMPLED_PARTS if len(queue) < _MAX_PARTS else 1)
            queue += [(each, times * number / looked) for each in islice(parts, looked)]
        total += times * (_SMALL if size is None else size)
    return total


def _parts_of(value: Any) -> tuple[int, Iterable[Any], int]:
    """Return the bytes of a value without its parts, the parts, and their number."""
    if isinstance(value, (tuple, list)):
        return 0, value, len(value)
    if isinstance(value, Mapping):
        return 0, value.values(), len(value)
    named = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    slots = [name for names in named for name in ([names] if isinstance(names, str) else names)]
    parts = [getattr(value, name, None) for name in slots]
    parts += getattr(value, "__dict__", {}).values()
    return sys.getsizeof(value), parts[:_SAMPLED_PARTS], len(parts[:_SAMPLED_PARTS])
