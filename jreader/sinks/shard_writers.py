"""Cut samples into shards, and write their files on several threads, each shard in order.

One thread at a time writes a shard: pieces of large shards take turns, so at most one piece of a
stream is in memory per thread, however large shards are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from jreader.errors import ReaderError
from jreader.readers import Plane
from jreader.sources.transactions import synced
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

PIECE = SHARD = 1 << 26  # bytes of a stream that a thread holds, and the default size of a shard
_BLOCK, _MOST = 1 << 23, 1 << 14  # bytes and samples to encode at a time
Append: TypeAlias = Callable[[Sequence[Any], int], None]
"""Appends samples to a shard; the int is the number of the first sample."""


class ShardPiece(NamedTuple):
    """Consecutive samples of one shard.

    Attributes:
        shard: The number of the shard, from 0.
        number: The number of the piece in the shard, from 0.
        first: The number of its first sample in the reader.
        many: The number of samples; 0 only to end a shard that other pieces began.
        samples: The samples; None if they are found by index.
        last: Whether it ends the shard.
    """

    shard: int
    number: int
    first: int
    many: int
    samples: list[Any] | None
    last: bool


@dataclass(frozen=True)
class Cuts:
    """The sizes of shards, and of the blocks to encode.

    >>> from itertools import islice
    >>> list(Cuts(each=0, block=1, shards=3, total=10).sizes())
    [3, 3, 4]
    >>> list(islice(Cuts(each=4, block=1).sizes(), 3))
    [4, 4, 4]

    Attributes:
        each: Samples per shard; the last one may have fewer.
        block: Samples to encode at a time.
        shards: The number of shards instead, of sizes as equal as possible.
        total: The number of samples in the reader, if known.
    """

    each: int
    block: int
    shards: int | None = None
    total: int | None = None

    def sizes(self) -> Iterator[int]:
        """Yield the size of each shard, if there are enough samples."""
        if self.shards is None or self.total is None:
            yield from repeat(self.each)
            return
        for number in range(self.shards):
            yield (number + 1) * self.total // self.shards - number * self.total // self.shards

    def check_total(self, seen: int, left: Iterator[Any]) -> None:
        """Raise ReaderError if the number of samples differs from the planned one."""
        if self.shards is None or (seen == self.total and not any(True for _ in left)):
            return
        gave = f"{seen:,}" if seen != self.total else "more"
        raise ReaderError(
            f"the reader said that it has {self.total:,} samples, and shards={self.shards} were "
            f"planned for that, but it gave {gave}: type samples_per_shard=n instead, which needs "
            "no length."
        )


def cuts_for(peeked: list[Any], shards: int | None, each: int | None, total: int | None) -> Cuts:
    """Choose sizes by the bytes of the first samples, unless the user gives them."""
    mean = max(sum(map(estimated_bytes, peeked)) / len(peeked), 1)
    block = int(min(max(_BLOCK // mean, 1), _MOST))
    return Cuts(each or int(max(SHARD // mean, 1)), block, shards, total)


def first_samples(samples: Iterator[Any], many: int) -> list[Any]:
    """Take the first samples, up to a number, or as many as a thread may hold.

    >>> first_samples(iter("abc"), 2)
    ['a', 'b']
    """
    return _at_most(samples, many, PIECE)[0]


def indexed_pieces(cuts: Cuts, total: int) -> Iterator[ShardPiece]:
    """Yield a piece for each shard, with samples that are found by index.

    >>> [(piece.first, piece.many) for piece in indexed_pieces(Cuts(4, 1), 9)]
    [(0, 4), (4, 4), (8, 1)]
    """
    first = 0
    for shard, size in enumerate(cuts.sizes()):
        if first == total:
            return
        many = min(size, total - first)
        yield ShardPiece(shard, 0, first, many, None, last=True)
        first += many


def streamed_pieces(
    cuts: Cuts, samples: Iterable[Any], most: float = PIECE
) -> Iterator[ShardPiece]:
    """Yield pieces of a stream of samples; large shards have several.

    >>> pieces = streamed_pieces(Cuts(4, 1), range(5))
    >>> [(piece.shard, piece.samples, piece.last) for piece in pieces]
    [(0, [0, 1, 2, 3], True), (1, [4], True)]

    Raises:
        ReaderError: The number of samples differs from the one that the reader declared, and that
            shards were planned for.
    """
    left, first, ended = iter(samples), 0, False
    for shard, size in enumerate(cuts.sizes()):
        number, done, last = 0, 0, False
        while not last:
            some, ended = _at_most(left, size - done, most)
            done += len(some)
            last = ended or done == size
            if done:
                yield ShardPiece(shard, number, first, len(some), some, last)
            first, number = first + len(some), number + 1
            del some
        if ended:
            break
    cuts.check_total(first, left)


def _at_most(left: Iterator[Any], many: int, most: float) -> tuple[list[Any], bool]:
    """Take samples up to a number and a size in bytes; also return whether they ended."""
    some: list[Any] = []
    size = 0.0
    for sample in left:
        some.append(sample)
        if len(some) == many:
            return some, False
        if len(some) % ESTIMATE_EVERY == 1:  # the first too, in case it is large
            size += (ESTIMATE_EVERY if size else 1) * estimated_bytes(sample)
            if size >= most:
                return some, False
    return some, True


class Format(NamedTuple):
    """The properties of all shards of a format.

    Attributes:
        stems: The name prefixes of the files in a shard.
        begun: Opens the files of a shard, one for each of `stems`, and closes them.
        suffixes: Their suffixes, if not the name of the format.
    """

    stems: tuple[str, ...]
    begun: Callable[[Sequence[Path]], AbstractContextManager[Append]]
    suffixes: tuple[str, ...] = ()


class Stopped(Exception):  # not an error: the result is no longer wanted
    """An earlier piece failed, or writing was stopped."""


@dataclass
class _OpenShard:
    """A shard being written: its files, and the number of the piece whose turn it is."""

    append: Append
    files: ExitStack
    turn: int = 0


@dataclass(eq=False)
class ShardWriters:
    """Writes pieces, on any thread that calls it.

    Attributes:
        folder: The folder to write to.
        format: The format.
        suffix: The suffix of files, unless the format has its own.
        block: Samples to encode at a time.
        plane: Finds samples by index, for pieces without samples.
        encode: Called with each sample first.
        on_written: Called with the number of samples written.
        begun: The shards being written.
        turns: Notified when a piece is written.
        end: Samples from here on are no longer written.
    """

    folder: Path
    format: Format
    suffix: str
    block: int
    plane: Plane | None
    encode: Callable[[Any], Any] | None
    on_written: Callable[[int], object]
    begun: dict[int, _OpenShard] = field(default_factory=dict)
    turns: threading.Condition = field(default_factory=threading.Condition)
    end: float = math.inf

    def __call__(self, piece: ShardPiece) -> int:
        """Write a piece; return the number of its shard."""
        try:
            shard = self._begin(piece)
            self._write(piece, shard.append)
            if piece.last:
                shard.files.close()
                for path in self._paths(piece.shard):
                    synced(path)
        except BaseException:
            self._end(piece.first)  # earlier pieces continue: their error would come first
            raise
        with self.turns:
            shard.turn += 1
            if piece.last:
                del self.begun[piece.shard]
            self.turns.notify_all()
        return piece.shard

    def stop(self) -> None:
        """Make all threads stop soon."""
        self._end(-1)

    def _end(self, first: int) -> None:
        with self.turns:
            self.end = min(self.end, first)
            self.turns.notify_all()

    def close(self) -> None:
        """Close the files of unfinished shards, once all threads have ended."""
        for shard in self.begun.values():
            with suppress(Exception):  # such as a full disk: the files will be deleted
                shard.files.close()

    def renamed(self, shards: int) -> list[str]:
        """Rename all files to include their number; return the names."""
        names = []
        suffixes = self.format.suffixes or repeat(self.suffix)
        for place, (stem, suffix) in enumerate(zip(self.format.stems, suffixes, strict=False)):
            for shard in range(shards):
                name = f"{stem}-{shard:05}-of-{shards:05}{suffix}"
                self._paths(shard)[place].rename(self.folder / name)
                names.append(name)
        return names

    def _paths(self, shard: int) -> list[Path]:
        return [self.folder / f"{place}-{shard}.part" for place in range(len(self.format.stems))]

    def _begin(self, piece: ShardPiece) -> _OpenShard:
        """Wait for the turn of a piece."""
        with self.turns:
            if not piece.number and piece.first <= self.end:
                files = ExitStack()
                append = files.enter_context(self.format.begun(self._paths(piece.shard)))
                self.begun[piece.shard] = _OpenShard(append, files)
            while piece.first <= self.end:
                # the previous piece was drawn earlier, so a thread has it, or had it
                shard = self.begun.get(piece.shard)
                if shard is not None and shard.turn == piece.number:
                    return shard
                self.turns.wait()
        raise Stopped

    def _write(self, piece: ShardPiece, append: Append) -> None:
        first = piece.first
        for batch in self._batches(piece):
            if piece.first > self.end:
                raise Stopped
            append(batch if self.encode is None else list(map(self.encode, batch)), first)
            first += len(batch)
            self.on_written(len(batch))

    def _batches(self, piece: ShardPiece) -> Iterator[Sequence[Any]]:
        if self.plane is None:
            samples = piece.samples or []
            for low in range(0, piece.many, self.block):
                yield samples[low : low + self.block]
            return
        with closing(self.plane.part(piece.first, piece.many).batches(self.block, None)) as batches:
            yield from batches.items
