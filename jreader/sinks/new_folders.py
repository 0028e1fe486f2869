"""A folder that is there as a whole, or not at all, whenever the program that makes it is killed.

It is made beside, under a hidden name, and renamed once all of it is on the disk, as TensorFlow
Datasets does. Who makes it has the lock of a file in it. What a killed program left is removed by
the next one that writes to the same folder.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jreader.errors import ReaderError
from jreader.sources.atomic_files import FULL, locked, synced
from jreader.sources.far_systems import is_far

_CALL = "write(reader, path, format)"
_LOCK = ".writer.lock"
_SHARD = re.compile(r".*-\d{5,}-of-\d{5,}\.\w+")


def checked_folder(path: Any, suffixes: tuple[str, ...]) -> Path:
    """The folder that a path names, absolute and without links.

    Raises:
        TypeError: It is no path.
        ValueError: It is elsewhere, or is named like a file.
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name:
        raise TypeError(f"path of {_CALL} needs the name of a folder, not {path!r}.")
    if is_far(name):
        raise ValueError(
            f"{_CALL} writes to this machine, and {name!r} is elsewhere: write to a folder here, "
            f"and copy that."
        )
    folder = Path(os.path.realpath(name))
    if folder.suffix in suffixes:
        raise ValueError(
            f"path of {_CALL} needs a folder, for several files, and {name!r} is named like one "
            f"file: type {str(Path(name).with_suffix(''))!r}, with shards=1 for a single file."
        )
    if not folder.name:
        raise ValueError(f"path of {_CALL} needs a folder with a name, not {name!r}.")
    return folder


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Raises FileExistsError if there is something in a folder that would be lost.

    With `overwrite`, shards that were written before are no such thing; other files are.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"path of {_CALL} needs a folder, and {str(folder)!r} is a file.")
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    names.discard(_LOCK)  # of a program that was killed when all else was done
    others = [name for name in names if not _SHARD.fullmatch(name)]
    if overwrite and others:
        raise FileExistsError(
            f"{str(folder)!r} has other files than shards in it, such as {min(others)!r}, which "
            f"overwrite=True would delete: give a folder of its own."
        )
    if names and not overwrite:
        raise FileExistsError(
            f"{str(folder)!r} has files in it already, such as {min(names)!r}: give another "
            f"folder, or overwrite=True to replace them once all samples are written."
        )


@contextmanager
def new_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `folder` at the end of the block.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent, "made"), overwrite=False) as hidden:
    ...         _ = Path(hidden, "a-00000-of-00001.npy").write_bytes(b"...")
    ...         before = Path(parent, "made").exists()
    ...     before, os.listdir(f"{parent}/made"), os.listdir(parent)
    (False, ['a-00000-of-00001.npy'], ['made'])

    Raises:
        FileExistsError: There are files in it that would be lost.
        ReaderError: Another program, or thread, is writing to it.
    """
    hidden = folder.with_name(f".{folder.name}.writing")
    with _telling(folder):
        lock = _sole_writer(folder, hidden)
    try:
        with _telling(folder):
            _mend(folder)
            check_free(folder, overwrite=overwrite)
            for left in hidden.iterdir():
                if left.name != _LOCK:
                    left.unlink()
        try:
            with _telling(folder):
                yield hidden
                _commit(hidden, folder)
        except BaseException:
            _removed(hidden)
            raise
    finally:
        os.close(lock)


def _sole_writer(folder: Path, hidden: Path) -> int:
    """The lock of the hidden folder, which is made."""
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
        except FileNotFoundError:  # its last writer has just renamed, or removed, it
            continue


def _commit(hidden: Path, folder: Path) -> None:
    with suppress(OSError):  # not every file system can
        synced(hidden)
    before = _name(folder, "replaced")
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
    _removed(before)


def _mend(folder: Path) -> None:
    """Ends what a killed program had begun: what it was about to replace is put back."""
    before = _name(folder, "replaced")
    if before.exists() and not folder.exists():
        before.rename(folder)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.removed"):
        shutil.rmtree(left, ignore_errors=True)
    _removed(before)


def _removed(folder: Path) -> None:
    """Renames first: whoever wants that name again need not wait."""
    left = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.removed")
    with suppress(OSError):
        folder.rename(left)
        shutil.rmtree(left, ignore_errors=True)


def _name(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")


@contextmanager
def _telling(folder: Path) -> Iterator[None]:
    """Says what a full disk means here."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(
            error.errno,
            f"no space is left for {str(folder)!r} ({os.strerror(error.errno)}): nothing of what "
            f"was written is kept there. Free some space and run again, or give another folder.",
        ) from error
