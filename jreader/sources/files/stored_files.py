"""Far files of which a store keeps blocks: what is kept is read here, and the rest is fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from jreader.sources.files.block_store import Store
from jreader.sources.files.far_files import FarFile

_AT_ONCE = 1 << 26  # bytes of blocks that are asked for together
_REQUEST = 1 << 22  # bytes of small blocks that one request asks for


class StoredFile:
    """A far file of which a store keeps blocks; it is read like any other.

    Args:
        far: The file.
        store: The store.
    """

    near = 1 << 16

    def __init__(self, far: FarFile, store: Store) -> None:
        self.far, self.store = far, store
        self.path, self.size, self.stamp = far.path, far.size, far.stamp
        of = f"{far.path}\n{far.stamp}\n{store.block}"
        self.key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()

    def __repr__(self) -> str:
        return f"{self.far!r}, kept by {self.store!r}"

    def read(self, offset: int, size: int) -> bytes:
        """Those bytes, all of them, as of the far file."""
        return next(iter(self.read_many([(offset, size)])))

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each range (offset and size), in that order, as of the far file."""
        for offset, size in ranges:
            if offset + size > self.size:
                self.far.read(offset, size)  # which says so
        low, most = 0, max(_AT_ONCE // self.store.block, 1)
        while low < len(ranges):
            high, wanted = low, dict[int, None]()
            while high < len(ranges) and (high == low or len(wanted) < most):
                wanted |= {number: None for number, _, _ in self.pieces(*ranges[high])}
                high += 1
            yield from self._read(ranges[low:high])
            low = high

    def coming(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Takes note that these ranges come next, so that what comes soon stays in the store."""
        self.store.coming(self, ranges)

    def pieces(self, offset: int, size: int) -> list[tuple[int, int, int]]:
        """The parts of blocks that make a range: number of the block, begin and end in it."""
        each, end = self.store.block, offset + size
        numbers = range(offset // each, -(-end // each)) if size else ()
        return [
            (number, max(offset - number * each, 0), min(end - number * each, each))
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

    def _read(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        parts = [self.pieces(*each) for each in ranges]
        read = [[self.store.piece(self, *piece) for piece in each] for each in parts]
        gone = {
            piece[0]: None
            for each, datas in zip(parts, read, strict=True)
            for piece, data in zip(each, datas, strict=True)
            if data is None
        }
        fetched = self.store.fetch(self, list(gone)) if gone else {}
        for each, datas in zip(parts, read, strict=True):
            yield b"".join(
                fetched[number][begin:end] if data is None else data
                for (number, begin, end), data in zip(each, datas, strict=True)
            )
