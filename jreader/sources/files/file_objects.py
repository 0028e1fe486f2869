"""Files that are read by ranges as file objects, for libraries that seek and read by themselves."""

from __future__ import annotations

import io
import os

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
