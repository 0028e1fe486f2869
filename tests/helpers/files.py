"""Files as they are written elsewhere, packed or not, and whether an array is a map of one."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

IDX_TYPES = {
    "uint8": 0x08,
    "int8": 0x09,
    "int16": 0x0B,
    "int32": 0x0C,
    "float32": 0x0D,
    "float64": 0x0E,
}


def write(path: Path, content: bytes, *, packed: bool) -> Path:
    """The file, with the content as it is or as gzip packs it."""
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def write_idx(path: Path, array: np.ndarray, *, packed: bool) -> Path:
    """The file, with an array as MNIST has it."""
    return write(path, idx_bytes(array), packed=packed)


def idx_bytes(array: np.ndarray) -> bytes:
    """An array as MNIST has it: its type, its shape, its numbers, the high byte first."""
    head = struct.pack(">HBB", 0, IDX_TYPES[array.dtype.name], array.ndim)
    shape = b"".join(struct.pack(">I", n) for n in array.shape)
    return head + shape + array.astype(array.dtype.newbyteorder(">")).tobytes()


def is_mapped(array: np.ndarray | None) -> bool:
    """Whether it is a part of a memory map."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None
