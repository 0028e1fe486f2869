"""The tasks of executors: a function and samples go out, results come back.

Executors unpickle their payload where an error ends a worker, breaks the pool, or looks like a lost
worker. So samples and results travel as bytes: the task unpickles its samples, and the waiting side
unpickles the result.
"""

from __future__ import annotations

import hashlib
import pickle
import time
import uuid
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, NamedTuple

from jreader._worker.pickling import (
    collect_large,
    pickled_for_worker,
    pickled_from_worker,
    pickled_function,
)
from jreader._worker.remote_errors import pickled_error, unpickled_error
from jreader._worker.unpickling import unpickled
from jreader.errors import noting
from jreader.readers import described
from jreader.readers.memos import keep_latest
from jreader.workers.global_rng import draws_differently, generator_states
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

_OUT_OF_BAND = 5  # the pickle protocol with out-of-band buffers
_SMALL = 1 << 16  # bytes of a function that every task carries
_RECENT = 8  # functions that a worker keeps: the next pass may send the same again

UNKNOWN = ...  # the sample of a failure that only the sender knows


class ShownAs:
    """Stands for an object in messages and plans."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Failure:
    """The result of a sample whose function raised; its sample is None if no function did."""

    def __init__(self, error: BaseException, sample: Any = UNKNOWN) -> None:
        self.error, self.sample = error, sample
        self.fatal = not isinstance(error, Exception)  # an exit, which must not be swallowed

    def __reduce__(self) -> tuple[Any, ...]:
        """Send any error, with its traceback as text, and the sample as a message shows it."""
        sample = self.sample
        if sample is not UNKNOWN and sample is not None:
            sample = ShownAs(described(sample))
        return _failure, (pickled_error(self.error), sample, self.fatal)


def _failure(data: bytes, sample: Any, fatal: bool) -> Failure:
    failure = Failure(unpickled_error(data), sample)
    failure.fatal = fatal
    return failure


class TaskInput:
    """The samples of a task; executors do not look into it.

    Args:
        items: The samples; or a function that unpickles them, if they were sent.
        most: The bytes of results after which a task leaves the rest to another one.
    """

    def __init__(self, items: list[Any] | Callable[[], list[Any]], most: float = inf) -> None:
        self.items, self.most = items, most

    def unpickled(self) -> list[Any]:
        """Return the samples."""
        return self.items() if callable(self.items) else self.items

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the samples separately, for the task to unpickle."""
        if callable(self.items):
            return TaskInput, (self.items, self.most)
        taken: list[pickle.PickleBuffer] = []
        take = collect_large(taken) if protocol >= _OUT_OF_BAND else None
        data = pickled_for_worker(self.items, take)
        return TaskInput, (partial(unpickled, data, taken), self.most)

    def __repr__(self) -> str:
        """Show it as the error of a dead worker does."""
        try:
            items = self.unpickled()
            return ", ".join(map(described, items[:4])) + ", ..." * (len(items) > 4)
        except Exception:  # users' code, only for display
            return "samples that cannot be read here"

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class TaskResult(NamedTuple):
    """The results of a task.

    Attributes:
        results: One for each sample; the last one may be a `Failure`.
        seconds: The time that they took.
        bytes: Their estimated size.
        more: Whether samples are left for another task.
        draws: Whether the function drew from the global generators of a worker process.
        first: Seconds of the first call, for a function that starts up in each task; else 0.
    """

    results: list[Any]
    seconds: float
    bytes: float = 0.0
    more: bool = False
    draws: bool = False
    first: float = 0.0

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the results separately, with their unpickler; a `Failure` if one cannot be."""
        taken: list[pickle.PickleBuffer] = []
        room = taken if protocol >= _OUT_OF_BAND else None
        try:
            data = pickled_from_worker(self[:], "results", room)
        except TypeError:
            taken.clear()
            data = pickled_from_worker(
                (list(map(_sendable, self.results)), *self[1:]), "results", room
            )
        return partial, (unpickled, data, taken)


class Unknown:
    """The result of a task whose worker lacks its function: nothing was done."""


def _raised_by(close: Callable[[], object]) -> list[Failure]:
    """Return an error of a call as the last result of a task, after the good ones."""
    try:
        close()
    except BaseException as error:
        return [Failure(error, None)]
    return []


def _sendable(result: Any) -> Any:
    try:
        pickled_from_worker(result, "result")
    except TypeError as error:
        return Failure(error)
    return result


class MapTask:
    """Call a function on each of some samples; pickled once, unpickled once per worker.

    A task carries a small function, but only the digest of a large one; a worker that does not know
    the digest reports that, and gets the `whole` task.

    >>> MapTask(len)(TaskInput(["a", "bb"])).results
    [1, 2]

    Args:
        fn: A function of a sample; its `results_in_turn`, if it has one, makes all results.
        keep_going: Whether to continue after an error.
        number: The loader's number: `Processes` keep its latest task, and its workers draw by it;
            None without a loader.
        share: The name of the work among programs that share results; "" if they do not.

    Attributes:
        sent_once: Whether `Processes` run it, which send it once, its arrays in shared memory.
        is_elsewhere: Whether it was sent to another process.
        whole: The same with its function, if that is large; None if it carries it.
    """

    sent_once = is_elsewhere = False
    whole: MapTask | None = None

    def __init__(
        self, fn: Any, *, keep_going: bool = False, number: int | None = None, share: str = ""
    ) -> None:
        self.fn, self.keep_going, self.number, self.share = fn, keep_going, number, share
        self.function_pickle = self.digest = b""

    def __call__(self, samples: TaskInput) -> TaskResult | Unknown:
        """Return the results; an error of the function is the last one."""
        began = time.perf_counter()
        known = self.fn or _FUNCTIONS.get(self.digest)
        if known is None and not self.function_pickle:
            return Unknown()
        try:
            fn, items = self._unpickled(known, samples)
        except Exception as error:
            return TaskResult([Failure(error, None)], 0.0)
        before = self._generators(fn)
        results, size, first = self._made(fn, items, samples.most)
        draws = (
            before is not None
            and before != generator_states()
            and any(draws_differently(fn, sample) for sample in items)
        )
        more = size > samples.most and len(results) < len(items)
        return TaskResult(results, time.perf_counter() - began, size, more, draws, first)

    def _unpickled(self, known: Any, samples: TaskInput) -> tuple[Any, list[Any]]:
        """Return the function and its samples."""
        with noting("raised while a worker unpickled the function: its modules must be there"):
            fn = known or unpickled(self.function_pickle)
            if not self.fn:
                _keep(self.digest, fn)
        with noting("raised while a worker unpickled the samples: their classes must be there"):
            return fn, samples.unpickled()

    def _made(self, fn: Any, items: list[Any], most: float) -> tuple[list[Any], float, float]:
        """Return the results, up to a size or a failure; their bytes; and `first`."""
        in_turn = getattr(fn, "results_in_turn", None)
        if in_turn is None:
            return *self._results(fn, items, most)[:2], 0.0
        made = in_turn(items)
        results, size, first = self._results(lambda _sample: next(made), items, most)
        return results + _raised_by(made.close), size, first

    def _results(self, call: Any, items: list[Any], most: float) -> tuple[list[Any], float, float]:
        results: list[Any] = []
        size = each = first = 0.0
        began = time.perf_counter()
        for sample in items:
            try:
                result = call(sample)
            except BaseException as error:
                result = Failure(error)
            results.append(result)
            if type(result) is Failure and (not self.keep_going or result.fatal):
                break
            if not each or len(results) % ESTIMATE_EVERY == 0:
                first = first or time.perf_counter() - began
                each = estimated_bytes(result)
            size += each
            if size > most:
                break
        return results, size, first

    def _generators(self, fn: Any) -> tuple[Any, ...] | None:
        """Return the global generators' state before a task; None before most: it takes 65 us."""
        if not self.is_elsewhere or self.number is not None:
            return None
        done = _DONE[id(fn)] = _DONE.get(id(fn), 0) + 1
        return None if done & (done - 1) else generator_states()

    def pack(self) -> None:
        """Pickle the function; the consumer calls it, so that warnings show its line."""
        if self.digest:
            return
        data = self.function_pickle = pickled_function(self.fn)
        self.digest = hashlib.blake2b(data, digest_size=32).digest()
        if len(data) > _SMALL:
            self.whole = _unpickled_task(None, self.digest, data, self.keep_going, self.number)
            self.whole.share = self.share
            self.function_pickle = b""

    def __reduce__(self) -> tuple[Any, ...]:
        if self.sent_once:
            return _unpickled_task, (self.fn, b"", b"", self.keep_going, self.number)
        self.pack()
        sent = self.digest, self.function_pickle
        return _unpickled_task, (None, *sent, self.keep_going, self.number)

    def __repr__(self) -> str:
        """Show it as errors do."""
        return described(self.fn)

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


def _unpickled_task(
    fn: Any, digest: bytes, function_pickle: bytes, keep_going: bool, number: int | None
) -> MapTask:
    """Return a task that unpickles its function when called: an error of that is a result."""
    task = MapTask(fn, keep_going=keep_going, number=number)
    task.digest, task.function_pickle, task.is_elsewhere = digest, function_pickle, True
    return task


_DONE: dict[int, int] = {}  # tasks per function, by id: numbers 1, 2, 4, 8, ... are checked


_FUNCTIONS: dict[bytes, Any] = {}  # the latest ones, by digest


def _keep(digest: bytes, fn: Any) -> None:
    """Keep one object for equal bytes, so that its state, such as an open file, lasts."""
    _FUNCTIONS[digest] = _FUNCTIONS.pop(digest, fn)
    keep_latest(_FUNCTIONS, _RECENT)
