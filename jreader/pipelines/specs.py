"""Shapes and dtypes of what a pipeline gives, in NumPy's terms: jax is not imported for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.batches import batching, stack
from jreader.batches.padded_batches import varied
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
        """As NumPy calls the dtype."""
        return f"ArraySpec(shape={self.shape}, dtype={self.dtype})"


def spec_of(reader: Reader[Any], first: Any) -> Any:
    """The tree of `ArraySpec` of what a reader gives, of which this is the first."""
    if unit_of(reader) != "batches" and not isinstance(first, Columns):
        return map_tree(_array_spec, first)
    columns = stack(first)
    even, found = _even(reader), batching(reader)
    specs = map_tree(lambda array: _array_spec(array, even=even), columns)
    padded = found.buckets is not None or (found.op is not None and varied(found.op))
    if not padded or found.functions or not isinstance(specs, dict):
        return specs
    masked = [name for name in specs if f"{name}_mask" in specs]
    varying = {*masked, *(f"{name}_mask" for name in masked)}
    return {name: _of_any_length(spec) if name in varying else spec for name, spec in specs.items()}


def _of_any_length(spec: ArraySpec) -> ArraySpec:
    return ArraySpec((spec.shape[0], None, *spec.shape[2:]), spec.dtype)


def _array_spec(value: Any, *, even: bool = True) -> ArraySpec:
    array = np.asarray(value)
    return ArraySpec(array.shape if even else (None, *array.shape[1:]), array.dtype)


def _even(reader: Reader[Any]) -> bool:
    """Whether every batch has as many samples as the first one."""
    found = batching(reader)
    if found.op is None or found.size is None:
        return False
    known = length(found.op.reader)
    return bool(found.op.drop_last) or (known is not None and known % found.size == 0)
