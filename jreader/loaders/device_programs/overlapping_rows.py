"""Columns with overlapping rows, stored on a device as the flat array that they overlap in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.lib.stride_tricks import as_strided

from jreader.readers.overlaps import bytes_below
from jreader.staging import Array

_COUNTED = 1 << 31  # values that 32 bits can index


@dataclass(frozen=True)
class Windows:
    """The layout of rows that overlap in a flat array.

    >>> column = np.lib.stride_tricks.sliding_window_view(np.arange(9), 4)
    >>> flat, windows = stored(column)
    >>> windows.rows(jnp.asarray(flat), jnp.asarray([5, 0])).tolist()
    [[5, 6, 7, 8], [0, 1, 2, 3]]

    Attributes:
        first: The index in the flat array at which the first row begins.
        shape: The shape of all rows together.
        strides: The distance between neighbours along each axis, in values.
    """

    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def rows(self, flat: Any, rows: Any) -> Any:
        """Return the given rows, gathered from the flat array; both may be traced."""
        grid = np.full(self.shape[1:], self.first)
        for axis, (size, stride) in enumerate(zip(self.shape[1:], self.strides[1:], strict=True)):
            steps = np.arange(size) * stride
            grid += steps.reshape(-1, *[1] * (len(self.shape) - 2 - axis))
        begins = (rows * self.strides[0]).reshape(-1, *[1] * grid.ndim)
        return flat.at[begins + jnp.asarray(grid, rows.dtype)].get(mode="promise_in_bounds")

    def over(self, flat: Array) -> Array:
        """Return all rows, as a view of the flat array."""
        strides = [stride * flat.itemsize for stride in self.strides]
        return as_strided(flat[self.first :], self.shape, strides, writeable=False)


def stored(column: Array) -> tuple[Array, Windows] | None:
    """Return the flat array that rows overlap in, and their layout; None if that saves nothing."""
    found = bytes_below(column)
    steps = [stride // column.itemsize for stride in column.strides]
    exact = all(
        step * column.itemsize == at for step, at in zip(steps, column.strides, strict=True)
    )
    if found is None or not exact or 1 not in map(abs, steps):
        return None
    raw, begin = found
    flat = raw.view(column.dtype)
    if len(flat) >= _COUNTED or not flat.flags.aligned:
        return None
    return flat, Windows(begin // column.itemsize, column.shape, tuple(steps))
