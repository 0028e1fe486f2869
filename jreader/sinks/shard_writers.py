"""Cuts samples into shards, and writes their files on several threads, each shard in its order.

A shard has one thread at a time: pieces of one that is larger than a piece take turns, so that what
is held of a stream is a piece for each thread, however large shards are.
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

PIECE = SHARD = 1 << 26  # bytes that a thread holds of a stream; and those of a shard by default
_BLOCK, _MOST = 1 << 23, 1 << 14  # bytes, and samples, that are encoded at once
Append: TypeAlias = Callable[[Sequence[Any], int], None]
"""Appends samples to a shard, of which the first has this number."""


class ShardPiece(NamedTuple):
    """Samples of one shard that follow one another.

    Attributes:
        shard: The number of the shard, from 0.
        number: Which piece of the shard, from 0.
        first: The number of its first sample in the reader.
        many: How many samples it has; 0 only if it ends a shard that others have begun.
        samples: The samples, or None where they are found by their indices.
        last: Whether the shard ends here.
    """

    shard: int
    number: int
    first: int
    many: int
    samples: list[Any] | None
    last: bool


@dataclass(frozen=True)
class Cuts:
    """How many samples each shard has, and how many are encoded at once.

    >>> from itertools import islice
    >>> list(Cuts(each=0, block=1, shards=3, total=10).sizes())
    [3, 3, 4]
    >>> list(islice(Cuts(each=4, block=1).sizes(), 3))
    [4, 4, 4]

    Attributes:
        each: How many samples a shard has; the last one has what is left.
        block: How many samples are encoded at once.
        shards: How many shards there are instead, as even as they can be.
        total: How many samples the reader has, where it knows.
    """

    each: int
    block: int
    shards: int | None = None
    total: int | None = None

    def sizes(self) -> Iterator[int]:
        """The samples of each shard, if there are as many."""
        if self.shards is None or self.total is None:
            yield from repeat(self.each)
            return
        for number in range(self.shards):
            yield (number + 1) * self.total // self.shards - number * self.total // self.shards

    def check_total(self, seen: int, left: Iterator[Any]) -> None:
        """Raises ReaderError if there are more samples, or fewer, than shards were cut by."""
        if self.shards is None or (seen == self.total and not any(True for _ in left)):
            return
        gave = f"{seen:,}" if seen != self.total else "more"
        raise ReaderError(
            f"the reader said that it has {self.total:,} samples, and shards={self.shards} were "
            f"planned for that, but it gave {gave}: type samples_per_shard=n instead, which needs "
            "no length."
        )


def cuts_for(peeked: list[Any], shards: int | None, each: int | None, total: int | None) -> Cuts:
    """Cuts by what the first samples weigh, where the user does not say how many to take."""
    mean = max(sum(map(estimated_bytes, peeked)) / len(peeked), 1)
    block = int(min(max(_BLOCK // mean, 1), _MOST))
    return Cuts(each or int(max(SHARD // mean, 1)), block, shards, total)


def first_samples(samples: Iterator[Any], many: int) -> list[Any]:
    """So many of the first samples, or as many as a thread may hold.

    >>> first_samples(iter("abc"), 2)
    ['a', 'b']
    """
    return _at_most(samples, many, PIECE)[0]


def indexed_pieces(cuts: Cuts, total: int) -> Iterator[ShardPiece]:
    """A piece for each shard, of samples that are found by their indices.

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
    """Pieces of samples as they come; of one shard several, if they are large.

    >>> pieces = streamed_pieces(Cuts(4, 1), range(5))
    >>> [(piece.shard, piece.samples, piece.last) for piece in pieces]
    [(0, [0, 1, 2, 3], True), (1, [4], True)]

    Raises:
        ReaderError: There are more samples, or fewer, than the reader had said, and shards were cut
            by that.
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
    """At most so many of the samples that are left, of so many bytes; and whether they end."""
    some: list[Any] = []
    size = 0.0
    for sample in left:
        some.append(sample)
        if len(some) == many:
            return some, False
        if len(some) % ESTIMATE_EVERY == 1:  # the first too: it may be a large one
            size += (ESTIMATE_EVERY if size else 1) * estimated_bytes(sample)
            if size >= most:
                return some, False
    return some, True


class Format(NamedTuple):
    """What all shards of a format have in common.

    Attributes:
        stems: What the names of files begin with: a shard has a file for each.
        begun: Begins the files of a shard, one for each of `stems`, and ends them.
        suffixes: What their names end in, if it is not the name of the format.
    """

    stems: tuple[str, ...]
    begun: Callable[[Sequence[Path]], AbstractContextManager[Append]]
    suffixes: tuple[str, ...] = ()


class Stopped(Exception):  # no error: raised where the result is no longer wanted
    """A piece before this one has failed, or the writing was given up."""


@dataclass
class _OpenShard:
    """A shard in work: its files, and the number of the piece whose turn it is."""

    append: Append
    files: ExitStack
    turn: int = 0


@dataclass(eq=False)
class ShardWriters:
    """Writes pieces, on whatever thread calls it.

    Attributes:
        folder: Where to.
        format: How.
        suffix: What the names of files end in, where the format does not say.
        block: How many samples are encoded at once.
        plane: Where samples are found by their indices, if pieces have none.
        encode: What is called with each sample first.
        on_written: Called with the number of samples written.
        begun: The shards in work.
        turns: Notified when a piece is written.
        end: Samples from here on are not written any more.
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
        """Writes a piece; gives the number of its shard."""
        try:
            shard = self._begin(piece)
            self._write(piece, shard.append)
            if piece.last:
                shard.files.close()
                for path in self._paths(piece.shard):
                    synced(path)
        except BaseException:
            self._end(piece.first)  # earlier pieces continue: their error would be the first
            raise
        with self.turns:
            shard.turn += 1
            if piece.last:
                del self.begun[piece.shard]
            self.turns.notify_all()
        return piece.shard

    def stop(self) -> None:
        """Has all threads end soon."""
        self._end(-1)

    def _end(self, first: int) -> None:
        with self.turns:
            self.end = min(self.end, first)
            self.turns.notify_all()

    def close(self) -> None:
        """Closes the files of shards that are not whole; no thread is at work any more."""
        for shard in self.begun.values():
            with suppress(Exception):  # a disk that is full, say: the files will be deleted
                shard.files.close()

    def renamed(self, shards: int) -> list[str]:
        """Renames all files, with their count in each name; returns the names."""
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
        """Waits for the turn of a piece."""
        with self.turns:
            if not piece.number and piece.first <= self.end:
                files = ExitStack()
                append = files.enter_context(self.format.begun(self._paths(piece.shard)))
                self.begun[piece.shard] = _OpenShard(append, files)
            while piece.first <= self.end:
                # the piece before was drawn before, so a thread is at work on it, or was
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
