"""The samples of a reader, cut into shards, and these into pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from jreader.errors import ReaderError
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

PIECE = SHARD = 1 << 26  # bytes that a thread holds of a stream; and those of a shard by default
_BLOCK, _MOST = 1 << 23, 1 << 14  # bytes, and samples, that are encoded at once


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


def cuts_for(looked: list[Any], shards: int | None, each: int | None, total: int | None) -> Cuts:
    """Cuts by what the first samples weigh, where the user does not say how many to take."""
    mean = max(sum(map(estimated_bytes, looked)) / len(looked), 1)
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
