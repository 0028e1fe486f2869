"""Unpickling of messages between a program and its workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any


def unpickled(data: bytes | memoryview, buffers: Iterable[Any] = ()) -> Any:
    """Return a value that this program, or one of its workers, has pickled.

    Args:
        data: The pickle.
        buffers: The memory of its large arrays, if that is not in the pickle.
    """
    return pickle.loads(data, buffers=buffers)  # noqa: S301  # from this program
