"""Functions on their way to workers: each is pickled once, and sent to each worker once.

Large ones (a data set that holds arrays) are put into shared memory, which every worker maps for
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

from jreader._worker.pickling import large, packed, sent, sent_function
from jreader._worker.shared_memory import Told, aligned, anonymous, mapped
from jreader.errors import noted
from jreader.readers import described
from jreader.staging import Array

_WORTH = 1 << 20  # bytes; fewer are sent to each worker
_RECENT = 4  # functions that are kept though nobody does: the next pass may send the same again

_numbers = count()


class Parcel:
    """A function as it is sent."""

    def __init__(self, fn: Any) -> None:
        """Pickles it."""
        self.number, self.name = next(_numbers), described(fn)
        taken: list[pickle.PickleBuffer] = []
        try:
            data = sent_function(fn, large(taken))
        except Exception as error:
            noted(
                error,
                f"{self.name} cannot be sent to worker processes: open files, locks and "
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
        self.told, self.size, self.descriptor = Told(data), 0, -1
        self._parts: list[Array] = parts

    def wrap(self, fn: Any) -> None:
        """Makes it ready to be sent."""
        parts, self._parts = self._parts, []
        if sum(part.nbytes for part in parts) >= _WORTH:
            self._share(parts)
        if len(parts) > 1 and not self.size:
            self.told = Told(sent(fn))

    def _share(self, parts: list[Array]) -> None:
        """Puts all of it into shared memory, where there is some."""
        ends = list(accumulate((aligned(part.nbytes) for part in parts), initial=0))
        try:
            descriptor = anonymous(ends[-1])
        except OSError:
            return
        weakref.finalize(self, os.close, descriptor)
        room = np.frombuffer(mapped(descriptor, ends[-1]).owner, np.uint8)
        places = []
        for first, part in zip(ends, parts, strict=False):
            room[first : first + part.nbytes] = part
            places.append((0, first, part.nbytes))
        self.told, self.size, self.descriptor = Told(b"", tuple(places)), ends[-1], descriptor

    def frame(self) -> tuple[bytes, list[int]]:
        """What is sent to a worker, with the descriptors that go along."""
        descriptors = [self.descriptor] if self.size else []
        return packed(("function", self.number, self.told, self.size)), descriptors


class Parcels:
    """The functions that are known to be pickled already: by identity, or else by content.

    So a function that changes what it holds is sent as it was, until another object comes.
    """

    def __init__(self) -> None:
        """Knows none."""
        self.forgotten: deque[int] = deque()  # numbers of those that are gone; by finalizers
        self._known: dict[int, tuple[Callable[[], Any], Parcel]] = {}
        self._alike: weakref.WeakValueDictionary[bytes, Parcel] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[object, Parcel] = OrderedDict()

    def of(self, fn: Any) -> Parcel:
        """The parcel of a function; one with a `number` takes the place of others with it."""
        known = self._known.get(id(fn))
        if known and known[0]() is fn:
            return known[1]
        parcel = Parcel(fn)
        alike = self._alike.setdefault(parcel.digest, parcel)
        if alike is parcel:
            parcel.wrap(fn)
            weakref.finalize(parcel, self.forgotten.append, parcel.number)
        self._keep(getattr(fn, "number", parcel.digest), alike)
        key, entries = id(fn), self._known
        with contextlib.suppress(TypeError):  # it cannot be waited for: found by content next time
            entries[key] = weakref.ref(fn, lambda _: entries.pop(key, None)), alike
        return alike

    def _keep(self, key: object, parcel: Parcel) -> None:
        self._recent.pop(key, None)
        self._recent[key] = parcel
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
