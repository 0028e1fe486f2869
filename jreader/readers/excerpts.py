"""Parts of long values, for hashes that take the same time at any length."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SAMPLED = 256
"""The most rows of an array, items of a container, or elements of a row to take."""

_MAPPED_ROWS = 8  # rows read from a mapped file: each reads a page or two
_SMALL_FILE = 1 << 14  # bytes: smaller mapped files are sampled like arrays in memory
_MAX_PIECES, _PIECE = 64, 512  # of all texts and files; characters or bytes of each
_MIN_FILES = 8  # fewer files get no more pieces each


def spread(many: int, most: int) -> Iterable[int]:
    """Return at most `most` indices below `many`, evenly spaced from the first to the last.

    >>> list(spread(3, 5)), list(spread(100, 4))
    ([0, 1, 2], [0, 33, 66, 99])
    """
    if many <= most:
        return range(many)
    return [number * (many - 1) // (most - 1) for number in range(most)]


def some_rows(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return some rows of an array, and from each the elements in its middle."""
    mapped = array.nbytes > _SMALL_FILE and is_mapped(array)
    left = SAMPLED
    middle: list[Any] = []
    for size in reversed(array.shape[1:]):
        kept = min(size, max(left, 1))
        middle.insert(0, slice((size - kept) // 2, (size - kept) // 2 + kept))
        left //= max(kept, 1)
    rows = np.fromiter(spread(len(array), _MAPPED_ROWS if mapped else SAMPLED), np.intp)
    return np.asarray(array[(slice(None), *middle)][rows])


def is_mapped(array: Any) -> bool:
    """Return whether the memory of an array is a mapped file.

    >>> is_mapped(np.arange(3)[1:])
    False
    """
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


def some_text(text: Any) -> list[Any]:
    """Return pieces of a long text, or of bytes."""
    starts = spread(len(text) - _PIECE + 1, _MAX_PIECES)
    return [text[start : start + _PIECE] for start in starts]


def some_bytes(paths: Sequence[str]) -> list[str]:
    """Return pieces of files, as hexadecimal texts; a copy has the same.

    Several files share the pieces: at least one each, unless there are more files than pieces.
    """
    some = [paths[index] for index in spread(len(paths), _MAX_PIECES)]
    return [_file_pieces(path, max(_MAX_PIECES // max(len(some), _MIN_FILES), 1)) for path in some]


def _file_pieces(path: str, many: int) -> str:
    try:
        with Path(path).open("rb", buffering=0) as file:
            ends = max(os.fstat(file.fileno()).st_size - _PIECE, 0)
            starts = [ends * number // max(many - 1, 1) for number in range(many)]
            return b"".join(file.read(_PIECE) for start in starts if file.seek(start) >= 0).hex()
    except OSError:  # the pass that reads the file reports it
        return ""
