"""Arrays whose rows overlap in memory, like sliding windows."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jreader.staging import Array


def bytes_below(array: Array) -> tuple[Array, int] | None:
    """Return the bytes below an array larger than its memory, and its offset there; else None.

    >>> windows = np.lib.stride_tricks.sliding_window_view(np.arange(9, dtype=np.uint8), 4)
    >>> bytes_below(windows), bytes_below(np.zeros((3, 4)).T)
    ((array([0, 1, 2, 3, 4, 5, 6, 7, 8], dtype=uint8), 0), None)
    """
    if array.flags.forc or array.dtype.hasobject:
        return None
    low, high = np.lib.array_utils.byte_bounds(array)
    if high - low >= array.nbytes:
        return None
    lowest = tuple(0 if stride >= 0 else -1 for stride in array.strides)
    first = array[tuple(slice(at, at + 1 or None) for at in lowest)].view(np.uint8).reshape(-1)
    stored = as_strided(first, (high - low,), (1,), writeable=False)
    return stored, array.__array_interface__["data"][0] - low


def overlapping(array: Array, size: int) -> Array:
    """Return the array whose row i is `array[i : i + size]`, as a view.

    >>> overlapping(np.arange(5), 3).tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    shape = (max(len(array) - size + 1, 0), size, *array.shape[1:])
    strides = (array.strides[0], *array.strides)
    return as_strided(array, shape, strides, writeable=False)
