"""An ordered map on an executor: of processes, of a cluster, of whatever has a `submit`.

Order, limits and retries are kept here; where the work is done is the executor's. Samples are sent
in chunks, one a task. What a task costs beside its work (6 ms on Dask, 1 ms on Ray, 0.3 ms on
processes) is measured with the first samples, sent to workers that wait for them; then a chunk has
so many samples that this cost is a tenth of their work. A user's error comes back as a result, so
whatever a future raises is the executor's: a worker was lost, and the task is sent again, or
something cannot be pickled.
"""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from itertools import islice
from math import ceil, inf
from typing import Any, Generic, NoReturn, TypeVar

from jreader import errors
from jreader.counters import Work, working
from jreader.readers import Node, Pass, Position, described
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.workers.clusters import Watch
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import UNKNOWN, Failure, MapTask, Pickled, TaskInput, TaskResult
from jreader.workers.memory_estimates import (
    ESTIMATE_EVERY,
    estimated_bytes,
    raised_average,
)
from jreader.workers.threads import ClosableSource, stoppable_pass

T = TypeVar("T")
S = TypeVar("S")

_WORK_PER_COST = 10  # the work of a task over what it costs to send it
_TRIES = 3  # of one task, whose worker may be lost
_LOOK = 1.0  # seconds between two looks whether a cluster is there

_NOT_SENT = (pickle.PicklingError, TypeError, AttributeError)
_ADVICE = (
    ": samples and results are sent as arrays, numbers, strings, or containers of them; files, "
    "locks and connections are opened inside the function"
)


def map_on_executor(
    node: Node[T],
    up: Pass[S],
    task: MapTask,
    executor: Executor,
    limits: Limits,
    work: Work | None = None,
    size: int = 1,
) -> Pass[Any]:
    """The results of a task for the samples of a pass, in their order; some are a `Failure`.

    Args:
        node: The op, for errors.
        up: A pass; it is read on the thread that asks for results.
        task: What to do with samples.
        executor: Does tasks, and is not shut down.
        limits: How many tasks it does side by side, and how far they may be ahead.
        work: The counters of the op; None for new ones.
        size: How many samples each item of `up` stands for, to count them.
    """
    position = up.position()
    work = work or working(type(node).__name__, "", node.made_at, "processes", limits.workers)
    state = _ExecutorMap(node, up, task, executor, limits, work, size)

    def deal() -> Generator[Any, None, None]:
        nonlocal position
        result: Any = None
        try:
            state.begin()
            while chunk := state.next():
                for index, result in enumerate(state.results_of(chunk)):
                    position = chunk.positions[index]
                    state.ahead -= 1
                    if type(result) is Failure and result.sample is UNKNOWN:
                        result.sample = chunk.samples.items[index]
                    yield result
            if state.error and not state.closed:
                raise state.error
        finally:
            chunk = result = None  # or a traceback would hold this frame, and the frame an error
            state.stop()

    return stoppable_pass(deal(), lambda: position, state.stop)


def raising(here: Pass[Any], annotate: Callable[[Exception, Any], object]) -> Pass[Any]:
    """The results of a pass up to the first `Failure`, whose error is raised.

    Args:
        here: The pass.
        annotate: Adds notes to the error of a sample: the function, the op and its line.
    """

    def deal() -> Generator[Any, None, None]:
        result: Any = None
        try:
            for result in here.items:
                if type(result) is not Failure:
                    yield result
                    continue
                if isinstance(result.error, Exception) and result.sample is not None:
                    annotate(result.error, result.sample)
                raise result.error
        finally:
            result = None  # or a traceback would hold this frame, and the frame the error
            here.close()

    return stoppable_pass(deal(), here.position, here.close)


