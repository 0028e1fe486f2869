"""Blocks as files of a folder, each whole or not there, whatever a kill or a broken disk leaves.

A block is written under another name and renamed, so that a process that is killed leaves no half
of one; and its checksum is looked at before it is first used. No file is ever locked.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from jreader.sources.transactions import new_file

_MAGIC = b"jreader block 1\n"
_HEAD = struct.Struct("<16sQI4x")  # magic, bytes of the block, their checksum
_NAME = re.compile(r"[0-9a-f]{24}-[0-9]+\.block")
_HALF = re.compile(r"\.[0-9a-f]{24}-[0-9]+\.block\.[0-9a-f]{16}")
_STALE = 300.0  # seconds after which one that is being written was left by a process that is gone


class BlockFiles:
    """The blocks in a folder, which may hold other files too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = BlockFiles(Path(folder))
    ...     files.write(f"{7:024x}-0.block", b"abcdef")
    ...     files.read(f"{7:024x}-0.block", 6, 2, 5), files.read(f"{7:024x}-1.block", 6, 0, 1)
    (b'cde', None)

    Args:
        folder: The folder; it is made when the first block is written.
    """

    overhead = _HEAD.size

    def __init__(self, folder: Path) -> None:
        """Reads nothing."""
        self.folder = folder
        self._checked: set[str] = set()

    def read(self, name: str, size: int, begin: int, end: int) -> bytes | None:
        """These bytes of a block; None if it is not there, or not whole.

        Args:
            name: Its name.
            size: How many bytes it has.
            begin: The first of the bytes.
            end: Where they end.
        """
        try:
            opened = os.open(self.folder / name, os.O_RDONLY)
        except OSError:
            return None
        try:
            if name in self._checked:
                data = os.pread(opened, end - begin, _HEAD.size + begin)
                return data if len(data) == end - begin else None
            head = os.pread(opened, _HEAD.size, 0)
            data = os.pread(opened, size + 1, _HEAD.size)
        except OSError:  # a broken disk
            return None
        finally:
            os.close(opened)
        if len(data) != size or head != _HEAD.pack(_MAGIC, size, crc32(data)):
            return None
        self._checked.add(name)
        return data[begin:end]

    def write(self, name: str, data: bytes) -> None:
        """Keeps a block.

        Raises:
            OSError: It cannot be written.
        """
        # another process may take the new file for one that was left, and delete it
        gone = suppress(FileNotFoundError)
        with gone, new_file(self.folder / name) as half, half.open("xb") as out:
            out.write(_HEAD.pack(_MAGIC, len(data), crc32(data)))
            out.write(data)

    def delete(self, name: str) -> None:
        """Deletes a block, unless the file of that name is none, or cannot be deleted."""
        self._checked.discard(name)
        path = self.folder / name
        with suppress(OSError):
            with path.open("rb") as file:
                ours = file.read(len(_MAGIC)) == _MAGIC
            if ours:
                path.unlink()

    def touch(self, name: str) -> None:
        """Has the file say that the block was used now."""
        with suppress(OSError):
            os.utime(self.folder / name)

    def found(self) -> Iterator[tuple[str, int, float]]:
        """The blocks that are there: name, bytes on the disk, and when each was used last.

        Those that were never written to the end are deleted.
        """
        now = time.time()
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                half = _HALF.fullmatch(entry.name)
                if not half and not _NAME.fullmatch(entry.name):
                    continue
                with suppress(OSError):
                    seen = entry.stat()
                    if not half:
                        yield entry.name, seen.st_size, seen.st_mtime
                    elif now - seen.st_mtime > _STALE:
                        Path(entry).unlink()
