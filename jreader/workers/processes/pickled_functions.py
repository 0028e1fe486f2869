"""The functions that workers are sent: each is pickled once, and sent to each worker once.

A large one (a data set that holds arrays) is put into shared memory, which every worker maps for
itself: what a worker writes to such an array is its own, what nobody writes to is there once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import accumulate, count
from typing import Any

import numpy as np

from jreader._worker.connection import to_frame
from jreader._worker.pickling import collect_large, pickled_for_worker, pickled_function
from jreader._worker.shared_memory import SharedPickle, aligned, anonymous_memory, map_memory
from jreader.errors import noted
from jreader.readers import described
from jreader.staging import Array

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
        try:
            data = pickled_function(fn, collect_large(taken))
        except Exception as error:
            noted(
                error,
                unsendable
                or f"{self.name} cannot be sent to worker processes: open files, locks and "
                f"connections where they are used first (in the function, or in the __getitem__ of "
                f"a data set), not before; or use threads",
            )
            raise
        parts = [np.frombuffer(data, np.uint8)]
        parts += [np.frombuffer(buffer.raw(), np.uint8) for buffer in taken]
        hashed = hashlib.blake2b(digest_size=32)
        for part in parts:
            hashed.update(part.data)
        self.digest = hashed.digest()
        self.shared, self.size, self.descriptor = SharedPickle(data), 0, -1
        self._parts: list[Array] = parts

    def prepare(self, fn: Any) -> None:
        """Makes it ready to be sent, in shared memory if it is large."""
        parts, self._parts = self._parts, []
        if sum(part.nbytes for part in parts) >= _WORTH:
            self._share(parts)
        if len(parts) > 1 and not self.size:
            self.shared = SharedPickle(pickled_for_worker(fn))

    def _share(self, parts: list[Array]) -> None:
        """Puts it into shared memory, if there is enough."""
        ends = list(accumulate((aligned(part.nbytes) for part in parts), initial=0))
        try:
            descriptor = anonymous_memory(ends[-1])
        except OSError:
            return
        weakref.finalize(self, os.close, descriptor)
        room = np.frombuffer(map_memory(descriptor, ends[-1]).owner, np.uint8)
        buffers = []
        for first, part in zip(ends, parts, strict=False):
            room[first : first + part.nbytes] = part
            buffers.append((0, first, part.nbytes))
        self.shared, self.size, self.descriptor = (
            SharedPickle(b"", tuple(buffers)),
            ends[-1],
            descriptor,
        )

    def frame(self) -> tuple[bytes, list[int]]:
        """The message to a worker, and the descriptors that go along."""
        descriptors = [self.descriptor] if self.size else []
        return to_frame(("function", self.number, self.shared, self.size)), descriptors


class PickledFunctions:
    """Finds the pickle of a function that was sent before: by identity, or else by content.

    A function that changes what it holds is sent as it was, until another object comes.
    """

    def __init__(self) -> None:
        """Knows no function yet."""
        self.forgotten: deque[int] = deque()  # numbers of those that are gone; by finalizers
        self._known: dict[int, tuple[Callable[[], Any], PickledFunction]] = {}
        self._alike: weakref.WeakValueDictionary[bytes, PickledFunction] = (
            weakref.WeakValueDictionary()
        )
        self._latest: OrderedDict[object, PickledFunction] = OrderedDict()

    def of(self, fn: Any) -> PickledFunction:
        """The pickle of a function; one with a `number` replaces those with the same number."""
        known = self._known.get(id(fn))
        if known and known[0]() is fn:
            return known[1]
        function = PickledFunction(fn)
        alike = self._alike.setdefault(function.digest, function)
        if alike is function:
            function.prepare(fn)
            weakref.finalize(function, self.forgotten.append, function.number)
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
