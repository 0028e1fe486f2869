"""Cache indices of files, such as where records begin: found once, in parallel, for later runs.

An index is an int64 array in a file in the cache folder. Its name depends on what it was made from:
the path of the file, its state (size and modification time), and the parameters. So a changed file
gets a new index. It is written under another name first, and ends with its checksum: an index that
is incomplete, or damaged on disk, is rebuilt. So neither a kill nor a second process that makes the
same index does harm. If the folder is not writable, each process finds the index again, as it does
for files that are quick to scan. After indices were added, the folder is scanned once: indices of
earlier states of these files are removed, and those that no process has read for months.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock, current_thread
from typing import NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from jreader.cores import usable_cores
from jreader.progress import Bar
from jreader.readers.columns import Array
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.remote import is_remote
from jreader.sources.transactions import new_file

S = TypeVar("S")
T = TypeVar("T")
_WORTH = 1 << 24  # bytes of all files: scanning fewer takes 10 ms
_SMALL = 128  # a local file of less than 1/128 of that is read as quickly as its index
_UNUSED = 90 * 24 * 3600  # seconds since an index was last read until it is removed
_SUM = 4  # bytes of the checksum
_NAME = "jreader indices"  # of threads
_ONE_AT_A_TIME = Lock()  # in Python 3.11, ast, which parses their headers, is not thread-safe


def cache_folder() -> Path:
    """Return the folder `jreader` in `$XDG_CACHE_HOME` or `~/.cache`; it need not exist.

    >>> cache_folder().name
    'jreader'
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jreader"


class FileIndex(NamedTuple):
    """Describes an index of a file.

    Attributes:
        kind: The subfolder of the cache folder for such indices.
        find: Returns the index of a file, an int64 array. For many files, it is called on several
            threads; for few, it may scan parts of one with `in_threads`.
        fits: Returns whether an index can be that of the complete file; if not, it is rebuilt.
        asked: What the index depends on besides the file.
    """

    kind: str
    find: Callable[[ByteFile], Array]
    fits: Callable[[ByteFile, Array], bool] = lambda _file, _index: True
    asked: str = ""

    def of(self, file: ByteFile) -> Array:
        """Find the index of a file."""
        return np.ascontiguousarray(self.find(file), np.int64)


