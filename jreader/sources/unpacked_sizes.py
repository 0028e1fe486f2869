"""How much a packed file may unpack to: a few kilobytes can hold gigabytes of blanks.

What has to lie in memory as a whole (an array, a block, a line) is refused where it is more than
256 MB and more than a hundred times what is packed. Real data hardly ever shrink so much; for those
that do, the environment variable says how many bytes there may be.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from jreader.errors import DamagedData
from jreader.readers.credentials import masked

LIMIT = "JREADER_UNPACKED_LIMIT"
_LEAST, _TIMES = 1 << 28, 100


def most_unpacked(packed: int) -> int:
    """How many bytes may be unpacked from so many.

    >>> most_unpacked(1000), most_unpacked(10**9)
    (268435456, 100000000000)
    """
    given = os.environ.get(LIMIT, "")
    return int(given) if given.isdecimal() else max(_LEAST, _TIMES * packed)


def check_unpacked(path: str, size: int, packed: int) -> None:
    """Raises DamagedData if so many bytes must not be unpacked from so many."""
    if size > (most := most_unpacked(packed)):
        raise DamagedData(
            f"{masked(path)} would unpack to more than {most:,} bytes in one piece, of {packed:,}: "
            f"a file that was made to fill the memory does so. If it is meant to, set the "
            f"environment variable {LIMIT} to the bytes that it may have, such as {4 * most}."
        )


class BoundedLines(gzip.GzipFile):
    """A gzip file that is unpacked a bit at a time, of which no line may be too long."""

    def __init__(self, path: str) -> None:
        """Opens it."""
        super().__init__(path, "rb")
        self._path, self._packed = path, Path(path).stat().st_size
        self._line, self._most = 0, most_unpacked(self._packed)

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes, after a look for an end of line."""
        size = super().readinto(buffer)
        newline = bytes(buffer[:size]).rfind(b"\n")
        self._line = self._line + size if newline < 0 else size - newline - 1
        if self._line > self._most:
            check_unpacked(self._path, self._line, self._packed)
        return size
