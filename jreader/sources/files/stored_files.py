"""The file of a path, wherever it is; of a far one, a store may keep blocks.

What is kept is read here, and the rest is fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import NamedTuple

from jreader.sources.far_retries import in_daemon, settle
from jreader.sources.far_systems import is_far
from jreader.sources.files.block_store import Keeping, Store
from jreader.sources.files.byte_ranges import ByteFile, LocalFile
from jreader.sources.files.far_files import FarFile

_AT_ONCE = 1 << 24  # bytes of blocks that one thread asks for
_THREADS = 4  # that fetch and keep blocks for one that reads: some write while others wait
_REQUEST = 1 << 22  # bytes of small blocks that one request asks for


class BlockPiece(NamedTuple):
    """A part of a block: the number of the block, and where the part begins and ends in it."""

    number: int
    begin: int
    end: int


class StoredFile(ByteFile):
    """A far file of which a store keeps blocks; it is read like any other.

    Args:
        far: The file.
        store: The store.
    """

    elsewhere = True

    def __init__(self, far: FarFile, store: Store) -> None:
        super().__init__(far.path, far.size, far.stamp, near=1 << 16)
        self.far, self.store = far, store
        of = f"{far.path}\n{far.stamp}\n{store.block}"
        self.key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()

    def __repr__(self) -> str:
        return f"{self.far!r}, kept by {self.store!r}"

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each range (offset and size), in that order, as of the far file."""
        for offset, size in ranges:
            self.check_range(offset, size)
        pieces = [self.pieces(*each) for each in ranges]
        parts = self._in_turn(list(chain.from_iterable(pieces)))
        for each in pieces:
            yield b"".join(islice(parts, len(each)))

    def coming(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Takes note that these ranges come next, so that what comes soon stays in the store."""
        self.store.coming(self, ranges)

    def pieces(self, offset: int, size: int) -> list[BlockPiece]:
        """The pieces that make a range."""
        each, end = self.store.block, offset + size
        numbers = range(offset // each, -(-end // each)) if size else ()
        return [
            BlockPiece(number, max(offset - number * each, 0), min(end - number * each, each))
            for number in numbers
        ]

    def name_of(self, number: int) -> str:
        """The name of the file of a block."""
        return f"{self.key}-{number}.block"

    def size_of(self, number: int) -> int:
        """How many bytes a block has."""
        return min(self.store.block, self.size - number * self.store.block)

    def fetched(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Blocks of the far file, whether they are kept or not; neighbours are asked for at once.

        Raises:
            DamagedData: The file has changed.
            OSError: They cannot be had.
        """
        runs, most = list[list[int]](), max(_REQUEST // self.store.block, 1)
        for number in numbers:
            if runs and number == runs[-1][-1] + 1 and len(runs[-1]) < most:
                runs[-1].append(number)
            else:
                runs.append([number])
        spans = [(run[0] * self.store.block, sum(map(self.size_of, run))) for run in runs]
        for run, data in zip(runs, self.far.read_many(spans), strict=True):
            for at, number in enumerate(run):
                low = at * self.store.block
                yield number, data[low : low + self.size_of(number)]

    def _in_turn(self, pieces: Sequence[BlockPiece]) -> Iterator[bytes]:
        """The bytes of pieces; of many, the next ones are read on threads."""
        batches = list(self._batches(pieces))
        if len(batches) < 2:
            yield from self._read(pieces, Keeping())
            return
        left, ahead = iter(batches), deque[tuple[Keeping, Callable[[], list[bytes]]]]()
        try:
            while True:
                for batch in islice(left, _THREADS - len(ahead)):
                    keeping, coming = Keeping(), Future[list[bytes]]()
                    read = partial(self._read, batch, keeping)
                    in_daemon("jreader store", read, partial(settle, coming))
                    ahead.append((keeping, coming.result))
                if not ahead:
                    return
                yield from ahead[0][1]()
                ahead.popleft()
        finally:
            for keeping, _ in ahead:
                keeping.stop()

    def _batches(self, pieces: Sequence[BlockPiece]) -> Iterator[Sequence[BlockPiece]]:
        """Pieces that follow one another, of not too many blocks."""
        most, low, wanted = max(_AT_ONCE // self.store.block, 1), 0, set[int]()
        for high, piece in enumerate(pieces):
            if len(wanted) == most and piece.number not in wanted:
                yield pieces[low:high]
                low, wanted = high, set()
            wanted.add(piece.number)
        yield pieces[low:]

    def _read(self, pieces: Sequence[BlockPiece], keeping: Keeping) -> list[bytes]:
        kept = [self.store.piece(self, *piece) for piece in pieces]
        lacking = {
            piece.number: None for piece, data in zip(pieces, kept, strict=True) if data is None
        }
        fetched = self.store.fetch(self, list(lacking), keeping) if lacking else {}
        return [
            fetched[number][begin:end] if data is None else data
            for (number, begin, end), data in zip(pieces, kept, strict=True)
        ]


def open_file(path: str, store: Store | None = None) -> ByteFile:
    """The file of that path, to be read by ranges; it is opened when it is first read.

    A path that begins with a protocol (`s3://`, `https://`) is that of a file elsewhere, which is
    read through fsspec; a `store` keeps what was fetched of it.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     file.size, file.read(2, 3)
    (6, b'cde')

    Raises:
        DamagedData: There is no such file (any more).
        OSError: A file elsewhere cannot be reached.
        ModuleNotFoundError: fsspec is not installed: `python -m pip install 'jreader[far]'`.
    """
    if not is_far(path):
        return LocalFile(path)
    return FarFile(path) if store is None else StoredFile(FarFile(path), store)


def read_many(requests: Sequence[tuple[ByteFile, int, int]]) -> Iterator[bytes]:
    """The bytes of many ranges (a file, an offset, a size), in that order.

    Those of files elsewhere are asked for several at a time.

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
    for file, some in groupby(requests, itemgetter(0)):
        yield from file.read_many([(offset, size) for _, offset, size in some])
