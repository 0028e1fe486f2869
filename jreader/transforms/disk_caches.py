"""What `cache(reader, path)` does: samples go to a folder as the first pass reads them.

The folder belongs to one plan, whose fingerprint it has. One process writes, that which has the
lock; the others read what is written, and the rest from the reader themselves: to wait for a
process that waits for its own consumer could last for ever. A pass that was cut short resumes
at the last commit, in whatever process needs the next sample first.
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

_BYTES = 1 << 24  # of samples that wait to be written
_SECONDS = 5.0  # that a sample waits at most, if more come
_CHUNK = 1 << 8  # rows that are looked up in one go
_TURNS = 3
_LOCK_SECONDS = 600.0  # seconds to wait for a process that writes no sample
_POLL_SECONDS = 0.1  # seconds between two looks whether it has ended
LOCK = "writer.lock"
PIECES = "pieces"  # a folder of folders, each of which has some of the samples (`pieces.py`)
_PARTS = ("ops", "data", "functions", "layouts", "values")  # earlier folders lack the last two


def check_folder(call: str, path: Any) -> str:
    """The path of a folder that is new, empty, or a cache; absolute, since programs move.

    Raises:
        TypeError: It is no path.
        ValueError: There is something else.
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
    """Raises ValueError if a reader has another order in each pass, so that nothing fits it."""
    if lacks_seed(reader):
        raise ValueError(
            f"{call} keeps one order for all programs, and {reader!r} draws new numbers in each "
            f"pass: give its ops a seed, as in shuffle(seed=0), or {otherwise}."
        )


