"""Implements `cache(reader, path)`: the first pass writes samples to a folder.

The folder belongs to one plan, and stores its fingerprint. The process that holds the lock writes;
others read what is written, and read the rest from the reader themselves: waiting for a process
that waits for its own consumer could take forever. After a pass was cut short, whichever process
needs the next sample first resumes writing at the last commit.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from jreader import errors
from jreader.orders import STREAM_VERSION
from jreader.progress import Bar
from jreader.readers import Pass, Plane, Position, Reader, leaves, length, start
from jreader.readers.fingerprints import difference, fingerprint, swapped
from jreader.readers.growing import IN_ORDER, writing_allowed
from jreader.readers.messages import refusal_in
from jreader.readers.passes import checked_position
from jreader.readers.seeds import lacks_seed
from jreader.sources.appending import Appending
from jreader.sources.columns import identity_route
from jreader.sources.file_checks import changed, check_map, path_text
from jreader.sources.stored_columns import TABLE, Stored, read_table
from jreader.sources.stored_rows import encoded, kind_of, reloaded, size_of
from jreader.sources.transactions import locked

T = TypeVar("T")

_BYTES = 1 << 24  # unwritten samples to hold, in bytes
_SECONDS = 5.0  # to hold a sample, if more come
_CHUNK = 1 << 8  # rows to look up at a time
_TURNS = 3
_LOCK_SECONDS = 600.0  # seconds to wait for a process that writes no samples
_POLL_SECONDS = 0.1  # seconds between checks whether it has finished
LOCK = "writer.lock"
PIECES = "pieces"  # a folder of folders, each with some of the samples (`pieces.py`)
_PARTS = ("ops", "data", "functions", "layouts", "values")  # earlier folders lack the last two


def check_folder(call: str, path: Any) -> str:
    """Check that a folder is new, empty or a cache; return its absolute path.

    Raises:
        TypeError: It is not a path.
        ValueError: It is a file, or holds other files.
    """
    name = path_text(path)
    if not name:
        raise TypeError(f"path of {call} needs the name of a folder, not {path!r}.")
    folder = Path(name).absolute()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"path of {call} needs a folder, and {name!r} is a file: give another.")
    ours = {TABLE, LOCK, PIECES}
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    if names and not ours & names:
        raise ValueError(
            f"path of {call} needs a folder of its own, and {name!r} has other files in it, such "
            f"as {min(names)!r}: give a new one, as in {str(Path(name, 'cache'))!r}."
        )
    return str(folder)


def check_one_order(call: str, reader: Reader[Any], otherwise: str) -> None:
    """Raise ValueError if a reader has a different order in each pass, which cannot be stored."""
    if lacks_seed(reader):
        raise ValueError(
            f"{call} keeps one order for all programs, and {reader!r} draws new numbers in each "
            f"pass: give its ops a seed, as in shuffle(seed=0), or {otherwise}."
        )


class DiskCache(Generic[T]):
    """The samples of a reader in a folder, written when they are first read.

    Args:
        reader: The reader; every pass yields the same samples.
        folder: The folder for the samples.

    Attributes:
        named: Its name for errors, and the call that gives it another folder.
    """

    named = "cache", "cache(reader, 'another')"

    def __init__(self, reader: Reader[T], folder: str) -> None:
        self.reader, self.folder = reader, folder
        self._turn = threading.RLock()
        self._contents: Stored | None = None  # contents of the folder when last checked
        # at most one; a list, so that it outlives this object
        self._writing: list[CacheWriter[T]] = []
        self._users = 0  # open passes
        weakref.finalize(self, stop_writing, self._writing)

    def __reduce__(self) -> Any:
        return type(self), (self.reader, self.folder)

    @property
    def of(self) -> Reader[Any]:
        """The reader that yields one sample for each written item."""
        return self.reader

    def over(self, reader: Reader[Any], folder: str) -> Self:
        """Return a cache of the same kind over another reader, in another folder."""
        return type(self)(reader, folder)

    def items(self, held: Stored, begin: int) -> Iterator[Any]:
        """Yield the written items, from a sample on."""
        return held.samples(begin, held.rows)

    def bytes_of(self, sample: Any) -> float:
        """Estimate the bytes that a sample takes."""
        parts = leaves(reloaded(sample))
        return sum(size_of(encoded(part, kind_of(part))) for part in parts)

    @cached_property
    def plan(self) -> dict[str, list[str]]:
        """The lines of the plan that the folder belongs to."""
        lines: Any = fingerprint(self.reader)
        first = f"stream version {STREAM_VERSION}"
        plan = {name: lines[name] for name in (*_PARTS, "members")}
        return {**plan, "ops": [first, *plan["ops"]]}

    @property
    def whole(self) -> bool:
        """True if the contents, as last read, have all samples."""
        self._writer()
        return self._contents is not None and self._contents.whole

    def length(self, node: Any) -> int | None:
        """Return the number of samples if the folder is complete; else the length of the reader."""
        return self._complete(node).rows if self.is_complete(node) else length(node.reader)

    def plane(self, node: Any) -> Plane | None:
        """Return the plane of the columns in the folder, if it is complete and not empty."""
        held = self._complete(node) if self.is_complete(node) else None
        if held is None or not held.rows:
            return None
        columns = leaves(held.mapped)
        for column in columns:
            check_map(column)
        return Plane(held.mapped, held.rows, identity_route(len(columns)), straight=True)

    def is_complete(self, node: Any) -> bool:
        """Return whether the folder is complete, or will be before it is read."""
        return node.whole or (node.first and (writing_allowed() or self.whole))

    def _complete(self, node: Any) -> Stored:
        """Return the complete contents of the folder; write them now if they must come first."""
        held = self.written() if node.first and writing_allowed() else self.held()
        if not held.whole:
            raise changed(self.folder, "was complete, and is not any more")
        return held

    def held(self) -> Stored:
        """Return the written contents, as last checked; the first check verifies them.

        Raises:
            ValueError: The folder belongs to another plan.
            DamagedData: It was modified after it was written.
        """
        with self._turn:
            self._writer()
            return self._contents or self.refresh(check=True)

    def _writer(self) -> CacheWriter[T] | None:
        """Return the writer, if there is one, after updating the contents; drop a closed one."""
        for writer in [*self._writing]:
            self._contents = writer.out.held
            if writer.closed:
                self._writing.clear()
        return next(iter(self._writing), None)

    def written(
        self, fill: Callable[[CacheWriter[T]], object] | None = None, *, waits: bool = True
    ) -> Stored:
        """Write what is missing, or wait for the process that does; return the contents.

        Args:
            fill: Passes what is missing to the writer; None to read it.
            waits: Whether to wait; if not, return the current contents while another pass writes.

        Raises:
            ReaderError: Another pass holds the lock, and writes nothing.
        """
        with self._turn:
            if self.held().whole:
                return self.held()
            self._users += 1
            try:
                while (waits or not self._writer()) and not self.held().whole:
                    lock = self._wait_for_lock if waits else self._lock
                    writer = self._writer() or self._begin_writer(lock())
                    if writer is not None:
                        (fill or self.read_rest)(writer)
                    elif not waits:
                        break
            finally:
                self._on_pass_closed()
            return self.held()

    def read_rest(self, writer: CacheWriter[T]) -> None:
        """Read and write what is missing."""
        writer.upto(sys.maxsize)

    def _wait_for_lock(self) -> int:
        """Wait until the process that holds the folder's lock has ended; return the lock."""
        path, seen, since = Path(self.folder, LOCK), 0, time.monotonic()
        with Bar(f"waiting for the process that writes {Path(self.folder).name}") as bar:
            while (lock := locked(path)) is None:
                rows = self.refresh().rows
                bar.add(rows - seen)
                if rows > seen:
                    seen, since = rows, time.monotonic()
                here = any(each.writes(self.folder) for each in _ACTIVE_WRITERS)
                if here or time.monotonic() - since > _LOCK_SECONDS:
                    whose = "Another pass of this process" if here else "Another process"
                    raise errors.ReaderError(
                        f"this plan begins when all samples are in the cache in {self.folder!r}. "
                        f"{whose} has begun to write them, and does not go on: let it reach its "
                        "end, or end it; or give another folder."
                    )
                time.sleep(_POLL_SECONDS)
        return lock

    def start(self, _node: Any, at: Position) -> Pass[T]:
        """Start a pass in order; its position is (`IN_ORDER`, samples yielded)."""
        _, done = checked_position(at, (None, 0))
        bypass: list[Pass[T]] = []  # a pass over the reader itself, if this pass cannot write
        may_write = writing_allowed()

        def deal() -> Generator[T]:
            nonlocal done
            with self._turn:
                self._users += 1
            try:
                while some := self._chunk(done, bypass, may_write=may_write):
                    for sample in some:
                        done += 1
                        yield sample
                if not bypass and done > (many := self.held().rows):
                    raise errors.NotResumable(
                        f"cannot resume after sample {done} of the cache in {self.folder!r}: it "
                        f"has {many} samples. Start at the beginning (at=None), or give it the "
                        f"data that it had."
                    )
            finally:
                self._on_pass_closed()
                for each in bypass:
                    each.close()

        items = deal()
        return Pass(items, lambda: (IN_ORDER, done), items.close)

    def _on_pass_closed(self) -> None:
        """Stop the writer when the last pass closes; what was read by then is kept."""
        if self._turn.acquire(blocking=False):  # garbage collection may call this anywhere
            try:
                self._users -= 1
                if not self._users:
                    stop_writing(self._writing)
                    self.refresh()
            finally:
                self._turn.release()

    def _chunk(self, index: int, bypass: list[Pass[T]], *, may_write: bool) -> list[T]:
        """Return some samples from an index on; [] at the end."""
        with self._turn:
            if not bypass:
                some = self._stored_samples(index)
                if some is None and may_write:
                    writer = self._writer() or self._begin_writer(self._lock())
                    some = self._stored_samples(index)  # by another process meanwhile
                    if some is None and writer is not None:
                        some = writer.upto(index)
                if some is not None:
                    return some
                bypass.append(self.bypass(index).mapped(reloaded))
            return list(islice(bypass[0].items, 1))

    def _stored_samples(self, index: int) -> list[T] | None:
        """Return stored samples from an index on; None if there are none yet."""
        held = self.held()
        if index < held.rows:
            return list(held.samples(index, min(index + _CHUNK, held.rows)))
        return [] if held.whole else None

    def _lock(self) -> int | None:
        """Return the lock of the folder; None if another process holds it."""
        return locked(Path(self.folder, LOCK))

    def _begin_writer(self, lock: int | None) -> CacheWriter[T] | None:
        """Resume writing; None if all is written, or there is no lock."""
        if lock is None:
            self.refresh()
            return None
        try:
            held = self.refresh(check=True)
            if not held.whole:
                self._writing.append(self.writer(held, lock))
        finally:
            if not self._writing:
                os.close(lock)
        return self._writer()

    def writer(self, held: Stored, lock: int) -> CacheWriter[T]:
        """Return a writer that continues there, with the lock of the folder."""
        if held.said and not held.said["goes_on"]:
            held = Stored(held.folder)
        held.sweep()
        position = held.said["position"] if held.said else None
        out = Appending(held, position, partial(metadata, self.plan))
        bar = Bar(f"caching in {held.folder.name}", length(self.reader))
        return CacheWriter(out, start(self.reader, position), lock, bar)

    def bypass(self, index: int) -> Pass[Any]:
        """Start a pass over the reader itself, from an unwritten index on."""
        held = self.held()
        known = held.said is not None and held.said["goes_on"] and held.rows <= index
        up = start(self.of, held.said["position"] if known else None)
        deque(islice(up.items, index - (held.rows if known else 0)), maxlen=0)
        return up

    def refresh(self, *, check: bool = False) -> Stored:
        """Read the state of the folder again; with `check`, verify its files by checksum."""
        for turn in range(_TURNS):
            try:
                held = read_table(self.folder)
                if check:
                    held.check_values()
                break
            except errors.DamagedData:  # or the columns were replaced meanwhile
                if turn == _TURNS - 1:
                    raise
        self._contents = None
        if held.said is not None:
            self._check_plan(held.said["plan"])
        self._contents = held
        return held

    def _check_plan(self, written: dict[str, list[str]]) -> None:
        for name in _PARTS:
            now = self.plan[name]
            before = written.get(name, now)
            if before != now:
                number, one, other = difference(before, now)
                raise ValueError(
                    f"{self._plan_mismatch}, whose line {number} of its {name} is {one!r}; here it "
                    f"is {other!r}. {self.use_another_folder} (Functions are told apart by code, "
                    "which another Python version compiles to another hash.)"
                )
        if several := swapped(written["members"], self.plan["members"]):
            raise ValueError(
                f"{self._plan_mismatch}: the members of {several} come in another order here. "
                f"{self.use_another_folder}"
            )

    @property
    def _plan_mismatch(self) -> str:
        return f"the {self.named[0]} in {self.folder!r} is of another plan"

    @property
    def use_another_folder(self) -> str:
        """Advice for a folder that belongs to something else."""
        return f"Delete that folder, or give another one, as in {self.named[1]}."


