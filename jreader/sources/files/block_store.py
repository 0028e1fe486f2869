"""`Store`: a local cache of blocks of remote files, up to a limit.

A block is a file that is complete or missing, whatever a kill or a broken disk leaves: it is
written under another name and renamed, and its checksum is verified before its first use. Files are
never locked.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from jreader.errors import check_number, warn
from jreader.readers.exits_and_forks import ForkGuard
from jreader.sources.files.eviction import NextUses
from jreader.sources.transactions import new_file

if TYPE_CHECKING:
    from jreader.sources.files.stored_files import StoredFile

_MAGIC = b"jreader block 1\n"
_HEAD = struct.Struct("<16sQI4x")  # magic, size of the block in bytes, its checksum
_NAME = re.compile(r"[0-9a-f]{24}-[0-9]+\.block")
_HALF = re.compile(r"\.[0-9a-f]{24}-[0-9]+\.block\.[0-9a-f]{16}")
_STALE = 300.0  # seconds after which an unfinished block is from a dead process
_BLOCK = 1 << 22  # bytes
_IN_MEMORY = 8  # latest fetched blocks that are not stored: the next range may be in one
_SCAN_EVERY = 256  # blocks to write between scans for blocks of other processes
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class BlockFiles:
    """The blocks in a folder, which may hold other files too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = BlockFiles(Path(folder))
    ...     files.write(f"{7:024x}-0.block", b"abcdef")
    ...     files.read(f"{7:024x}-0.block", 6, 2, 5), files.read(f"{7:024x}-1.block", 6, 0, 1)
    (b'cde', None)

    Args:
        folder: The folder; it is created with the first block.
    """

    overhead = _HEAD.size

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self.folder = folder
        self._checked: set[str] = set()

    def read(self, name: str, size: int, begin: int, end: int) -> bytes | None:
        """Read these bytes of a block; None if it is missing or incomplete.

        Args:
            name: Its name.
            size: Its size in bytes.
            begin: The first byte to read.
            end: The byte to stop before.
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
        """Store a block.

        Raises:
            OSError: It cannot be written.
        """
        # another process may delete the new file, taking it for a leftover
        gone = suppress(FileNotFoundError)
        with gone, new_file(self.folder / name) as half, half.open("xb") as out:
            out.write(_HEAD.pack(_MAGIC, len(data), crc32(data)))
            out.write(data)

    def delete(self, name: str) -> None:
        """Delete a block, unless the file is not a block, or cannot be deleted."""
        self._checked.discard(name)
        path = self.folder / name
        with suppress(OSError):
            with path.open("rb") as file:
                ours = file.read(len(_MAGIC)) == _MAGIC
            if ours:
                path.unlink()

    def touch(self, name: str) -> None:
        """Record in the file's time that the block was used now."""
        with suppress(OSError):
            os.utime(self.folder / name)

    def list_blocks(self) -> Iterator[tuple[str, int, float]]:
        """Yield the blocks in the folder: name, bytes on disk, and the time of their last use.

        Deletes blocks that were never completed.
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


class Store:
    r"""A local folder that caches blocks of remote files, up to a limit.

    Give it to readers of files as `store=`:

    >>> from tempfile import TemporaryDirectory
    >>> import fsspec
    >>> from jreader import jsonl
    >>> with fsspec.open("memory://rows.jsonl", "wb") as out:
    ...     _ = out.write(b"1\n2\n3\n")
    >>> with TemporaryDirectory() as folder:
    ...     store = Store(folder, limit="1GB")
    ...     rows = jsonl("memory://rows.jsonl", store=store)
    ...     list(rows()), list(rows()), store.fetched
    ([1, 2, 3], [1, 2, 3], 6)

    Files are fetched and cached in blocks; a changed file has new blocks. At the limit, the store
    evicts the block whose next use is farthest away, where a pass announces its reads (Parquet's
    row groups). Otherwise it evicts the least recently used block, and skips most new ones, so that
    the blocks that it has are still there in the next epoch.

    Processes may share a folder: each sees the blocks of others, and no kill leaves a wrong byte or
    a lock. Each process scans for the blocks of others only from time to time, so together they may
    exceed the limit, each by 1 GB or a sixteenth of it. A block is verified against its checksum
    before its first use. Other files in the folder stay. If the disk is full or not writable, the
    store warns once, and the run continues without caching more.

    Args:
        folder: The folder; created with the first block.
        limit: The bytes to cache: a number, or a text such as "200GB", "1.5TB" or "64GiB".
        block: The bytes of a block. Random reads of smaller pieces fetch whole blocks, so choose a
            smaller one for them.

    Attributes:
        hits: Blocks read from the folder.
        misses: Blocks fetched.
        fetched: Bytes fetched.

    Raises:
        TypeError: The folder is neither a str nor a path, or a size is neither a number nor a text.
        ValueError: A size is not understood, a block is less than a byte, or the limit less than a
            block.
        NotADirectoryError: The folder is a file.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit: int | str = "200GB",
        *,
        block: int | str = _BLOCK,
    ) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(
                f"Store(folder, limit) needs a folder, a str or a path, not {folder!r}."
            )
        self.folder = Path(folder).expanduser()
        self.limit, self.block = (
            bytes_in("limit of Store", limit),
            bytes_in("block of Store", block),
        )
        if self.block < 1 or self.limit < self.block + BlockFiles.overhead:
            raise ValueError(
                f"Store(folder, limit={limit!r}) has no room for one block, of {self.block:,} "
                f"bytes: give more, or smaller blocks, as in block='64kB'."
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"Store({str(folder)!r}, limit) needs a folder, not a file.")
        self._write_failed = False
        self.hits = self.misses = self.fetched = 0
        self._begin()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r}, limit={self.limit})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and the limits; statistics stay in this process."""
        return partial(Store, block=self.block), (str(self.folder), self.limit)

    def announce(self, file: StoredFile, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the next reads of a file, as ranges (offset, size), after earlier ones."""
        parts = [
            (file.name_of(number), low)
            for offset, size in ranges
            for number, low, _ in file.pieces(offset, size)
        ]
        self._check_process()
        with self._lock:
            self._uses.announce(parts)

    def forget(self, files: Iterable[StoredFile]) -> None:
        """Drop the announced reads of these files: another pass begins."""
        keys = {file.key for file in files}
        self._check_process()
        with self._lock:
            self._uses.forget(lambda name: name.partition("-")[0] in keys)

    def piece(self, file: StoredFile, number: int, begin: int, end: int) -> bytes | None:
        """Return these bytes of a block if it is stored; else None."""
        self._check_process()
        name = file.name_of(number)
        data = self._files.read(name, file.size_of(number), begin, end)
        with self._lock:
            self._uses.used(name, begin, end)
            first = data is not None and name not in self._touched
            if first:
                self._touched.add(name)
            if data is not None:
                self.hits += 1
                if name not in self._sizes:  # written by another process
                    self._add(name, file.size_of(number) + BlockFiles.overhead)
        if first:
            self._files.touch(name)
        return data

    def fetch(self, file: StoredFile, numbers: Sequence[int], permit: Permit) -> dict[int, bytes]:
        """Fetch blocks that are not stored, each once for all threads; store them if permitted.

        Args:
            file: The file.
            numbers: The numbers of the blocks.
            permit: Takes the function that stores a fetched block; calls it if storing is
                permitted.

        Raises:
            DamagedData: The file has changed.
            OSError: They cannot be fetched.
        """
        self._check_process()
        futures = {number: Future[bytes]() for number in numbers}
        mine, given = self._claimed(file, futures), dict[int, bytes]()
        try:
            for number, data in self._obtained(file, mine, permit):
                given[number] = data
                futures[number].set_result(data)
        except BaseException as error:  # also for other threads that wait for the same blocks
            for number in mine:
                if not futures[number].done():
                    futures[number].set_exception(error)
            raise
        finally:
            with self._lock:
                for number in mine:
                    self._in_flight.pop(file.name_of(number), None)
        others = {number: futures[number].result() for number in futures if number not in given}
        return given | others

    def _claimed(self, file: StoredFile, futures: dict[int, Future[bytes]]) -> list[int]:
        """Claim the blocks that are neither in memory nor in flight; return their numbers.

        Puts the futures of other threads into `futures`.
        """
        mine = list[int]()
        with self._lock:
            for number, future in futures.items():
                name = file.name_of(number)
                if name in self._recent:
                    self._recent.move_to_end(name)
                    future.set_result(self._recent[name])
                elif name in self._in_flight:
                    futures[number] = self._in_flight[name]
                else:
                    self._in_flight[name] = future
                    mine.append(number)
        return mine

    def _obtained(
        self, file: StoredFile, numbers: Sequence[int], permit: Permit
    ) -> Iterator[tuple[int, bytes]]:
        """Yield blocks that others have stored meanwhile, then fetch the rest."""
        with self._lock:
            there = [number for number in numbers if file.name_of(number) in self._sizes]
        pieces = {number: self.piece(file, number, 0, file.size_of(number)) for number in there}
        kept = {number: data for number, data in pieces.items() if data is not None}
        yield from kept.items()
        # write blocks while the next ones are in flight
        for number, data in file.fetched([each for each in numbers if each not in kept]):
            with self._lock:
                self.misses += 1
                self.fetched += len(data)
            permit(partial(self._keep, file.name_of(number), data))
            yield number, data

    def _keep(self, name: str, data: bytes) -> None:
        """Store a block, if there is space or another one can be evicted."""
        size = len(data) + BlockFiles.overhead
        with self._lock:
            if self._write_failed or not self._make_room(name, size):
                self._recent[name] = data
                while len(self._recent) > _IN_MEMORY:
                    self._recent.popitem(last=False)
                return
            self._add(name, size)
        try:
            self._files.write(name, data)
            with self._lock:
                gone = name not in self._sizes  # another thread evicted it
            if gone:
                self._files.delete(name)
        except OSError as error:
            with self._lock:
                first, self._write_failed = not self._write_failed, True
                self._remove(name)
            if first:
                warn(
                    f"{self} cannot keep what was fetched ({error}): the run continues, and "
                    f"fetches again what it needs again. Free some room, or give a smaller limit."
                )

    def _make_room(self, name: str, size: int) -> bool:
        self._writes_until_scan -= 1
        if self._writes_until_scan < 0:
            self._scan_folder()
        while self._total + size > self.limit:
            victim = self._uses.victim()
            if victim is None or not self._uses.should_evict(victim, name):
                return False
            self._remove(victim)
            self._files.delete(victim)
        return True

    def _scan_folder(self) -> None:
        """Scan the folder, which other processes change too."""
        there = {name: (size, used) for name, size, used in self._files.list_blocks()}
        for name in [name for name in self._sizes if name not in there]:
            self._remove(name)
        newest = max((used for _, used in there.values()), default=0.0)
        for name, (size, used) in there.items():
            if name not in self._sizes:
                self._add(name, size, used - newest - 1)  # before all that this process uses
        self._writes_until_scan = min(_SCAN_EVERY, self.limit // self.block // 16)

    def _add(self, name: str, size: int, used: float | None = None) -> None:
        self._total += size - self._sizes.get(name, 0)
        self._sizes[name] = size
        self._uses.keep(name, used)

    def _remove(self, name: str) -> None:
        self._total -= self._sizes.pop(name, 0)
        self._uses.drop(name)

    def _check_process(self) -> None:
        if self._process != os.getpid():  # the parent may hold the lock
            self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._files, self._uses = BlockFiles(self.folder), NextUses()
        self._sizes: dict[str, int] = {}
        self._total, self._writes_until_scan, self._write_failed = 0, 0, False
        self._touched = set[str]()
        self._in_flight: dict[str, Future[bytes]] = {}
        self._recent: OrderedDict[str, bytes] = OrderedDict()


class Permit:
    """A thread's permission to store blocks; withdrawn once its reads are not wanted."""

    def __init__(self) -> None:
        self._lock, self._stopped, self._fork_guard = threading.Lock(), False, ForkGuard()

    def __call__(self, keep: Callable[[], None]) -> None:
        """Store a block, if still permitted."""
        with self._lock:
            if not self._stopped:
                keep()

    def stop(self) -> None:
        """Permit no more writes: the folder may be deleted next."""
        self._stopped = True
        if not self._fork_guard.forked:  # otherwise a thread that was not forked may hold the lock
            with self._lock:
                pass


def checked_store(call: str, store: Any) -> Store | None:
    """Check the store of a reader, or None.

    Raises:
        TypeError: It is something else.
    """
    if store is None or isinstance(store, Store):
        return store
    raise TypeError(f"{call} needs as store= a Store(folder, limit='200GB'), not {store!r}.")


def checked_block(call: str, block: Any) -> int:
    """Convert the block size of a reader to bytes.

    >>> checked_block("block of tar(paths)", "4MB")
    4000000

    Raises:
        TypeError: It is neither a whole number nor a text.
        ValueError: It is less than a byte, or not a size.
    """
    size = bytes_in(call, block)
    if not size:
        raise ValueError(
            f"{call} needs at least a byte, as in block='4MB', not {block!r}; leave it out for a "
            "reader without blocks."
        )
    return size


def bytes_in(what: str, given: Any) -> int:
    """Convert a number of bytes, given as a number or a text.

    >>> bytes_in("limit of Store", "1.5kB"), bytes_in("limit of Store", "2 MiB")
    (1500, 2097152)
    """
    if not isinstance(given, str):
        return check_number(what, given)
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kKMGTP]?)(i?)B?\s*", given)
    try:
        number = float(found[1]) if found else -1
    except ValueError:
        number = -1
    if not found or number < 0:
        raise ValueError(
            f"{what} needs a number of bytes, or a string such as '200GB', '1.5TB' or '64GiB', not "
            f"{given!r}."
        )
    return int(number * (1024 if found[3] else 1000) ** _UNITS[found[2].upper()])
