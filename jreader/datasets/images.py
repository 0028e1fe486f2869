"""From images as they are stored to samples that a network takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.readers import Node
from jreader.sources import Table
from jreader.transforms import map_readers

Array: TypeAlias = np.ndarray[Any, Any]
Mode: TypeAlias = Literal["train", "test"]
Sample: TypeAlias = tuple[Array, np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class _stored(Table[tuple[Array, Any]]):
    """The rows of the arrays that `load(mode)` gives; nothing is loaded before the first pass.

    Args:
        load: Takes a mode, gives images and labels.
        mode: What it takes.
        n: How many there are, which is known without loading them.
    """

    load: Callable[[Mode], tuple[Array, Array]]
    mode: Mode
    n: int
    unread = False

    @cached_property
    def columns(self) -> tuple[Array, Array]:
        """Images and labels."""
        return self.load(self.mode)

    def length(self) -> int:
        """The number that is known."""
        return self.n

    def __repr__(self) -> str:
        """The arrays, as a user would ask for them."""
        return f"{self.load.__module__.rpartition('.')[2]}.{self.load.__name__}({self.mode!r})"


def scaled(sample: tuple[Array, Any]) -> Sample:
    """A float32[784] from -1 to 1 and an int64, for 28x28 bytes and a label.

    >>> pixels, label = scaled((np.full((28, 28), 255, np.uint8), np.uint8(7)))
    >>> pixels.shape, pixels.dtype, float(pixels.max()), label
    ((784,), dtype('float32'), 1.0, np.int64(7))
    """
    image, label = sample
    return image.reshape(784).astype(np.float32) / 127.5 - 1, np.int64(label)


def reader(load: Callable[[Mode], tuple[Array, Array]], mode: Mode, n: int) -> Node[Sample]:
    """The scaled samples of stored images."""
    return map_readers(scaled, _stored(load, mode, n))


def check_mode(call: str, mode: object) -> None:
    """Refuses what is neither of the two halves.

    >>> check_mode("mnist.arrays(mode)", "valid")
    Traceback (most recent call last):
    ValueError: mnist.arrays(mode) needs a mode of 'train' or 'test', not 'valid'.
    """
    if mode not in ("train", "test"):
        raise ValueError(f"{call} needs a mode of 'train' or 'test', not {mode!r}.")
