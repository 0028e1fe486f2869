"""Parts of files: byte ranges, and the samples that begin in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jreader.readers.columns import Array
from jreader.sources.file_checks import changed

Which: TypeAlias = tuple[int, int, int]
"""Identifies a part of a file: its number, the number of parts, and the size of the file."""


@dataclass(frozen=True)
class FilePart:
    """One of several parts of a file: the samples that begin in a byte range.

    Parts have equal lengths, to within a byte, and each byte is in one of them. So each sample is
    in one part, wherever it ends.

    >>> parts = [FilePart("a.jsonl", number, 3, 10) for number in range(3)]
    >>> [(part.begin, part.end) for part in parts], [part.has(3) for part in parts]
    ([(0, 3), (3, 6), (6, 10)], [False, True, False])

    Attributes:
        path: The file.
        number: The number of the part, from 0.
        parts: The number of parts.
        size: The size of the file in bytes.
    """

    path: str
    number: int
    parts: int
    size: int

    @property
    def begin(self) -> int:
        """The first byte of the part."""
        return self.size * self.number // self.parts

    @property
    def end(self) -> int:
        """The first byte after the part."""
        return self.size * (self.number + 1) // self.parts

    @property
    def which(self) -> Which:
        """All fields but the path."""
        return self.number, self.parts, self.size

    def has(self, offset: int) -> bool:
        """Return whether the part holds a sample at this byte; an empty file's are in the first."""
        return self.begin <= offset < self.end or (not self.size and not self.number)

    def of_offsets(self, offsets: Array) -> Array:
        """Select the samples of the part from all sample offsets, which include the last end.

        >>> import numpy as np
        >>> FilePart("a.jsonl", 1, 2, 10).of_offsets(np.array([0, 4, 7, 8, 10]))
        array([ 7,  8, 10])
        """
        begins = offsets[:-1]
        if not self.size:
            return offsets if not self.number else offsets[:1]
        low, high = begins.searchsorted([self.begin, self.end]).tolist()
        return offsets[low : high + 1]

    def check_size(self, size: int) -> None:
        """Raise DamagedData if the file has another size now."""
        if size != self.size:
            raise changed(self.path, f"had {self.size:,} bytes, and has {size:,} now")


def part_in(paths: Any) -> tuple[Any, Which | None]:
    """Return the paths, and which part it is if they are one part of a file.

    >>> part_in(FilePart("a.jsonl", 1, 2, 10)), part_in("a.jsonl")
    (('a.jsonl', (1, 2, 10)), ('a.jsonl', None))
    """
    several: Sequence[Any] = paths if isinstance(paths, (list, tuple)) else (paths,)
    if len(several) == 1 and isinstance(several[0], FilePart):
        return several[0].path, several[0].which
    return paths, None
