"""What `cache(reader)` does: samples stay in memory as the first pass reads them.

Paddle's `cache` reads everything when it is built. This one reads in the first pass, and passes at
the same time share one reading: the one that needs the next sample reads it for all. Only a reading
that reached its end is kept. One that all its passes left is dropped, with what it held open.
"""

from __future__ import annotations

import json
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from jreader import errors
from jreader.readers import (
    Pass,
    Plane,
    Position,
    Reader,
    checked_position,
    counted,
    indexed,
    length,
    start,
)
from jreader.readers.located import located_errors
from jreader.readers.protected import is_fixed, protected

T = TypeVar("T")


class MemoryCache(Generic[T]):
    """The finished reading that a cache keeps, or the running one."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._latest: weakref.ref[_Reading[T]] | None = None
        self._finished: _Reading[T] | None = None
        self._drawn: int | None = None  # what was drawn first stays, like the samples

    @property
    def whole(self) -> bool:
        """Whether a reading has reached its end."""
        return self._finished is not None

    def draw(self, drawn: int) -> int:
        """Keeps a drawn number, if it is the first; returns the one that is kept."""
        with self._turn:
            self._drawn = drawn if self._drawn is None else self._drawn
            return self._drawn

    def length(self, node: Any) -> int | None:
        """That of what is read."""
        return length(node.reader)

    def plane(self, node: Any) -> Plane | None:
        """That of what is read."""
        return indexed(node.settled)

    def start(self, node: Any, at: Position) -> Pass[T]:
        """A pass; its position is (where the reading began, samples handed over)."""
        origin, done = checked_position(at, (None, 0))
        reading = self._reading(node, origin)
        if reading.finished:
            reading.check(node, done)
            rest = islice(reading.samples, done, None)
            items, count = counted(rest if reading.fixed else map(protected, rest), done)
            return Pass(items, lambda: (reading.origin, count()), lambda: None)

        def deal() -> Iterator[T]:
            nonlocal done
            with located_errors(node):
                while reading.has(done):
                    done += 1
                    yield protected(reading.samples[done - 1])
                reading.check(node, done)

        here = True

        def leave() -> None:
            nonlocal here
            if here:
                here = False
                reading.leave()

        return Pass(deal(), lambda: (reading.origin, done), leave)

    def _reading(self, node: Any, origin: Position) -> _Reading[T]:
        """The reading with the number of `node` that began at `origin`; begun if there is none."""
        with self._turn:
            known = self._finished or (self._latest and self._latest())
            alike = known and known.drawn == node.draw and known.failure is None
            if known and alike and _same_position(origin, known.origin):
                known.users += 1
                return known
            up = start(node.settled, origin).watched(node, sys.maxsize)
            new = _Reading(up, self._keep, node.draw)
            if not self._finished:
                self._latest = weakref.ref(new)
            return new

    def _keep(self, reading: _Reading[T]) -> None:
        """Keeps the first reading that reached its end."""
        with self._turn:
            self._finished = self._finished or reading


class _Reading(Generic[T]):
    """One pass over the source, shared by all passes over the cache that began in the meantime."""

    def __init__(
        self, up: Pass[T], keep: Callable[[_Reading[T]], object], drawn: int | None
    ) -> None:
        self.up: Pass[T] | None = up
        self.drawn = drawn
        self.origin = up.position()
        self.samples: list[T] = []
        self.fixed = False  # whether none of all samples can be changed
        self.failure: BaseException | None = None
        self.users = 1
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
                    self.samples.append(protected(next(self.up.items)))
                except StopIteration:
                    self._end(None)
                except BaseException as error:
                    self._end(error)
            if len(self.samples) <= index and self.failure:
                raise self.failure
            return len(self.samples) > index

    def check(self, node: Reader[T], done: int) -> None:
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
        self.fixed = failure is None and is_fixed(self.samples)
        keep, self.keep = self.keep, None
        if failure is None and keep:
            keep(self)
        if up:
            up.close()


def _same_position(origin: Position, known: Position) -> bool:
    """Whether two positions are equal as JSON, where tuples are lists."""
    return origin is None or json.dumps(origin) == json.dumps(known)
