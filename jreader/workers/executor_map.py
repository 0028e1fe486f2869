"""Maps on an executor: of processes, of a cluster, or of anything with a `submit`.

This module sizes tasks, and sends lost ones again; the executor decides where they run. Samples are
sent in chunks, one per task. The overhead of a task (6 ms on Dask, 1 ms on Ray, 0.3 ms on
processes) is measured with the first samples, sent to idle workers. Then a chunk has so many
samples that the overhead is a tenth of their work. A user's error comes back as a result, so any
error that a future raises is the executor's: a worker was lost, and the task is sent again, or
something cannot be pickled.
"""

from __future__ import annotations

import pickle
import time
import traceback
from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from functools import partial
from math import ceil, inf
from typing import Any, NamedTuple, NoReturn, TypeVar

from jreader import errors
from jreader.cores import usable_cores
from jreader.counters import Work, working
from jreader.readers import Node, Pass
from jreader.workers.ahead import Crew, DrawnChunk
from jreader.workers.clusters import ClusterWatch, dask_workers
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import UNKNOWN, Failure, MapTask, TaskInput, TaskResult, Unknown
from jreader.workers.memory_estimates import raised_average
from jreader.workers.processes import Processes

S = TypeVar("S")

_WORK_PER_COST = 10  # the least work of a task, over the cost of sending it
_TRIES = 3  # per task, whose worker may be lost
_LEARNT = (
    "cost",
    "each",
    "setup",
    "input_bytes",
    "result_bytes",
    "item_bytes",
    "chunksize",
)
_LOOK = 1.0  # seconds between two checks that a cluster is alive

_NOT_SENT = (pickle.PicklingError, TypeError, AttributeError)
_ADVICE = (
    ": samples and results are sent as arrays, numbers, strings, or containers of them; files, "
    "locks and connections are opened inside the function"
)


class Engine(NamedTuple):
    """The executor that makes a loader's batches, and its measurements from earlier passes.

    Attributes:
        executor: Runs the tasks; it is not shut down here.
        learnt: Measurements of earlier passes, by name (`_LEARNT`).
        share: The name that loaders use to share batches; "" if they do not.
    """

    executor: Executor
    learnt: dict[str, Any]
    share: str = ""