class _Chunk:
    """The samples of one task, and how far it is."""

    def __init__(self, first: int, samples: TaskInput, positions: list[Position]) -> None:
        self.first, self.samples, self.positions = first, samples, positions
        self.tries = 0
        self.future: Future[TaskResult] = Future()
        self.sent_at = self.done_at = 0.0
        self.refused: Exception | None = None  # by the executor, which takes no more
        self.done = threading.Event()  # also where nobody waits for it any more

    def rest(self, done: int) -> _Chunk:
        """A chunk of the samples that this one's task did not do."""
        samples = TaskInput(self.samples.items[done:], self.samples.most)
        return _Chunk(self.first + done, samples, self.positions[done:])

    def mark_done(self, _future: object) -> None:
        """Notes when the task ended; its future calls it."""
        self.done_at = time.perf_counter()
        self.done.set()

    def __str__(self) -> str:
        last = self.first + len(self.samples.items) - 1
        return f"sample {last}" if last == self.first else f"samples {self.first} to {last}"


class _ExecutorMap(Generic[S, T]):
    """The tasks of one pass; all on the consumer's thread, but for `mark_done` and `stop`."""

    def __init__(
        self,
        node: Node[T],
        up: Pass[S],
        task: MapTask,
        executor: Executor,
        limits: Limits,
        work: Work,
        size: int,
    ) -> None:
        self.work, self.size = work, size
        self.made_at = node.made_at
        self.where = f"{type(node).__name__}, made at {node.made_at}"
        self.source, self.task, self.executor = ClosableSource(up), task, executor
        self.limits, self.watch = limits, Watch(executor)
        self.input_bytes = self.result_bytes = 0.0  # bytes of a sample, and of what is made of it
        self.chunks: deque[_Chunk] = deque()
        self.drawn = 0
        self.ahead = 0  # samples drawn and not yet handed over
        self.trials = 2 * limits.workers  # tasks of one sample, each for a worker that waits for it
        self.chunksize = 1  # samples of a task
        self.cost = inf  # seconds of a task beside its work
        self.each = 0.0  # seconds of work for a sample
        self.over = self.closed = False
        self.error: BaseException | None = None  # of the source, after all samples before it
        self.lock = threading.RLock()  # of the chunks; reentrant: gc may drop a pass anywhere
        self.threads: list[threading.Thread] = []  # those of others may wait here
        self.fork_guard = ForkGuard()

    def begin(self) -> None:
        """Has the pass stopped if the program exits while another thread waits here."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)

    def next(self) -> _Chunk | None:
        """The next chunk, after as many are sent as the window takes; None at the end."""
        self.fork_guard.check("this pass")
        while not self.over and (not self.chunks or self.ahead + self.chunksize <= self._room()):
            self._draw()
        with self.lock:
            return self.chunks[0] if self.chunks else None

    def _room(self) -> int:
        """How many samples may be ahead."""
        window = self.limits.window_of(self.chunksize, self._sample_bytes())
        return min(self.limits.workers, window) if self.trials else window

    def _sample_bytes(self) -> float:
        """The bytes of a sample that is ahead, with what is made of it."""
        return max(1.0, self.input_bytes + self.result_bytes)

    def _draw(self) -> None:
        samples: list[S] = []
        positions: list[Position] = []
        size, each, more = 0.0, 0.0, False
        try:
            with self.source as up:
                for sample in islice(up.items, self.chunksize):
                    if len(samples) % ESTIMATE_EVERY == 0:
                        each = estimated_bytes(sample)
                    size += each
                    samples.append(sample)
                    positions.append(up.position())
                    if more := size > self.limits.chunk_bytes:
                        break
        except KeyboardInterrupt:
            raise  # it has no place in the order: it may come between a sample and its position
        except BaseException as error:  # an exit too: it comes after the samples before it
            errors.noted(error, f"raised while {self.where}, read ahead")
            self.error = error
        self.over = self.error is not None or (len(samples) < self.chunksize and not more)
        if samples:
            self.input_bytes = raised_average(self.input_bytes, size / len(samples))
            chunk = _Chunk(self.drawn, TaskInput(samples, self.limits.chunk_bytes), positions)
            self.drawn += len(samples)
            self.ahead += len(samples)
            with self.lock:
                if not self.closed:
                    self.chunks.append(chunk)
                    self._send(chunk)

    def _send(self, chunk: _Chunk) -> None:
        chunk.tries += 1
        chunk.sent_at = time.perf_counter()
        chunk.done.clear()
        try:
            if why := self.watch.gone(asking=False):
                raise RuntimeError(why)  # noqa: TRY301  # told in its place, as what `submit` raises
            if _is_elsewhere(self.executor):
                self.task.pack()
            chunk.future = self.executor.submit(self.task, chunk.samples)
        except Exception as error:
            chunk.refused, self.over = error, True  # told in its place, after what was done
            chunk.done.set()
        else:
            chunk.future.add_done_callback(chunk.mark_done)

    def results_of(self, chunk: _Chunk) -> list[Any]:
        """Waits for the results of a chunk; none if the pass is closed meanwhile."""
        while not (result := self._result(chunk)):
            with self.lock:
                if self.closed:
                    return []
                self._send(chunk)
        with self.lock:
            if self.closed:
                return []
            self.chunks.popleft()
            if result.more:
                self.chunks.appendleft(chunk.rest(len(result.results)))
                self._send(self.chunks[0])
        chunk.future = Future()  # its callback is the chunk's: only gc would free the results
        if result.draws:
            self._tell_of_draws()
        self._learn(chunk, result)
        return result.results

    def _result(self, chunk: _Chunk) -> TaskResult | None:
        """Waits for what became of a task; None if its worker was lost, and another may do it."""
        done = self._waited(chunk)
        with self.lock:
            future, closed = chunk.future, self.closed
        if closed:
            return None
        if chunk.refused is not None:
            self._raise_refused(chunk, chunk.refused)
        if not done:
            raise TimeoutError(
                f"{chunk} of this pass, the first made of {described(chunk.samples.items[0])}, "
                f"took longer than {self.limits.timeout} s in {self.where}: give a longer timeout, "
                "or find what they wait for."
            )
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is None:
            return self._unpickled(future.result(), chunk)
        if not _is_loss(error):
            self._noted(error, chunk)
            raise error
        if chunk.tries < _TRIES:
            return None
        raise errors.WorkerDied(
            f"{chunk} of this pass through {self.where} lost their worker {chunk.tries} times "
            f"({type(error).__name__}: {error}): perhaps one of them ends it (out of memory, a "
            f"crash outside of Python)."
        ) from error

    def _waited(self, chunk: _Chunk) -> bool:
        """Waits for the end of a task; false if it was waited for as long as the limits say."""
        until = time.monotonic() + (self.limits.timeout or inf)
        look = _LOOK if self.watch.known else inf
        while True:
            left = min(look, until - time.monotonic())
            if chunk.done.wait(None if left == inf else max(left, 0)):
                return True
            if time.monotonic() >= until:
                return False
            if why := self.watch.gone():
                with self.lock:
                    chunk.refused = RuntimeError(why)
                return True

    def _unpickled(self, result: TaskResult | Pickled, chunk: _Chunk) -> TaskResult:
        """A result, unpickled if it was sent."""
        if isinstance(result, TaskResult):
            return result
        try:
            unpickled = TaskResult(*result.unpickled())
        except Exception as error:
            errors.noted(
                error,
                f"raised while this process unpickled what a worker made of {chunk} of this pass, "
                f"by {self.where}: its classes have to be here too, and their pickles have to be "
                "readable",
            )
            raise
        return unpickled

    def _tell_of_draws(self) -> None:
        errors.warn(
            f"{self.work.function} in {self.where}, draws from the global generators of np.random "
            "or random. Each worker process has its own, which np.random.seed in this program does "
            "not reach, so each run draws other numbers. Type map(fn, rng=True, seed=0), before "
            "samples are batched, for a function fn(sample, rng): each sample then draws the same, "
            "for any number of workers.",
            self.made_at,
        )

    def _raise_refused(self, chunk: _Chunk, error: Exception) -> NoReturn:
        if not (_is_loss(error) or isinstance(error, RuntimeError)):
            # `Processes` say it themselves
            if _is_elsewhere(self.executor) or not hasattr(error, "__notes__"):
                self._noted(error, chunk)
            raise error
        raise errors.WorkerDied(
            f"{type(self.executor).__name__} takes no more tasks ({error}), and {chunk} of "
            f"this pass through {self.where} are not done: processes=n replaces workers that "
            f"die; or give a new executor, and start at the last position."
        ) from error

    def _noted(self, error: BaseException, chunk: _Chunk) -> None:
        errors.noted(
            error,
            f"raised by {type(self.executor).__name__}, given {chunk} of this pass by "
            f"{self.where}{_ADVICE * isinstance(error, _NOT_SENT)}",
        )

    def _learn(self, chunk: _Chunk, result: TaskResult) -> None:
        """How many samples are worth a task, and how heavy they are."""
        self.result_bytes = raised_average(self.result_bytes, result.bytes / len(result.results))
        each = result.seconds / len(result.results)
        done = sum(chunk.done.is_set() for chunk in list(self.chunks))
        self.work.depths.append(done)
        self.work.tasks.append((round(1e9 * result.seconds), self.size * len(result.results)))
        self.each += (each - self.each) / (4 if self.each else 1)
        if self.trials and chunk.tries == 1:
            self.trials -= 1
            self.cost = min(self.cost, max(0.0, chunk.done_at - chunk.sent_at - result.seconds))
            if self.cost * _WORK_PER_COST > self.each and self.trials and not self.over:
                return
            self.trials = 0
        wanted = ceil(_WORK_PER_COST * self.cost / max(self.each, 1e-9)) if self.cost < inf else 1
        wanted = min(2 * self.chunksize, wanted)
        self.chunksize = self.limits.chunksize_of(wanted, self._sample_bytes())

    def stop(self) -> None:
        """Gives up what is not done, wakes who waits for it, and closes the source."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.over = self.closed = True
            chunks = list(self.chunks)
            self.chunks.clear()
        futures = [chunk.future for chunk in reversed(chunks)]
        for chunk in chunks:
            chunk.future = Future()  # as in `results_of`
            chunk.done.set()
        if _cancels_at_once(self.executor):
            _cancel(futures)
        elif futures:
            # gc may drop a pass inside of a lock of the executor's, which its `cancel` may wait for
            with suppress(RuntimeError):  # a program that ends starts no thread
                start_new_thread(_cancel, (futures,))
        self.source.close()


def _cancels_at_once(executor: Executor) -> bool:
    """Whether to cancel waits for nobody, as it is known of Python's executors and of our own."""
    return type(executor).__module__.startswith(("concurrent.futures", "jreader.workers.processes"))


def _cancel(futures: list[Future[TaskResult]]) -> None:
    for future in futures:
        future.cancel()


def _is_elsewhere(executor: Executor) -> bool:
    """Whether an executor is known to pickle what it is given; others may, or be threads."""
    engines = ("concurrent.futures.process", "distributed", "ray", "jreader.workers.clusters")
    return any(kind.__module__.startswith(engines) for kind in type(executor).__mro__)


def _raised_in(error: BaseException) -> str:
    """The module of the line that raised an error."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""


def _is_loss(error: BaseException) -> bool:
    """Whether a worker was lost, as far as engines say so: each has its own errors for that."""
    if isinstance(error, (BrokenExecutor, CancelledError)):
        return True
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    if "ray.RayTaskError" in kinds:  # what a task raised, as the error that it is too
        return False
    if _raised_in(error) == "distributed.cfexecutor":
        return True  # a result that was lost while Dask handed it over: it takes it for an error
    return type(error).__module__.partition(".")[0] in {"distributed", "ray"}
