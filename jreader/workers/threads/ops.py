"""The ops that read ahead or map on threads: `buffered` and `xmap_readers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    described,
    explained,
    indexed,
    itself,
    length,
    lookup_of,
    op,
    refused,
    start,
    truth,
    whole,
)
from jreader.readers.keyed import BesideKey
from jreader.workers.limits import Limits
from jreader.workers.threads.thread_map import map_on_threads

T = TypeVar("T")


@op
class buffered(Node[T]):
    """Prefetch up to `size` samples on a background thread.

    After you have received `k` samples, `reader` has been read at most `k + size` times. An error
    of `reader` is raised after the samples before it.

    >>> list(buffered(lambda: "abc", size=2)())
    ['a', 'b', 'c']

    Cost: one thread, and up to `size` samples in memory. Resuming costs as much as resuming
    `reader`, and reads samples again that were read ahead but not handed over.

    Args:
        reader: Any reader; one pass is read by one thread from beginning to end.
        size: The number of samples to read ahead; 0 reads none, and needs no thread.
    """

    reader: Reader[T]
    size: int = whole()
    from_reader = "all"
    in_cursor = "never"
    moves = "samples"

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass, with the positions of `reader` after the samples handed over."""
        if self.size == 0:
            return start(self.reader, at)
        limits = Limits(workers=1, window=self.size)
        return map_on_threads(self, partial(start, self.reader, at), itself, limits)

    def lookup(self) -> Callable[[int], T] | None:
        """Return the lookup of `reader`."""
        return lookup_of(self.reader)

    def plane(self) -> Plane | None:
        """Return the plane of `reader`: indexed samples need no prefetching."""
        return indexed(self.reader)


@op
class xmap_readers(Node[T]):
    """Apply `mapper` to each sample on `process_num` threads (as in Paddle).

    At most `process_num + buffer_size` samples are in progress or ready. NumPy, file and network
    calls run in parallel; pure Python code does not, because of the GIL.

    >>> list(xmap_readers(str.upper, lambda: "abc", process_num=2, buffer_size=4, order=True)())
    ['A', 'B', 'C']

    Cost: `process_num` threads. Resuming costs as much as resuming `reader`, and calls `mapper`
    again for samples that were in work but not handed over.

    Args:
        mapper: Takes a sample and returns one. Several threads call it at once.
        reader: Any reader; it is read by one thread at a time.
        process_num: The number of threads.
        buffer_size: The number of finished samples that may wait.
        order: Whether samples keep their order. Otherwise they come as soon as they are ready, and
            the pass cannot resume.
    """

    mapper: Callable[[Any], T]
    reader: Reader[Any]
    process_num: int = whole(least=1)
    buffer_size: int = whole(least=1)
    order: bool = truth(default=False)
    in_cursor = "never"
    moves = "samples"

    def check_arguments(self) -> dict[str, Any]:
        """Warn of more threads than the machine can use."""
        errors.warn_of_many(self.process_num, "threads", each=64)
        return {}

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass, with the positions of `reader`, if the order is kept."""
        if isinstance(at, str) and not self.order:
            raise errors.NotResumable(at)  # a position from JSON
        limits = Limits(self.process_num, self.process_num + self.buffer_size)
        begin: Callable[[], Pass[Any]] = partial(start, self.reader, at)
        mapper, name = explained(self, self.mapper), described(self.mapper)
        here = map_on_threads(
            self, begin, mapper, limits, function=name, ordered=self.order, held=limits.window
        )
        if self.order:
            return here
        lost = refused(self, "order=True")
        return Pass(here.items, lambda: lost, here.close)

    def length(self) -> int | None:
        """Return the length of `reader`."""
        return length(self.reader)

    def beside_key(self) -> Node[Any]:
        """Return the map of samples with keys beside them."""
        return self.changed({"mapper": BesideKey(self.mapper)})

    def lookup(self) -> Callable[[int], T] | None:
        """Return `mapper` of the sample at an index, called here, if the order is kept."""
        find, mapper = lookup_of(self.reader), explained(self, self.mapper)
        return (lambda index: mapper(find(index))) if find and self.order else None
