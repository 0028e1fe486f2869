"""Files that are read by ranges: any bytes of them, by several threads at once.

A process may often have no more than 1024 files open, and a data set has more. So a file is opened
when it is first read, and the one that was opened first is closed once too many are. Whoever reads
from it at that moment holds it open until the read has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Protocol
from weakref import WeakValueDictionary

from jreader.errors import DamagedData
from jreader.sources.far_systems import is_far
from jreader.sources.file_checks import State, changed, check_range, check_state, state_of
from jreader.sources.files.block_store import Store
from jreader.sources.files.far_files import FarFile
from jreader.sources.files.stored_files import StoredFile

_OPEN = 256  # files that are open at a time


class ByteFile(Protocol):
    """A file, here or elsewhere, of which ranges of bytes can be read.

    Attributes:
        path: Its name, as errors give it.
        size: How many bytes it has.
        stamp: What tells this state of the file from others: its size and the time of its last
            change, say. Indices that are kept are named by it.
        near: How many bytes are as quick to read as it is to ask once more: ranges that lie so near
            to one another are better read as one.
    """

    path: str
    size: int
    stamp: str
    near: int

    def read(self, offset: int, size: int) -> bytes:
        """Those bytes, all of them; threads may ask at the same time.

        Raises:
            DamagedData: The file has changed since it was found, or is gone.
        """


def open_file(path: str, store: Store | None = None) -> ByteFile:
    """The file of that path, to be read by ranges; it is opened when it is first read.

    A path that begins with a protocol (`s3://`, `https://`) is that of a file elsewhere, which is
    read through fsspec; a `store` keeps what was fetched of it.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     file.size, file.read(2, 3)
    (6, b'cde')

    Raises:
        DamagedData: There is no such file (any more).
        OSError: A file elsewhere cannot be reached.
        ModuleNotFoundError: fsspec is not installed: `python -m pip install 'jreader[far]'`.
    """
    if not is_far(path):
        return _LocalFile(path)
    return FarFile(path) if store is None else StoredFile(FarFile(path), store)


def read_many(requests: Sequence[tuple[ByteFile, int, int]]) -> Iterator[bytes]:
    """The bytes of many ranges (a file, an offset, a size), in that order.

    Those of files elsewhere are asked for several at a time.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     list(read_many([(file, 4, 2), (file, 0, 1)]))
    [b'ef', b'a']

    Raises:
        DamagedData: A file has changed since it was found, or is gone.
    """
    low = 0
    while low < len(requests):
        file, high = requests[low][0], low + 1
        if not hasattr(file, "read_many"):
            yield file.read(*requests[low][1:])
        else:
            while high < len(requests) and requests[high][0] is file:
                high += 1
            yield from file.read_many([request[1:] for request in requests[low:high]])
        low = high


class Descriptor:
    """An open file, which is closed when nobody holds it.

    It is checked when it is opened, since it may have been a while.

    Raises:
        DamagedData: It is another file than the one that was seen, or is gone.
    """

    def __init__(self, path: str, seen: State) -> None:
        """Opens the file for reading."""
        try:
            self.number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            raise changed(path, "cannot be found any more") from None
        check_state(path, seen, os.fstat(self.number))

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "number"):
            close(self.number)


class _LocalFile:
    near = 1 << 14

    def __init__(self, path: str) -> None:
        seen = state_of(path)
        if seen is None:
            raise changed(path, "cannot be found any more")
        self.path, self.size = path, seen.st_size
        self.stamp = f"{seen.st_size}-{seen.st_mtime_ns}"
        self._state = seen
        self._descriptor: Descriptor | None = None

    def __repr__(self) -> str:
        return f"{self.path} ({self.size:,} bytes)"

    def __getstate__(self) -> dict[str, Any]:
        """Without the open file, whose number is another one's in another process."""
        return {**self.__dict__, "_descriptor": None}

    def read(self, offset: int, size: int) -> bytes:
        check_range(self, offset, size)
        opened = self._descriptor or self._opened()  # a name keeps it open until the end
        data = os.pread(opened.number, size, offset)
        if len(data) == size:
            return data
        parts, left = [data], size - len(data)
        while parts[-1] and left:  # one read gives 2 GB at most
            parts.append(os.pread(opened.number, left, offset + size - left))
            left -= len(parts[-1])
        if left:
            raise self._shorter(opened)
        return b"".join(parts)

    def close(self) -> None:
        """Forgets the open file, which ends with the last read."""
        self._descriptor = None

    def _opened(self) -> Descriptor:
        self._descriptor = opened = Descriptor(self.path, self._state)
        with _LOCK:
            _OPENED[id(self)] = self
            for key in list(_OPENED)[:-_OPEN]:
                oldest = _OPENED.pop(key, None)
                if oldest is not None:
                    oldest.close()
        return opened

    def _shorter(self, opened: Descriptor) -> DamagedData:
        now = os.fstat(opened.number).st_size
        return changed(self.path, f"had {self.size:,} bytes, and has {now:,} now")


_LOCK = Lock()
_OPENED: WeakValueDictionary[int, _LocalFile] = WeakValueDictionary()
"""The files that are open, in the order in which they were opened; dropped ones are closed."""
