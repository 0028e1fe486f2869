"""Open the file at a path, local or remote; a store may cache blocks of remote files.

Cached blocks are read from the store, and the rest is fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from jreader.readers.exits_and_forks import run_daemon
from jreader.sources.file_checks import State, States
from jreader.sources.files.block_store import Permit, Store
from jreader.sources.files.byte_ranges import ByteFile, LocalFile
from jreader.sources.files.remote_files import RemoteFile
from jreader.sources.remote import RemoteState, is_remote

T = TypeVar("T")
_MAX_FILES = 1024  # files of a data set whose state or footer is cached
_CHUNK = 1 << 24  # bytes of blocks that one thread requests
_THREADS = 4  # threads that fetch and store blocks: some write while others wait
_FILES = 16  # remote files to read at the same time
_REQUEST = 1 << 22  # bytes of small blocks that one request fetches


class BlockPiece(NamedTuple):
    """A part of a block: the number of the block, and where the part begins and ends in it."""

    number: int
    begin: int
    end: int


class StoredFile(ByteFile):
    """A remote file whose blocks a store caches; it is read like any other.

    Args:
        remote: The file.
        store: The store.
    """

    is_remote = True

    def __init__(self, remote: RemoteFile, store: Store) -> None:
        super().__init__(remote.path, remote.size, remote.stamp, near=1 << 16)
        self.remote, self.store = remote, store
        of = f"{remote.path}\n{remote.stamp}\n{store.block}"
        self.key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()

    def __repr__(self) -> str:
        return f"{self.remote!r}, kept by {self.store!r}"

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each range (offset and size), in order, as `RemoteFile` does."""
        for offset, size in ranges:
            self.check_range(offset, size)
        pieces = [self.pieces(*each) for each in ranges]
        batches = self._batches(list(chain.from_iterable(pieces)))
        parts = _read_in_turn([partial(self._read, batch) for batch in batches], _THREADS)
        for each in pieces:
            yield b"".join(islice(parts, len(each)))

    def read_all(self, ranges: Sequence[tuple[int, int]], permit: Permit) -> list[bytes]:
        """Read ranges on this thread; store blocks as long as permitted."""
        pieces = [self.pieces(*each) for each in ranges]
        parts = iter(self._read(list(chain.from_iterable(pieces)), permit))
        return [b"".join(islice(parts, len(each))) for each in pieces]

    def announce(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the next ranges, so that the store keeps what is needed soon."""
        self.store.announce(self, ranges)

    def pieces(self, offset: int, size: int) -> list[BlockPiece]:
        """Split a range into pieces of blocks."""
        each, end = self.store.block, offset + size
        numbers = range(offset // each, -(-end // each)) if size else ()
        return [
            BlockPiece(number, max(offset - number * each, 0), min(end - number * each, each))
            for number in numbers
        ]

    def name_of(self, number: int) -> str:
        """Return the file name of a block."""
        return f"{self.key}-{number}.block"

    def size_of(self, number: int) -> int:
        """Return the size of a block in bytes."""
        return min(self.store.block, self.size - number * self.store.block)

    def fetched(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Fetch blocks, whether the store has them or not; adjacent ones in one request.

        Raises:
            DamagedData: The file has changed.
            OSError: They cannot be fetched.
        """
        runs, most = list[list[int]](), max(_REQUEST // self.store.block, 1)
        for number in numbers:
            if runs and number == runs[-1][-1] + 1 and len(runs[-1]) < most:
                runs[-1].append(number)
            else:
                runs.append([number])
        spans = [(run[0] * self.store.block, sum(map(self.size_of, run))) for run in runs]
        for run, data in zip(runs, self.remote.read_many(spans), strict=True):
            for at, number in enumerate(run):
                low = at * self.store.block
                yield number, data[low : low + self.size_of(number)]

    def _batches(self, pieces: Sequence[BlockPiece]) -> Iterator[Sequence[BlockPiece]]:
        """Group consecutive pieces, limiting the number of blocks per group."""
        most, low, wanted = max(_CHUNK // self.store.block, 1), 0, set[int]()
        for high, piece in enumerate(pieces):
            if len(wanted) == most and piece.number not in wanted:
                yield pieces[low:high]
                low, wanted = high, set()
            wanted.add(piece.number)
        yield pieces[low:]

    def _read(self, pieces: Sequence[BlockPiece], permit: Permit) -> list[bytes]:
        kept = [self.store.piece(self, *piece) for piece in pieces]
        lacking = {
            piece.number: None for piece, data in zip(pieces, kept, strict=True) if data is None
        }
        fetched = self.store.fetch(self, list(lacking), permit) if lacking else {}
        return [
            fetched[number][begin:end] if data is None else data
            for (number, begin, end), data in zip(pieces, kept, strict=True)
        ]


def _read_in_turn(
    reads: Sequence[Callable[[Permit], list[bytes]]], threads: int
) -> Iterator[bytes]:
    """Yield the results of several reads, in order; threads read ahead."""
    if len(reads) < 2:
        for read in reads:
            yield from read(Permit())
        return
    left, ahead = iter(reads), deque[tuple[Permit, Callable[[], list[bytes]]]]()
    try:
        while True:
            for read in islice(left, threads - len(ahead)):
                permit = Permit()
                future = run_daemon("jreader store", partial(read, permit))
                ahead.append((permit, future.result))
            if not ahead:
                return
            yield from ahead[0][1]()
            ahead.popleft()
    finally:
        for permit, _ in ahead:
            permit.stop()


def open_file(path: str, store: Store | None = None, seen: State = None) -> ByteFile:
    """Return the file at a path, to read by byte range; it is opened on the first read.

    The file has the state `seen`, or its current one. A path that begins with a protocol (`s3://`,
    `https://`) is a remote file, which is read through fsspec; a `store` caches what was fetched of
    it.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     file.size, file.read(2, 3)
    (6, b'cde')

    Raises:
        DamagedData: The file does not exist (any more).
        OSError: A remote file cannot be reached.
        ModuleNotFoundError: fsspec is not installed: `python -m pip install 'jreader[far]'`.
    """
    if not is_remote(path):
        return LocalFile(path, seen)
    remote = RemoteFile(path, seen) if isinstance(seen, RemoteState) else RemoteFile(path)
    return remote if store is None else StoredFile(remote, store)


class Latest(Generic[T]):
    """Maps `make` over a sequence lazily, and caches the latest results.

    >>> made = []
    >>> squares = Latest(lambda number: made.append(number) or number**2, range(4))
    >>> squares[3], squares[3], len(squares), made
    (9, 9, 4, [3])

    Args:
        make: Makes the result for an item; must be thread-safe.
        of: The items.
    """

    def __init__(self, make: Callable[[Any], T], of: Any) -> None:
        self._make, self._items = make, of
        self._held = lru_cache(_MAX_FILES)(lambda at: make(of[at]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the cached results."""
        return Latest, (self._make, self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return map(self._held, range(len(self)))

    def __getitem__(self, at: int) -> T:
        return self._held(int(at))


def files_of(paths: Sequence[str], seen: States, store: Store | None = None) -> Latest[ByteFile]:
    """Return the files of a data set, in their states when first checked."""
    return Latest(partial(_file_of, paths, seen, store), range(len(paths)))


def _file_of(paths: Sequence[str], seen: States, store: Store | None, at: int) -> ByteFile:
    return open_file(paths[at], store, seen[at])


def read_many(requests: Sequence[tuple[ByteFile, int, int]]) -> Iterator[bytes]:
    """Yield the bytes of many ranges (a file, an offset, a size), in that order.

    Ranges of remote files are requested several at a time.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     list(read_many([(file, 4, 2), (file, 0, 1)]))
    [b'ef', b'a']

    Raises:
        DamagedData: A file has changed since it was found, or is gone.
    """
    by_file = [
        (file, [(offset, size) for _, offset, size in some])
        for file, some in groupby(requests, itemgetter(0))
    ]
    if len(by_file) > 1 and any(file.is_remote for file, _ in by_file):
        yield from _read_in_turn([partial(_read_all, *each) for each in by_file], _FILES)
        return
    for file, ranges in by_file:
        yield from file.read_many(ranges)


def _read_all(file: ByteFile, ranges: Sequence[tuple[int, int]], permit: Permit) -> list[bytes]:
    if isinstance(file, StoredFile):
        return file.read_all(ranges, permit)
    return [*file.read_many(ranges)]
