"""`tfrecord`: read TFRecord files by record number; verify the CRCs of each record.

A record is its length (8 bytes), the masked CRC-32C of these 8 bytes (4), the data, and the masked
CRC-32C of the data (4); numbers are little-endian. The number of records is not stored, so one scan
over all lengths finds where records begin, and caches this index.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.extras import extra
from jreader.readers import argument, op
from jreader.readers.columns import Array
from jreader.sources.file_checks import damaged
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import Paths
from jreader.sources.files.magic_numbers import first_bytes, known_format
from jreader.sources.files.records import Parse, RecordFiles
from jreader.sources.files.tf_examples import Feature, checked_features, example_of

_EXPECTED = "a TFRecord file"
_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
_FRAMING = _HEAD.size + _TAIL.size  # bytes of a record without data
_WINDOW, _STEP = 1 << 20, 1 << 12  # bytes to scan at a time: among small records, among large ones


@op
class tfrecord(RecordFiles[Any]):
    """Read the records of TFRecord files, one file after another.

    Each sample is the data of a record, as bytes; or, with `features`, a dict parsed from it as a
    `tf.train.Example`, without TensorFlow. The CRCs of every record are verified. The reader is
    indexed: you can shuffle it as a whole, shard it, and resume at any record.

    >>> from tempfile import TemporaryDirectory
    >>> import google_crc32c
    >>> def masked(data):
    ...     crc = google_crc32c.value(data)
    ...     return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    >>> def record(data):
    ...     size = struct.pack("<Q", len(data))
    ...     return size + masked(size) + data + masked(data)
    >>> with TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.tfrecord", "wb") as file:
    ...         _ = file.write(record(b"one") + record(b"two"))
    ...     list(tfrecord(f"{folder}/a.tfrecord")())
    [b'one', b'two']

    The first pass finds where records begin, on several threads for several files. For files of 16
    MB or more, it caches this index in `jreader/tfrecord` of `$XDG_CACHE_HOME` or `~/.cache`, until
    the files change. Unpack compressed files (GZIP, ZLIB) first: their records cannot be found by
    number.

    Args:
        paths: A file, a folder (its `.tfrecord` and `.tfrecords` files), a pattern such as
            `"data/train-*"`, or a list of these. The files of a folder or pattern are sorted by
            name. Or one part of a file, as `files(paths, parts=n)` yields it.
        features: What to read from an Example, by name: `bytes` for one text or image, a dtype such
            as `np.int64` or `np.float32` for one number, `(np.float32, (28, 28))` for an array of
            that shape, `[bytes]` or `[np.int64]` for any number of them (a list of bytes, or an
            array; empty where the feature is missing). None for the raw data of records.
        store: Caches blocks of remote files on disk (`Store`).
        block: The size of the blocks that `shuffle(blocks=)` reads, such as "4MB"; None for none.

    Raises:
        ModuleNotFoundError: `google-crc32c` is not installed (the extra `tfrecord`).
        TypeError: A path is neither a str nor an `os.PathLike`, or `features` is not a dict of
            those.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        DamagedData: Raised during a pass, after the records before: a record is truncated, does not
            match its CRC, or is not an Example; a file is empty or compressed, or has changed.
        ValueError: `block` is not a size; or, during a pass, an Example lacks a requested feature.
    """

    shown_call = "tfrecord(paths, features)"
    suffixes = (".tfrecord", ".tfrecords")
    kind = "tfrecord"
    features: Mapping[str, Feature] | None = argument(checked_features, default=None)

    def __init__(
        self,
        paths: Paths,
        features: Mapping[str, Any] | None = None,
        *,
        store: Store | None = None,
        block: int | str | None = None,
    ) -> None:
        _crc32c()
        self.keep(paths, features=features, store=store, block=block)

    def find(self, file: ByteFile) -> Array:
        """Return where records begin, and the end; an invalid header counts as a last record."""
        crc32c, offsets, at = _crc32c(), [0], 0
        data, base, window = b"", 0, _WINDOW
        while file.size - at >= _FRAMING:
            if at + _HEAD.size > base + len(data):
                base, data = at, file.read(at, min(window, file.size - at))
            length, crc = _HEAD.unpack_from(data, at - base)
            after = at + _FRAMING + length
            if after > file.size or _masked(crc32c(data[at - base : at - base + 8])) != crc:
                break
            window = _WINDOW if length < _WINDOW >> 4 else _STEP
            offsets.append(at := after)
        if at < file.size or not file.size:
            offsets.append(min(at + _FRAMING, file.size))
        return np.array(offsets, np.int64)

    def parser(self) -> Parse[Any]:
        """Return the function that verifies records and parses Examples."""
        return partial(_checked_records, _crc32c(), self.features)


def _crc32c() -> Callable[[bytes], int]:
    package = extra("google_crc32c", "tfrecord", "tfrecord needs google-crc32c")
    value: Callable[[bytes], int] = package.value
    return value


def _masked(crc: int) -> int:
    """Mask a CRC as TFRecord stores it, so that data may contain CRCs."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _checked_records(
    crc32c: Callable[[bytes], int],
    features: Mapping[str, Feature] | None,
    file: ByteFile,
    offset: int,
    data: bytes,
    begins: list[int],
    ends: list[int],
) -> Iterator[Any]:
    for begin, end in zip(begins, ends, strict=True):
        if end - begin < _FRAMING:
            raise _wrong(file, offset + begin, data[begin:end], f"has {end - begin} bytes")
        length, crc = _HEAD.unpack_from(data, begin)
        if _masked(crc32c(data[begin : begin + 8])) != crc:
            said = "has a length that does not match its CRC"
            raise _wrong(file, offset + begin, data[begin:end], said)
        if length != end - begin - _FRAMING:
            most = max(file.size - offset - begin - _FRAMING, 0)
            said = f"has {length:,} bytes of data, "
            said += f"and {most:,} follow" if length > most else f"not {end - begin - _FRAMING:,}"
            raise _wrong(file, offset + begin, data[begin:end], said)
        record = data[begin + _HEAD.size : end - _TAIL.size]
        if _masked(crc32c(record)) != _TAIL.unpack_from(data, end - _TAIL.size)[0]:
            said = f"has {length:,} bytes of data that do not match their CRC"
            raise _wrong(file, offset + begin, data[begin:end], said)
        if features is None:
            yield record
        else:
            yield example_of(record, features, file.path, offset + begin)


def _wrong(file: ByteFile, place: int, head: bytes, said: str) -> DamagedData:
    if not file.size:
        said = "it is empty; leave it out of the paths if its writer had no records for it"
    elif place == 0 and (known_format(head) is not None or head[:1] == b"\x78"):  # zlib
        said = first_bytes(head)
    else:
        said = f"the record at byte {place:,} {said}"
    return damaged(file.path, _EXPECTED, said)
