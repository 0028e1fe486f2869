"""MDS shards and their `index.json`, written by hand from the text of the format.

A shard is the number of its samples, the bytes at which each begins and the last one ends (all
uint32), a JSON text that readers skip, and the samples. A sample is the sizes of its columns of no
fixed size (uint32), and the columns, in the order of their names.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

CODES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}


def array_bytes(array: Any, dtype: str, shape: str) -> bytes:
    head = b"" if dtype else bytes([CODES[array.dtype.name]])
    if not shape:
        width = next(width for width in range(4) if max(array.shape) < 1 << (8 << width))
        sizes = np.array(array.shape).astype(f"<u{1 << width}")
        head += bytes([array.ndim << 2 | width]) + sizes.tobytes()
    return head + array.tobytes()


def picture_bytes(picture: tuple[str, Any]) -> bytes:
    """A raw picture: its mode, and its pixels, of shape [H, W] or [H, W, bands]."""
    mode, pixels = picture
    head = struct.pack("<III", pixels.shape[1], pixels.shape[0], len(mode))
    return head + mode.encode() + pixels.tobytes()


def list_bytes(parts: Sequence[bytes], head: bytes) -> bytes:
    return head + struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts)) + b"".join(parts)


ENCODE: dict[str, Callable[[Any], bytes]] = {
    "bytes": bytes,
    "str": str.encode,
    "int": lambda number: struct.pack("<q", number),
    "str_int": lambda number: str(number).encode(),
    "str_float": lambda number: str(number).encode(),
    "str_decimal": lambda number: str(number).encode(),
    "json": lambda value: json.dumps(value).encode(),
    "pkl": pickle.dumps,
    "jpeg": bytes,
    "png": bytes,
    "pil": picture_bytes,
    "list[jpeg]": lambda parts: list_bytes(parts, bytes(4)),
    "list[png]": lambda parts: list_bytes(parts, bytes(4)),
    "list[pil]": lambda parts: list_bytes([*map(picture_bytes, parts)], bytes(4)),
    "jpeg_array": lambda parts: list_bytes(parts, b""),
    "jpegarray": lambda parts: list_bytes(parts, b""),
    **dict.fromkeys(CODES, np.generic.tobytes),
}


def encoded(encoding: str, value: Any) -> bytes:
    if encoding.startswith("ndarray"):
        _, dtype, shape, *_ = f"{encoding}::".split(":")
        return array_bytes(value, dtype, shape)
    return ENCODE[encoding](value)


def fixed_size(encoding: str) -> int | None:
    """The bytes of a column of that encoding, if they do not differ."""
    kind, dtype, shape, *_ = f"{encoding}::".split(":")
    if kind == "ndarray":
        sizes = [np.dtype(dtype).itemsize, *map(int, shape.split(","))] if shape else []
        return int(np.prod(sizes)) if sizes else None
    if encoding == "int":
        return 8
    return np.dtype(encoding).itemsize if encoding in CODES else None


def shard_bytes(columns: Mapping[str, str], samples: Iterable[Mapping[str, Any]]) -> bytes:
    names, rows = sorted(columns), []
    for sample in samples:
        parts = [encoded(columns[name], sample[name]) for name in names]
        varying = [
            len(part)
            for name, part in zip(names, parts, strict=True)
            if fixed_size(columns[name]) is None
        ]
        rows.append(struct.pack(f"<{len(varying)}I", *varying) + b"".join(parts))
    text = b'{"format": "mds"}'
    first = 4 * (len(rows) + 2) + len(text)
    begins = accumulate(map(len, rows), initial=first)
    return struct.pack(f"<{len(rows) + 2}I", len(rows), *begins) + text + b"".join(rows)


def packed_bytes(compression: str, data: bytes) -> bytes:
    kind = compression.partition(":")[0]
    if kind in ("gz", "bz2"):
        return gzip.compress(data) if kind == "gz" else bz2.compress(data)
    import pyarrow as pa  # noqa: PLC0415  # an extra

    packed: bytes = pa.Codec({"br": "brotli"}.get(kind, kind)).compress(data, asbytes=True)
    return packed


def file_entry(name: str, data: bytes, hashes: Sequence[str]) -> dict[str, Any]:
    sums = {each: hashlib.new(each, data).hexdigest() for each in hashes}
    return {"basename": name, "bytes": len(data), "hashes": sums}


def write_mds(
    folder: Path | str,
    columns: Mapping[str, str],
    samples: Iterable[Mapping[str, Any]],
    *,
    per_shard: int = 4,
    compression: str | None = None,
    hashes: Sequence[str] = (),
) -> Path:
    """Writes a folder of shards and its index; the folder."""
    rows, entries, folder = list(samples), [], Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, low in enumerate(range(0, len(rows), per_shard)):
        some = rows[low : low + per_shard]
        name, data, packed = f"shard.{number:05}.mds", shard_bytes(columns, some), None
        raw = file_entry(name, data, hashes)
        if compression:
            name, data = f"{name}.{compression.partition(':')[0]}", packed_bytes(compression, data)
            packed = file_entry(name, data, hashes)
        (folder / name).write_bytes(data)
        entries.append(
            {
                "column_encodings": [columns[each] for each in sorted(columns)],
                "column_names": sorted(columns),
                "column_sizes": [fixed_size(columns[each]) for each in sorted(columns)],
                "compression": compression,
                "format": "mds",
                "hashes": list(hashes),
                "raw_data": raw,
                "samples": len(some),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": packed,
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return folder


def changed_index(folder: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Changes what an index says of its shards."""
    path = folder / "index.json"
    index = json.loads(path.read_text())
    change(index["shards"])
    path.write_text(json.dumps(index))
