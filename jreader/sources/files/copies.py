"""Whole copies of remote files, for formats that need local files.

The copies of a process are in one temporary folder, with a file that the process keeps locked. A
kill releases the lock, so the next process that copies files deletes what a killed one left.
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

_PART = 1 << 25  # bytes of a copy in memory at a time
_MADE, _FOLDERS = "jreader-made-", "jreader-copies-"  # prefixes before and after locking
_LOCK = "lock"
_LOCKS = hasattr(os, "getuid")  # not on Windows


class _Copy(str):
    """The path of a copy, which is deleted with this object, or when the program ends."""

    __slots__ = ("__weakref__",)


class _Folder:
    """A folder for copies, which is deleted with this object, or when the program ends."""

    def __init__(self) -> None:
        """Delete the folders of processes that were killed."""
        for left in Path(gettempdir()).glob(f"{_FOLDERS}*") if _LOCKS else ():
            with suppress(OSError):
                _remove_left(left)
        made, lock = Path(mkdtemp(prefix=_MADE)), None
        with suppress(OSError):  # the file system has no locks
            lock = locked(made / _LOCK) if _LOCKS else None
        if lock is not None:  # otherwise others could lock it, and delete what is in use
            made = made.rename(made.with_name(made.name.replace(_MADE, _FOLDERS)))
        self.path = made
        finalize(self, _remove, str(self.path), os.getpid(), lock)


_OPEN = WeakValueDictionary[tuple[int, str], _Folder]()
"""The folders that hold copies, by process and temporary folder."""


def local_copy(path: str, store: Store | None = None) -> str:
    """Copy a remote file, and return a path that owns the copy; return local paths as they are.

    >>> import fsspec
    >>> with fsspec.open("memory://words", "wb") as out:
    ...     _ = out.write(b"one two")
    >>> copy = local_copy("memory://words")
    >>> Path(copy).read_bytes(), local_copy("here")
    (b'one two', 'here')

    Args:
        path: The file.
        store: Keeps blocks of it for the next program that copies it.

    Raises:
        DamagedData: The file has changed, or is gone.
        OSError: It cannot be read, or there is no space for it.
    """
    if not is_remote(path):
        return path
    file, where = open_file(path, store), (os.getpid(), gettempdir())
    every = _OPEN.get(where) or _OPEN.setdefault(where, _Folder())
    folder = mkdtemp(dir=every.path)
    copy = _Copy(Path(folder, Path(masked(path)).name))  # the name that errors show
    finalize(copy, _remove, folder, os.getpid(), every)
    ranges = [(at, min(_PART, file.size - at)) for at in range(0, file.size, _PART)]
    with Path(copy).open("xb") as out:
        out.writelines(file.read_many(ranges))
    return copy


def _remove_left(folder: Path) -> None:
    """Delete a folder of this user whose process is gone."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    lock = locked(folder / _LOCK)
    if lock is not None:
        removed(folder)
        os.close(lock)


def _remove(folder: str, process: int, held: object) -> None:
    """Delete a folder, except in a process forked from the one that made it.

    As an argument of the finalizer, `held` keeps the lock or the outer folder alive until then.
    """
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(held, int):
            os.close(held)
