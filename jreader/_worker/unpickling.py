"""Unpickling what a program and its workers send each other."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any


def unpickled(data: bytes | memoryview, buffers: Iterable[Any] = ()) -> Any:
    """The value that this program, or a worker of it, has pickled.

    Args:
        data: What pickle made of it.
        buffers: The memory of its large arrays, where that is not in the pickle.
    """
    return pickle.loads(data, buffers=buffers)  # noqa: S301  # of this program
