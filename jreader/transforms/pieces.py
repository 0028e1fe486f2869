"""Make a cache, or the bits of a filter, in pieces: on several workers, programs or hosts at once.

If samples are found by index, runs of them are pieces, whose number and size depend only on the
number of samples. Each piece has its own folder inside the folder of the whole, with a lock; the
process that holds the lock writes the piece as a pass writes a cache, so a kill loses nothing. A
process that finds all pieces complete joins them in order: the result equals that of a single pass.
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
_MIN_PIECE = 512  # samples per piece, or a multiple


@dataclass(frozen=True)
class Pieces:
    """A cache to make in pieces.

    Attributes:
        store: The whole cache.
        rows: Its number of samples.
    """

    store: DiskCache[Any]
    rows: int

    @classmethod
    def of(cls, store: DiskCache[Any]) -> Pieces | None:
        """Return the pieces of a store whose samples are found by index; else None."""
        found = mapped_rows(written_first(store.of))
        plane = found and indexed(found.rows)
        return None if plane is None else cls(store, plane.length)

    @property
    def size(self) -> int:
        """The number of samples in each piece but the last."""
        return -(-self.rows // (_MAX_PIECES * _MIN_PIECE)) * _MIN_PIECE or _MIN_PIECE

    @property
    def numbers(self) -> range:
        """The numbers of the pieces."""
        return range(-(-self.rows // self.size))

    def missing(self, part: tuple[int, int] | None = None) -> list[int]:
        """Return the numbers of the incomplete pieces, perhaps only of one part of them."""
        held = self.store.refresh()
        if held.whole:
            return []
        which, many = part or (1, 1)
        left = self.numbers[held.rows // self.size :]
        return [
            each for each in left if each % many == which - 1 and not self.piece(each).held().whole
        ]

    def piece(self, number: int) -> DiskCache[Any]:
        """Return the cache for one piece; it is not noted as part of a split, which would warn."""
        low = number * self.size
        rest = skip(written_first(self.store.of), 0).changed({"n": low})
        some = firstn(rest, 0).changed({"n": min(self.size, self.rows - low)})
        return self.store.over(some, str(Path(self.store.folder, PIECES, f"{number:03}")))

    @property
    def begun(self) -> bool:
        """True if there are pieces to join."""
        return any(self._folders())

    def _folders(self) -> Iterator[Path]:
        """Yield the folder of the pieces, and what a kill left of it during its removal."""
        return Path(self.store.folder).glob(f"{PIECES}*")

    def held(self) -> list[Stored]:
        """Return the contents of each piece."""
        return [self.piece(each).held() for each in self.numbers]

    def __call__(self, number: int) -> None:
        """Make a piece, unless another process does."""
        if not self.store.refresh().whole:
            self.piece(number).written(waits=False)

    def join(self, *, waits: bool) -> None:
        """Join the pieces if all are complete and no other process does; or wait for them."""
        while (missing := self.missing()) and waits:  # another process is at work, or was killed
            self.piece(missing[0]).written()
        if not missing and self.store.written(self._fill, waits=waits).whole:
            for left in self._folders():
                removed(left)

    def _fill(self, writer: CacheWriter[Any]) -> None:
        """Pass the contents of the pieces to a writer."""
        for number in self.numbers[len(writer.out) // self.size :]:
            piece = self.piece(number)
            rows = len(writer.out)
            samples = piece.items(piece.held(), rows - number * self.size)
            for at, sample in enumerate(samples, rows + 1):
                writer.add(sample, at)
        writer.finish()
