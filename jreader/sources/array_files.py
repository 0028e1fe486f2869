"""Samples that are the rows of array files: `.npy`, `.npz`, IDX, and the tutorials' MNIST in JSON.

A node keeps only names of files, so it travels light; what it read is kept beside its fields
(`cached_property`), for this process alone.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import Node, leaves
from jreader.readers.identities import is_mapped
from jreader.sources.changed_files import Filed
from jreader.sources.columns import Table, mismatch

Array: TypeAlias = np.ndarray[Any, Any]

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_HEAD = 4  # bytes before the lengths of the axes
_MODES = ("train", "valid", "eval")
_PIXELS = 784


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _Files(Filed[Any], Table[Any]):
    """One column per file; the op says how a file becomes an array."""

    paths: tuple[str, ...]

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        """Refuses what is no file."""
        object.__setattr__(self, "paths", check_paths(f"{type(self).__name__}(*paths)", paths))

    def read(self, path: str) -> Array:
        """The column of one file."""
        raise NotImplementedError(f"{type(self).__name__} must define read(self, path)")

    @cached_property
    def columns(self) -> Any:
        """The array of one file, or the arrays of several, read when they are first asked for."""
        self.check_files()
        parts = tuple(map(self.read, self.paths))
        return fitting(self, parts[0] if len(parts) == 1 else parts)

    def __repr__(self) -> str:
        """The paths."""
        return called(self, *self.paths)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class npy(_Files):
    """The rows of `.npy` files side by side, mapped into memory: what is not read is not loaded.

    One file gives bare rows, several give tuples. Rows cannot be written to.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/squares.npy", np.arange(4) ** 2)
    ...     [int(row) for row in npy(f"{folder}/squares.npy")()]
    [0, 1, 4, 9]

    Args:
        *paths: At least one file.

    Raises:
        FileNotFoundError: A file is not there.
        DamagedData: When read: a file is truncated, of another format, or of Python objects.
    """

    def read(self, path: str) -> Array:
        """The array, mapped."""
        with reading(path, "a .npy file of numbers"):
            # np.load would do the same, but calls every foreign file a pickle
            return np.asarray(np.lib.format.open_memmap(path, mode="r"))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class npz(Filed[Any], Table[Any]):
    """The rows of the arrays of an `.npz` archive, read whole when the first pass begins.

    An archive cannot be mapped into memory; `npy` can, for what is too large to be read whole.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/digits.npz", image=np.zeros((2, 784)), label=np.array([5, 0]))
    ...     [int(sample["label"]) for sample in npz(f"{folder}/digits.npz")()]
    ...     [int(label) for label, image in npz(f"{folder}/digits.npz", "label", "image")()]
    [5, 0]
    [5, 0]

    Args:
        path: The archive.
        *names: The columns of the samples, in order: tuples, or bare rows for one name. Without
            names, samples are dicts of all arrays.

    Raises:
        FileNotFoundError: The file is not there.
        ValueError: When read: the archive has no array of one of the names.
        DamagedData: When read: the file is truncated or of another format.
    """

    path: str
    names: tuple[str, ...]
    read_whole = True

    def __init__(self, path: str | os.PathLike[str], *names: str) -> None:
        """Refuses what is no file, and no name."""
        (path,) = check_paths("npz(path, *names)", (path,))
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    f"npz(path, *names) needs names of arrays, not {name!r}: type "
                    f"npz(path, 'image', 'label')."
                )
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "names", names)

    @cached_property
    def columns(self) -> Any:
        """The arrays, read when they are first asked for."""
        self.check_files()
        if not zipfile.is_zipfile(self.path):
            raise damaged(self.path, "an .npz archive", "it does not end as a zip file does")
        with reading(self.path, "an .npz archive of numbers"):
            archive = np.load(self.path, allow_pickle=False)
        with archive:
            if missing := [name for name in self.names if name not in archive.files]:
                raise ValueError(
                    f"{self!r} asks for {', '.join(map(repr, missing))}, which is not among the "
                    f"arrays of the archive: {', '.join(map(repr, archive.files))}."
                )
            with reading(self.path, "an .npz archive of numbers"):
                parts = {name: archive[name] for name in self.names or archive.files}
        if not self.names:
            return fitting(self, parts)
        columns = tuple(parts[name] for name in self.names)
        return fitting(self, columns if len(columns) > 1 else columns[0])

    def __repr__(self) -> str:
        """The path and the names."""
        return called(self, self.path, *self.names)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class idx(_Files):
    """The rows of IDX files side by side, the format of MNIST: plain or gzip, of any type and rank.

    One file gives bare rows; `idx(images, labels)` gives the pairs. Numbers are as stored, in the
    byte order of the machine. Plain files of bytes are mapped into memory, others are read whole.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels-idx1-ubyte")
    ...     _ = path.write_bytes(bytes([0, 0, 0x08, 1]) + bytes([0, 0, 0, 3]) + bytes([5, 0, 4]))
    ...     [int(label) for label in idx(path)()]
    [5, 0, 4]

    Args:
        *paths: At least one file.

    Raises:
        FileNotFoundError: A file is not there.
        DamagedData: When read: a file is truncated, of another format, or longer than it says.
    """

    @property
    def read_whole(self) -> bool:  # type: ignore[override]  # a flag elsewhere
        """Whether no column is a view of its file."""
        return "columns" in vars(self) and not any(map(is_mapped, leaves(self.columns)))

    def read(self, path: str) -> Array:
        """The array: a view of the map, or a copy in native byte order."""
        with reading(path, "an IDX file"):
            stored = _bytes(path)
            head = stored[:_IDX_HEAD].tobytes()
            if len(head) < _IDX_HEAD or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
                raise ValueError(
                    f"it begins with the bytes [{head.hex(' ')}], not with 00 00, a type of 08 09 "
                    f"0b 0c 0d 0e, and the number of axes"
                )
            dtype, begin = np.dtype(_IDX_TYPES[head[2]]), _IDX_HEAD + 4 * head[3]
            shape = [
                int.from_bytes(stored[at : at + 4].tobytes()) for at in range(_IDX_HEAD, begin, 4)
            ]
            expected = begin + math.prod(shape) * dtype.itemsize
            if len(stored) != expected:
                kind = f"{dtype.name}{shape}"
                raise ValueError(f"it has {len(stored)} bytes, and {kind} would make {expected}")
            numbers = stored[begin:].view(dtype).reshape(shape)
            return numbers.astype(dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class mnist_json(Filed[tuple[Array, np.int64]], Table[tuple[Array, np.int64]]):
    """The digits of the tutorials' `mnist.json.gz`: samples of a float32[784] and an int64.

    The file is a JSON list of three pairs `[images, labels]`, for training, validation and
    evaluation; numbers are as stored. It is read whole when the first pass begins, which takes
    seconds for the original: where you can choose, choose `idx`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "mnist.json")
    ...     _ = path.write_text(json.dumps([[[[0.5] * 784], [7]], [[], []], [[], []]]))
    ...     [(image.shape, int(label)) for image, label in mnist_json(path)()]
    [((784,), 7)]

    Args:
        path: The file, gzip or plain.
        mode: "train", "valid" or "eval".

    Raises:
        FileNotFoundError: The file is not there.
        ValueError: `mode` is none of the three.
        DamagedData: When read: the file is truncated, or not of this form.
    """

    path: str
    mode: str = "train"
    read_whole = True

    def __post_init__(self) -> None:
        """Refuses what is no file, and no mode."""
        (path,) = check_paths("mnist_json(path, mode)", (self.path,))
        object.__setattr__(self, "path", path)
        if self.mode not in _MODES:
            raise ValueError(
                f"mnist_json(path, mode) needs a mode of {', '.join(_MODES)}, not {self.mode!r}."
            )

    @cached_property
    def columns(self) -> Any:
        """Images and labels, read when they are first asked for."""
        self.check_files()
        with reading(self.path, "three pairs [images, labels] in JSON"):
            pairs = json.loads(_bytes(self.path).tobytes(), parse_float=_Floats().__getitem__)
            if not isinstance(pairs, list) or len(pairs) != len(_MODES):
                raise ValueError("it does not hold a list of three")
            images, labels = pairs[_MODES.index(self.mode)]
            if not set(map(type, labels)) <= {int}:
                raise ValueError(f"not all labels of {self.mode!r} are ints")
            pixels = np.asarray(images, np.float32).reshape(len(images), _PIXELS)
            return fitting(self, (pixels, np.asarray(labels, np.int64)))

    def __repr__(self) -> str:
        """The path and the mode."""
        return called(self, self.path, self.mode)


class _Floats(dict[str, float]):
    """A float for each way to write one: 256 levels, not 55 million objects (1.3 GB)."""

    def __missing__(self, written: str) -> float:
        return self.setdefault(written, float(written))


def called(node: Node[Any], *arguments: object) -> str:
    """The call that makes a node of these arguments."""
    return f"{type(node).__name__}({', '.join(map(repr, arguments))})"


def check_paths(call: str, paths: tuple[Any, ...]) -> tuple[str, ...]:
    """The paths as text; what is no path, and no file, is refused where it was written.

    >>> check_paths("text(*paths)", ())
    Traceback (most recent call last):
    TypeError: text(*paths) needs at least one path.
    """
    if not paths:
        raise TypeError(f"{call} needs at least one path.")
    names = []
    for path in paths:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(name, str):
            hint = ": unpack it, as in *paths" if isinstance(path, (list, tuple)) else ""
            raise TypeError(f"{call} needs a str or a path, not {path!r}{hint}.")
        if not Path(name).is_file():
            why = "is not a file" if Path(name).exists() else "does not exist"
            raise FileNotFoundError(
                f"{call} cannot read {name!r}, which {why}. Check the spelling, and the folder "
                f"that the program runs in, {Path.cwd()}."
            )
        names.append(name)
    return tuple(names)


@contextmanager
def reading(path: str, expected: str) -> Iterator[None]:
    """What reading a file raises where its bytes are not of its format, as `DamagedData`."""
    try:
        yield
    except (
        *(ValueError, TypeError, EOFError, OverflowError, RecursionError, SyntaxError),
        *(gzip.BadGzipFile, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise damaged(path, expected, str(error)) from error


def damaged(path: str, expected: str, seen: str) -> DamagedData:
    """The error for a file that is not what it should be."""
    return DamagedData(
        f"{path} is truncated, or not {expected}: {seen.rstrip('.')}. Fetch it again, or check "
        f"that it is the file you meant."
    )


def fitting(node: Table[Any], columns: Any) -> Any:
    """The columns, if they can stand side by side."""
    if wrong := mismatch(columns):
        raise DamagedData(f"{node!r} {wrong}")
    return columns


def _bytes(path: str) -> Array:
    """The bytes of a file, unpacked if they are gzip, mapped into memory otherwise."""
    with Path(path).open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        with gzip.open(path) as unpacked:
            return np.frombuffer(unpacked.read(), np.uint8)
    if not Path(path).stat().st_size:
        return np.empty(0, np.uint8)  # what is empty cannot be mapped
    return np.asarray(np.memmap(path, np.uint8, mode="r"))
