"""`cache`: the samples of a reader, read once and kept.

Paddle's `cache` reads everything when it is built. This one reads in the first pass, and passes at
the same time share one reading: the one that needs the next sample reads it for all. Only a reading
that reached its end is kept. One that all its passes left is dropped, with what it held open.
"""

from __future__ import annotations

import json
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    checked_position,
    counted,
    indexed,
    length,
    op,
    start,
)
from jreader.readers.nodes import children
from jreader.readers.seeds import Draws, seeded, waits

T = TypeVar("T")


@op
class cache(Node[T]):
    """The samples of `reader`, read once and kept in memory.

    The samples themselves are kept, not copies: a change of one is there in every later pass. If a
    reader refills one array for all samples, the cache would hold its last state many times, and
    warns: cache `map_readers(np.copy, reader)` then. The kept order stays: epochs and `seed=None`
    vary nothing below a cache. The numbers drawn for it are part of the position of every pass.

    >>> reads = []
    >>> reader = cache(lambda: reads.append("read") or "abc")
    >>> list(reader()), list(reader()), reads
    (['a', 'b', 'c'], ['a', 'b', 'c'], ['read'])

    Args:
        reader: Any reader that ends.
    """

    reader: Reader[T]
    draw: int | None = field(default=None, init=False)  # what resolves the unseeded ops below
    pinned = True
    from_reader = "all"

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (where the reading began, samples handed over)."""
        origin, done = checked_position(at, (None, 0))
        reading = self._shelf.reading(self, self._settled, origin)
        if reading.finished:
            reading.check(self, done)
            items, count = counted(islice(reading.samples, done, None), done)
            return Pass(items, lambda: (reading.origin, count()), lambda: None)

        def deal() -> Iterator[T]:
            nonlocal done
            while reading.has(done):
                done += 1
                yield reading.samples[done - 1]
            reading.check(self, done)

        here = True

        def leave() -> None:
            nonlocal here
            if here:
                here = False
                reading.leave()

        return Pass(deal(), lambda: (reading.origin, done), leave)

    def length(self) -> int | None:
        """The length of `reader`."""
        return length(self.reader)

    def plane(self) -> Plane | None:
        """The plane of `reader`: indexed samples need not be kept to be found again."""
        return indexed(self._settled)

    def resolved(self, draws: Draws) -> Mapping[str, Any]:
        """One drawn number for all ops below; it is kept for all passes, as the samples are."""
        if self.draw is not None or not any(map(waits, children(self))):
            return {}
        return {"draw": draws.kept(self._shelf.draw)}

    def changed(self, new: Mapping[str, Any]) -> Self:
        """A copy that shares the kept samples."""
        copy = super().changed(new)
        copy.__dict__["_shelf"] = self._shelf
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """The kept samples are not pickled."""
        return {name: value for name, value in super().__getstate__().items() if name != "_shelf"}

    @property
    def _settled(self) -> Reader[T]:
        return self.reader if self.draw is None else seeded(self.reader, self.draw)

    @property
    def _shelf(self) -> _Shelf[T]:
        shelf: _Shelf[T] = self.__dict__.setdefault("_shelf", _Shelf())  # atomic
        return shelf


class _Reading(Generic[T]):
    """One pass over the source, shared by all passes over the cache that began in the meantime."""

    def __init__(
        self, up: Pass[T], keep: Callable[[_Reading[T]], object], drawn: int | None
    ) -> None:
        self.up: Pass[T] | None = up
        self.drawn = drawn
        self.origin = up.position()
        self.samples: list[T] = []
        self.failure: BaseException | None = None
        self.users = 0
        self.turn = threading.RLock()
        self.keep: Callable[[_Reading[T]], object] | None = keep

    @property
    def finished(self) -> bool:
        """Whether every sample was read."""
        return self.up is None and self.failure is None

    def has(self, index: int) -> bool:
        """Whether there is a sample at `index`; reads on until there is."""
        with self.turn:
            while len(self.samples) <= index and self.up:
                try:
                    self.samples.append(next(self.up.items))
                except StopIteration:
                    self._end(None)
                except BaseException as error:
                    self._end(error)
            if len(self.samples) <= index and self.failure:
                raise self.failure
            return len(self.samples) > index

    def check(self, node: cache[T], done: int) -> None:
        """Raises NotResumable after the last sample, if a position has more before it."""
        if done > len(self.samples):
            raise errors.NotResumable(
                f"cannot go on after sample {done} of {node!r}: it gave {len(self.samples)} "
                f"samples. Start at the beginning (at=None), or give it the data it had."
            )

    def leave(self) -> None:
        """Called when a pass closes; the last one ends a reading that is not finished."""
        with self.turn:
            self.users -= 1
            if self.up and self.users == 0:
                self._end(errors.ReaderError("this pass over a cache was closed"))

    def _end(self, failure: BaseException | None) -> None:
        up, self.up, self.failure = self.up, None, failure
        keep, self.keep = self.keep, None
        if failure is None and keep:
            keep(self)
        if up:
            up.close()


class _Shelf(Generic[T]):
    """The finished reading that a cache keeps, or the running one."""

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.latest: weakref.ref[_Reading[T]] | None = None
        self.kept: _Reading[T] | None = None
        self.drawn: int | None = None  # what was drawn first stays, like the samples

    def draw(self, drawn: int) -> int:
        """Keeps a drawn number, if it is the first; returns the one that is kept."""
        with self.turn:
            self.drawn = drawn if self.drawn is None else self.drawn
            return self.drawn

    def reading(self, node: cache[T], reader: Reader[T], origin: Position) -> _Reading[T]:
        """The reading with the number of `node` that began at `origin`; begun if there is none."""
        with self.turn:
            known = self.kept or (self.latest and self.latest())
            alike = known and known.drawn == node.draw and known.failure is None
            if known and alike and _same(origin, known.origin):
                known.users += 1
                return known
            new = _Reading(start(reader, origin).watched(node, sys.maxsize), self.keep, node.draw)
            new.users = 1
            if not self.kept:
                self.latest = weakref.ref(new)
            return new

    def keep(self, reading: _Reading[T]) -> None:
        """Keeps the first reading that reached its end."""
        with self.turn:
            self.kept = self.kept or reading


def _same(origin: Position, known: Position) -> bool:
    """Whether two positions are equal as JSON, where tuples are lists."""
    return origin is None or json.dumps(origin) == json.dumps(known)