class ExecutorCrew(Crew[S]):
    """The tasks of one pass; all methods but `_done` and `stop` run on the consumer's thread.

    A `Failure` is raised in its place, unless the task keeps going: then it is among the results.

    Args:
        node: The op, for errors.
        up: A pass; the thread that asks for results reads it.
        task: The function to apply to samples.
        executor: Runs tasks; it is not shut down here.
        limits: The number of parallel tasks, and how far ahead they may be.
        explain: Adds notes to a sample's error: the function, the op and its line.
        work: The counters of the op; None for new ones.
        size: The number of samples in each item of `up`, for counting.
        learnt: What earlier passes have learnt of the same work; this one adds to it.
    """

    def __init__(
        self,
        node: Node[Any],
        up: Pass[S],
        task: MapTask,
        executor: Executor,
        limits: Limits,
        explain: Callable[[Exception, Any], object],
        work: Work | None = None,
        size: int = 1,
        learnt: dict[str, Any] | None = None,
    ) -> None:
        op = node.shown_call or type(node).__name__
        work = work or working(op, "", node.made_at, "processes", limits.workers)
        super().__init__(op, node.made_at, up, limits, work)
        self.task, self.executor, self.explain, self.size = task, executor, explain, size
        task.sent_once = isinstance(executor, Processes)
        self.watch = ClusterWatch(executor)
        self.look = _LOOK if self.watch.known else inf
        self.input_bytes = self.result_bytes = 0.0  # bytes of a sample, and of its result
        self.trials = 2 * limits.workers  # tasks of one sample, each for an idle worker
        self.cost = inf  # seconds of a task besides its work
        self.each = 0.0  # seconds of work per sample
        self.setup = 0.0  # seconds of setup per task; negative if unknown
        self.learnt = {} if learnt is None else learnt
        if self.learnt:  # one task per worker shows whether it has the function
            self.trials = 1
            vars(self).update(self.learnt)
        self.widen(min(limits.workers * self.chunksize, self.window))

    @property
    def ready(self) -> bool:
        """True if another task may be sent now."""
        return not self.in_work or self.free >= self.chunksize

    def send(self) -> None:
        """Draw and send as many chunks as there is room for."""
        while not self.over and self.ready:
            chunk = self.draw(self.chunksize)
            if chunk is None:
                return
            if isinstance(chunk.error, KeyboardInterrupt):
                raise chunk.error  # no place: it may come between a sample and its position
            if not chunk.positions:
                self.done.put(chunk)
                return
            self.input_bytes = raised_average(self.input_bytes, chunk.bytes / len(chunk.positions))
            self.item_bytes = max(1.0, self.input_bytes + self.result_bytes)
            if not self.trials:
                self.widen(self.limits.window_of(self.chunksize, self.item_bytes))
            self._send(chunk)

    def _send(self, chunk: DrawnChunk[S], *, whole: bool = False) -> None:
        with self.lock:
            if self.closed:
                return
            self.in_work[chunk.first] = chunk
            chunk.tries += 1
            chunk.sent_at = time.perf_counter()
            try:
                chunk.future = self._submitted(chunk, whole=whole)
            except Exception as error:  # raised in its place, after the results before it
                chunk.future, chunk.refused, self.over = None, error, True
                self.done.put(chunk)
                return
        chunk.future.add_done_callback(partial(self._done, chunk))

    def _submitted(self, chunk: DrawnChunk[S], *, whole: bool) -> Future[Any]:
        if why := self.watch.gone(asking=False):
            raise RuntimeError(why)
        if _is_elsewhere(self.executor):
            self.task.pack()
        task = self.task.whole if whole and self.task.whole else self.task
        return self.executor.submit(task, TaskInput(chunk.items, self.limits.chunk_bytes))

    def _done(self, chunk: DrawnChunk[S], _future: object) -> None:
        chunk.done_at = time.perf_counter()
        self.done.put(chunk)

    def received(self, turn: int, until: float) -> DrawnChunk[S] | None:
        """Return the chunk whose task ended next; send it again if its worker was lost.

        Also send it again if its worker lacks the function.
        """
        while (chunk := super().received(turn, until)) and not self.closed:
            future = chunk.future
            error = _error_of(future) if future else None
            unknown = future is not None and not error and type(future.result()) is Unknown
            lost = _is_loss(error) and chunk.tries < _TRIES
            if not (lost or unknown):
                return chunk
            chunk.tries -= unknown
            self._send(chunk, whole=unknown)
        return None

    def take(self, chunk: DrawnChunk[S]) -> None:
        """Take the results of a task; send the samples that it left again."""
        super().take(chunk)
        if chunk.refused is not None:
            self._raise_refused(chunk, chunk.refused)
        future, chunk.future = chunk.future, None  # its callback holds the chunk
        if future is None:
            return
        result = self._result(chunk, future)
        chunk.results = result.results
        if result.more:
            self._send(chunk.rest(len(chunk.results)))
        if result.draws:
            self._warn_of_draws()
        self._learn(chunk, result)
        self._take_failures(chunk)
        chunk.items = []

    def _take_failures(self, chunk: DrawnChunk[S]) -> None:
        """Add samples to failures; raise one in its place if the task ended there."""
        for made, sample in zip(chunk.results, chunk.items, strict=False):
            if type(made) is Failure and made.sample is UNKNOWN:
                made.sample = sample
        if type(chunk.results[-1]) is Failure and not self.task.keep_going:
            failure = chunk.results.pop()
            if isinstance(failure.error, Exception) and failure.sample is not None:
                self.explain(failure.error, failure.sample)
            chunk.error = failure.error

    def _result(self, chunk: DrawnChunk[S], future: Future[Any]) -> TaskResult:
        """Return the result of a task."""
        error = _error_of(future)
        if error is None:
            return self._unpickled(future.result(), chunk)
        if not _is_loss(error):
            self._add_note(error, chunk)
            raise error
        raise errors.WorkerDied(
            f"{chunk} of this pass through {self.where} lost their worker {chunk.tries} times "
            f"({type(error).__name__}: {error}): perhaps one of them ends it (out of memory, a "
            f"crash outside of Python)."
        ) from error

    def check_workers(self, turn: int) -> None:
        """Raise if the cluster is gone."""
        if why := self.watch.gone():
            self._raise_refused(self.in_work[turn], RuntimeError(why))

    def _unpickled(
        self, result: TaskResult | Callable[[], Any], chunk: DrawnChunk[S]
    ) -> TaskResult:
        """Return a result, unpickled if it was sent."""
        if isinstance(result, TaskResult):
            return result
        with errors.noting(
            f"raised while this process unpickled what a worker made of {chunk} of this pass, by "
            f"{self.where}: its classes have to be here too, and their pickles have to be readable"
        ):
            return TaskResult(*result())

    def _warn_of_draws(self) -> None:
        errors.warn(
            f"{self.work.function or self.task} in {self.where}, draws from the global generators "
            "of np.random or random. Each worker process has its own, which np.random.seed in this "
            "program does not reach, so each run draws other numbers. Type map(fn, rng=True, "
            "seed=0), before samples are batched, for a function fn(sample, rng): each sample then "
            "draws the same, for any number of workers.",
            self.made_at,
        )

    def _raise_refused(self, chunk: DrawnChunk[S], error: Exception) -> NoReturn:
        if not (_is_loss(error) or isinstance(error, RuntimeError)):
            # `Processes` add a note themselves
            if _is_elsewhere(self.executor) or not hasattr(error, "__notes__"):
                self._add_note(error, chunk)
            raise error
        raise errors.WorkerDied(
            f"{type(self.executor).__name__} takes no more tasks ({error}), and {chunk} of "
            f"this pass through {self.where} are not done: processes=n replaces workers that "
            f"die; or give a new executor, and start at the last position."
        ) from error

    def _add_note(self, error: BaseException, chunk: DrawnChunk[S]) -> None:
        errors.noted(
            error,
            f"raised by {type(self.executor).__name__}, given {chunk} of this pass by "
            f"{self.where}{_ADVICE * isinstance(error, _NOT_SENT)}",
        )

    def _learn(self, chunk: DrawnChunk[S], result: TaskResult) -> None:
        """Estimate the best size of tasks, and the bytes of samples."""
        many = len(result.results)
        self.result_bytes = raised_average(self.result_bytes, result.bytes / many)
        self.item_bytes = max(1.0, self.input_bytes + self.result_bytes)
        self.work.tasks.append((round(1e9 * result.seconds), self.size * many))
        self.each += (self._each(result, many) - self.each) / (4 if self.each else 1)
        if self.trials and chunk.tries == 1:
            self.trials -= 1
            self.cost = min(self.cost, max(0.0, chunk.done_at - chunk.sent_at - result.seconds))
            if self.cost * _WORK_PER_COST > self.each and self.trials and not self.over:
                return
            self.trials = 0
        cost = max(self.setup, 0.0) + (self.cost if self.cost < inf else 0.0)
        wanted = ceil(_WORK_PER_COST * cost / max(self.each, 1e-9))
        self.resize(wanted if self.setup >= 0 else max(wanted, 2))
        self.learnt.update({name: getattr(self, name) for name in _LEARNT})

    def _each(self, result: TaskResult, many: int) -> float:
        """Return the seconds per sample of a task, without its setup."""
        if not result.first:
            return result.seconds / many
        if many == 1:
            self.setup = self.setup or -1.0
            return result.first
        each = (result.seconds - result.first) / (many - 1)
        self.setup = max(result.first - each, 1e-9)
        return each

    def cancel(self) -> None:
        """Cancel the tasks that the executor has not started."""
        with self.lock:
            chunks = list(self.in_work.values())
            self.in_work.clear()
        futures = [chunk.future for chunk in reversed(chunks) if chunk.future is not None]
        for chunk in chunks:
            chunk.future = None  # as in `take`
        if _cancels_at_once(self.executor):
            _cancel(futures)
        elif futures:
            # gc may drop a pass inside a lock of the executor, which `cancel` may wait for
            with suppress(RuntimeError):  # a program that exits starts no thread
                start_new_thread(_cancel, (futures,))


