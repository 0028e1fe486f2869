"""The functions that workers are sent: each is pickled once, and sent to each worker once.

A large one (a data set that holds arrays) is put into shared memory, which every worker maps for
itself: a worker's writes to such an array are private, and unwritten pages are shared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate, count
from typing import Any

import numpy as np

from jreader._worker.connection import to_frame
from jreader._worker.pickling import collect_large, pickled_function
from jreader._worker.shared_memory import aligned, anonymous_memory, map_memory
from jreader.errors import noting
from jreader.readers import described

_WORTH = 1 << 20  # bytes; fewer are sent to each worker
_RECENT = 4  # small functions that are kept: who comes next may send the same again

_numbers = count()


class PickledFunction:
    """A function that is pickled, and its number among all."""

    def __init__(self, fn: Any, unsendable: str = "") -> None:
        """Raises TypeError if the function cannot be pickled, or holds what must not be copied.

        Args:
            fn: The function.
            unsendable: What a note on that error says, if not what is said of functions.
        """
        self.number, self.name = next(_numbers), described(fn)
        taken: list[pickle.PickleBuffer] = []
        note = unsendable or (
            f"{self.name} cannot be sent to worker processes: open files, locks and connections "
            f"where they are used first (in the function, or in the __getitem__ of a data set), "
            f"not before; or use threads"
        )
        with noting(note):
            data = pickled_function(fn, collect_large(taken))
        self.parts: list[Any] = [data, *(buffer.raw() for buffer in taken)]
        hashed = hashlib.blake2b(digest_size=32)
        for part in self.parts:
            hashed.update(part)
        self.digest = hashed.digest()
        self.spans: list[tuple[int, int]] = []  # of each part in shared memory; none are there
        self.size, self.descriptor = 0, -1

    def prepare(self) -> None:
        """Makes it ready to be sent: in shared memory if it is large, and there is enough."""
        sizes = [memoryview(part).nbytes for part in self.parts]
        *begins, size = accumulate(map(aligned, sizes), initial=0)
        try:
            if sum(sizes) >= _WORTH:
                self.descriptor = anonymous_memory(size)
        except OSError:
            pass
        if self.descriptor < 0:
            self.parts = [bytearray(part) for part in self.parts]  # what is unpickled is written to
            return
        weakref.finalize(self, os.close, self.descriptor)
        room = np.frombuffer(map_memory(self.descriptor, size).owner, np.uint8)
        self.spans, self.size = [*zip(begins, sizes, strict=True)], size
        for (begin, many), part in zip(self.spans, self.parts, strict=True):
            room[begin : begin + many] = np.frombuffer(part, np.uint8)
        self.parts = []

    def frame(self) -> tuple[bytes, list[int]]:
        """The message to a worker, and the descriptors that go along."""
        descriptors = [self.descriptor] if self.size else []
        message = "function", self.number, self.spans if self.size else self.parts, self.size
        return to_frame(message), descriptors


class PickledFunctions:
    """Finds the pickle of a function that was sent before: by identity, or else by content.

    A function that changes what it holds is sent as it was, until another object comes.
    """

    def __init__(self) -> None:
        """Knows no function yet."""
        self.numbers: set[int] = set()  # of those that are here; finalizers take them out
        self._known: dict[int, tuple[Callable[[], Any], PickledFunction]] = {}
        self._by_digest: weakref.WeakValueDictionary[bytes, PickledFunction] = (
            weakref.WeakValueDictionary()
        )
        self._latest: OrderedDict[object, PickledFunction] = OrderedDict()

    def of(self, fn: Any) -> PickledFunction:
        """The pickle of a function; one with a `number` replaces those with the same number."""
        known = self._known.get(id(fn))
        if known and known[0]() is fn:
            return known[1]
        function = PickledFunction(fn)
        alike = self._by_digest.setdefault(function.digest, function)
        if alike is function:
            function.prepare()
            self.numbers.add(function.number)
            weakref.finalize(function, self.numbers.discard, function.number)
        number = getattr(fn, "number", None)
        self._keep(function.digest if number is None else number, alike)
        key, entries = id(fn), self._known
        with contextlib.suppress(TypeError):  # it cannot be waited for: found by content next time
            entries[key] = weakref.ref(fn, lambda _: entries.pop(key, None)), alike
        return alike

    def _keep(self, key: object, function: PickledFunction) -> None:
        self._latest.pop(key, None)
        if function.size:
            return  # who sends it keeps it
        self._latest[key] = function
        while len(self._latest) > _RECENT:
            self._latest.popitem(last=False)
