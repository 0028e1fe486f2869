"""Read the rows of array files: `.npy`, `.npz`, IDX, and the JSON file of MNIST tutorials.

Only the file names are fields of a node, so it is small to send to another process. The arrays that
it read stay in its `columns`, in the process.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from lzma import LZMAError
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import argument, choice, described, leaves, op, set_fields
from jreader.readers.columns import column_of
from jreader.readers.excerpts import is_mapped
from jreader.readers.joined_columns import concat_columns
from jreader.sources.columns import FileTable, Table, mismatch
from jreader.sources.file_checks import (
    call_text,
    check_path,
    check_paths,
    check_unpacked,
    damaged,
    most_unpacked,
    reading,
)
from jreader.sources.files.block_store import Store, checked_block, checked_store
from jreader.sources.files.copies import local_copy
from jreader.sources.files.file_readers import files_named, written
from jreader.sources.files.file_rows import npy_rows
from jreader.sources.files.index_cache import in_threads
from jreader.sources.files.stored_files import open_file
from jreader.sources.remote import is_remote

Array: TypeAlias = np.ndarray[Any, Any]

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_HEAD = 4  # bytes before the lengths of the axes
_MODES = ("train", "valid", "eval")
_PIXELS = 784


class _ArrayTable(FileTable[Any]):
    """Read the rows of arrays in files."""

    @property
    def read_whole(self) -> bool:
        """True if all arrays are in memory, and none is mapped from its file."""
        if "columns" not in vars(self):
            return False
        every = list(map(column_of, leaves(self.columns)))
        return not any(each.late or any(map(is_mapped, each.arrays)) for each in every)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _ArrayFiles(_ArrayTable):
    """Reads one column per argument: a file, or the shards in a list or pattern."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes of files to find in a folder; () if folders are not allowed."""

    paths: tuple[str, ...]
    shards: tuple[int, ...] = field(init=False, default=())
    """The number of files per column, if any column has several."""
    store: Store | None = field(default=None, metadata={"cursor": "never"})
    block: int | None = field(default=None, metadata={"cursor": "never"})

    def __init__(
        self,
        *paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        store: Store | None = None,
        block: int | str | None = None,
    ) -> None:
        call = f"{type(self).__name__}(*paths)"
        size = None if block is None else checked_block(f"block of {call}", block)
        groups = [files_named(call, path, self.suffixes) for path in paths or [()]]
        files = tuple(chain.from_iterable(groups))
        shards = tuple(map(len, groups)) if len(files) > len(groups) else ()
        set_fields(self, paths=files, shards=shards, store=checked_store(call, store), block=size)

    def read(self, path: str) -> Array:
        """Return the array of one file."""
        raise NotImplementedError(f"{type(self).__name__} must define read(self, path)")

    def opened(self) -> Any:
        """Return a column for each array, or the only one; in memory, or mapped."""
        parts = tuple(map(self._joined, self._groups()))
        return fitting(self, parts[0] if len(parts) == 1 else parts)

    def _groups(self) -> Iterator[tuple[str, ...]]:
        """Return the files of each column."""
        left = iter(self.paths)
        return (tuple(islice(left, many)) for many in self.shards or [1] * len(self.paths))

    def _joined(self, paths: Sequence[str]) -> Any:
        """Concatenate the arrays of shards; their rows need one dtype and shape."""
        shards = in_threads(self.read, paths) if is_remote(paths[0]) else [*map(self.read, paths)]
        if len(shards) == 1:
            return shards[0]
        first = shards[0]
        for path, shard in zip(paths, shards, strict=True):
            if not shard.ndim or (shard.dtype, shard.shape[1:]) != (first.dtype, first.shape[1:]):
                raise DamagedData(
                    f"{path} has {described(shard)}, and the first shard {described(first)}: the "
                    f"rows of all shards need one dtype and one shape. Give arrays of other rows "
                    f"one by one, as in {type(self).__name__}(images, labels)."
                )
        filled = [shard for shard in shards if len(shard)]
        return concat_columns(filled) if filled else first

    def __repr__(self) -> str:
        """Return the call that makes this reader; of many shards, the first and the last."""
        block = [] if self.block is None else [f"block={self.block}"]
        return f"{type(self).__name__}({', '.join([*map(written, self._groups()), *block])})"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class npy(_ArrayFiles):
    """Read the rows of `.npy` files, side by side; the files are mapped into memory.

    A pass loads only the rows that it needs, and fetches those of remote files (`s3://`,
    `https://`) by byte range. The samples of one file are its rows; those of several files are
    tuples of rows. Rows are read-only.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/squares.npy", np.arange(4) ** 2)
    ...     [int(row) for row in npy(f"{folder}/squares.npy")()]
    [0, 1, 4, 9]

    An array may be split into several files (shards), which are read as one: pass a list of them, a
    pattern, or a folder.

    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x-0.npy", np.arange(3))
    ...     np.save(f"{folder}/x-1.npy", np.arange(2))
    ...     [int(row) for row in npy(f"{folder}/x-*.npy")()]
    [0, 1, 2, 0, 1]

    Args:
        *paths: At least one file, or a list of shards, or a pattern such as `"images-*.npy"`, or a
            folder (its `.npy` files). The shards of a pattern or folder are sorted by name. All
            arrays need the same number of rows, shards taken together.
        store: Caches blocks of remote files on disk (`Store`).
        block: The size of the blocks that `shuffle(blocks=)` reads, such as "4MB" of the largest
            array; None for no blocks.

    Raises:
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: `block` is not a size.
        DamagedData: Raised when a pass begins, if a file is truncated, has another format, holds
            Python objects, or has a different number of rows, or the rows of a shard differ from
            those of the first.
    """

    suffixes = (".npy",)

    def read(self, path: str) -> Any:
        """Return the array, mapped into memory, or the rows of a remote one."""
        if is_remote(path) and (rows := npy_rows(open_file(path, self.store))) is not None:
            return rows
        path = local_copy(path, self.store)
        with reading(path, "a .npy file of numbers"):
            # np.load would take a file of any other format for a pickle
            return np.asarray(np.lib.format.open_memmap(path, mode="r"))


