"""Indices of files, such as where records begin: found once, in parallel, and kept for later runs.

An index is an array of int64, a file of its own in the cache folder. Its name says what it was made
of: the path of the file, its state (size and time of the last change), and what was asked. So a
file that has changed gets a new one. It is written under another name first, and an index that is
not whole is made anew: neither a kill nor a second process that makes the same index does harm.
Where the folder cannot be written, the index is found again by each process, as it is for files
that are soon read.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock, current_thread
from typing import Any, TypeVar

import numpy as np

from jreader.cores import usable_cores
from jreader.progress import Bar
from jreader.readers.planes import Array
from jreader.sources.cache_folders import cache_folder
from jreader.sources.far_systems import is_far
from jreader.sources.files.byte_ranges import ByteFile

S = TypeVar("S")
T = TypeVar("T")

_WORTH = 1 << 24  # bytes of all files: less are looked through in 10 ms
_NAME = "jreader indices"  # of threads


def kept(
    kind: str,
    files: Sequence[ByteFile],
    find: Callable[[ByteFile], Array],
    fits: Callable[[ByteFile, Array], bool] = lambda _file, _index: True,
    *,
    asked: str = "",
) -> list[Array]:
    """For each file, its index: the one that was kept, or what `find` finds, which is kept.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "bits").write_bytes(b"0110")
    ...     ones = lambda file: np.flatnonzero(np.array(list(file.read(0, file.size))) == ord("1"))
    ...     kept("ones", [open_file(f"{folder}/bits")], ones)
    [array([1, 2])]

    Args:
        kind: The folder of the cache folder that holds such indices.
        files: The files.
        find: Returns the index of a file, an array of int64. It is called on several threads for
            many files; for few, it may look through parts of one with `in_threads`.
        fits: Whether an index that was kept can be that of a file; if not, it is made anew.
        asked: What the index depends on besides the file.

    Raises:
        DamagedData: `find` raises it, of the first file in order for which it does.
    """
    keep = sum(file.size for file in files) >= _WORTH
    folder = cache_folder() / kind
    # a map would hold a file descriptor for each of many files
    mapped = len(files) == 1

    def found(file: ByteFile) -> Array:
        watched = _Watched(file, bar)
        index = _checked(find(watched))
        watched.told(file.size)
        return index

    def index_of(file: ByteFile) -> Array:
        if not keep:
            return found(file)
        name = _name(file, asked)
        index = _load(folder / name, mapped=mapped)
        if index is None or not fits(file, index):
            index = found(file)
            _save(folder, name, index)
        else:
            bar.add(file.size)
        return index

    with Bar(f"finding {kind}", sum(file.size for file in files), "B") as bar:
        # few files are each looked through by all threads, of many files each thread has its own
        every = map if len(files) < _threads() else in_threads
        return list(every(index_of, files))


class _Watched:
    """A file whose bytes move a bar as they are read, each once."""

    def __init__(self, file: ByteFile, bar: Bar) -> None:
        self._file, self._bar, self._told, self._turn = file, bar, 0, Lock()
        self.path, self.size, self.stamp, self.near = file.path, file.size, file.stamp, file.near

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.read(offset, size)
        if not self._bar.off:
            with self._turn:
                self._move(min(self._told + size, self.size))
        return data

    def told(self, upto: int) -> None:
        """So many bytes of it are done, read or passed over."""
        with self._turn:
            self._move(upto)

    def _move(self, upto: int) -> None:
        self._bar.add(upto - self._told)
        self._told = upto


def in_threads(fn: Callable[[S], T], tasks: Sequence[S]) -> list[T]:
    """The results of `fn`, in order, each found on one of several threads.

    Inside such a thread, all are found by that thread.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    if len(tasks) < 2 or current_thread().name.startswith(_NAME):
        return list(map(fn, tasks))
    with ThreadPoolExecutor(min(_threads(), len(tasks)), _NAME) as executor:
        return list(executor.map(fn, tasks))


def _threads() -> int:
    return min(usable_cores(), 8)


def _checked(index: Any) -> Array:
    return np.ascontiguousarray(index, np.int64)


def _name(file: ByteFile, asked: str) -> str:
    """The name of the index of a file: what it is of, and of which state of the file."""
    path = file.path if is_far(file.path) else os.path.realpath(file.path)
    of = f"{path} {asked}"
    key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return f"{key}-{file.stamp}.npy"


def _load(path: Path, *, mapped: bool) -> Array | None:
    """The index that was kept; None if there is none, or it is not whole."""
    try:
        index = np.asarray(np.load(path, mmap_mode="r" if mapped else None))
    except (OSError, ValueError, EOFError):
        return None
    return index if index.dtype == np.int64 and index.ndim else None


def _save(folder: Path, name: str, index: Array) -> None:
    temporary = folder / f".{name}.{secrets.token_hex(8)}"
    with suppress(OSError):  # it is found again by the next process
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as out:
                np.save(out, index)
            temporary.replace(folder / name)
        finally:
            temporary.unlink(missing_ok=True)
        for old in folder.glob(f"{name.partition('-')[0]}-*.npy"):
            if old.name != name:  # of an earlier state of the file
                old.unlink(missing_ok=True)
