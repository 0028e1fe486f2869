"""Files that are read by ranges: any bytes of them, by several threads at once.

A process may often have no more than 1024 files open, and a data set has more. So a file is opened
when it is first read, and the one that was opened first is closed once too many are. Whoever reads
from it at that moment holds it open until the read has ended. `FileObject` is for libraries that
seek and read by themselves.
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

_OPEN = 256  # files that are open at a time; one that is mapped has two descriptors


class ByteFile:
    """A file, here or elsewhere, of which ranges of bytes can be read.

    A subclass defines `read`, or `read_many`.

    Args:
        path: Its name, as errors give it.
        size: How many bytes it has.
        stamp: Identifies this state of the file: its size and the time of its last
            change, say. Indices that are kept are named by it.
        near: How many bytes are as quick to read as it is to ask once more: ranges that lie so near
            to one another are better read as one.
    """

    is_remote = False
    """Whether it answers late, so that ranges are better asked for many at a time."""

    def __init__(self, path: str, size: int, stamp: str, near: int) -> None:
        self.path, self.size, self.stamp, self.near = path, size, stamp, near

    def __repr__(self) -> str:
        return f"{self.path} ({self.size:,} bytes)"

    def read(self, offset: int, size: int) -> bytes:
        """Those bytes, all of them; threads may ask at the same time.

        Raises:
            DamagedData: The file has changed since it was found, or is gone.
            TimeoutError: They did not come in time, in several tries.
            OSError: They could not be had for another reason.
        """
        return next(self.read_many([(offset, size)]))

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each range (offset and size), in that order."""
        return starmap(self.read, ranges)

    def close(self) -> None:
        """Lets go of what is open; the next read opens it again."""

    def check_range(self, offset: int, size: int) -> None:
        """Raises ValueError if the file ends before a range does."""
        if offset + size > self.size:
            last = f"{self.path}, which has {self.size:,} bytes"
            raise ValueError(f"bytes {offset:,} to {offset + size:,} were asked of {last}.")


class Descriptor:
    """An open file, closed when its last reference dies.

    It is checked when it is opened, since it may have been a while.

    Raises:
        DamagedData: It is another file than the one that was seen, or is gone.
    """

    def __init__(self, path: str, seen: State) -> None:
        """Opens the file for reading."""
        try:
            self.number = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise changed(path, "cannot be found any more") from None
        check_state(path, seen, os.fstat(self.number))

    def __del__(self, close: Any = os.close) -> None:
        if hasattr(self, "number"):
            close(self.number)


class LocalFile(ByteFile):
    """A file of this machine.

    Args:
        path: Its name.
        seen: What it was when it was first looked at; None to look now.

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
        """Without the open file, whose number is another one's in another process."""
        return {**self.__dict__, "_descriptor": None}

    def read(self, offset: int, size: int) -> bytes:
        """Those bytes, all of them; the file is opened if it is not."""
        self.check_range(offset, size)
        opened = self._descriptor or self._opened()  # a name keeps it open until the end
        data = os.pread(opened.number, size, offset)
        if len(data) == size:
            return data
        parts, left = [data], size - len(data)
        while parts[-1] and left:  # one read gives 2 GB at most
            parts.append(os.pread(opened.number, left, offset + size - left))
            left -= len(parts[-1])
        if left:
            now = os.fstat(opened.number).st_size
            raise changed(self.path, f"had {self.size:,} bytes, and has {now:,} now")
        return b"".join(parts)

    def close(self) -> None:
        """Forgets the open file, which ends with the last read."""
        self._descriptor = None

    def _opened(self) -> Descriptor:
        self._descriptor = opened = Descriptor(self.path, self._state)
        keep_few_open(self)
        return opened


def keep_few_open(file: Any) -> None:
    """Counts a file as open, and closes those that were opened first, if too many are."""
    _OPENED.append(ref(file))
    while len(_OPENED) > _OPEN:
        with suppress(IndexError):  # another thread was quicker
            oldest = _OPENED.popleft()()
            if oldest is not None:  # else it was dropped, and closed
                oldest.close()


_OPENED: deque[ref[Any]] = deque()
"""The files that were opened last; without a lock, for which a forked process might wait."""


class FileObject(io.RawIOBase):
    """A file object over a file that is read by ranges; each thread needs one of its own.

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
        error: What a read has raised last; libraries in C++ tend to raise something else.
    """

    def __init__(self, file: ByteFile) -> None:
        self.file, self.at = file, 0
        self.error: Exception | None = None

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """The byte that is read next."""
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes to a byte, and returns its number."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.file.size}[whence]
        self.at = begin + offset
        return self.at

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, fewer at the end only; all that are left for -1."""
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
        """Fills a buffer with the next bytes, and returns how many these are."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class FetchedRanges(ByteFile):
    """A file of which some ranges are in memory; what lies elsewhere in it is read as ever.

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
        OSError: They cannot be had.
    """

    def __init__(self, file: ByteFile, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetches the ranges."""
        super().__init__(file.path, file.size, file.stamp, file.near)
        self.file = file
        self._ranges = list(zip(ranges, file.read_many(ranges), strict=True))

    def read(self, offset: int, size: int) -> bytes:
        """Those bytes, all of them.

        Raises:
            DamagedData: The file has changed.
            OSError: They cannot be had.
        """
        for (begin, many), data in self._ranges:
            if begin <= offset and offset + size <= begin + many:
                return data[offset - begin : offset - begin + size]
        return self.file.read(offset, size)
