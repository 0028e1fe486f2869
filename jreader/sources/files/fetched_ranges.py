"""Ranges of a far file that are fetched at once, for a library that reads one after another."""

from __future__ import annotations

from collections.abc import Sequence

from jreader.sources.files.byte_ranges import ByteFile, read_many


class FetchedRanges:
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
        self.file, self.path, self.size = file, file.path, file.size
        self.stamp, self.near = file.stamp, file.near
        requests = [(file, *each) for each in ranges]
        self._ranges = list(zip(ranges, read_many(requests), strict=True))

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
