"""What a loader's `num_workers` map on: ordered threads that have a clock and a beginning."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, TypeVar

from jreader.readers import Node, Pass, Position, Reader, explain, length, start
from jreader.workers.threads import ahead

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class fetched(Node[T]):
    """`mapper` of the items of `reader`, in their order, on any number of threads.

    >>> list(fetched(str.upper, lambda: "abc", process_num=2)())
    ['A', 'B', 'C']

    Args:
        mapper: Takes an item, gives one. Several threads call it at once.
        reader: Any reader; it is read by one thread at a time.
        process_num: The number of threads; 0 maps on the thread that asks.
        timeout: The seconds that an item may be waited for; 0 for any. It takes a thread.
        worker_init_fn: Called with the number of the thread, on it, before its first item.

    Raises:
        TimeoutError: An item was waited for longer than that (while iterating).
    """

    mapper: Callable[[Any], T]
    reader: Reader[Any]
    process_num: int = 0
    timeout: float = 0
    worker_init_fn: Callable[[int], object] | None = None
    gives: ClassVar[str] = "batches"

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader`."""
        up = start(self.reader, at)
        threads = max(self.process_num, self.timeout > 0)
        if not threads:
            return Pass(map(self._mapped, up.items), up.position, up.close)
        return ahead(self, up, self._begun(), threads, 2 * threads, timeout=self.timeout)

    def _begun(self) -> Callable[[Any], T]:
        """The mapper of one pass: its threads have numbers, from 0, and begin once each."""
        begin, numbers, here = self.worker_init_fn, count(), threading.local()
        if begin is None or not self.process_num:
            return self._mapped

        def mapped(item: Any) -> T:
            if not hasattr(here, "number"):
                here.number = next(numbers)
                try:
                    begin(here.number)
                except Exception as error:
                    explain(error, self, begin, here.number)
                    raise
            return self._mapped(item)

        return mapped

    def _mapped(self, item: Any) -> T:
        try:
            return self.mapper(item)
        except Exception as error:
            explain(error, self, self.mapper, item)
            raise

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)
