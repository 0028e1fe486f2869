"""The files of shards, written on several threads, each shard in its order.

A shard has one thread at a time: pieces of one that is larger than a piece take turns, so that what
is held of a stream is a piece for each thread, however large shards are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from jreader.readers import Plane
from jreader.sinks.pieces import ShardPiece
from jreader.sources.transactions import synced

Append: TypeAlias = Callable[[Sequence[Any], int], None]
"""Appends samples to a shard, of which the first has this number."""


class Format(NamedTuple):
    """What all shards of a format have in common.

    Attributes:
        stems: What the names of files begin with: a shard has a file for each.
        begun: Begins the files of a shard, one for each of `stems`, and ends them.
    """

    stems: tuple[str, ...]
    begun: Callable[[Sequence[Path]], AbstractContextManager[Append]]


class Stopped(Exception):  # no error: it is raised where nobody waits any more
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
        suffix: What the names of files end in.
        block: How many samples are encoded at once.
        plane: Where samples are found by their indices, if pieces have none.
        encode: What is called with each sample first.
        tell: Is called with numbers of samples that were written.
        begun: The shards in work.
        turns: Is told when a piece is written.
        end: Samples from here on are not written any more.
    """

    folder: Path
    format: Format
    suffix: str
    block: int
    plane: Plane | None
    encode: Callable[[Any], Any] | None
    tell: Callable[[int], object]
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
            self._end(piece.first)  # those before it go on: their error would be the first
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
        """Gives all files their names, which tell how many there are; returns the names."""
        names = []
        for place, stem in enumerate(self.format.stems):
            for shard in range(shards):
                name = f"{stem}-{shard:05}-of-{shards:05}{self.suffix}"
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
            self.tell(len(batch))

    def _batches(self, piece: ShardPiece) -> Iterator[Sequence[Any]]:
        if self.plane is None:
            samples = piece.samples or []
            for low in range(0, piece.many, self.block):
                yield samples[low : low + self.block]
            return
        batches = self.plane.part(piece.first, piece.many).batches(self.block, None)
        try:
            yield from batches.items
        finally:
            batches.close()
