"""Shards of tar in WebDataset's layout: a member per field of a sample, named by its key."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import described
from jreader.sinks.sample_fields import cannot_write
from jreader.sinks.shard_writers import Append, Format
from jreader.sources.stored_columns import npy_head
from jreader.sources.tar_files import split_name

_BLOCK, _END = 512, 10240
_FAST = 100  # characters of a name that fit in a header
_KEY = "__key__"
_HELD = "fields are bytes, texts, numbers, or JSON ('meta.json'): encode it in a .map(fn) before"
_FOR_ARRAYS = "arrays have extensions that end in npy: call it {!r}"
_cannot_write = partial(cannot_write, "tar")


def tar_shards(samples: Sequence[Any], name: str) -> Format:
    """Return the format that writes samples to tar archives.

    Args:
        samples: The first samples, at least one.
        name: The file name.

    Raises:
        FeedMismatch: They are not dicts of values that tar can hold.
    """
    _members(samples[0], 0)
    return Format((name,), _tar_shard)


@contextmanager
def _tar_shard(paths: Sequence[Path]) -> Iterator[Append]:
    """Open one archive, which ends with zeros."""
    latest: str | None = None
    with paths[0].open("xb") as file:

        def append(batch: Sequence[Any], first: int) -> None:
            nonlocal latest
            parts: list[bytes] = []
            for number, sample in enumerate(batch, first):
                key, fields = _members(sample, number)
                if key == latest:
                    raise _cannot_write(
                        number,
                        f"its {_KEY!r} is {key!r}, the same as that of the sample before it, so "
                        f"they would be read as one. Give each a key of its own, or leave {_KEY!r} "
                        "out.",
                    )
                latest = key
                for extension, content in fields:
                    parts += [_header(f"{key}.{extension}", len(content)), content]
                    parts.append(bytes(-len(content) % _BLOCK))
            file.write(b"".join(parts))

        yield append
        file.write(bytes(2 * _BLOCK))
        file.write(bytes(-file.tell() % _END))


def _members(sample: Any, number: int) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the key of a sample, and the bytes of each of its fields."""
    if not isinstance(sample, dict) or not {*sample} - {_KEY}:
        raise _cannot_write(
            number,
            f"it is {described(sample)}, and needs to be a dict of extensions, as in .map(lambda "
            "sample: {'jpg': sample[0], 'cls': sample[1]}).",
        )
    key = sample.get(_KEY)
    if key is None:
        key = f"{number:09}"
    elif not _is_key(key):
        raise _cannot_write(
            number,
            f"its {_KEY!r} is {key!r}, and needs to be a text that is no folder, without a dot "
            "behind the last slash (what follows that dot would be read as an extension), and not "
            "in a folder such as '__meta__/', which readers leave out.",
        )
    fields = [
        (name, _field_bytes(name, value, number)) for name, value in sample.items() if name != _KEY
    ]
    return key, fields


def _is_key(key: Any) -> bool:
    if not isinstance(key, str) or "\0" in key:
        return False
    return split_name(f"{key}.x") == (key, "x") and _encodes(key)


def _encodes(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _field_bytes(name: Any, value: Any, number: int) -> bytes:
    """Encode a field: by its type, or, if that is not enough, by its extension."""
    _check_extension(name, number)
    if isinstance(value, bytes):
        return value
    kind = name.rpartition(".")[2]
    try:
        if isinstance(value, str):
            return value.encode()
        if kind == "json":
            return json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise _refused(name, value, number, f"that cannot be encoded ({error})") from error
    if kind == "npy":
        return _npy_bytes(name, value, number)
    if isinstance(value, (float, np.floating)):
        return repr(float(value)).encode()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value)).encode()
    arrays = isinstance(value, (np.ndarray, np.generic))
    raise _refused(name, value, number, _FOR_ARRAYS.format(f"{name}.npy") if arrays else _HELD)


def _check_extension(name: Any, number: int) -> None:
    plain = isinstance(name, str) and bool(name) and name == name.lower()
    if not plain or {"/", "\0"} & {*name} or not _encodes(name):
        raise _cannot_write(
            number,
            f"{name!r} is no extension. Name fields in lower case without slashes, such as 'jpg', "
            "'cls', 'txt', 'image.npy'.",
        )


def _npy_bytes(name: str, value: Any, number: int) -> bytes:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise _refused(name, value, number, "files of npy hold arrays of numbers")
    if array.ndim and not array.dtype.names:
        return _npy_head(array.dtype, array.shape) + array.tobytes()
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


@lru_cache(256)  # building one takes longer than everything else
def _npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return npy_head(dtype, shape[1:], shape[0])


def _refused(name: str, value: Any, number: int, why: str) -> FeedMismatch:
    return _cannot_write(number, f"field {name!r} is {described(value)}, and {why}.")


def _header(name: str, size: int) -> bytes:
    """Return the header of a member; `tarfile` takes ten times as long, and is for long names."""
    if len(name) > _FAST or not name.isascii() or size >= 1 << 33:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o644
        return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    named, sized = name.encode().ljust(_FAST, b"\0"), b"%011o\0" % size
    total = b"%06o\0 " % (sum(named) + sum(sized) + _SUM)
    return b"".join((named, _OWNER, sized, _TIME, total, _REST))


_OWNER, _TIME = b"0000644\0" + b"0000000\0" * 2, b"00000000000\0"
_REST = (b"0" + bytes(100) + b"ustar\00000").ljust(_BLOCK - 156, b"\0")
_SUM = sum(_OWNER) + sum(_TIME) + sum(_REST) + 8 * 32  # the sum itself counts as spaces