@op
class npz(_ArrayTable):
    """Read the rows of the arrays in an `.npz` archive, side by side.

    The archive is read into memory when the first pass begins, since it cannot be mapped. For
    arrays that do not fit into memory, use `npy`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/digits.npz", image=np.zeros((2, 784)), label=np.array([5, 0]))
    ...     [int(sample["label"]) for sample in npz(f"{folder}/digits.npz")()]
    ...     [int(label) for label, image in npz(f"{folder}/digits.npz", "label", "image")()]
    [5, 0]
    [5, 0]

    Args:
        path: The archive.
        *names: The names of the arrays to read. Samples are then tuples in the order of the names,
            or bare rows for a single name. Without names, samples are dicts of all arrays.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: Raised when a pass begins, if the archive has no array of one of the names.
        DamagedData: Raised when a pass begins, if the file is truncated or has another format.
    """

    path: str
    names: tuple[str, ...]

    def __init__(self, path: str | os.PathLike[str], *names: str) -> None:
        (path,) = check_paths("npz(path, *names)", (path,), remote=True)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    f"npz(path, *names) needs names of arrays, not {name!r}: type "
                    f"npz(path, 'image', 'label')."
                )
        set_fields(self, path=path, names=names)

    def opened(self) -> Any:
        """Return the arrays of the samples."""
        path = local_copy(self.path)
        with Path(path).open("rb") as file:  # given a path, is_zipfile hides errors
            is_zip = zipfile.is_zipfile(file)
        if not is_zip:
            raise damaged(self.path, "an .npz archive", "it does not end as a zip file does")
        with reading(self.path, "an .npz archive of numbers"):
            archive = np.load(path, allow_pickle=False)
        with archive:
            if missing := [name for name in self.names if name not in archive.files]:
                raise ValueError(
                    f"{self!r} asks for {', '.join(map(repr, missing))}, which is not among the "
                    f"arrays of the archive: {', '.join(map(repr, archive.files))}."
                )
            parts = {name: self._member(archive, name) for name in self.names or archive.files}
        if not self.names:
            return fitting(self, parts)
        columns = tuple(parts[name] for name in self.names)
        return fitting(self, columns if len(columns) > 1 else columns[0])

    def _member(self, archive: Any, name: str) -> Array:
        """Return an array of the archive.

        Raises:
            DamagedData: It cannot be unpacked, or does not hold numbers.
        """
        expected = f"an .npz archive of numbers, with an array {name!r}"
        with reading(self.path, expected):
            whole = {info.filename: info for info in archive.zip.infolist()}
            info = whole.get(f"{name}.npy") or whole[name]
            check_unpacked(self.path, info.file_size, info.compress_size)
            try:
                array: Array = archive[name]
            except (RuntimeError, LZMAError, OSError, MemoryError) as error:  # from other methods
                raise damaged(self.path, expected, str(error)) from error
            return array

    def __repr__(self) -> str:
        """Return the call that makes this reader."""
        return call_text(self, self.path, *self.names)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class idx(_ArrayFiles):
    """Read the rows of IDX files, the format of MNIST, side by side; plain or gzip.

    The samples of one file are its rows; `idx(images, labels)` gives pairs. Values are as stored,
    of any type and rank, in native byte order. A plain file of bytes is mapped into memory; any
    other file is read whole when the first pass begins.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     _ = path.write_bytes(bytes([0, 0, 0x08, 1]) + bytes([0, 0, 0, 3]) + bytes([5, 0, 4]))
    ...     [int(label) for label in idx(path)()]
    [5, 0, 4]

    Args:
        *paths: At least one file, or a list of shards, or a pattern such as `"images-*"`, whose
            files are sorted by name. All arrays need the same number of rows, shards taken
            together.
        store: Caches blocks of remote files on disk (`Store`), to copy them from.
        block: As for `npy`.

    Raises:
        FileNotFoundError: A file does not exist, or a pattern has none.
        DamagedData: Raised when a pass begins, if a file is truncated, has another format, is
            longer than its header says, or has another number of rows.
    """

    def read(self, path: str) -> Array:
        """Return the array: a view of the mapped file, or a copy in native byte order."""
        path = local_copy(path, self.store)
        with reading(path, "an IDX file"):
            head = _file_bytes(path, _IDX_HEAD)[:_IDX_HEAD].tobytes()
            if len(head) < _IDX_HEAD or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
                raise ValueError(
                    f"it begins with the bytes [{head.hex(' ')}], not with 00 00, a type of 08 09 "
                    f"0b 0c 0d 0e, and the number of axes"
                )
            dtype, begin = np.dtype(_IDX_TYPES[head[2]]), _IDX_HEAD + 4 * head[3]
            axes = _file_bytes(path, begin)[_IDX_HEAD:begin].tobytes()
            shape = [int.from_bytes(axes[at : at + 4]) for at in range(0, len(axes), 4)]
            expected = begin + math.prod(shape) * dtype.itemsize
            stored = _file_bytes(path, expected + 1)  # one byte more, to detect excess data
            if len(stored) != expected:
                kind = f"{dtype.name}{shape}"
                raise ValueError(f"it has {len(stored)} bytes, and {kind} would make {expected}")
            numbers = stored[begin:].view(dtype).reshape(shape)
            return numbers.astype(dtype.newbyteorder("="), copy=False)


