"""Files that are there as a whole, or not at all, whenever the program that writes them is killed.

What is written gets another name first, reaches the disk, and is renamed then. A folder has one
writer at a time: that which has the lock of the file in it, which a kill gives back.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a disk that is full, or of a file that must not get larger."""


def replaced(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file under another name, lets it reach the disk, and renames it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     replaced(Path(folder, "a"), lambda path: path.write_text("whole"))
    ...     os.listdir(folder)
    ['a']
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write(temporary)
        synced(temporary)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # not every file system can
        synced(path.parent)


def synced(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def locked(path: Path) -> int | None:
    """Takes the lock of a file, which is made; None if somebody else has it. Closing it unlocks.

    Raises:
        NotImplementedError: On Windows, which has no locks that a kill gives back.
    """
    try:
        import fcntl  # noqa: PLC0415  # not on Windows
    except ModuleNotFoundError:
        raise NotImplementedError(
            "write(reader, path, format) and cache(reader, path) take a lock that Windows does not "
            "have: run them on Linux or macOS, and copy the folder; cache(reader) keeps samples in "
            "memory."
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
