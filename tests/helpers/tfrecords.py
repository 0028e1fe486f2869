"""TFRecord files and Examples, written by hand from the text of the formats."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """One record."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def write_tfrecord(path: Path, records: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(map(framed, records)))
    return path


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while True:
        parts.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(parts)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: Mapping[str, Any], *, packed: bool = True) -> bytes:
    """An Example of lists: of bytes, of floats, of ints (an empty list has no kind)."""
    entries = b""
    for name, values in features.items():
        feature = b""
        if values and isinstance(values[0], bytes):
            feature = field(1, b"".join(field(1, value) for value in values))
        elif values and isinstance(values[0], float):
            each = [struct.pack("<f", value) for value in values]
            content = (
                field(1, b"".join(each)) if packed else b"".join(b"\x0d" + one for one in each)
            )
            feature = field(2, content)
        elif values:
            each = list(map(varint, values))
            content = (
                field(1, b"".join(each)) if packed else b"".join(b"\x08" + one for one in each)
            )
            feature = field(3, content)
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)
