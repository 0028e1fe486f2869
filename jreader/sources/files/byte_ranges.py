"""Read files by byte range, on several threads at once.

A process is often limited to 1024 open files, and a data set may have more. So a file is opened
when it is first read, and the file opened first is closed once too many are open; a read in
progress keeps it open until it ends. `FileObject` is for libraries that seek and read by
themselves.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import starmap
from typing import Any
from weakref import ref

from jreader.sources.file_checks import State, changed, check_state, state_of

_OPEN = 256  # files open at a time; a mapped one has two descriptors


class ByteFile:
    """A local or remote file whose byte ranges can be read.

    A subclass defines `read` or `read_many`.

    Args:
        path: Its name, for errors.
        size: Its size in bytes.
        stamp: Identifies this state of the file, such as its size and modification time. Part of
            the names of cached indices.
        near: The number of bytes that are read as quickly as another request is made: ranges closer
            than this are better read as one.
    """

    is_remote = False
    """True if requests have a high latency, so that ranges are better requested together."""

    def __init__(self, path: str, size: int, stamp: str, near: int) -> None:
        self.path, self.size, self.stamp, self.near = path, size, stamp, near

    def __repr__(self) -> str:
        return f"{self.path} ({self.size:,} bytes)"

    def read(self, offset: int, size: int) -> bytes:
        """Return all of those bytes; thread-safe.

        Raises:
            DamagedData: The file has changed since it was found, or is gone.
            TimeoutError: They did not arrive in time, in several tries.
            OSError: They cannot be read for another reason.
        """
        return next(self.read_many([(offset, size)]))

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each range (offset and size), in that order."""
        return starmap(self.read, ranges)

    def close(self) -> None:
        """Close what is open; the next read opens it again."""

    def check_range(self, offset: int, size: int) -> None:
        """Raise ValueError if the file ends before a range does."""
        if offset + size > self.size:
            last = f"{self.path}, which has {self.size:,} bytes"
            raise ValueError(f"bytes {offset:,} to {offset + size:,} were asked of {last}.")


class Descriptor:
    """An open file, closed when its last reference dies.

    Its state is checked on opening, since it may have changed meanwhile.

    Raises:
        DamagedData: The file was replaced, or is gone.
    """

    def __init__(self, path: str, seen: State) -> None:
        """Open the file for reading."""
        try:
            self.number = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise changed(path, "cannot be found any more") from None
        check_state(path, seen, os.fstat(self.number))

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "number"):
            close(self.number)


class LocalFile(ByteFile):
    """A local file.

    Args:
        path: Its name.
        seen: The state of the file when first checked; None to check now.

    Raises:
        DamagedData: It is gone.
    """

    def __init__(self, path: str, seen: State = None) -> None:
        seen = state_of(path) if seen is None else seen
        if seen is None:
            raise changed(path, "cannot be found any more")
        super().__init__(path, seen.st_size, f"{seen.st_size}-{seen.st_mtime_ns}", near=1 << 14)
        self._state = seen
        self._descriptor: Descriptor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the descriptor, whose number means another file in another process."""
        return {**self.__dict__, "_descriptor": None}

    def read(self, offset: int, size: int) -> bytes:
        """Return all of those bytes; opens the file if necessary."""
        self.check_range(offset, size)
        opened = self._descriptor or self._opened()  # this reference keeps it open until the end
        data = os.pread(opened.number, size, offset)
        if len(data) == size:
            return data
        parts, left = [data], size - len(data)
        while parts[-1] and left:  # one read returns 2 GB at most
            parts.append(os.pread(opened.number, left, offset + size - left))
            left -= len(parts[-1])
        if left:
            now = os.fstat(opened.number).st_size
            raise changed(self.path, f"had {self.size:,} bytes, and has {now:,} now")
        return b"".join(parts)

    def close(self) -> None:
        """Drop the open file; it closes with the last read."""
        self._descriptor = None

    def _opened(self) -> Descriptor:
        self._descriptor = opened = Descriptor(self.path, self._state)
        keep_few_open(self)
        return opened


def keep_few_open(file: Any) -> None:
    """Register a file as open, and close the files opened first, if too many are open."""
    _OPENED.append(ref(file))
    while len(_OPENED) > _OPEN:
        with suppress(IndexError):  # another thread was faster
            oldest = _OPENED.popleft()()
            if oldest is not None:  # otherwise it was dropped, and so closed
                oldest.close()


_OPENED: deque[ref[Any]] = deque()
"""The open files, oldest first; no lock, since a forked process might wait for it forever."""


class FileObject(io.RawIOBase):
    """A file object over a file that is read by byte range; each thread needs its own.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     letters = FileObject(open_file(f"{folder}/letters"))
    ...     letters.seek(-2, 2), letters.read(9), letters.tell()
    (4, b'ef', 6)

    Args:
        file: The file.

    Attributes:
        error: The last error of a read; C++ libraries tend to raise another one in its place.
    """

    def __init__(self, file: ByteFile) -> None:
        self.file, self.at = file, 0
        self.error: Exception | None = None

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return the next byte to read."""
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seek to a byte, and return its number."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.file.size}[whence]
        self.at = begin + offset
        return self.at

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next bytes, fewer only at the end; -1 reads all that are left."""
        left = max(self.file.size - self.at, 0)
        many = left if size is None or size < 0 else min(size, left)
        try:
            data = self.file.read(self.at, many) if many else b""
        except Exception as error:
            self.error = error
            raise
        self.at += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with the next bytes, and return their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class FetchedRanges(ByteFile):
    """A file with some ranges prefetched into memory; other ranges are read as usual.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "letters")
    ...     _ = path.write_bytes(b"abcdef")
    ...     letters = FetchedRanges(open_file(str(path)), [(1, 2), (4, 2)])
    ...     letters.read(2, 1), letters.read(2, 3)
    (b'c', b'cde')

    Args:
        file: The file.
        ranges: Offsets and sizes.

    Raises:
        DamagedData: The file has changed.
        OSError: They cannot be read.
    """

    def __init__(self, file: ByteFile, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the ranges."""
        super().__init__(file.path, file.size, file.stamp, file.near)
        self.file = file
        self._ranges = list(zip(ranges, file.read_many(ranges), strict=True))

    def read(self, offset: int, size: int) -> bytes:
        """Return all of those bytes.

        Raises:
            DamagedData: The file has changed.
            OSError: They cannot be read.
        """
        for (begin, many), data in self._ranges:
            if begin <= offset and offset + size <= begin + many:
                return data[offset - begin : offset - begin + size]
        return self.file.read(offset, size)
