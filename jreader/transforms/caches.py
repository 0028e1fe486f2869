"""`cache`: read the samples of a reader once, and keep them in memory or in a folder.

Paddle's `cache` reads everything when it is built. This one reads in the first pass, and concurrent
passes share one reading: the one that needs the next sample reads it for all. In memory, only a
reading that reached its end is kept. If all passes leave it earlier, it is dropped, and closes what
it had open. `disk_caches.py` implements caches in folders.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Any, Generic, Self, TypeVar, cast

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    argument,
    checked_position,
    counted,
    indexed,
    length,
    op,
    start,
)
from jreader.readers.growing import writing_allowed
from jreader.readers.located import located_errors
from jreader.readers.nodes import children
from jreader.readers.protected import is_fixed, protected
from jreader.readers.seeds import Draws, lacks_seed, seeded
from jreader.sources.stored_columns import read_table
from jreader.transforms.disk_caches import DiskCache, check_folder, check_one_order

T = TypeVar("T")


@op
class cache(Node[T]):
    """Cache the samples on the first pass: in memory, or in a folder with `path`.

    In memory, your code cannot change the cached samples: arrays come as read-only views; dicts,
    lists and tuples are rebuilt (some 2 us for a dict of three fields); other objects are copied
    where possible. A reader that refills one array for all samples would fill the cache with copies
    of its last contents, so the cache warns: cache `map_readers(np.copy, reader)` instead. The
    order is cached too: if you shuffle before the cache, every epoch repeats that order, even with
    `seed=None`. The seed drawn for such a shuffle is part of every position.

    >>> reads = []
    >>> reader = cache(lambda: reads.append("read") or "abc")
    >>> list(reader()), list(reader()), reads
    (['a', 'b', 'c'], ['a', 'b', 'c'], ['read'])

    With a path, the first pass writes samples to the folder while yielding them. If that pass fails
    or is killed, the next one continues where the writing stopped, without reading the written
    samples again. Once all are written, a plan that you build with that path finds samples by
    index: you can shuffle it as a whole and start anywhere immediately. A folder belongs to one
    plan. It holds columns in `.npy` files, which are mapped into memory: arrays of one shape;
    arrays that differ in their first axis, as ragged columns; strings and bytes. Other objects are
    pickled, so read only folders that you trust. In all passes, arrays come back read-only, and
    Python numbers as NumPy scalars. One process writes; meanwhile, others read from the folder what
    is already there, and the rest from `reader`.

    The order is the same whether the folder is empty or complete. `bucket`, `pack`, a `shuffle` of
    all samples, and a `mix` of readers of unknown length need a complete cache to work out their
    order: over an incomplete one, they first write what is missing, with a progress bar, or wait
    for the process that writes it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     words = list(cache(lambda: "abc", folder)())
    ...     words, cache(lambda: "abc", folder).length()
    (['a', 'b', 'c'], 3)

    Cost: all samples are in memory; or, with a path, on disk, mapped into memory when read. Files
    have checksums: a pickled object is verified whenever it is read; a file is verified when a pass
    begins, at some 2 GB/s, if its modification time has changed since it was written (it may have
    been damaged, or merely copied). In a new process, a cache in memory reads `reader` again; a
    complete cache in a folder resumes immediately.

    Args:
        reader: Any reader that ends. With a path, it must yield the same samples in every pass:
            give its shuffles a seed.
        path: A folder, created if it does not exist; None for memory.

    Raises:
        TypeError: The path is neither a str nor an `os.PathLike`; or, while iterating, a sample
            cannot be pickled.
        ValueError: The path is a file, or a folder with unrelated files; `reader` has a different
            order in each pass; or, when a pass begins, the cache belongs to another plan: the
            message shows the line that differs.
        DamagedData: Files of the cache were modified (raised when a pass begins), or were written
            by an earlier version of jreader (raised when you build the plan): delete the folder.
        ReaderError: All samples have to be written first, and another pass started writing them and
            has stalled.
        OSError: The disk is full (while iterating), or the folder cannot be written.
    """

    reader: Reader[T]
    path: str | os.PathLike[str] | None = argument(check_folder, default=None, cursor="never")
    draw: int | None = field(default=None, init=False)  # what resolves the unseeded ops below
    pinned = True
    whole: bool = field(default=False, init=False)  # whether the folder was complete when made
    first: bool = field(default=False, init=False)  # whether to write all before the first sample
    from_reader = "all"

    def check_arguments(self) -> dict[str, Any]:
        """Check whether a cache on disk is complete; a pass checks that it belongs to this plan."""
        if self.path is None:
            return {}
        check_one_order("cache(reader, path)", self.reader, "cache before them")
        held = read_table(str(self.path))
        return {"whole": held.whole and held.rows > 0}

    @property
    def stores(self) -> bool:
        """True if samples are found by index once all are written."""
        return self.path is not None

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (where the reading began, samples yielded).

        For a cache on disk, it is (`IN_ORDER`, samples yielded).
        """
        if self.first and writing_allowed():  # empty, since the position of a stream would show it
            done = checked_position(at, 0)
            return Pass(iter(()), lambda: done, lambda: None)
        return self.kept.start(self, at)

    def length(self) -> int | None:
        """Return the length of `reader`, or of a complete cache on disk."""
        return self.kept.length(self)

    def plane(self) -> Plane | None:
        """Return the plane of `reader`: indexed samples need not be kept to be found again.

        A cache on disk has its own plane, if it was complete when built, or is written first.
        """
        return self.kept.plane(self)

    @property
    def lazy_length(self) -> bool:
        """True if the length is only known by reading files."""
        return (self.whole or self.first) and not self.kept.whole

    @property
    def filled(self) -> bool:
        """True if passes no longer read `reader`: all samples are in memory, or in the folder."""
        return self.whole if self.path is not None else self.kept.whole

    @property
    def settled(self) -> Reader[T]:
        """The reader whose samples are kept, with the seeds drawn for it."""
        return self.reader if self.draw is None else seeded(self.reader, self.draw)

    def resolved(self, draws: Draws) -> Mapping[str, Any]:
        """Draw one number for all ops below; it is kept for all passes, as the samples are."""
        kept = self.kept
        known = self.draw is not None or not any(map(lacks_seed, children(self)))
        return {} if known or isinstance(kept, DiskCache) else {"draw": draws.kept(kept.draw)}

    def changed(self, new: Mapping[str, Any]) -> Self:
        """Copy the op; the copy shares the kept samples."""
        copy = super().changed(new)
        copy.__dict__["_kept"] = self.kept
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the kept samples."""
        return {name: value for name, value in super().__getstate__().items() if name != "_kept"}

    @property
    def kept(self) -> DiskCache[T] | MemoryCache[T]:
        """The kept samples, shared by all copies."""
        if (known := self.__dict__.get("_kept")) is None:
            new: Any = DiskCache(self.reader, str(self.path)) if self.path else MemoryCache()
            known = self.__dict__.setdefault("_kept", new)  # atomic
        return cast("DiskCache[T] | MemoryCache[T]", known)


class MemoryCache(Generic[T]):
    """The finished reading of a cache, or the running one."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._latest: weakref.ref[_Reading[T]] | None = None
        self._finished: _Reading[T] | None = None
        self._drawn: int | None = None  # the first draw is kept, like the samples

    @property
    def whole(self) -> bool:
        """True once a reading has reached its end."""
        return self._finished is not None

    def draw(self, drawn: int) -> int:
        """Keep a drawn number, if it is the first; return the kept one."""
        with self._turn:
            self._drawn = drawn if self._drawn is None else self._drawn
            return self._drawn

    def length(self, node: Any) -> int | None:
        """Return the length of the reader."""
        return length(node.reader)

    def plane(self, node: Any) -> Plane | None:
        """Return the plane of the reader."""
        return indexed(node.settled)

    def start(self, node: Any, at: Position) -> Pass[T]:
        """Start a pass; its position is (where the reading began, samples yielded)."""
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
        """Return the reading of this draw that began at `origin`; start one if there is none."""
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
        """Keep the first reading that reached its end."""
        with self._turn:
            self._finished = self._finished or reading


