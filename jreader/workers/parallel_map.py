"""A function of samples, on this thread or on any workers, with the same stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeVar

from jreader import errors
from jreader.counters import working
from jreader.orders import as_seed
from jreader.profiling import annotated, profiler
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    bad_position,
    choice,
    described,
    explain,
    explained,
    length,
    lookup_of,
    op,
    set_fields,
    start,
    truth,
    whole,
)
from jreader.readers.keyed import BesideKey, Keyed
from jreader.readers.planes import Plane
from jreader.readers.seeds import seeded_below
from jreader.transforms.maps import map_readers
from jreader.transforms.sample_rng import generator, keyed
from jreader.workers.ahead import made_ahead
from jreader.workers.executor_map import ExecutorCrew, workers_of
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import Failure, MapTask, ShownAs
from jreader.workers.processes.executors import Processes
from jreader.workers.threads import map_on_threads
from jreader.workers.worker_batches import BatchMap, SampleMap, SampleRun, found_by_workers, runs_of

T = TypeVar("T")

_WINDOW = 8  # samples per worker that may be ahead
_MAX_WINDOW = 4096  # the same for samples that take next to no time


@op
class map_samples(Node[T]):
    """Apply `fn` to each sample, in order, on threads, processes or a cluster.

    Samples and positions do not depend on the workers: a pass that started with four processes can
    resume without any. Fast samples are sent to workers in groups.

    Threads suit NumPy, file and network calls; pure Python code needs processes, because of the
    GIL. An executor with the interface of `concurrent.futures` may run on a cluster:
    `dask_client.get_executor()`, or `jreader.workers.clusters.ray_executor()`; jreader never shuts
    it down. `fn` is sent with cloudpickle. If a worker is lost, another one repeats its samples.

    >>> list(map_samples(str.upper, lambda: "abc", threads=2)())
    ['A', 'B', 'C']
    >>> noisy = map_samples(lambda n, rng: n + rng.integers(100), lambda: [0, 1], rng=True, seed=7)
    >>> list(noisy()) == list(noisy())
    True

    Cost: the workers, and up to `window` samples and results in memory. Resuming costs as much as
    resuming `reader`, and calls `fn` again for samples that had not yet been yielded.

    Args:
        fn: Takes a sample and returns one. Several threads or processes call it at once.
        reader: Any reader; it is read by one thread at a time.
        threads: The number of threads; 0 calls `fn` on the thread that iterates.
        processes: The number of worker processes, instead of threads; the next pass uses the same
            ones.
        executor: An executor of `concurrent.futures`, instead of threads.
        concurrency: How many tasks the executor runs at a time; 0 asks the executor.
        window: How many samples may be ahead of the consumer, in progress or waiting. None for 8
            per worker (up to 4096 if samples take almost no time), and at most 32 MiB of samples
            and results per worker, but never fewer than 2 samples per worker.
        timeout: Seconds to wait for a sample; 0 for no limit.
        rng: Whether to call `fn(sample, rng)`, where `rng` is a `numpy.random.Generator` for that
            sample alone, made from seed, epoch and the sample's number.
        seed: For `rng`: an int, or a jax key; `at_epoch` and `epochs` vary it. None draws a new
            seed for each pass, which can be resumed all the same.
        on_error: "raise" ends the pass with the error of `fn`. "skip" drops samples for which `fn`
            raises, and reports them in a warning when the pass ends.
        max_errors: The maximum number of samples that "skip" may drop in a pass: without a limit, a
            bug in `fn` would give an empty epoch. A resumed pass counts from 0.

    Raises:
        WorkerDied: Several workers died on the same sample (while iterating).
        TimeoutError: A sample took longer than `timeout` (while iterating).
    """

    fn: Callable[..., T] = argument(lambda _call, fn: fn)  # checked beside `rng`
    reader: Reader[Any]
    threads: int = whole(default=0)
    processes: int = whole(default=0)
    executor: Executor | None = None
    concurrency: int = whole(default=0)
    window: int | None = whole(default=None, least=1)
    timeout: float = argument(errors.check_seconds, default=0, named=True)
    rng: bool = truth(default=False)
    on_error: Literal["raise", "skip"] = choice("raise", "skip", default="raise")
    max_errors: int = whole(default=100)
    pool: Processes | None = field(default=None, init=False)  # kept as long as the plan
    in_cursor = "never"
    moves = "samples"

    def __init__(
        self,
        fn: Callable[..., T],
        reader: Reader[Any],
        *,
        threads: int = 0,
        processes: int = 0,
        executor: Executor | None = None,
        concurrency: int = 0,
        window: int | None = None,
        timeout: float = 0,
        rng: bool = False,
        seed: Any = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
    ) -> None:
        errors.check_function(call := "map_samples(fn, reader)", fn, takes=1 + bool(rng))
        set_fields(self, fn=fn, reader=reader, rng=rng, on_error=on_error, max_errors=max_errors)
        set_fields(self, threads=threads, processes=processes, executor=executor)
        set_fields(self, concurrency=concurrency, window=window, timeout=timeout)
        self.__post_init__()
        if self.rng:
            # The op below has the seed: a map that draws nothing must not count as a seeded op.
            key = None if seed is None else as_seed(seed, call)
            set_fields(self, reader=keyed(reader, key))
        elif seed is not None:
            raise TypeError(
                f"seed={seed!r} of {call} needs rng=True, for a function of a sample and a "
                f"generator: fn(sample, rng)."
            )

    def check_arguments(self) -> dict[str, Any]:
        """Check who does the work, and make the pool of processes."""
        _check_workers(self.threads, self.processes, self.executor, self.concurrency)
        errors.warn_of_many(self.threads, "threads", each=64)
        return {"pool": Processes(self.processes) if self.processes else None}

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass, with the positions of `reader`; with `rng`, those of `keyed`."""
        if self._executor is not None:
            return self._without_failures(self._on_executor(at))
        threads = max(self.threads, self.timeout > 0)
        here = map_on_threads(
            self,
            partial(start, self.reader, at),
            self._mapping(),
            self._limits(threads),
            function=described(self.fn),
            # threads=1 may mean a function that must not run in parallel
            limits_of=self._limits if threads > 1 else None,
        )
        return self._without_failures(here)

    def batches(self, size: int, at: Position) -> Pass[Sequence[T]] | None:
        """Return batches that workers stack themselves; None if they cannot."""
        if self._executor is None or self.on_error == "skip":
            return None
        if self.window is not None and self.window < 2 * size:
            return None  # a run waits as a whole
        return self._on_executor(at, size)

    @property
    def _source(self) -> Reader[Any]:
        """The reader of the samples, below their keys."""
        return self.reader.reader if isinstance(self.reader, keyed) and self.rng else self.reader

    def _runs(
        self, plane: Plane, found: Reader[Any] | Plane, at: Position, size: int
    ) -> Pass[SampleRun]:
        """Return a pass over what workers find, with the positions of `reader`."""
        here = start(self.reader, at).position()  # raises if there is no such position
        done, position = (here[0], _both) if self._numbered() else (here, int)
        if here != position(done):
            raise bad_position(at, (0, 0))
        routed = found is not self._source
        return runs_of(plane, done, size, position, self._numbered(), routed=routed)

    @property
    def _executor(self) -> Executor | None:
        return self.pool if self.executor is None else self.executor

    def _on_executor(self, at: Position, size: int = 0) -> Pass[Any]:
        """Return the results of tasks, or batches of `size`; workers find samples if they can."""
        executor: Any = self._executor
        up, fn = self._sent(isinstance(executor, Processes), at, size)
        task = MapTask(fn, keep_going=self.on_error == "skip")
        limits = self._limits(self.concurrency or workers_of(executor), size or 1)
        by = "processes" if self.executor is None else "executor"
        work = working(type(self).__name__, described(self.fn), self.made_at, by, limits.workers)
        crew = ExecutorCrew(self, up, task, executor, limits, self._explain, work, size or 1)
        return made_ahead(crew)

    def _sent(
        self, sent_once: bool, at: Position, size: int
    ) -> tuple[Pass[Any], Callable[[Any], Any]]:
        """Return what tasks get, and their function: of samples, or of where to find them."""
        fn = self._function()
        there = None
        if size or self.pool:  # a user's executor gets single samples
            there = found_by_workers(self._source, sent_once=sent_once, single=not size)
        if there is not None:
            kind = BatchMap if size else SampleMap
            return self._runs(*there, at, size or 1), kind(fn, there[1])
        up = start(self.reader, at).watched(self, size or self.window or _WINDOW)
        return (up.in_runs(size), BatchMap(fn)) if size else (up, fn)

    def _numbered(self) -> Callable[[Any, int], Keyed] | None:
        """Return a function that adds to a sample and its number the key that `keyed` adds."""
        if not (isinstance(self.reader, keyed) and self.rng):
            return None
        return partial(_with_key, self.reader.seed, self.reader.epoch, seeded_below(self.reader))

    def _limits(self, workers: int, size: int = 1) -> Limits:
        """Return the limits for batches of `size`; a window that the user gave is kept."""
        if self.window:
            return Limits(workers, self.window // size, timeout=self.timeout)
        window, widest = max(_WINDOW // size, 2), _MAX_WINDOW // size
        return Limits.of_each(workers, window, widest, self.timeout)

    def _function(self) -> Callable[[Any], T]:
        return _WithGenerator(self.fn) if self.rng else self.fn

    def _mapping(self) -> Callable[[Any], Any]:
        """Return the function of a sample as it runs here; errors are explained, or `Failure`s."""
        if self.on_error == "raise":
            return explained(self, self._function())
        fn, label = self._function(), f"map {described(self.fn)}"

        def mapped(sample: Any) -> T | Failure:
            try:
                return annotated(label, fn, sample) if profiler.active else fn(sample)
            except Exception as error:
                return Failure(error, sample)

        return mapped

    def _without_failures(self, here: Pass[Any]) -> Pass[Any]:
        """Return the results; if requested, count and drop failures."""
        if self.on_error == "raise":
            return here

        def deal() -> Iterator[T]:
            failed: list[str] = []
            result: Any = None
            total = 0
            try:
                for result in here.items:
                    total += 1
                    if type(result) is not Failure:
                        yield result
                        continue
                    if len(failed) == self.max_errors or result.fatal or result.sample is None:
                        self._raise(result, failed, total)
                    failed.append(f"{total - 1} ({described(result.error)})")
            finally:
                result = None  # or a traceback would hold this frame, and the frame the error
            if failed:
                errors.warn(
                    f"{len(failed)} of {total} samples of this pass were left out by {self!r}, "
                    f"made at {self.made_at}, because {described(self.fn)} raised: samples "
                    f"{_in_words(failed)}.",
                    self.made_at,
                )

        return Pass(deal(), here.position, here.close)

    def _raise(self, failure: Failure, failed: list[str], total: int) -> None:
        error = failure.error
        try:
            if failed:
                errors.noted(
                    error,
                    f"sample {total - 1} is one more than max_errors={self.max_errors} allows to "
                    f"leave out of a pass, after samples {_in_words(failed)}",
                )
            if isinstance(error, Exception) and failure.sample is not None:
                self._explain(error, failure.sample)
            raise error
        finally:
            del error, failure  # or the traceback would hold this frame, and the frame the error

    def _explain(self, error: Exception, sample: Any) -> None:
        explain(error, self, self.fn, sample)

    def beside_key(self) -> Node[Any]:
        """Return the map of samples with other keys beside them."""
        return self.changed({"fn": BesideKey(self._function(), self.fn), "rng": False})

    def lazily(self) -> Node[Any] | None:
        """Return a map here, if `fn` can make fields later, on as many threads; none may fail."""
        alone = not self.rng and not self.timeout and self.on_error == "raise"
        lazily = getattr(self.fn, "lazily", None) if alone else None
        made = lazily and map_readers(lazily(max(self.threads, self.processes)), self.reader)
        return made and made.changed({"made_at": self.made_at})

    def length(self) -> int | None:
        """Return the length of `reader`; None if samples may be dropped."""
        return length(self.reader) if self.on_error == "raise" else None

    def lookup(self) -> Callable[[int], T] | None:
        """Return `fn` of the sample at an index, called here; None if samples may be dropped."""
        find, mapped = lookup_of(self.reader), self._mapping()
        if find is None or self.on_error != "raise":
            return None
        return lambda index: mapped(find(index))

    def written(self, *but: object) -> Iterator[str]:
        """Yield the arguments as given: the reader below keys, the seed, the executor's kind."""
        below, seed = self.reader, None
        shown: dict[str, Any] = {"on_error": sys.intern(self.on_error)}  # one text may be two
        if self.rng and isinstance(below, keyed):
            shown["reader"], seed = below.reader, below.seed
        if self.executor is not None:
            shown["executor"] = ShownAs(f"<{type(self.executor).__name__}>")
        yield from Node.written(self.changed(shown), *but)
        if seed is not None:
            yield f"seed={seed}"


class _WithGenerator:
    """A function of a sample and a generator, as a function of a sample and its key."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def __call__(self, pair: Keyed) -> Any:
        return self.fn(pair.sample, generator(pair.seed, pair.path))

    def __repr__(self) -> str:
        """Show it as errors do."""
        return described(self.fn)


def _with_key(seed: int, epoch: int, op: int, sample: Any, number: int) -> Keyed:
    return Keyed(sample, seed, (epoch, op, number))


def _both(done: int) -> Position:
    return done, done


def _in_words(failures: list[str]) -> str:
    more = f" and {len(failures) - 20} more" if len(failures) > 20 else ""
    return ", ".join(failures[:20]) + more


def _check_workers(threads: int, processes: int, executor: object, concurrency: int) -> None:
    if bool(threads) + bool(processes) + (executor is not None) > 1:
        raise TypeError(
            "map_samples(fn, reader) runs on threads (threads=n), processes (processes=n) or an "
            "executor (executor=...): give only one of them."
        )
    if concurrency and executor is None:
        raise TypeError(
            f"concurrency={concurrency!r} of map_samples(fn, reader) says how many tasks an "
            "executor runs at once: give executor= too, or threads=n, or processes=n."
        )
    submits = callable(getattr(executor, "submit", None)) and not isinstance(executor, type)
    if executor is not None and not submits:
        raise TypeError(
            f"executor of map_samples(fn, reader) needs a concurrent.futures.Executor, not "
            f"{described(executor)}: give ProcessPoolExecutor(), client.get_executor() of Dask, or "
            f"jreader.workers.clusters.ray_executor()."
        )
