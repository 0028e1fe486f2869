"""The functions that workers get: each is pickled once, and sent once to each worker.

A large one (such as a data set that holds arrays) is put into shared memory, which every worker
maps for itself: a worker's writes to such an array are private, and unwritten pages are shared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import weakref
from collections.abc import Callable
from itertools import accumulate, count
from typing import Any

import numpy as np

from jreader._worker.connection import to_frame
from jreader._worker.pickling import collect_large, pickled_function
from jreader._worker.shared_memory import aligned, anonymous_memory, map_memory
from jreader.errors import noting
from jreader.readers import described
from jreader.readers.memos import keep_latest

_WORTH = 1 << 20  # bytes; smaller ones are sent to each worker
_RECENT = 4  # small functions that are kept: the next pass may send the same again

_numbers = count()


class PickledFunction:
    """A pickled function, and its number among all."""

    def __init__(self, fn: Any, unsendable: str = "") -> None:
        """Pickle a function; raise TypeError if it cannot be, or holds what must not be copied.

        Args:
            fn: The function.
            unsendable: The text of a note on that error, instead of the text for functions.
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
        self.spans: list[tuple[int, int]] = []  # of each part in shared memory
        self.size, self.descriptor = 0, -1

    def prepare(self) -> None:
        """Prepare it for sending: in shared memory if it is large, and there is enough."""
        sizes = [memoryview(part).nbytes for part in self.parts]
        *begins, size = accumulate(map(aligned, sizes), initial=0)
        try:
            if sum(sizes) >= _WORTH:
                self.descriptor = anonymous_memory(size)
        except OSError:
            pass
        if self.descriptor < 0:
            self.parts = [bytearray(part) for part in self.parts]  # writable once unpickled
            return
        weakref.finalize(self, os.close, self.descriptor)
        room = np.frombuffer(map_memory(self.descriptor, size).owner, np.uint8)
        self.spans, self.size = [*zip(begins, sizes, strict=True)], size
        for (begin, many), part in zip(self.spans, self.parts, strict=True):
            room[begin : begin + many] = np.frombuffer(part, np.uint8)
        self.parts = []

    def frame(self) -> tuple[bytes, list[int]]:
        """Return the message to a worker, and the descriptors to send along."""
        descriptors = [self.descriptor] if self.size else []
        message = "function", self.number, self.spans if self.size else self.parts, self.size
        return to_frame(message), descriptors


class PickledFunctions:
    """Finds the pickle of a function that was sent before, by identity or else by content.

    A function whose state changes is sent in its first state, until another object comes.
    """

    def __init__(self) -> None:
        """Begin without functions."""
        self.numbers: set[int] = set()  # numbers of the living ones; finalizers remove them
        self._known: dict[int, tuple[Callable[[], Any], PickledFunction]] = {}
        self._by_digest: weakref.WeakValueDictionary[bytes, PickledFunction] = (
            weakref.WeakValueDictionary()
        )
        self._latest: dict[object, PickledFunction] = {}

    def of(self, fn: Any) -> PickledFunction:
        """Return the pickle of a function; it replaces one with the same `number`."""
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
        with contextlib.suppress(TypeError):  # no weak reference: found by content
            entries[key] = weakref.ref(fn, lambda _: entries.pop(key, None)), alike
        return alike

    def _keep(self, key: object, function: PickledFunction) -> None:
        self._latest.pop(key, None)
        if function.size:
            return  # its sender keeps it
        self._latest[key] = function
        keep_latest(self._latest, _RECENT)
