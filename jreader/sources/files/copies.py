"""Whole copies of files elsewhere, for formats that need files of this machine.

Those of a process lie in one temporary folder, with a file that the process holds locked. A kill
gives the lock back, so the next process that copies files deletes what a killed one left.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from weakref import WeakValueDictionary, finalize

from jreader.readers.credentials import masked
from jreader.sources.files.block_store import Store
from jreader.sources.files.stored_files import open_file
from jreader.sources.remote import is_remote
from jreader.sources.transactions import locked, removed

_PART = 1 << 25  # bytes of a copy that lie in memory at a time
_MADE, _FOLDERS = "jreader-made-", "jreader-copies-"  # before its lock is taken, and after that
_LOCK = "lock"
_LOCKS = hasattr(os, "getuid")  # not on Windows


class _Copy(str):
    """The path of a copy, which is deleted with this object, or when the program ends."""

    __slots__ = ("__weakref__",)


class _Folder:
    """A folder for copies, which is deleted with this object, or when the program ends."""

    def __init__(self) -> None:
        """Deletes those of processes that were killed."""
        for left in Path(gettempdir()).glob(f"{_FOLDERS}*") if _LOCKS else ():
            with suppress(OSError):
                _remove_left(left)
        made, lock = Path(mkdtemp(prefix=_MADE)), None
        with suppress(OSError):  # the file system has no locks
            lock = locked(made / _LOCK) if _LOCKS else None
        if lock is not None:  # else others could take it, and delete what is in use
            made = made.rename(made.with_name(made.name.replace(_MADE, _FOLDERS)))
        self.path = made
        finalize(self, _remove, str(self.path), os.getpid(), lock)


_OPEN = WeakValueDictionary[tuple[int, str], _Folder]()
"""The folders that have copies, by their process and where they lie."""


def local_copy(path: str, store: Store | None = None) -> str:
    """The path of a copy of a remote file, which is deleted with that; of a file here, its path.

    >>> import fsspec
    >>> with fsspec.open("memory://words", "wb") as out:
    ...     _ = out.write(b"one two")
    >>> copy = local_copy("memory://words")
    >>> Path(copy).read_bytes(), local_copy("here")
    (b'one two', 'here')

    Args:
        path: The file.
        store: Keeps blocks of it, so that the next program copies these.

    Raises:
        DamagedData: The file has changed, or is gone.
        OSError: It cannot be had, or there is no room for it.
    """
    if not is_remote(path):
        return path
    file, where = open_file(path, store), (os.getpid(), gettempdir())
    every = _OPEN.get(where) or _OPEN.setdefault(where, _Folder())
    folder = mkdtemp(dir=every.path)
    copy = _Copy(Path(folder, Path(masked(path)).name))  # as errors name it
    finalize(copy, _remove, folder, os.getpid(), every)
    ranges = [(at, min(_PART, file.size - at)) for at in range(0, file.size, _PART)]
    with Path(copy).open("xb") as out:
        out.writelines(file.read_many(ranges))
    return copy


def _remove_left(folder: Path) -> None:
    """Deletes a folder of this user whose process is gone."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    lock = locked(folder / _LOCK)
    if lock is not None:
        removed(folder)
        os.close(lock)


def _remove(folder: str, process: int, held: object) -> None:
    """Deletes a folder, but not for a process that was forked from the one that made it.

    Until then it holds the lock of the folder, or what has the folder that it is in.
    """
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(held, int):
            os.close(held)