class DiskCache(Generic[T]):
    """The samples of a reader in a folder, written as they are read for the first time.

    Args:
        reader: What is read, of which every pass gives the same.
        folder: Where samples are kept.

    Attributes:
        named: What errors call it, and the call that gives it another folder.
    """

    named = "cache", "cache(reader, 'another')"

    def __init__(self, reader: Reader[T], folder: str) -> None:
        self.reader, self.folder = reader, folder
        self._turn = threading.RLock()
        self._contents: Stored | None = None  # what the folder held when it was looked at last
        # at most one; a list, so that it outlives this object
        self._writing: list[CacheWriter[T]] = []
        self._users = 0  # passes that read on
        weakref.finalize(self, stop_writing, self._writing)

    def __reduce__(self) -> Any:
        return type(self), (self.reader, self.folder)

    @property
    def of(self) -> Reader[Any]:
        """The reader that gives one sample for each that is written."""
        return self.reader

    def over(self, reader: Reader[Any], folder: str) -> Self:
        """The same of another reader, in another folder."""
        return type(self)(reader, folder)

    def items(self, held: Stored, begin: int) -> Iterator[Any]:
        """What is written, from a sample on."""
        return held.samples(begin, held.rows)

    def bytes_of(self, sample: Any) -> float:
        """The bytes that a sample takes, nearly."""
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
        """Whether all is written, and was looked at."""
        self._writer()
        return self._contents is not None and self._contents.whole

    def length(self, node: Any) -> int | None:
        """How many samples the folder has, if it has all; else the length of what is read."""
        return self._complete(node).rows if self.is_complete(node) else length(node.reader)

    def plane(self, node: Any) -> Plane | None:
        """That of the columns in the folder, if all samples are there and these are some."""
        held = self._complete(node) if self.is_complete(node) else None
        if held is None or not held.rows:
            return None
        columns = leaves(held.mapped)
        for column in columns:
            check_map(column)
        return Plane(held.mapped, held.rows, identity_route(len(columns)), straight=True)

    def is_complete(self, node: Any) -> bool:
        """Whether the folder has all samples by now, or gets them before it is read."""
        return node.whole or (node.first and (writing_allowed() or self.whole))

    def _complete(self, node: Any) -> Stored:
        """The complete contents of the folder, written now if they must come first."""
        held = self.written() if node.first and writing_allowed() else self.held()
        if not held.whole:
            raise changed(self.folder, "was complete, and is not any more")
        return held

    def held(self) -> Stored:
        """What is written, as of the last look; the first look checks it.

        Raises:
            ValueError: The folder is of another plan.
            DamagedData: It was changed since it was written.
        """
        with self._turn:
            self._writer()
            return self._contents or self.refresh(check=True)

    def _writer(self) -> CacheWriter[T] | None:
        """The writer, if there is one; its progress counts from now on. Forgets a closed one."""
        for writer in [*self._writing]:
            self._contents = writer.out.held
            if writer.closed:
                self._writing.clear()
        return next(iter(self._writing), None)

    def written(
        self, fill: Callable[[CacheWriter[T]], object] | None = None, *, waits: bool = True
    ) -> Stored:
        """What is written, once all is: writes what is missing, or waits for another process.

        Args:
            fill: Gives what is missing to what writes; None to read it.
            waits: Whether to wait; if not, what is there by now where another pass writes.

        Raises:
            ReaderError: Another pass has the lock, and writes nothing.
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
        """Reads what is missing."""
        writer.upto(sys.maxsize)

    def _wait_for_lock(self) -> int:
        """The lock of the folder, as soon as the process that has it has written all, or ended."""
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
        """A pass in order; its position is (`IN_ORDER`, how many samples it has handed over)."""
        _, done = checked_position(at, (None, 0))
        bypass: list[Pass[T]] = []  # over the reader itself, where this pass does not write
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
        if self._turn.acquire(blocking=False):  # garbage may be collected anywhere
            try:
                self._users -= 1
                if not self._users:
                    stop_writing(self._writing)
                    self.refresh()
            finally:
                self._turn.release()

    def _chunk(self, index: int, bypass: list[Pass[T]], *, may_write: bool) -> list[T]:
        """Samples from an index on; none at the end."""
        with self._turn:
            if not bypass:
                some = self._stored_samples(index)
                if some is None and may_write:
                    writer = self._writer() or self._begin_writer(self._lock())
                    some = self._stored_samples(index)  # another process may have written it by now
                    if some is None and writer is not None:
                        some = writer.upto(index)
                if some is not None:
                    return some
                bypass.append(self.bypass(index).mapped(reloaded))
            return list(islice(bypass[0].items, 1))

    def _stored_samples(self, index: int) -> list[T] | None:
        """Samples from an index on that are in the folder; None if there are none yet."""
        held = self.held()
        if index < held.rows:
            return list(held.samples(index, min(index + _CHUNK, held.rows)))
        return [] if held.whole else None

    def _lock(self) -> int | None:
        """The lock of the folder; None if another process has it."""
        return locked(Path(self.folder, LOCK))

    def _begin_writer(self, lock: int | None) -> CacheWriter[T] | None:
        """Begins to write where another writer stopped; None if all is written, or has no lock."""
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
        """A writer that continues there, with the lock of the folder."""
        if held.said and not held.said["goes_on"]:
            held = Stored(held.folder)
        held.sweep()
        position = held.said["position"] if held.said else None
        out = Appending(held, position, partial(metadata, self.plan))
        bar = Bar(f"caching in {held.folder.name}", length(self.reader))
        return CacheWriter(out, start(self.reader, position), lock, bar)

    def bypass(self, index: int) -> Pass[Any]:
        """A pass over the reader itself, from an index on that is not written."""
        held = self.held()
        known = held.said is not None and held.said["goes_on"] and held.rows <= index
        up = start(self.of, held.said["position"] if known else None)
        deque(islice(up.items, index - (held.rows if known else 0)), maxlen=0)
        return up

    def refresh(self, *, check: bool = False) -> Stored:
        """Looks at the folder again; with `check`, compares its files with their checksums."""
        for turn in range(_TURNS):
            try:
                held = read_table(self.folder)
                if check:
                    held.check_values()
                break
            except errors.DamagedData:  # or columns became others in the meantime
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
        """What to do about a folder of something else."""
        return f"Delete that folder, or give another one, as in {self.named[1]}."


class CacheWriter(Generic[T]):
    """A reading whose samples are written; it has the lock of the folder.

    Args:
        out: What writes them.
        up: The reading, which ends with it.
        lock: The lock of the folder, which is given back when it is closed.
        bar: How far it is.
    """

    def __init__(self, out: Appending, up: Pass[T], lock: int, bar: Bar) -> None:
        self.out, self._up, self._lock, self._bar = out, up, lock, bar
        self._process, self._since = os.getpid(), time.monotonic()
        bar.add(out.held.rows)
        self.closed = False
        _ACTIVE_WRITERS.add(self)

    def upto(self, index: int) -> list[T]:
        """The sample of an index; reads and writes what comes before. None if there is none."""
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
        """Writes a sample that its caller has read; `at` is the position after it."""
        late = self.out.waiting and time.monotonic() - self._since > _SECONDS
        if late or self.out.bytes >= _BYTES:
            self._commit()
        self.out.add(sample, at)
        self._bar.add()

    def finish(self) -> None:
        """Writes that these are all samples, and closes."""
        self._commit(whole=True)
        self.close()

    def writes(self, folder: str) -> bool:
        """Whether it writes to a folder, in this process."""
        return self.is_active and folder == str(self.out.held.folder)

    @property
    def is_active(self) -> bool:
        """Whether it is not closed, and of this process: a fork has the lock of its parent."""
        return not self.closed and self._process == os.getpid()

    def close(self) -> None:
        """Writes what was read, ends the reading, and lets others write."""
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
    """What the table keeps beside samples: the plan, and the position after the last one."""
    goes_on = refusal_in(position) is None
    try:
        json.dumps(position)
    except (TypeError, ValueError):
        goes_on = False
    return {"plan": plan, "goes_on": goes_on, "position": position if goes_on else None}


_ACTIVE_WRITERS: weakref.WeakSet[CacheWriter[Any]] = weakref.WeakSet()


def stop_writing(writing: list[CacheWriter[Any]]) -> None:
    """Ends what writes; what was read by then is kept."""
    while writing:
        writing.pop().close()
