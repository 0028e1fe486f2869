"""Readers of stored images with labels, scaled for a neural network."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.readers import Node, op
from jreader.sources.columns import Table
from jreader.transforms import map_readers

Array: TypeAlias = np.ndarray[Any, Any]
Mode: TypeAlias = Literal["train", "test"]
Sample: TypeAlias = tuple[Array, np.int64]


@op
class _stored(Table[tuple[Array, Any]]):
    """Read the rows of the arrays that `load(mode)` returns when the first pass begins.

    Args:
        load: A function that takes a mode, and returns images and labels.
        mode: Which part to load.
        n: The number of samples, so that the length is known without loading.
    """

    load: Callable[[Mode], tuple[Array, Array]]
    mode: Mode
    n: int

    @cached_property
    def columns(self) -> tuple[Array, Array]:
        """Images and labels, loaded at the first use."""
        return self.load(self.mode)

    @property
    def lazy_length(self) -> bool:
        """False: the number of samples is known."""
        return False

    def length(self) -> int:
        """Return the number of samples, without loading them."""
        return self.n

    def __repr__(self) -> str:
        """Return the call that loads the same arrays, such as mnist.arrays('test')."""
        return f"{self.load.__module__.rpartition('.')[2]}.{self.load.__name__}({self.mode!r})"


def scaled(sample: tuple[Array, Any]) -> Sample:
    """Scale an image of 28x28 bytes and its label to a float32[784] from -1 to 1 and an int64.

    >>> pixels, label = scaled((np.full((28, 28), 255, np.uint8), np.uint8(7)))
    >>> pixels.shape, pixels.dtype, float(pixels.max()), label
    ((784,), dtype('float32'), 1.0, np.int64(7))
    """
    image, label = sample
    return image.reshape(784).astype(np.float32) / 127.5 - 1, np.int64(label)


def reader(load: Callable[[Mode], tuple[Array, Array]], mode: Mode, n: int) -> Node[Sample]:
    """Return the reader of the n scaled samples of `load(mode)`."""
    return map_readers(scaled, _stored(load, mode, n))


def check_mode(call: str, mode: object) -> None:
    """Raise ValueError unless the mode is "train" or "test".

    >>> check_mode("mnist.arrays(mode)", "valid")
    Traceback (most recent call last):
    ValueError: mnist.arrays(mode) needs a mode of 'train' or 'test', not 'valid'.
    """
    if mode not in ("train", "test"):
        raise ValueError(f"{call} needs a mode of 'train' or 'test', not {mode!r}.")