def kept(index: FileIndex, files: Sequence[ByteFile]) -> list[Array]:
    """Return the index of each file: from the cache, or found and cached.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "bits").write_bytes(b"0110")
    ...     ones = lambda file: np.flatnonzero(np.array(list(file.read(0, file.size))) == ord("1"))
    ...     kept(FileIndex("ones", ones), [open_file(f"{folder}/bits")])
    [array([1, 2])]

    Raises:
        DamagedData: `find` raised it; the error is that of the first such file in order.
    """
    mapped = len(files) == 1  # mapping many files would hold a file descriptor for each

    def load(file: ByteFile, path: Path) -> Array | None:
        found = load_index(path, mapped=mapped)
        return found if found is not None and index.fits(file, found) else None

    def make(file: ByteFile, path: Path | None) -> Array:
        found = index.of(file)
        if path is not None:
            with suppress(OSError):  # if it fails, the next process finds it again
                save_index(path, found)
        return found

    def name(file: ByteFile) -> str:
        return f"{name_of(file, index.asked)}.npy"

    return kept_files(index.kind, files, name, load, make, least=_WORTH // _SMALL)


def kept_files(
    kind: str,
    files: Sequence[ByteFile],
    name: Callable[[ByteFile], str],
    load: Callable[[ByteFile, Path], T | None],
    make: Callable[[ByteFile, Path | None], T],
    *,
    least: int = 0,
) -> list[T]:
    """Return the cached result for each file; make and cache missing ones.

    Args:
        kind: The subfolder of the cache folder for such results.
        files: The files.
        name: Returns the file name of the result for a file; it begins with the file's `name_of`.
        load: Loads a result; returns None if it is missing or incomplete.
        make: Makes a result, and writes it to the path, if there is one. For many files, it is
            called on several threads; for few, it may scan parts of one with `in_threads`.
        least: The bytes of the smallest local file to cache; less is as quick to read.
    """
    keep = sum(file.size for file in files) >= _WORTH
    folder, saved = cache_folder() / kind, list[str]()

    def of(file: ByteFile) -> T:
        path = None
        if keep and (file.size >= least or is_remote(file.path)):
            path = folder / name(file)
            loaded = load(file, path)
            if loaded is not None:
                bar.add(file.size)
                return loaded
            saved.append(path.name)
        watched = _Watched(file, bar)
        made = make(watched, path)
        watched.passed(file.size)
        return made

    with Bar(f"finding {kind}", sum(file.size for file in files), "B") as bar:
        # few files: all threads share each; many files: one thread each
        every = map if len(files) < _threads() else in_threads
        found = list(every(of, files))
    if saved:
        remove_unused(folder, map(_file_key, saved))
    return found


class _Watched(ByteFile):
    """A file that advances a progress bar as its bytes are read, counting each once."""

    def __init__(self, file: ByteFile, bar: Bar) -> None:
        super().__init__(file.path, file.size, file.stamp, file.near)
        self._file, self._bar, self._done, self._turn = file, bar, 0, Lock()

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.read(offset, size)
        if not self._bar.off:
            self.passed(size)
        return data

    def passed(self, size: int) -> None:
        """Advance the bar by this many bytes, at most to the end of the file."""
        with self._turn:
            more = min(size, self.size - self._done)
            self._bar.add(more)
            self._done += more


def in_threads(fn: Callable[[S], T], tasks: Sequence[S], *, threads: int = 0) -> list[T]:
    """Map `fn` over tasks on several threads, in order; 0 means one per core.

    Inside such a thread, that thread runs all of them.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    if len(tasks) < 2 or current_thread().name.startswith(_NAME):
        return list(map(fn, tasks))
    with ThreadPoolExecutor(min(threads or _threads(), len(tasks)), _NAME) as executor:
        return list(executor.map(fn, tasks))


def _threads() -> int:
    return min(usable_cores(), 8)


def name_of(file: ByteFile, asked: str) -> str:
    """Return the name of a file's cached results: a hash of path and parameters, and the state."""
    path = file.path if is_remote(file.path) else os.path.realpath(file.path)
    of = f"{path} {asked}"
    key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return f"{key}-{file.stamp}"


def load_index(path: Path, *, mapped: bool) -> Array | None:
    """Load a cached index; None if it is missing or damaged."""
    try:
        written = np.memmap(path, np.uint8, "r") if mapped else np.fromfile(path, np.uint8)
        if len(written) < _SUM or crc32(written[:-_SUM].data) != int.from_bytes(written[-_SUM:]):
            return None
        with _ONE_AT_A_TIME:
            index = np.asarray(np.load(path, mmap_mode="r" if mapped else None))
    except (OSError, ValueError, EOFError):
        return None
    return index if index.dtype == np.int64 and index.ndim else None


def save_index(path: Path, index: Array) -> None:
    """Write an index and its checksum atomically.

    Raises:
        OSError: It cannot be written.
    """
    with new_file(path) as aside, aside.open("xb") as out:
        np.save(out, index)
        out.flush()
        out.write(crc32(np.memmap(aside, np.uint8, "r").data).to_bytes(_SUM))


def remove_unused(folder: Path, keys: Iterable[str], most: int = 1) -> None:
    """Remove indices that are no longer used.

    These are those that no process has read for months, and, for each of `keys`, all but the `most`
    recently used whose names begin with it.
    """
    before, left = time.time() - _UNUSED, dict.fromkeys(keys, most)
    with suppress(OSError), os.scandir(folder) as entries:
        states = [(each.stat(), each.name) for each in entries]
        for used, name in sorted((-max(s.st_atime, s.st_mtime), name) for s, name in states):
            key = _file_key(name)
            left[key] = left.get(key, len(states)) - 1
            if -used < before or left[key] < 0:
                Path(folder, name).unlink(missing_ok=True)


def _file_key(name: str) -> str:
    """Return the part of an index name that is the same for all states of its file."""
    return name.partition("-")[0]
