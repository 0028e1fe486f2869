"""Fields of feeds, and the refusals of what does not fit them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from jreader.errors import FeedMismatch
from jreader.feeds import Feeds, data

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
IMAGE_AND_LABEL = [data("image", [None, 4]), data("label", [None, 1], "int64")]


def without_x64(dtype: np.dtype) -> np.dtype:
    """What jax makes of a dtype while x64 is off."""
    return np.dtype(NARROW.get(dtype.name, dtype))


def one(
    values: Iterable[Any],
    *shape: int | None,
    dtype: Any = "float32",
    canonical: Callable[[np.dtype], np.dtype] = without_x64,
) -> np.ndarray:
    """The feed of a single field, declared like this."""
    field = data("x", [None, *shape], dtype)
    return Feeds([field], canonical).from_samples([(value,) for value in values])["x"]


def refused(*words: str, error: type[Exception] = FeedMismatch) -> Any:
    """An error with all these words."""
    return pytest.raises(error, match="(?s)" + "".join(f"(?=.*{word})" for word in words))