class CacheWriter(Generic[T]):
    """Writes the samples of a reading; holds the lock of the folder.

    Args:
        out: Writes the samples.
        up: The reading, which closes with this.
        lock: The lock of the folder, released on closing.
        bar: The progress bar.
    """

    def __init__(self, out: Appending, up: Pass[T], lock: int, bar: Bar) -> None:
        self.out, self._up, self._lock, self._bar = out, up, lock, bar
        self._process, self._since = os.getpid(), time.monotonic()
        bar.add(out.held.rows)
        self.closed = False
        _ACTIVE_WRITERS.add(self)

    def upto(self, index: int) -> list[T]:
        """Return the sample at an index in a list, reading and writing up to it; [] at the end."""
        while len(self.out) <= index:
            try:
                sample = next(self._up.items)
            except StopIteration:
                self.finish()
                return []
            except BaseException:
                self.close()
                raise
            self.add(sample, self._up.position())
        return [self.out[index]]

    def add(self, sample: T, at: Position) -> None:
        """Write a sample that the caller has read; `at` is the position after it."""
        late = self.out.waiting and time.monotonic() - self._since > _SECONDS
        if late or self.out.bytes >= _BYTES:
            self._commit()
        self.out.add(sample, at)
        self._bar.add()

    def finish(self) -> None:
        """Record that these are all samples, and close."""
        self._commit(whole=True)
        self.close()

    def writes(self, folder: str) -> bool:
        """Return whether it writes to a folder, in this process."""
        return self.is_active and folder == str(self.out.held.folder)

    @property
    def is_active(self) -> bool:
        """True if it is open, and of this process: a fork inherits the lock of its parent."""
        return not self.closed and self._process == os.getpid()

    def close(self) -> None:
        """Write what was read, end the reading, and release the lock."""
        if not self.is_active:
            return
        self.closed = True
        try:
            if self.out.waiting:
                self._commit()
        finally:
            os.close(self._lock)
            self._bar.close()
            self._up.close()

    def _commit(self, *, whole: bool = False) -> None:
        self.out.commit(whole=whole)
        self._since = time.monotonic()


def metadata(plan: dict[str, list[str]], position: Position) -> dict[str, Any]:
    """Return the table's metadata: the plan, and the position after the last sample."""
    goes_on = refusal_in(position) is None
    try:
        json.dumps(position)
    except (TypeError, ValueError):
        goes_on = False
    return {"plan": plan, "goes_on": goes_on, "position": position if goes_on else None}


_ACTIVE_WRITERS: weakref.WeakSet[CacheWriter[Any]] = weakref.WeakSet()


def stop_writing(writing: list[CacheWriter[Any]]) -> None:
    """Close writers; what was read by then is kept."""
    while writing:
        writing.pop().close()
