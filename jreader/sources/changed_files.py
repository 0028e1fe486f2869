"""Files that change under a reader: seen when a pass begins, before a map of one is a bus error."""

from __future__ import annotations

import mmap
import os
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import Node

T = TypeVar("T")


class Filed(Node[T]):
    """A reader of the files that its field `path` or `paths` names."""

    read_whole: ClassVar[bool] = False
    """Whether they are in memory once they were read, and may be gone then."""

    @property
    def _named(self) -> tuple[str, ...]:
        return getattr(self, "paths", None) or (self.path,)  # type: ignore[attr-defined]  # as said

    @cached_property
    def _first_seen(self) -> list[os.stat_result | None]:
        return list(map(_seen, self._named))

    def check_files(self) -> None:
        """Refuses files that are not those that this reader has read first.

        What is written into a file without changing its size is data that change: a map shows it.

        Raises:
            DamagedData: A file has another size, was replaced, or is gone.
        """
        for path, first in zip(self._named, self._first_seen, strict=True):
            now = _seen(path)
            if first is None or now is None:
                if not self.read_whole:
                    raise changed(path, "cannot be found any more")
            elif now.st_size != first.st_size:
                raise changed(path, f"had {first.st_size:,} bytes, and has {now.st_size:,} now")
            elif now.st_ino != first.st_ino and now.st_mtime_ns != first.st_mtime_ns:
                raise changed(path, "was replaced by another file")


def _seen(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None


def changed(path: str, how: str) -> DamagedData:
    """The error for a file that is another one than it was."""
    return DamagedData(
        f"{path} {how}, since this reader read it first: to go on would mix two data sets, or read "
        f"behind the end of a map, which ends a program. Leave the files of a run as they are, and "
        f"write new ones beside them; a new reader reads this one as it is now."
    )


def check_map(column: Any) -> None:
    """Refuses an array mapped from a file that is shorter now: a read behind its end is no error.

    Raises:
        DamagedData: It is.
    """
    first, name = 0, "the file of a mapped array"
    while isinstance(column, np.ndarray):
        if isinstance(column, np.memmap) and isinstance(column.base, mmap.mmap):
            first, name = column.offset, str(column.filename or name)
        column = column.base
    held = getattr(column, "obj", column)  # of a memoryview
    if isinstance(held, mmap.mmap):
        needed = first - first % mmap.ALLOCATIONGRANULARITY + len(held)
        if held.size() < needed:
            raise changed(name, f"was mapped up to byte {needed:,}, and has {held.size():,} now")