class _Reading(Generic[T]):
    """One pass over the source, shared by all cache passes that began meanwhile."""

    def __init__(
        self, up: Pass[T], keep: Callable[[_Reading[T]], object], drawn: int | None
    ) -> None:
        self.up: Pass[T] | None = up
        self.drawn = drawn
        self.origin = up.position()
        self.samples: list[T] = []
        self.fixed = False  # whether all samples are immutable
        self.failure: BaseException | None = None
        self.users = 1
        self.turn = threading.RLock()
        self.keep: Callable[[_Reading[T]], object] | None = keep

    @property
    def finished(self) -> bool:
        """True if every sample was read."""
        return self.up is None and self.failure is None

    def has(self, index: int) -> bool:
        """Return whether there is a sample at `index`; read until there is."""
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
        """Raise NotResumable at the end if the position is beyond the last sample."""
        if done > len(self.samples):
            raise errors.NotResumable(
                f"cannot resume after sample {done} of {node!r}: it gave {len(self.samples)} "
                f"samples. Start at the beginning (at=None), or give it the data it had."
            )

    def leave(self) -> None:
        """Leave the reading when a pass closes; the last pass ends an unfinished one."""
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
    """Return whether two positions are equal as JSON, where tuples are lists."""
    return origin is None or json.dumps(origin) == json.dumps(known)