def workers_of(executor: Any) -> int:
    """Return how many tasks an executor runs at once, if it says so; there is no standard."""
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        return sum(client.nthreads().values()) or 1
    limit = getattr(executor, "workers", None) or getattr(executor, "_max_workers", None)
    return limit if isinstance(limit, int) and limit > 0 else usable_cores()


def each_alone(executor: Any) -> list[Executor]:
    """Return one executor per worker; the executor itself, so often, if it cannot be split."""
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None:
        return dask_workers(executor, client)
    alone = getattr(executor, "each_alone", None)
    return alone() if alone else [executor] * workers_of(executor)


def _cancels_at_once(executor: Executor) -> bool:
    """Return whether `cancel()` never blocks: true of Python's executors and of our own."""
    return type(executor).__module__.startswith(("concurrent.futures", "jreader.workers.processes"))


def _cancel(futures: list[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def _is_elsewhere(executor: Executor) -> bool:
    """Return whether an executor is known to pickle tasks; others may, or may be threads."""
    engines = ("concurrent.futures.process", "distributed", "ray", "jreader.workers.clusters")
    return any(kind.__module__.startswith(engines) for kind in type(executor).__mro__)


def _raised_in(error: BaseException) -> str:
    """Return the module of the line that raised an error."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""


def _error_of(future: Future[Any]) -> BaseException | None:
    """Return the error of a finished future."""
    try:
        return future.exception()
    except CancelledError as cancelled:
        return cancelled


def _is_loss(error: BaseException | None) -> bool:
    """Return whether an error means a lost worker: each engine has its own errors for that."""
    if error is None:
        return False
    if isinstance(error, (BrokenExecutor, CancelledError)):
        return True
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    if "ray.RayTaskError" in kinds:  # a task's own error, of both classes
        return False
    if _raised_in(error) == "distributed.cfexecutor":
        return True  # a result lost on its way: Dask takes it for an error
    return type(error).__module__.partition(".")[0] in {"distributed", "ray"}