@op
class mnist_json(_ArrayTable):
    """Read the digits in the `mnist.json.gz` of Paddle's tutorials.

    Each sample is an image, float32[784], and its label, an int64; values are as stored. The file
    is a JSON list of three pairs `[images, labels]`, for training, validation and evaluation. It is
    read whole when the first pass begins, which takes seconds: prefer `idx` where you can.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mnist.json")
    ...     _ = path.write_text(json.dumps([[[[0.5] * 784], [7]], [[], []], [[], []]]))
    ...     [(image.shape, int(label)) for image, label in mnist_json(path)()]
    [((784,), 7)]

    Args:
        path: The file, gzip or plain.
        mode: Which of the three pairs to read: "train", "valid" or "eval".

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: `mode` is not one of the three.
        DamagedData: Raised when a pass begins, if the file is truncated or has another form.
    """

    path: str = argument(partial(check_path, remote=True))
    mode: str = choice(*_MODES, default="train")

    def opened(self) -> Any:
        """Return images, float32[n, 784], and labels, int64[n]."""
        path = local_copy(self.path)
        with reading(self.path, "three pairs [images, labels] in JSON"):
            pairs = json.loads(_file_bytes(path).tobytes(), parse_float=_Floats().__getitem__)
            if not isinstance(pairs, list) or len(pairs) != len(_MODES):
                raise ValueError("it does not hold a list of three")
            images, labels = pairs[_MODES.index(self.mode)]
            if not set(map(type, labels)) <= {int}:
                raise ValueError(f"not all labels of {self.mode!r} are ints")
            pixels = np.asarray(images, np.float32).reshape(len(images), _PIXELS)
            return fitting(self, (pixels, np.asarray(labels, np.int64)))

    def __repr__(self) -> str:
        """Return the call that makes this reader."""
        return call_text(self, self.path, self.mode)


class _Floats(dict[str, float]):
    """Caches one float per distinct text: 256 objects instead of 55 million (1.3 GB)."""

    def __missing__(self, written: str) -> float:
        return self.setdefault(written, float(written))


def fitting(node: Table[Any], columns: Any) -> Any:
    """Return the columns if they have the same number of rows; else raise DamagedData."""
    if wrong := mismatch(columns):
        raise DamagedData(f"{node!r} {wrong}")
    return columns


def _file_bytes(path: str, most: int | None = None) -> Array:
    """Return the bytes of a file: unpacked from gzip, or mapped into memory.

    Args:
        path: The file.
        most: The most bytes to unpack; None for all.

    Raises:
        DamagedData: Unpacking would fill the memory (`check_unpacked`).
    """
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        if most is not None:
            check_unpacked(path, most, size)
        with gzip.open(path) as opened:
            data = opened.read(most_unpacked(size) + 1 if most is None else most)
            check_unpacked(path, len(data), size)
            return np.frombuffer(data, np.uint8)
    if not size:
        return np.empty(0, np.uint8)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, np.uint8, mode="r"))
