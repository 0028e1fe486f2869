"""Files that are read by ranges, for libraries that seek and read by themselves."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence

from jreader.sources.files.byte_ranges import ByteFile


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
        try:
            data = self.file.read(self.at, left if size is None or size < 0 else min(size, left))
        except Exception as error:
            self.error = error
            raise
        self.at += len(data)
        return data


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
