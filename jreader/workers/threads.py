"""Reading and mapping on other threads: one engine, `Ahead`, for every op that does."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from jreader import errors
from jreader.readers import Node, Pass, Position, Reader, described, explain, length, start
from jreader.readers.nodes import refused

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, eq=False, repr=False)
class buffered(Node[T]):
    """The samples of `reader`, read ahead on a thread of their own, at most `size` of them.

    After `k` samples were handed over, `reader` has been read at most `k + size` times. An error of
    `reader` arrives after the samples before it.

    >>> list(buffered(lambda: "abc", size=2)())
    ['a', 'b', 'c']

    Args:
        reader: Any reader; one pass is read by one thread from beginning to end.
        size: How many samples to read ahead; 0 reads none, and needs no thread.
    """

    reader: Reader[T]
    size: int
    hands_on: ClassVar[Literal["", "all", "some"]] = "all"

    def __post_init__(self) -> None:
        """Refuses what is no reader, and no size."""
        errors.check_reader("buffered(reader, size)", self.reader)
        object.__setattr__(self, "size", errors.check_number("buffered(reader, size)", self.size))

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader` after the sample handed over, not after those read ahead."""
        up = start(self.reader, at)
        if self.size == 0:
            return up
        return ahead(self, up, _same, threads=1, window=self.size)

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)


