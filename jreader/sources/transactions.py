"""Write files and folders atomically: complete or not at all, even if the program is killed.

Everything is written under another name first, in the same folder, and renamed once complete:
`new_file` for indices, blocks, downloads and the tables of caches, `new_folder` for what `write`
makes. A folder has one writer at a time: the one that holds the lock on a file in it, which a kill
releases. The next writer removes what a killed one left there.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from jreader.errors import ReaderError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a full disk, or of a file that may not grow."""

_LOCK = ".writer.lock"


@contextmanager
def new_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` at the end of the block; removed on errors.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with new_file(Path(folder, "a")) as aside:
    ...         _ = aside.write_text("whole")
    ...         before = os.path.exists(f"{folder}/a")
    ...     before, os.listdir(folder)
    (False, ['a'])

    Args:
        path: The file; its folder is created if missing.
        durable: Whether to sync the file to disk before renaming it, and its name afterwards.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield aside
        if durable:
            synced(aside)
        aside.replace(path)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    if durable:
        with suppress(OSError):  # some file systems cannot
            synced(path.parent)


@contextmanager
def new_folder(folder: Path, check: Callable[[], object]) -> Iterator[Path]:
    """Yield a hidden folder to write into, which replaces `folder` at the end of the block.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent, "made"), lambda: None) as hidden:
    ...         _ = Path(hidden, "a.npy").write_bytes(b"...")
    ...         before = Path(parent, "made").exists()
    ...     before, os.listdir(f"{parent}/made"), os.listdir(parent)
    (False, ['a.npy'], ['made'])

    Args:
        folder: The folder.
        check: Raises if contents of the folder would be lost; called once no other process writes
            there.

    Raises:
        ReaderError: Another program, or thread, is writing to it.
        OSError: The disk is full; the message says so.
    """
    hidden = _hidden(folder, "writing")
    with explaining_full_disk(folder, "nothing of what was written is kept there", "again, or"):
        lock = _sole_writer(folder, hidden)
        try:
            _restore_replaced(folder)
            check()
            for left in hidden.iterdir():
                if left.name != _LOCK:
                    left.unlink()
            yield hidden
            _commit(hidden, folder)
        except BaseException:
            removed(hidden)
            raise
        finally:
            os.close(lock)


@contextmanager
def explaining_full_disk(folder: Path | str, kept: str, again: str) -> Iterator[None]:
    """Say what a full disk means for this block: what is kept, and how to run again."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(
            error.errno,
            f"no space is left for {str(folder)!r} ({os.strerror(error.errno)}): {kept}. Free some "
            f"space and run {again} give another folder.",
        ) from error


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def locked(path: Path) -> int | None:
    """Lock a file, creating it; None if it is locked already. Closing it unlocks it.

    Raises:
        NotImplementedError: On Windows, which has no locks that a kill releases.
    """
    try:
        fcntl = import_module("fcntl")
    except ModuleNotFoundError:
        raise NotImplementedError(
            "write(reader, path, format), cache(reader, path) and filter(fn, reader, keep) take a "
            "lock that Windows does not have: run them on Linux or macOS, and copy the folder; "
            "cache(reader) keeps samples in memory."
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def entries(folder: Path) -> set[str]:
    """Return the names in a folder, except the lock of a writer killed after its commit."""
    return {each.name for each in folder.iterdir()} - {_LOCK} if folder.is_dir() else set()


def _sole_writer(folder: Path, hidden: Path) -> int:
    """Create the hidden folder, and return its lock."""
    while True:
        try:
            lock = locked(hidden / _LOCK)
            if lock is None:
                raise ReaderError(
                    f"another program, or thread, is writing to {str(folder)!r}: wait for it, or "
                    f"give another folder."
                )
            if os.path.samestat(os.fstat(lock), (hidden / _LOCK).stat()):
                return lock
            os.close(lock)
        except FileNotFoundError:  # the previous writer just renamed or removed it
            continue


def _commit(hidden: Path, folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot
        synced(hidden)
    before = _hidden(folder, "replaced")
    if folder.is_dir() and any(folder.iterdir()):
        folder.rename(before)
    try:
        hidden.rename(folder)
    except BaseException:
        if before.exists():
            before.rename(folder)
        raise
    (folder / _LOCK).unlink(missing_ok=True)
    with suppress(OSError):
        synced(folder.parent)
    removed(before)


def _restore_replaced(folder: Path) -> None:
    """Undo what a killed program began: put back what it was about to replace."""
    before = _hidden(folder, "replaced")
    if before.exists() and not folder.exists():
        before.rename(folder)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.removed"):
        shutil.rmtree(left, ignore_errors=True)
    removed(before)


def removed(folder: Path) -> None:
    """Remove a folder; rename it first, so that its name is free immediately."""
    left = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.removed")
    with suppress(OSError):
        folder.rename(left)
        shutil.rmtree(left, ignore_errors=True)


def _hidden(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")
