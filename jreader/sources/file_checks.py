"""Check files for all readers: paths exist, files have not changed, errors are clear.

If a mapped file is truncated while it is read, a bus error ends the program, and no `except` sees
it. So files are checked when a pass begins, before anything is read from them.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import stat
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import Node
from jreader.readers.columns import Array, Column
from jreader.readers.credentials import masked, name_in_cursor
from jreader.sources.remote import RemoteState, forget, is_remote, remote_among, remote_states

T = TypeVar("T")
UNPACKED_LIMIT = "JREADER_UNPACKED_LIMIT"
"""The environment variable that limits how many bytes a packed file may unpack to."""

_LEAST_UNPACKED, _TIMES = 1 << 28, 100
_ONE_SLASH = re.compile(r"[a-z0-9]+:/[^/]")
_MANY = 1024  # files: stating more takes over a few milliseconds
_ALL_READ = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_PAUSES = 2  # times as long as the last check took, until the next one of so many files
_GONE = (-1, 0, 0)


class LocalState(NamedTuple):
    """The state of a local file: a part of what `os.stat` returns."""

    st_size: int
    st_ino: int
    st_mtime_ns: int


State: TypeAlias = "os.stat_result | LocalState | RemoteState | None"
"""The state of a file; None if it does not exist."""


class States:
    """The states of files, in 24 bytes per local file.

    >>> states = States([__file__, "no such file"])
    >>> len(states), states[0].st_size == Path(__file__).stat().st_size, states[1]
    (2, True, None)
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Stat the files; remote ones in parallel."""
        some, self.paths = remote_among(paths), paths
        states = remote_states([paths[at] for at in some]) if some else []
        self.remote = dict(zip(some, states, strict=True))
        here = ("" if n in self.remote else path for n, path in enumerate(paths)) if some else paths
        numbers = chain.from_iterable(map(_state_numbers, here))
        self._numbers = np.fromiter(numbers, np.int64, 3 * len(paths)).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[State]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, at: int) -> State:
        """Return the state of one file."""
        if at in self.remote:
            return self.remote[at]
        size, node, changed_at = self._numbers[at].tolist()
        return None if size < 0 else LocalState(size, node % (1 << 64), changed_at)

    def local_sizes(self) -> list[int]:
        """Return the size of each file in bytes; 0 for remote or missing files."""
        sizes: list[int] = self._numbers[:, 0].clip(0).tolist()
        return sizes

    def differing(self, before: States) -> list[int]:
        """Return the indices of files that may have changed, are missing, or are remote."""
        size, node, changed_at = (self._numbers != before._numbers).T
        return np.flatnonzero(size | (node & changed_at) | (self._numbers[:, 0] < 0)).tolist()

    def identities(self) -> Array:
        """Return the sizes of the files, and numbers that differ between states of a file."""
        found = self._numbers.T[[0, 2]]
        for at, state in self.remote.items():
            if state is not None:
                found[:, at] = state.st_size, number_of(state.stamp_of(self.paths[at]))
        return found


def _state_numbers(path: str) -> tuple[int, int, int]:
    seen = state_of(path)
    if not isinstance(seen, os.stat_result):
        return _GONE
    node = seen.st_ino
    return seen.st_size, node - (node >> 63 << 64), seen.st_mtime_ns


def number_of(text: str) -> int:
    """Hash a text to an int64."""
    of = blake2b(text.encode(errors="surrogateescape"), digest_size=8)
    return int.from_bytes(of.digest(), "little", signed=True)


class FileNode(Node[T]):
    """Read the files in its field `path` or `paths`."""

    path: str

    @property
    def _named(self) -> tuple[str, ...]:
        return getattr(self, "paths", None) or (self.path,)

    @property
    def read_whole(self) -> bool:
        """True if all samples are in memory, so that the files may be deleted."""
        return False

    @cached_property
    def _first_seen(self) -> States:
        return States(self._named)

    @cached_property
    def _next_look(self) -> list[float]:
        return [0.0]

    def file_paths(self) -> tuple[str, ...]:
        """Return the files that it was given."""
        return self._named

    def remote_sizes(self) -> list[str]:
        """Return the names and sizes of its remote files, for cursors."""
        remote = [self._named[at] for at in remote_among(self._named)]
        if not remote:
            return []
        sizes = [state.st_size if state else 0 for state in remote_states(remote)]
        return [
            f"{name_in_cursor(path)!r} of {size} bytes"
            for path, size in zip(remote, sizes, strict=True)
        ]

    def local_sizes(self) -> list[int]:
        """Return the sizes of its files; 0 for remote or missing ones."""
        return (vars(self).get("_first_seen") or States(self._named)).local_sizes()

    def check_files(self) -> None:
        """Raise DamagedData if a file changed its size, was replaced, or is gone.

        Remote files are checked again only after some seconds, and thousands of files after twice
        as long as a check takes; each file is also checked when it is opened. Bytes overwritten in
        place, in a file of the same size, go unnoticed here: a mapped file shows them.
        """
        names, began, again = self._named, time.monotonic(), "_first_seen" in vars(self)
        if began < self._next_look[0]:
            return
        first = self._first_seen
        now = States(names) if again else first
        for at in now.differing(first):
            before, state = first[at], now[at]
            if (before is not None and state is not None) or not self.read_whole:
                check_state(names[at], before, state)
        if len(names) > _MANY:
            ended = time.monotonic()
            self._next_look[0] = ended + _PAUSES * (ended - began)


def state_of(path: str) -> State:
    """Return the state of a local file; None if there is none.

    >>> state_of("no such file") is None
    True
    """
    try:
        return os.stat(path)  # noqa: PTH116  # a Path costs three times as much, for 1,000 files
    except (OSError, ValueError):  # a name may contain a null byte
        return None


def is_file(path: str) -> bool:
    """Return whether a path names a local file.

    >>> is_file(__file__), is_file(".")
    (True, False)
    """
    return _mode_of(path) is not None


def are_files(paths: Sequence[str]) -> list[bool]:
    """Return whether each path names a file, local or remote.

    >>> are_files([__file__, ".", "memory://no such file"])
    [True, False, False]
    """
    seen = zip(paths, States(paths), strict=True)
    return [is_file(path) if not is_remote(path) else state is not None for path, state in seen]


def _mode_of(path: str) -> int | None:
    """Return the mode of a local file; None if it is not one."""
    seen = state_of(path)
    return seen.st_mode if isinstance(seen, os.stat_result) and stat.S_ISREG(seen.st_mode) else None


def _may_read(path: str, mode: int) -> bool:
    return mode & _ALL_READ == _ALL_READ or os.access(path, os.R_OK)


def is_folder(path: str) -> bool:
    """Return whether a path names a local folder.

    >>> is_folder(__file__), is_folder(".")
    (False, True)
    """
    seen = state_of(path)
    return isinstance(seen, os.stat_result) and stat.S_ISDIR(seen.st_mode)


def check_state(path: str, first: State, now: State) -> None:
    """Raise DamagedData if a file changed its size, was replaced, or is gone.

    >>> check_state(__file__, state_of(__file__), state_of(__file__))
    """
    if first is None or now is None:
        raise changed(path, "cannot be found any more")
    if now.st_size != first.st_size:
        raise changed(path, f"had {first.st_size:,} bytes, and has {now.st_size:,} now")
    if now.st_ino != first.st_ino and now.st_mtime_ns != first.st_mtime_ns:
        raise changed(path, "was replaced by another file")


def call_text(node: Node[Any], *arguments: object) -> str:
    """Return the call that makes this node, as a user would type it."""
    return masked(f"{type(node).__name__}({', '.join(map(repr, arguments))})")


def path_text(given: Any) -> str | None:
    """Return a path as a str; None if it is not a path, or is in bytes.

    >>> path_text(Path("a", "b")), path_text(b"a"), path_text(3)
    ('a/b', None, None)
    """
    name = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    return name if isinstance(name, str) else None


def check_path(call: str, path: Any, *, remote: bool = False) -> str:
    """Return a path as a str, if it names a file: see `check_paths`."""
    (name,) = check_paths(call, (path,), remote=remote)
    return name


def check_paths(call: str, paths: tuple[Any, ...], *, remote: bool = False) -> tuple[str, ...]:
    """Return the paths as str, if each names a file; `remote` also allows remote files.

    >>> check_paths("text(*paths)", ())
    Traceback (most recent call last):
    TypeError: text(*paths) needs at least one path.

    Raises:
        TypeError: There is no path, or one is neither a str nor a path.
        FileNotFoundError: A path names no file.
        ValueError: A file is remote, and has to be local.
        OSError: A remote file cannot be reached.
    """
    if not paths:
        raise TypeError(f"{call} needs at least one path.")
    names = []
    for path in paths:
        name = path_text(path)
        if name is None:
            hint = ": unpack it, as in *paths" if isinstance(path, (list, tuple)) else ""
            raise TypeError(f"{call} needs a str or a path, not {path!r}{hint}.")
        if is_remote(name):
            if not remote:
                raise ValueError(
                    f"{call} reads files of this machine, and {masked(name)!r} is elsewhere: copy "
                    f"it here first. Formats that are read by ranges, such as jsonl, are read from "
                    f"there."
                )
        elif (mode := _mode_of(name)) is None:
            raise not_found_error(call, name, "a file")
        elif not _may_read(name, mode):
            raise PermissionError(
                f"{call} may not read {name!r}: the user who runs this program has no permission. "
                f"Give it one (chmod u+r), or run as a user who has."
            )
        names.append(name)
    _check_remote(call, [names[at] for at in remote_among(names)])
    return tuple(names)


def not_found_error(call: str, name: str, what: str) -> FileNotFoundError:
    """Return the error for a path that does not name `what`."""
    why = "does not exist" if state_of(name) is None else f"is not {what}"
    if _ONE_SLASH.match(name):
        why += " (a Path has one slash less than what it was made of: give the str)"
    return FileNotFoundError(
        f"{call} cannot read {name!r}, which {why}. Check the spelling, and the folder that the "
        f"program runs in, {Path.cwd()}."
    )


def _check_remote(call: str, remote: Sequence[str]) -> None:
    for name in remote:  # a new reader needs the current state
        forget(name)
    for name, state in zip(remote, remote_states(remote), strict=True):
        if state is None:
            raise FileNotFoundError(
                f"{call} cannot read {masked(name)!r}, which does not exist, or is not a file. "
                "Check the spelling."
            )


@contextmanager
def reading(path: str, expected: str) -> Iterator[None]:
    """Raise DamagedData in place of the errors that bytes of another format cause."""
    try:
        yield
    except (
        *(ValueError, TypeError, EOFError, LookupError, OverflowError, RecursionError, SyntaxError),
        *(gzip.BadGzipFile, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise damaged(path, expected, str(error)) from error


def damaged(path: str, expected: str, seen: str) -> DamagedData:
    """Return the error for a file that does not have the expected format."""
    return DamagedData(
        f"{masked(path)} is truncated, or not {expected}: {seen.rstrip('.')}. Fetch it again, or "
        f"check that it is the file you meant."
    )


def changed(path: str, how: str) -> DamagedData:
    """Return the error for a file that has changed since its reader first read it."""
    return DamagedData(
        f"{masked(path)} {how}, since this reader read it first: to go on would mix two data sets, "
        "or read beyond the end of a mapped file, which crashes a program. Leave the files of a "
        "run as they are, and write new files beside them; a new reader reads this file as it is "
        "now."
    )


def most_unpacked(packed: int) -> int:
    """Return how many bytes may be unpacked: a few kilobytes can hold gigabytes of blanks.

    Data that must be in memory as a whole (an array, a block, a line) are refused if they exceed
    both 256 MB and a hundred times their packed size. Real data hardly ever shrink so much.

    >>> most_unpacked(1000), most_unpacked(10**9)
    (268435456, 100000000000)
    """
    given = os.environ.get(UNPACKED_LIMIT, "")
    return int(given) if given.isdecimal() else max(_LEAST_UNPACKED, _TIMES * packed)


def check_unpacked(path: str, size: int, packed: int) -> None:
    """Raise DamagedData if unpacking to `size` bytes is not allowed."""
    if size > (most := most_unpacked(packed)):
        raise DamagedData(
            f"{masked(path)} would unpack to more than {most:,} bytes in one piece, of {packed:,}: "
            f"a file that was made to fill the memory does so. If it is meant to, set the "
            f"environment variable {UNPACKED_LIMIT} to the bytes that it may have, such as "
            f"{4 * most}."
        )


def check_map(column: Any) -> None:
    """Raise DamagedData if an array is mapped from a file that is now shorter than the map.

    Reading beyond the end of the file would be a bus error, not an exception.
    """
    if isinstance(column, Column):
        for array in (*column.arrays, *column.tables):
            if array is not column:
                check_map(array)
        return
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
