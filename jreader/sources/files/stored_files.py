"""Far files of which a store keeps blocks: what is kept is read here, and the rest is fetched."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from itertools import chain, pairwise

from jreader.readers.exits_and_forks import ForkGuard
from jreader.sources.files.block_store import Store
from jreader.sources.files.far_files import FarFile

_AT_ONCE = 1 << 24  # bytes of blocks that one thread asks for
_THREADS = 4  # that fetch and keep blocks for one that reads: some write while others wait
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
        cuts = [self._cut(*each) for each in ranges]
        parts = self._in_turn(list(chain.from_iterable(cuts)))
        for each in cuts:
            yield b"".join([next(parts) for _ in each])

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

    def _cut(self, offset: int, size: int) -> list[tuple[int, int]]:
        """A range in parts of not too many blocks, cut where blocks end; none of an empty one."""
        each, end = max(_AT_ONCE // self.store.block, 1) * self.store.block, offset + size
        cuts = [offset, *range((offset // each + 1) * each, end, each), end]
        return [(low, high - low) for low, high in pairwise(cuts) if high > low]

    def _in_turn(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of ranges; of many, the next ones are read on threads."""
        batches = list(self._batches(ranges))
        if len(batches) < 2:
            yield from self._read(ranges, _at_once)
            return
        ahead = deque[_Ahead]()
        try:
            for batch in batches:
                if len(ahead) == _THREADS:
                    yield from ahead[0].came()
                    ahead.popleft()
                ahead.append(_Ahead(partial(self._read, batch)))
            while ahead:
                yield from ahead[0].came()
                ahead.popleft()
        finally:
            for each in ahead:
                each.stop()

    def _batches(self, ranges: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
        """Ranges that follow one another, of not too many blocks."""
        low, most = 0, max(_AT_ONCE // self.store.block, 1)
        while low < len(ranges):
            high, wanted = low, set[int]()
            while high < len(ranges):
                wanted.update(number for number, _, _ in self.pieces(*ranges[high]))
                if high > low and len(wanted) > most:
                    break
                high += 1
            yield ranges[low:high]
            low = high

    def _read(
        self, ranges: Sequence[tuple[int, int]], keep: Callable[[Callable[[], None]], None]
    ) -> list[bytes]:
        parts = [self.pieces(*each) for each in ranges]
        read = [[self.store.piece(self, *piece) for piece in each] for each in parts]
        gone = {
            piece[0]: None
            for each, datas in zip(parts, read, strict=True)
            for piece, data in zip(each, datas, strict=True)
            if data is None
        }
        fetched = self.store.fetch(self, list(gone), keep) if gone else {}
        return [
            b"".join(
                fetched[number][begin:end] if data is None else data
                for (number, begin, end), data in zip(each, datas, strict=True)
            )
            for each, datas in zip(parts, read, strict=True)
        ]


class _Ahead:
    """Ranges that a thread reads; once it is stopped, it keeps no block any more."""

    def __init__(self, read: Callable[[Callable[[Callable[[], None]], None]], list[bytes]]) -> None:
        self._read, self._found = read, Future[list[bytes]]()
        self._keeping, self._stopped, self._fork_guard = threading.Lock(), False, ForkGuard()
        # a daemon, so that a server that does not answer does not keep the program from its end
        threading.Thread(target=self._run, name="jreader store", daemon=True).start()

    def came(self) -> list[bytes]:
        """The bytes, when they have come; asked once."""
        try:
            return self._found.result()
        finally:
            del self._found  # an error holds the frame of the thread, and that this object

    def stop(self) -> None:
        """Has nothing written from now on: the folder may be deleted next."""
        self._stopped = True
        if not self._fork_guard.forked:  # or a thread that stayed behind may hold the lock
            with self._keeping:
                pass

    def _run(self) -> None:
        found = self._found
        try:
            found.set_result(self._read(self._keep))
        except BaseException as error:  # it is raised where the first of them is wanted
            found.set_exception(error)

    def _keep(self, keep: Callable[[], None]) -> None:
        with self._keeping:
            if not self._stopped:
                keep()


def _at_once(keep: Callable[[], None]) -> None:
    keep()
