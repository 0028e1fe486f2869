"""Shapes and dtypes of a pipeline's samples, in NumPy's terms, without importing jax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.batches import Batching, batching, stack
from jreader.batches.padded_batches import lengths_vary
from jreader.readers import Columns, Reader, length, map_tree
from jreader.readers.nodes import unit_of


@dataclass(frozen=True)
class ArraySpec:
    """The shape and dtype of an array, without its values.

    >>> ArraySpec((None, 28, 28), np.dtype("uint8"))
    ArraySpec(shape=(None, 28, 28), dtype=uint8)

    Attributes:
        shape: The length of each axis; None for one that varies.
        dtype: The NumPy dtype of the values.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        """Show the dtype by its NumPy name."""
        return f"ArraySpec(shape={self.shape}, dtype={self.dtype})"


def element_spec_of(reader: Reader[Any], first: Any) -> Any:
    """Return the tree of `ArraySpec` of a reader's items, given the first one."""
    if unit_of(reader) != "batches" and not isinstance(first, Columns):
        return map_tree(_array_spec, first)
    even = _even(reader)
    specs = map_tree(lambda array: _array_spec(array, even=even), stack(first))
    if isinstance(specs, dict) and _differ_in_length(batching(reader)):
        masked = [name for name in specs if f"{name}_mask" in specs]
        for name in [*masked, *(f"{name}_mask" for name in masked)]:
            shape = specs[name].shape
            specs[name] = ArraySpec((shape[0], None, *shape[2:]), specs[name].dtype)
    return specs


def _differ_in_length(found: Batching) -> bool:
    """Return whether batches are as long as their longest sample, and no function changes them."""
    padded = found.buckets is not None or (found.op is not None and lengths_vary(found.op))
    return padded and not found.functions


def _array_spec(value: Any, *, even: bool = True) -> ArraySpec:
    array = np.asarray(value)
    return ArraySpec(array.shape if even else (None, *array.shape[1:]), array.dtype)


def _even(reader: Reader[Any]) -> bool:
    """Return whether every batch has as many samples as the first one."""
    found = batching(reader)
    if found.op is None or found.size is None:
        return False
    known = length(found.op.reader)
    return bool(found.op.drop_last) or (known is not None and known % found.size == 0)
