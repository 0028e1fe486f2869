"""Fields of a feed: `data` declares one, and `FeedField` casts and checks the values of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from jreader.errors import FeedMismatch, check_number
from jreader.feeds.casts import Array, DType, cast, column, unplaceable
from jreader.readers import described, set_fields


@dataclass(frozen=True)
class data:
    """Declares one field of the feeds: its name, shape and dtype.

    >>> data("image", shape=[None, 784], dtype="float32").shape
    (None, 784)
    >>> data("label", shape=(-1, 1), dtype="int64") == data("label", (None, 1), int)
    True

    Args:
        name: The key of the field in a feed.
        shape: The batch axis first, then the shape of a sample; None or -1 stands for any size.
        dtype: Anything that `np.dtype` takes, or "bfloat16"; bools and numbers only.

    Raises:
        TypeError: An argument is of the wrong type, or no device can hold the dtype.
        ValueError: The name is empty, the shape lacks the batch axis, or a size is 0 or negative.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: DType

    def __init__(
        self, name: str, shape: Sequence[int | None] = (None,), dtype: DTypeLike = "float32"
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"data(name) needs the name of a field (a str), not {name!r}")
        if not name:
            raise ValueError('data(name) needs a name that is not empty: data("image")')
        shape = _checked_shape(name, shape)
        set_fields(self, name=name, shape=shape, dtype=_checked_dtype(name, dtype))


def _checked_shape(name: str, shape: object) -> tuple[int | None, ...]:
    needed = f"data({name!r}, shape) needs the batch axis first, as in [None, 784], not {shape!r}"
    if not isinstance(shape, (list, tuple)):
        raise TypeError(needed)
    if not shape:
        raise ValueError(needed)
    call = f"data({name!r}, {shape!r}), but for None and -1 (any size),"
    return tuple(
        None if size is None or size == -1 else check_number(call, size, 1) for size in shape
    )


def _checked_dtype(name: str, dtype: Any) -> DType:
    call = f"data({name!r}, dtype={described(dtype)})"
    if dtype is None:
        raise TypeError(f'{call} needs a dtype: "float32", "int64", "bool" or another number')
    try:
        if isinstance(dtype, str) and dtype == "bfloat16":
            import_module("ml_dtypes")  # it registers the name with NumPy
        checked = np.dtype(dtype)
    except ImportError:
        raise TypeError(f"{call} needs the package ml_dtypes: pip install ml_dtypes") from None
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call} needs what np.dtype takes, such as 'float32': {error}") from None
    if why := unplaceable(checked):
        raise TypeError(f"{call}: {why}. Declare a number, such as 'float32' or 'int64'.")
    native: DType = checked.newbyteorder("=")
    return native


Canonical: TypeAlias = Callable[[DType], DType]
"""Gives the dtype that stands for another on a device."""


@dataclass(frozen=True)
class FeedField:
    """One field of the feeds: its name, the part of a sample that it is taken from, its type.

    Attributes:
        name: The key of the field in a feed.
        key: The index of the part in a tuple, or its key in a dict. None stands for the position of
            the field in the feed_list, or for its name.
        shape: The declared shape, batch axis first; None if it was not declared.
        dtype: The declared dtype, as the device has it; None if it was not declared.
        canonical: That of the device; None for a field that stays on the host, where it may hold
            what no device does, as texts.
    """

    name: str
    key: int | str | None = None
    shape: tuple[int | None, ...] | None = None
    dtype: DType | None = None
    canonical: Canonical | None = None

    def feed(self, values: Any) -> Array:
        """Returns the values of a batch as an array of the declared dtype and shape."""
        name = field_name(self.name)
        array = column(values, name, on_host=self.canonical is None)
        dtype = self.dtype
        if dtype is None:
            native = array.dtype.newbyteorder("=")
            dtype = native if self.canonical is None else self.canonical(native)
        array = cast(array, dtype, name)
        return array if self.shape is None else self._shaped(array, self.shape)

    def traced(self, array: Any) -> Any:
        """Does the same with a traced jax array, whose values cannot be checked."""
        array = array if self.dtype is None else array.astype(self.dtype)
        return array if self.shape is None else self._shaped(array, self.shape)

    def _shaped(self, array: Array, shape: tuple[int | None, ...]) -> Array:
        inner = known(shape[1:])
        other_rank = array.ndim != len(shape)
        if other_rank and inner is not None and math.prod(array.shape[1:]) == math.prod(inner):
            array = array.reshape(len(array), *inner)
        if array.ndim == len(shape) and all(
            wanted in (None, size) for wanted, size in zip(shape, array.shape, strict=True)
        ):
            return array
        raise FeedMismatch(
            f"field {self.name!r} is declared as data({self.name!r}, {list(shape)}), but its batch "
            f"has the shape {list(array.shape)}, samples first: declare that, with None for sizes "
            f"that may vary, or map the samples to the declared shape."
        )


def field_name(path: str) -> str:
    """How errors call a field; feeds that are one array have none of a name.

    >>> field_name("image"), field_name("")
    ("field 'image'", 'the array of samples')
    """
    return f"field {path!r}" if path else "the array of samples"


def known(shape: tuple[int | None, ...]) -> tuple[int, ...] | None:
    """Returns the shape if all of its sizes are known, else None."""
    sizes = tuple(size for size in shape if size is not None)
    return sizes if len(sizes) == len(shape) else None
