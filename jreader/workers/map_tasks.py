"""What goes to a worker and comes back: a task, samples, and what was made of them.

Engines read what they carry where an error of that is theirs: it ends a worker, breaks a pool, or
is taken for a lost worker. So samples and results travel as bytes, and are read by a task, and by
who waits for its outcome.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from jreader._worker.pickling import (
    large,
    pickled,
    pickled_error,
    sent,
    sent_function,
    unpickled_error,
)
from jreader.errors import noted
from jreader.readers import described
from jreader.workers.memory_estimates import SPARSE, weight

_OUT_OF_BAND = 5  # the protocol of pickle that knows buffers

UNKNOWN = ...  # the sample of a failure that only who sent it knows


class Shown:
    """Stands for an object where a message or a plan shows it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Failure:
    """What came of a sample whose function raised; the sample is None where no function did."""

    def __init__(self, error: BaseException, sample: Any = UNKNOWN) -> None:
        self.error, self.sample = error, sample
        self.fatal = not isinstance(error, Exception)  # an exit, which nothing may swallow

    def __reduce__(self) -> tuple[Any, ...]:
        """Any error travels, with its traceback as text; of the sample what a message shows."""
        sample = self.sample
        if sample is not UNKNOWN and sample is not None:
            sample = Shown(described(sample))
        return _failure, (pickled_error(self.error), sample, self.fatal)


def _failure(data: bytes, sample: Any, fatal: bool) -> Failure:
    failure = Failure(unpickled_error(data), sample)
    failure.fatal = fatal
    return failure


class Packed:
    """A value on its way: its pickle, and the memory of its large arrays.

    Args:
        data: What pickle made of it.
        buffers: The memory of its arrays, which engines carry without a copy where they can.
        most: As of `Samples`.
    """

    def __init__(self, data: bytes, buffers: list[Any], most: float = inf) -> None:
        self.data, self.buffers, self.most = data, buffers, most

    def opened(self) -> Any:
        """The value."""
        return pickle.loads(self.data, buffers=self.buffers)  # noqa: S301  # of this program

    def __repr__(self) -> str:
        """What an error says that a worker died of."""
        try:
            return repr(Samples(self.opened()))
        except Exception:  # what users wrote; it is only to be told
            return "samples that cannot be read here"


class Samples:
    """What a task is sent; an engine looks neither into it, nor for another one like it.

    Args:
        items: The samples.
        most: The bytes of results after which a task leaves the rest of them to another one.
    """

    def __init__(self, items: list[Any], most: float = inf) -> None:
        self.items, self.most = items, most

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """As what a task opens."""
        taken: list[pickle.PickleBuffer] = []
        data = sent(self.items, large(taken) if protocol >= _OUT_OF_BAND else None)
        return Packed, (data, taken, self.most)

    def __repr__(self) -> str:
        """What an error says that a worker died of."""
        return ", ".join(map(described, self.items[:4])) + ", ..." * (len(self.items) > 4)

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class Outcome(NamedTuple):
    """What a task gives.

    Attributes:
        results: One for each sample, or a `Failure` the last one.
        seconds: How long that took.
        bytes: What the results weigh.
        more: Whether there are more samples, which are left to another task.
    """

    results: list[Any]
    seconds: float
    bytes: float = 0.0
    more: bool = False

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """As what who waits for it opens; a result that cannot be pickled is a `Failure`."""
        taken: list[pickle.PickleBuffer] = []
        room = taken if protocol >= _OUT_OF_BAND else None
        try:
            data = pickled(self[:], "results", room)
        except TypeError:
            taken.clear()
            data = pickled((list(map(_sendable, self.results)), *self[1:]), "results", room)
        return Packed, (data, taken)


def _sendable(result: Any) -> Any:
    try:
        pickled(result, "result")
    except TypeError as error:
        return Failure(error)
    return result


class Task:
    """`fn` of each of some samples; pickled once, and unpickled once in each worker.

    >>> Task(len)(Samples(["a", "bb"])).results
    [1, 2]

    Args:
        fn: A function of a sample.
        on: Whether to go on after an error.
    """

    def __init__(self, fn: Callable[[Any], Any] | None, *, on: bool = False) -> None:
        self.fn: Any = fn
        self.on, self.packed = on, b""

    def __call__(self, samples: Samples | Packed) -> Outcome:
        """Does it."""
        began = time.perf_counter()
        results: list[Any] = []
        try:
            fn = self.fn or _function(self.packed)
        except Exception as error:
            noted(error, "raised while a worker read the function: what it imports must be there")
            return Outcome([Failure(error, None)], 0.0)
        try:
            items = samples.opened() if isinstance(samples, Packed) else samples.items
        except Exception as error:
            noted(error, "raised while a worker read the samples: their classes must be there")
            return Outcome([Failure(error, None)], 0.0)
        size, left, each = 0.0, len(items), 0.0
        for sample in items:
            try:
                results.append(fn(sample))
            except BaseException as error:
                results.append(Failure(error))
                if not self.on or results[-1].fatal:
                    left = 0
                    break
            if left % SPARSE == 0 or not each:
                each = weight(results[-1])
            size += each
            left -= 1
            if size > samples.most:
                break
        return Outcome(results, time.perf_counter() - began, size, more=left > 0)

    def pack(self) -> None:
        """Pickles the function: on the thread that asks, what is told of it is at its line."""
        self.packed = self.packed or sent_function(self.fn)

    def __reduce__(self) -> tuple[Any, ...]:
        self.pack()
        return _task, (self.packed, self.on)

    def __repr__(self) -> str:
        """What an error calls it."""
        return described(self.fn)

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


def _task(packed: bytes, on: bool) -> Task:
    """Its function is read when it is called: an error of that is a result, not the engine's."""
    task = Task(None, on=on)
    task.packed = packed
    return task


@lru_cache(8)
def _function(packed: bytes) -> Any:
    """One object for equal bytes: what a function keeps (an open file) lasts from task to task."""
    return pickle.loads(packed)  # noqa: S301  # from the program that gave the task


class OnceSent(Task):
    """A task for `Processes`, which send it once, its arrays through shared memory."""

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is."""
        return _once_sent, (self.fn, self.on)


def _once_sent(fn: Callable[[Any], Any], on: bool) -> OnceSent:
    return OnceSent(fn, on=on)
