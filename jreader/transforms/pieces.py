"""A cache, or the bits of a filter, made in pieces: by several workers, programs or hosts at once.

Where samples are found by index, runs of them are pieces, whose number and size follow from how
many there are, and from nothing else. Each has a folder of its own in that of the whole, with a
lock; whoever has the lock writes the piece, as a pass writes a cache, so that a kill loses nothing.
Whoever finds all pieces there joins them in their order: what is made is what one pass makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jreader.readers import indexed
from jreader.readers.growing import written_first
from jreader.readers.mapped_rows import mapped_rows
from jreader.sources.stored_columns import Stored
from jreader.sources.transactions import removed
from jreader.transforms.disk_caches import PIECES, CacheWriter, DiskCache
from jreader.transforms.slices import firstn, skip

_MAX_PIECES = 256  # pieces
_MIN_PIECE = 512  # samples of a piece, or a multiple of it


@dataclass(frozen=True)
class Pieces:
    """What is to be made in pieces.

    Attributes:
        store: The whole.
        rows: How many samples it is of.
    """

    store: DiskCache[Any]
    rows: int

    @classmethod
    def of(cls, store: DiskCache[Any]) -> Pieces | None:
        """The pieces of a store, where samples are found by index; else None."""
        found = mapped_rows(written_first(store.of))
        plane = found and indexed(found.rows)
        return None if plane is None else cls(store, plane.length)

    @property
    def size(self) -> int:
        """How many samples each piece is of, but for the last one."""
        return -(-self.rows // (_MAX_PIECES * _MIN_PIECE)) * _MIN_PIECE or _MIN_PIECE

    @property
    def numbers(self) -> range:
        """The numbers of the pieces."""
        return range(-(-self.rows // self.size))

    def missing(self, part: tuple[int, int] | None = None) -> list[int]:
        """The numbers of the pieces that are not there; of one of several parts."""
        held = self.store.refresh()
        if held.whole:
            return []
        which, many = part or (1, 1)
        left = self.numbers[held.rows // self.size :]
        return [
            each for each in left if each % many == which - 1 and not self.piece(each).held().whole
        ]

    def piece(self, number: int) -> DiskCache[Any]:
        """One of them; not noted as a part of a split, which would warn."""
        low = number * self.size
        rest = skip(written_first(self.store.of), 0).changed({"n": low})
        some = firstn(rest, 0).changed({"n": min(self.size, self.rows - low)})
        return self.store.over(some, str(Path(self.store.folder, PIECES, f"{number:03}")))

    @property
    def begun(self) -> bool:
        """Whether there are some, which wait to be joined."""
        return any(self._folders())

    def _folders(self) -> Iterator[Path]:
        """Their folder, and what a kill left of it while it was removed."""
        return Path(self.store.folder).glob(f"{PIECES}*")

    def held(self) -> list[Stored]:
        """What is there of each."""
        return [self.piece(each).held() for each in self.numbers]

    def __call__(self, number: int) -> None:
        """Makes a piece, unless another process does."""
        if not self.store.refresh().whole:
            self.piece(number).written(waits=False)

    def join(self, *, waits: bool) -> None:
        """Joins them, if all are there and no other process does; or once they are, if it waits."""
        while (missing := self.missing()) and waits:  # somebody else is at work, or was killed
            self.piece(missing[0]).written()
        if not missing and self.store.written(self._fill, waits=waits).whole:
            for left in self._folders():
                removed(left)

    def _fill(self, writer: CacheWriter[Any]) -> None:
        """Gives a writer what the pieces hold."""
        for number in self.numbers[len(writer.out) // self.size :]:
            piece = self.piece(number)
            rows = len(writer.out)
            samples = piece.items(piece.held(), rows - number * self.size)
            for at, sample in enumerate(samples, rows + 1):
                writer.add(sample, at)
        writer.finish()
