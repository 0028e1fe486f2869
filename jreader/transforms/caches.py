"""`cache`: the samples of a reader, read once and kept, in memory or in a folder.

Paddle's `cache` reads everything when it is built. This one reads in the first pass, and passes at
the same time share one reading: the one that needs the next sample reads it for all. In memory,
only a reading that reached its end is kept. One that all its passes left is dropped, with what it
held open. `disk_caches.py` has what a folder keeps.
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

    In memory, your code cannot change the cached samples: arrays come as read-only views, dicts,
    lists and tuples are rebuilt (some 2 us for a dict of three fields), and other objects are
    copied where they can be. A reader that refills one array for all samples would fill the cache
    with its last state, so the cache warns: cache `map_readers(np.copy, reader)` instead. The order
    is cached too: neither epochs nor `seed=None` reshuffle what is below a cache. The numbers drawn
    for it are part of the position of every pass.

    >>> reads = []
    >>> reader = cache(lambda: reads.append("read") or "abc")
    >>> list(reader()), list(reader()), reads
    (['a', 'b', 'c'], ['a', 'b', 'c'], ['read'])

    With a path, the first pass writes samples to the folder while it hands them over. If an error
    or a kill ends that pass early, the next one continues where the writing stopped: it does not
    read the written samples again. Once all are written, a plan that you build with that path finds
    samples by index: it can be shuffled as a whole, and starts anywhere at once. A folder belongs
    to one plan. It holds columns, mapped from `.npy` files: arrays of one shape; arrays that differ
    in their first axis, as ragged columns; texts and bytes; other objects pickled, so read only
    folders that you trust. Arrays come back read-only, and Python's numbers as NumPy's, in all
    passes. One process writes; others that read at the same time read the rest from `reader`.

    The order is the same whether the folder is empty or complete. `bucket`, `pack`, and `mix` of
    readers of unknown length order by what only a complete cache knows: over an incomplete one,
    they first write what is missing, under a progress bar, or wait for the process that writes it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     words = list(cache(lambda: "abc", folder)())
    ...     words, cache(lambda: "abc", folder).length()
    (['a', 'b', 'c'], 3)

    Cost: all samples are in memory; or, with a path, on the disk, mapped into memory where they are
    read. Files have checksums: a pickled object is checked whenever it is read, a file when a pass
    begins and the file was changed since it was written (it was damaged, or copied), at some 2 GB a
    second. In a new process, a cache in memory reads `reader` again; a cache in a folder that is
    complete resumes at once.

    Args:
        reader: Any reader that ends. With a path, it has the same samples in every pass: give its
            shuffles a seed.
        path: A folder, created if it does not exist; None for memory.

    Raises:
        TypeError: The path is neither a str nor a path; or, while iterating, a sample cannot be
            pickled.
        ValueError: The path is a file, or a folder of other files; `reader` has another order in
            each pass; or, when a pass begins, the cache belongs to another plan: the message
            shows the line.
        DamagedData: Files of the cache were changed (when a pass begins), or an earlier version
            wrote them (when it is made): delete the folder.
        ReaderError: All samples have to be written first, and another pass, which has stalled,
            has begun to write them.
        OSError: The disk is full (while iterating), or the folder cannot be written.
    """

    reader: Reader[T]
    path: str | os.PathLike[str] | None = argument(check_folder, default=None, cursor="never")
    draw: int | None = field(default=None, init=False)  # what resolves the unseeded ops below
    pinned = True
    whole: bool = field(default=False, init=False)  # whether the folder had all when it was made
    first: bool = field(default=False, init=False)  # whether to write all before the first sample
    from_reader = "all"

    def check_arguments(self) -> dict[str, Any]:
        """Looks whether a cache on disk is whole; what it is of is checked when a pass begins."""
        if self.path is None:
            return {}
        check_one_order("cache(reader, path)", self.reader, "cache before them")
        held = read_table(str(self.path))
        return {"whole": held.whole and held.rows > 0}

    @property
    def stores(self) -> bool:
        """Whether samples are found by their index once all are written."""
        return self.path is not None

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (where the reading began, samples handed over).

        That of a cache on disk is (`IN_ORDER`, samples handed over).
        """
        if self.first and writing_allowed():  # and empty: a stream says so in its positions
            done = checked_position(at, 0)
            return Pass(iter(()), lambda: done, lambda: None)
        return self.kept.start(self, at)

    def length(self) -> int | None:
        """The length of `reader`, or of a whole cache on disk."""
        return self.kept.length(self)

    def plane(self) -> Plane | None:
        """The plane of `reader`: indexed samples need not be kept to be found again.

        Of a cache on disk, its own, if it was whole when it was made, or is written first.
        """
        return self.kept.plane(self)

    @property
    def lazy_length(self) -> bool:
        """Whether its length is only known by reading files."""
        return (self.whole or self.first) and not self.kept.whole

    @property
    def filled(self) -> bool:
        """Whether no pass reads `reader` any more: memory has all samples, or the folder had."""
        return self.whole if self.path is not None else self.kept.whole

    @property
    def settled(self) -> Reader[T]:
        """The reader whose samples are kept, with the numbers that were drawn for it."""
        return self.reader if self.draw is None else seeded(self.reader, self.draw)

    def resolved(self, draws: Draws) -> Mapping[str, Any]:
        """One drawn number for all ops below; it is kept for all passes, as the samples are."""
        kept = self.kept
        known = self.draw is not None or not any(map(lacks_seed, children(self)))
        return {} if known or isinstance(kept, DiskCache) else {"draw": draws.kept(kept.draw)}

    def changed(self, new: Mapping[str, Any]) -> Self:
        """A copy that shares the kept samples."""
        copy = super().changed(new)
        copy.__dict__["_kept"] = self.kept
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """The kept samples are not pickled."""
        return {name: value for name, value in super().__getstate__().items() if name != "_kept"}

    @property
    def kept(self) -> DiskCache[T] | MemoryCache[T]:
        """What is kept, which all copies share."""
        if (known := self.__dict__.get("_kept")) is None:
            new: Any = DiskCache(self.reader, str(self.path)) if self.path else MemoryCache()
            known = self.__dict__.setdefault("_kept", new)  # atomic
        return cast("DiskCache[T] | MemoryCache[T]", known)


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
                f"cannot resume after sample {done} of {node!r}: it gave {len(self.samples)} "
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
