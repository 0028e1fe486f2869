"""Implements `filter(fn, reader, keep=path)`: stores one bit per sample, whether it is kept.

A pass calls `fn` for samples whose bits are unknown, and stores the bits while it yields samples.
The process that holds the lock of the folder does so; others call `fn` without storing bits. A pass
stores only bits that follow the stored ones: if it resumed beyond those, it leaves the gap to the
next pass. Once all bits are known, samples are found by index, and `fn` is no longer called.
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

_CHUNK = 1 << 14  # bits to look up at a time
_EACH = 9 / 64  # bytes per bit, with the counts


class KeptBits(DiskCache[Any]):
    """The bits of a filter in a folder: which samples of a reader it keeps.

    Args:
        reader: The filter, without a folder.
        folder: The folder for the bits.
    """

    named = "filter kept", "filter(fn, reader, keep='another')"
    reader: Any

    @property
    def of(self) -> Reader[Any]:
        """The reader that yields one sample for each bit."""
        reader: Reader[Any] = self.reader.reader
        return reader

    def over(self, reader: Reader[Any], folder: str) -> Self:
        """Return the bits of another reader, in another folder."""
        return type(self)(self.reader.changed({"reader": reader}), folder)

    def items(self, held: Stored, begin: int) -> Iterator[Any]:
        """Yield the known bits, from a sample on."""
        return iter(bits_of(held, begin, held.rows))

    def bytes_of(self, sample: Any) -> float:
        """Return the bytes that a bit takes, with the counts; calls the (slow) function."""
        self.keeps(sample)
        return _EACH

    def keeps(self, sample: Any) -> bool:
        """Call the filter's function on a sample; return whether to keep it."""
        fn = self.reader.fn
        try:
            return bool(fn(sample))
        except Exception as error:
            explain(error, self.reader, fn, sample)
            raise

    @cached_property
    def plan(self) -> dict[str, list[str]]:
        """The lines of the plan that owns the folder; the last one tells it from a `cache`."""
        lines = super().plan
        return {**lines, "ops": [*lines["ops"], "a bit for each sample"]}

    _ranks: tuple[Stored, Ranks] | None = None

    def length(self, node: Any) -> int | None:
        """Return the number of kept samples, if they are found by index."""
        if not self.is_complete(node) or mapped_rows(node.reader) is None:
            return None
        return self.ranks_of(node, length(node.reader)).total

    def plane(self, node: Any) -> Plane | None:
        """Return the plane of `reader` with only the kept samples, in their blocks."""
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
        """Return the ranks of the kept samples of a filter whose reader has `rows` rows."""
        held = self._complete(node)
        if held.rows != rows:
            raise self.differs(node.reader, rows)
        if self._ranks is None or self._ranks[0] is not held:
            self._ranks = held, Ranks(held)
        return self._ranks[1]

    def differs(self, reader: Reader[Any], rows: int | None) -> errors.ReaderError:
        """Return the error for a reader whose length differs from the number of bits."""
        many = "more" if rows is None else f"{rows:,}"
        return errors.ReaderError(
            f"the {self.named[0]} in {self.folder!r} has bits for {self.held().rows:,} samples, "
            f"and {described(reader)} has {many}. {self.use_another_folder}"
        )

    def start(self, node: Any, at: Position) -> Pass[Any]:
        """Start a pass in order; its position is (`IN_ORDER`, samples read, that of `reader`)."""
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
        """Yield (whether it is kept, sample); first those with known bits."""
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
        """Call the function from the first unknown bit on; yield (whether it is kept, sample)."""
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
        """Return the complete bits: compute what is missing, or wait (`DiskCache`)."""
        with self._turn:
            if waits:
                stop_writing(self._writing)  # of a pass that waits for its own consumer
            return super().written(fill, waits=waits)

    def writer(self, held: Stored, lock: int) -> CacheWriter[Any]:
        """Return a writer that appends the bits that a pass gives it."""
        held.sweep()
        out = AppendedBits(held, held.said and held.said["position"], partial(metadata, self.plan))
        bar = Bar(f"filtering into {held.folder.name}", length(self.of))
        return CacheWriter(out, Pass(iter(()), lambda: None, lambda: None), lock, bar)

    def read_rest(self, writer: CacheWriter[Any]) -> None:
        """Compute the missing bits."""
        rows = len(writer.out)
        with located_errors(self.reader), closing(self.bypass(rows)) as rest:
            deque(self._evaluate(self.reader, rest, rows, writer), maxlen=0)

    def known_bits(self, seen: int) -> list[int]:
        """Return some known bits from a sample on; [] if there are none."""
        with self._turn:
            return bits_of(self.held(), seen, seen + _CHUNK)

    def writer_at(self, seen: int) -> CacheWriter[Any] | None:
        """Return a writer for the bits after `seen` samples, if they follow the stored ones."""
        with self._turn:
            writer = self._begin_writer(None if self._writer() else self._lock())
            if writer is None or len(writer.out) == seen:
                return writer
            stop_writing(self._writing)
            return None


def check_in_order(at: Position, node: Any) -> None:
    """Raise ReaderError if samples come in order of arrival, and so have no fixed places."""
    if refusal := refusal_in(at):
        raise errors.ReaderError(
            f"filter(fn, reader, keep), made at {node.made_at}, keeps a bit for each sample in its "
            f"place: {refusal}, or leave keep out."
        )
