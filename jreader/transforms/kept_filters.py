"""What `filter(fn, reader, keep=path)` does: remembers which samples it keeps, a bit each.

A pass calls `fn` for samples whose bits are not known yet, and writes what it learns while it hands
samples over. One process learns, that which has the lock of the folder; others call `fn`
themselves. A pass learns only what follows on what is known: one that was resumed beyond that
leaves the gap to the next pass. Once all is known, the samples are found by index, and `fn` is
called no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from jreader import errors
from jreader.progress import Bar
from jreader.readers import (
    Pass,
    Plane,
    Position,
    Reader,
    described,
    explain,
    indexed,
    length,
    start,
)
from jreader.readers.growing import IN_ORDER, writing_allowed
from jreader.readers.located import located_errors
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.messages import refusal_in
from jreader.readers.passes import checked_position
from jreader.sources.stored_bits import AppendedBits, Ranks, bits_of
from jreader.sources.stored_columns import Stored
from jreader.transforms.disk_caches import CacheWriter, DiskCache, metadata, stop_writing

_CHUNK = 1 << 14  # bits that are looked up in one go
_EACH = 9 / 64  # bytes of a bit, with the counts


class KeptBits(DiskCache[Any]):
    """Which samples of a reader a filter keeps, in a folder.

    Args:
        reader: The filter, without a folder.
        folder: Where the bits are kept.
    """

    named = "filter kept", "filter(fn, reader, keep='another')"
    reader: Any

    @property
    def of(self) -> Reader[Any]:
        """The reader that gives one sample for each bit."""
        reader: Reader[Any] = self.reader.reader
        return reader

    def over(self, reader: Reader[Any], folder: str) -> Self:
        """The bits of another reader, in another folder."""
        return type(self)(self.reader.changed({"reader": reader}), folder)

    def items(self, held: Stored, begin: int) -> Iterator[Any]:
        """The bits that are known, from a sample on."""
        return iter(bits_of(held, begin, held.rows))

    def bytes_of(self, sample: Any) -> float:
        """The bytes that a bit takes, with the counts; asks for it, which takes time."""
        self.keeps(sample)
        return _EACH

    def keeps(self, sample: Any) -> bool:
        """Whether the filter keeps a sample: calls its function."""
        fn = self.reader.fn
        try:
            return bool(fn(sample))
        except Exception as error:
            explain(error, self.reader, fn, sample)
            raise

    @cached_property
    def plan(self) -> dict[str, list[str]]:
        """The lines of the plan that the folder belongs to; no `cache` has the last one."""
        lines = super().plan
        return {**lines, "ops": [*lines["ops"], "a bit for each sample"]}

    _ranks: tuple[Stored, Ranks] | None = None

    def length(self, node: Any) -> int | None:
        """How many samples are kept, if they are found by index."""
        if not self.is_complete(node) or mapped_rows(node.reader) is None:
            return None
        return self.ranks_of(node, length(node.reader)).total

    def plane(self, node: Any) -> Plane | None:
        """The plane of `reader`, of which only the kept samples are left; in their blocks."""
        up = indexed(node.reader) if self.is_complete(node) else None
        if up is None:
            return None
        ranks = self.ranks_of(node, up.length)
        plane = up.reordered(
            ranks.total,
            ranks.sample,
            lambda held: held.at(ranks.places(held.index)),
        )
        if up.blocks is None:
            return plane
        starts = ranks.before(up.blocks[up.blocks < up.length])
        return replace(plane, blocks=np.unique([0, *starts[starts < ranks.total]]))

    def ranks_of(self, node: Any, rows: int | None) -> Ranks:
        """Where the kept samples of a filter are, whose reader has so many rows."""
        held = self._complete(node)
        if held.rows != rows:
            raise self.differs(node.reader, rows)
        if self._ranks is None or self._ranks[0] is not held:
            self._ranks = held, Ranks(held)
        return self._ranks[1]

    def differs(self, reader: Reader[Any], rows: int | None) -> errors.ReaderError:
        """The error for a reader of another length than that of which the bits are."""
        many = "more" if rows is None else f"{rows:,}"
        return errors.ReaderError(
            f"the {self.named[0]} in {self.folder!r} has bits for {self.held().rows:,} samples, "
            f"and {described(reader)} has {many}. {self.use_another_folder}"
        )

    def start(self, node: Any, at: Position) -> Pass[Any]:
        """A pass in order; its position is (`IN_ORDER`, samples read, that of `reader`)."""
        _, seen, before = checked_position(at, (None, 0, None))
        up, learns = start(node.reader, before), writing_allowed()

        def deal() -> Generator[Any]:
            nonlocal seen
            left_out = at is None
            with located_errors(node), closing(self._bits(node, up, seen, learns=learns)) as pairs:
                for kept, sample in pairs:
                    seen += 1
                    if kept:
                        left_out = False
                        yield sample
            if left_out and seen:
                node.warn_if_empty()

        items = deal()

        def close() -> None:
            items.close()
            up.close()

        return Pass(items, lambda: (IN_ORDER, seen, up.position()), close)

    def _bits(
        self, node: Any, up: Pass[Any], seen: int, *, learns: bool
    ) -> Generator[tuple[Any, Any]]:
        """Whether each sample is kept, and the sample; first those of which it is known."""
        while True:
            while bits := self.known_bits(seen):
                end = seen + len(bits)
                for pairs in zip(bits, up.items, strict=False):
                    seen += 1
                    yield pairs
                if seen < end:
                    raise self.differs(node.reader, seen)
            writer = self.writer_at(seen) if learns else None
            if writer or not self.known_bits(seen):
                break
        yield from self._evaluate(node, up, seen, writer)

    def _evaluate(
        self, node: Any, up: Pass[Any], seen: int, writer: CacheWriter[Any] | None
    ) -> Generator[tuple[Any, Any]]:
        """Whether each sample is kept, and the sample, from where that is not known."""
        try:
            check_in_order(up.position(), node)
            for sample in up.items:
                if self.whole and seen >= self.held().rows:
                    raise self.differs(node.reader, None)
                kept = self.keeps(sample)
                seen += 1
                if writer and writer.is_active:
                    writer.add(kept, up.position())
                yield kept, sample
            if writer and writer.is_active:
                writer.finish()
        finally:
            if writer:
                writer.close()

    def written(
        self, fill: Callable[[CacheWriter[Any]], object] | None = None, *, waits: bool = True
    ) -> Stored:
        """The bits, once all are known: learns what is missing, or waits (`DiskCache`)."""
        with self._turn:
            if waits:
                stop_writing(self._writing)  # of a pass that waits for its own consumer
            return super().written(fill, waits=waits)

    def writer(self, held: Stored, lock: int) -> CacheWriter[Any]:
        """A writer that appends the bits that a pass gives it."""
        held.sweep()
        out = AppendedBits(held, held.said and held.said["position"], partial(metadata, self.plan))
        bar = Bar(f"filtering into {held.folder.name}", length(self.of))
        return CacheWriter(out, Pass(iter(()), lambda: None, lambda: None), lock, bar)

    def read_rest(self, writer: CacheWriter[Any]) -> None:
        """Learns what is missing."""
        rows = len(writer.out)
        with located_errors(self.reader), closing(self.bypass(rows)) as rest:
            deque(self._evaluate(self.reader, rest, rows, writer), maxlen=0)

    def known_bits(self, seen: int) -> list[int]:
        """Some bits from a sample on; none where none are known."""
        with self._turn:
            return bits_of(self.held(), seen, seen + _CHUNK)

    def writer_at(self, seen: int) -> CacheWriter[Any] | None:
        """What a pass after so many samples writes with, if it is the one to learn what follows."""
        with self._turn:
            writer = self._begin_writer(None if self._writer() else self._lock())
            if writer is None or len(writer.out) == seen:
                return writer
            stop_writing(self._writing)
            return None


def check_in_order(at: Position, node: Any) -> None:
    """Raises ReaderError if samples come in order of arrival, in which they have no place."""
    if refusal := refusal_in(at):
        raise errors.ReaderError(
            f"filter(fn, reader, keep), made at {node.made_at}, keeps a bit for each sample in its "
            f"place: {refusal}, or leave keep out."
        )
