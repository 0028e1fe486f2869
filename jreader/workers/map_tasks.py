"""The tasks that executors are given: a function and samples go out, results come back.

Executors unpickle what they carry where an error of that ends a worker, breaks the pool, or is
taken for a lost worker. So samples and results travel as bytes: the task unpickles its samples, and
whoever waits for the result unpickles that.
"""

from __future__ import annotations

import hashlib
import pickle
import time
import uuid
from collections import OrderedDict
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
from jreader.workers.global_rng import draws_differently, generator_states
from jreader.workers.memory_estimates import ESTIMATE_EVERY, estimated_bytes

_OUT_OF_BAND = 5  # the protocol of pickle that knows buffers
_SMALL = 1 << 16  # bytes of a function that every task carries
_RECENT = 8  # functions that a worker keeps: who comes next may send the same again

UNKNOWN = ...  # the sample of a failure that only who sent it knows


class ShownAs:
    """Stands for an object where a message or a plan shows it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Failure:
    """The result of a sample whose function raised; its sample is None if no function did."""

    def __init__(self, error: BaseException, sample: Any = UNKNOWN) -> None:
        self.error, self.sample = error, sample
        self.fatal = not isinstance(error, Exception)  # an exit, which nothing may swallow

    def __reduce__(self) -> tuple[Any, ...]:
        """Any error travels, with its traceback as text; of the sample what a message shows."""
        sample = self.sample
        if sample is not UNKNOWN and sample is not None:
            sample = ShownAs(described(sample))
        return _failure, (pickled_error(self.error), sample, self.fatal)


def _failure(data: bytes, sample: Any, fatal: bool) -> Failure:
    failure = Failure(unpickled_error(data), sample)
    failure.fatal = fatal
    return failure


class TaskInput:
    """The samples that a task is given; executors do not look into it.

    Args:
        items: The samples; what unpickles them, where they were sent.
        most: The bytes of results after which a task leaves the rest of them to another one.
    """

    def __init__(self, items: list[Any] | Callable[[], list[Any]], most: float = inf) -> None:
        self.items, self.most = items, most

    def unpickled(self) -> list[Any]:
        """The samples."""
        return self.items() if callable(self.items) else self.items

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickles the samples apart, for the task to unpickle."""
        if callable(self.items):
            return TaskInput, (self.items, self.most)
        taken: list[pickle.PickleBuffer] = []
        take = collect_large(taken) if protocol >= _OUT_OF_BAND else None
        data = pickled_for_worker(self.items, take)
        return TaskInput, (partial(unpickled, data, taken), self.most)

    def __repr__(self) -> str:
        """What an error says that a worker died of."""
        try:
            items = self.unpickled()
            return ", ".join(map(described, items[:4])) + ", ..." * (len(items) > 4)
        except Exception:  # users' code; it is only shown
            return "samples that cannot be read here"

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


class TaskResult(NamedTuple):
    """The results of a task.

    Attributes:
        results: One for each sample, or a `Failure` the last one.
        seconds: How long that took.
        bytes: What the results weigh.
        more: Whether there are more samples, which are left to another task.
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
        """Pickles the results apart, as what unpickles them; a `Failure` for one that it cannot."""
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
    """What a task gives whose worker does not know its function: it was not done."""


def _raised_by(close: Callable[[], object]) -> list[Failure]:
    """What a call raises, as the last result of a task: the good ones come before it."""
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
    """Calls a function for each of some samples; pickled once, unpickled once in each worker.

    A task carries a small function. Of a large one it has the digest alone; a worker that does not
    know that says so, and is sent the `whole` task.

    >>> MapTask(len)(TaskInput(["a", "bb"])).results
    [1, 2]

    Args:
        fn: A function of a sample; its `results_in_turn`, if it has one, makes all results.
        keep_going: Whether to continue after an error.
        number: That of the loader, whose latest task `Processes` keep, and which says how its
            workers draw; None for no loader.
        share: Names the work to programs that share its results; "" where they do not.

    Attributes:
        sent_once: Whether `Processes` do it, which send a task once, its arrays in shared memory.
        is_elsewhere: Whether it was sent to another process.
        whole: The same with its function, where that is large; None where it carries it.
    """

    sent_once = is_elsewhere = False
    whole: MapTask | None = None

    def __init__(
        self, fn: Any, *, keep_going: bool = False, number: int | None = None, share: str = ""
    ) -> None:
        self.fn, self.keep_going, self.number, self.share = fn, keep_going, number, share
        self.function_pickle = self.digest = b""

    def __call__(self, samples: TaskInput) -> TaskResult | Unknown:
        """Gives the results; an error of the function is the last one."""
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
        """The function and its samples."""
        with noting("raised while a worker unpickled the function: its modules must be there"):
            fn = known or unpickled(self.function_pickle)
            if not self.fn:
                _keep(self.digest, fn)
        with noting("raised while a worker unpickled the samples: their classes must be there"):
            return fn, samples.unpickled()

    def _made(self, fn: Any, items: list[Any], most: float) -> tuple[list[Any], float, float]:
        """The results until they weigh enough, or one failed; what they weigh; `first`."""
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
        """The global generators before a task in a worker; None before most: they take 65 us."""
        if not self.is_elsewhere or self.number is not None:
            return None
        done = _DONE[id(fn)] = _DONE.get(id(fn), 0) + 1
        return None if done & (done - 1) else generator_states()

    def pack(self) -> None:
        """Pickles the function; called by the consumer, so that warnings show its line."""
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
        """What an error calls it."""
        return described(self.fn)

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex


def _unpickled_task(
    fn: Any, digest: bytes, function_pickle: bytes, keep_going: bool, number: int | None
) -> MapTask:
    """A task that unpickles its function when it is called: an error of that is a result."""
    task = MapTask(fn, keep_going=keep_going, number=number)
    task.digest, task.function_pickle, task.is_elsewhere = digest, function_pickle, True
    return task


_DONE: dict[int, int] = {}  # the tasks of each function, by its id: 1, 2, 4, 8, ... are looked at


_FUNCTIONS: OrderedDict[bytes, Any] = OrderedDict()  # the latest, by their digests


def _keep(digest: bytes, fn: Any) -> None:
    """One object for equal bytes: what a function keeps (an open file) lasts from task to task."""
    _FUNCTIONS[digest] = _FUNCTIONS.pop(digest, fn)
    while len(_FUNCTIONS) > _RECENT:
        _FUNCTIONS.popitem(last=False)