@dataclass(frozen=True, eq=False, repr=False)
class xmap_readers(Node[T]):
    """`mapper` of the samples of `reader`, on `process_num` threads (threads, as in Paddle).

    At most `process_num + buffer_size` samples are in work or wait to be handed over. NumPy, file
    and network calls run side by side; pure Python code does not (the interpreter's lock).

    >>> list(xmap_readers(str.upper, lambda: "abc", process_num=2, buffer_size=4, order=True)())
    ['A', 'B', 'C']

    Args:
        mapper: Takes a sample, gives one. Several threads call it at once.
        reader: Any reader; it is read by one thread at a time.
        process_num: The number of threads.
        buffer_size: How many finished samples may wait.
        order: Whether samples keep the order of `reader`. Otherwise they come as they get ready,
            and such a pass cannot be resumed.
    """

    mapper: Callable[[Any], T]
    reader: Reader[Any]
    process_num: int
    buffer_size: int
    order: bool = False

    def __post_init__(self) -> None:
        """Refuses what cannot be called, and numbers below one."""
        call = "xmap_readers(mapper, reader, process_num, buffer_size)"
        errors.check_function(call, self.mapper)
        errors.check_reader(call, self.reader)
        for name in ("process_num", "buffer_size"):
            number = errors.check_number(f"{name} of {call}", getattr(self, name), 1)
            object.__setattr__(self, name, number)
        object.__setattr__(self, "order", bool(self.order))

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader`, if the order is kept."""
        up = start(self.reader, at)
        window = self.process_num + self.buffer_size
        here = ahead(self, up, self._mapped, self.process_num, window, self.order)
        if self.order:
            return here
        lost = refused(self, "order=True")
        return Pass(here.items, lambda: lost, here.close)

    def _mapped(self, sample: Any) -> T:
        try:
            return self.mapper(sample)
        except Exception as error:
            explain(error, self, self.mapper, sample)
            raise

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)


def _same(item: T) -> T:
    return item


def ahead(
    node: Node[T],
    up: Pass[S],
    fn: Callable[[S], T],
    threads: int,
    window: int,
    ordered: bool = True,
    timeout: float = 0,
) -> Pass[T]:
    """`fn` of the items of `up`, made on threads that begin with the first item asked for.

    In order, an item that is waited for longer than `timeout` seconds is an error (0: for ever).
    """
    position = up.position()
    begun = False

    def deal() -> Generator[T, None, None]:
        nonlocal position, begun
        begun = True
        state = Ahead(type(node).__name__, node.made_at, up, fn, window, timeout)
        try:
            state.begin(threads)
            for done in state.in_order() if ordered else state.as_ready():
                position = done.position
                yield done.item
        finally:
            state.stop()

    items = deal()

    def close() -> None:
        items.close()
        if not begun:
            up.close()

    return Pass(items, lambda: position, close)


class _Done(NamedTuple):
    """What became of the `place`-th item; of the end itself, where `end` is set."""

    place: int
    item: Any = None
    position: Position = None
    error: BaseException | None = None
    end: bool = False


class Ahead(Generic[S, T]):
    """Items drawn by one thread at a time, and mapped by several, at most `window` ahead.

    A thread takes a slot before it draws, so exactly `window` items are ahead, and sends each item
    with the position after it, so that looking ahead cannot spoil a position. What is done goes
    through one queue; whoever wants order sorts on the consumer's side, without a lock.
    """

    def __init__(
        self,
        op: str,
        made_at: str,
        up: Pass[S],
        fn: Callable[[S], T],
        window: int,
        timeout: float = 0,
    ) -> None:
        self.op, self.made_at, self.up, self.fn, self.timeout = op, made_at, up, fn, timeout
        self.slots = threading.Semaphore(window)
        self.drawing = threading.Lock()  # held while the source makes an item, however long
        self.counting = threading.Lock()  # held for a moment
        self.done: SimpleQueue[_Done] = SimpleQueue()
        self.drawn = 0
        self.stopped = False
        self.threads: list[threading.Thread] = []
        self.working = 0
        self.in_work: dict[int, S] = {}  # kept where there is a clock: an error names what is late

    def begin(self, threads: int) -> None:
        """Starts the threads."""
        stopped_at_exit(self)
        for _ in range(threads):
            thread = threading.Thread(target=self._work, name=f"jreader {self.op}", daemon=True)
            with self.counting:
                self.working += 1
            self.threads.append(thread)
            try:
                thread.start()
            except Exception:  # not an interrupt: that leaves `start` when the thread is at work
                self._leave()
                raise

    def in_order(self) -> Iterator[_Done]:
        """What was done, in the order of the source; an error after all items before it."""
        waiting: dict[int, _Done] = {}
        for place in count():
            limit = time.monotonic() + self.timeout
            while place not in waiting:
                done = self._received(place, limit)
                waiting[done.place] = done
            done = waiting.pop(place)
            self.in_work.pop(place, None)
            if done.end and not done.error:
                return
            self._handed_over(done)
            yield done

    def _received(self, place: int, limit: float) -> _Done:
        """What is done next, unless the clock runs out before."""
        try:
            return self.done.get(timeout=max(0, limit - time.monotonic()) if self.timeout else None)
        except Empty:
            pass
        what = f", made of {described(self.in_work[place])}," if place in self.in_work else ""
        raise TimeoutError(
            f"item {place} of this pass{what} was waited for longer than {self.timeout} s in "
            f"{self.op}, made at {self.made_at}: give a longer timeout, or find what it waits for."
        )

    def as_ready(self) -> Iterator[_Done]:
        """What was done, as it gets ready; an error after all items already drawn."""
        received, total = 0, sys.maxsize
        failed: _Done | None = None
        while received < total:
            done = self.done.get()
            if done.end or done.error:
                failed = failed or (done if done.error else None)
                with self.counting:
                    self.stopped = True
                    total = self.drawn
                received += not done.end
            else:
                received += 1
                self._handed_over(done)
                yield done
        if failed:
            self._handed_over(failed)

    def _handed_over(self, done: _Done) -> None:
        if done.error is None:
            self.slots.release()
            return
        error = done.error
        try:
            raise error
        finally:
            del error, done  # or the traceback would hold this frame, and the frame the error

    def stop(self) -> None:
        """Asks the threads to end; the last one closes the source."""
        with self.counting:
            self.stopped = True
            never = not self.threads
        self.slots.release()
        if never:
            self.up.close()

    def _work(self) -> None:
        try:
            while self._one():
                pass
        finally:
            self._leave()

    def _one(self) -> bool:
        """Draws and maps one item; false once there is nothing more to do."""
        self.slots.acquire()
        with self.drawing:
            if self.stopped:
                return False
            try:
                item = next(self.up.items)
                position = self.up.position()
            except StopIteration:
                return self._end(None)
            except BaseException as error:
                error.add_note(f"raised while {self.op}, made at {self.made_at}, read ahead")
                return self._end(error)
            with self.counting:
                if self.stopped:
                    return False
                place, self.drawn = self.drawn, self.drawn + 1
                if self.timeout:
                    self.in_work[place] = item
        try:
            self.done.put(_Done(place, self.fn(item), position))
        except BaseException as error:
            self.stopped = True
            self.done.put(_Done(place, error=error))
        return True

    def _end(self, error: BaseException | None) -> bool:
        self.stopped = True
        self.done.put(_Done(self.drawn, error=error, end=True))
        return False

    def _leave(self) -> None:
        self.slots.release()  # whoever waits for a slot leaves next
        with self.counting:
            self.working -= 1
            last = self.working == 0
        if last:
            self.up.close()


class Stoppable(Protocol):
    """What runs threads, and can ask them to end."""

    threads: list[threading.Thread]

    def stop(self) -> None:
        """Asks the threads to end."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stopped_at_exit(state: Stoppable) -> None:
    """Has `state` stopped before whatever was imported until now tears itself down (jax)."""
    _running.add(state)
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)


def _stop_all() -> None:
    """A daemon thread inside device_put when the interpreter goes away aborts the process."""
    states = list(_running)
    for state in states:
        state.stop()
    limit = time.monotonic() + 2
    for thread in [thread for state in states for thread in state.threads]:
        thread.join(max(0, limit - time.monotonic()))
