"""`fetch_batches`: what the `num_workers` of a loader do, with timeout and `worker_init_fn`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

from jreader._worker.worker_info import WorkerInfo, get_worker_info, set_worker_info
from jreader.errors import noted
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    described,
    explain,
    explained,
    itself,
    leaves,
    length,
    op,
    set_fields,
    start,
)
from jreader.readers.located import located_errors
from jreader.readers.plain_functions import in_epoch
from jreader.workers.ahead import made_ahead
from jreader.workers.executor_map import ExecutorCrew
from jreader.workers.global_rng import (
    SeededFunction,
    changes_generators,
    seed_bytes,
    seed_global_generators,
    seeded_items,
)
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import Failure, MapTask, TaskResult
from jreader.workers.processes import Processes, multiprocess_reader
from jreader.workers.threads import map_on_threads

T = TypeVar("T")

_PREFETCH = 2  # items per process that are asked for ahead
_MAX_PREFETCH = 32  # and if they cost next to nothing
_loader_numbers = count()
_BYTES_PER_SECOND = 2e9  # bytes of an item that count like a second of work


@op
class fetch_batches(Node[T]):
    """`mapper` of the items of `reader` (index batches), in order, on worker processes or here.

    >>> list(fetch_batches(str.upper, lambda: "abc", process_num=2)())
    ['A', 'B', 'C']

    Args:
        mapper: Takes an item, gives one.
        reader: Any reader; it is read here, unless it is read apart.
        process_num: The number of processes; 0 maps on the thread that asks.
        timeout: The seconds that an item may be waited for; 0 for any. It takes a thread.
        worker_init_fn: Called in each process with its number before its first item.
        persistent: Whether the processes keep their copy of `mapper` for the next pass. Otherwise
            each pass sends it as it is then, if it has changed. The processes stay anyway, and a
            data set of another length is sent anew.
        read_in_worker: Whether `reader` is what takes the time: one process reads it, and maps.
        prefetch: How many items are asked of each process ahead; None for 2, and more where they
            take little time.
        global_seed: The seed of the global generators of NumPy and Python in the processes; None
            leaves them as they are.

    Raises:
        TimeoutError: An item was waited for longer than that (while iterating).
        WorkerDied: An item lost its process several times (while iterating).
    """

    mapper: Callable[[Any], T]
    reader: Reader[Any]
    process_num: int = 0
    timeout: float = 0
    worker_init_fn: Callable[[int], object] | None = argument(default=None, cursor="never")
    persistent: bool = False
    read_in_worker: bool = False
    prefetch: int | None = None
    global_seed: int | None = None
    epoch: int = field(default=0, init=False)
    pool: Processes | None = field(default=None, init=False)
    task: _FetchTask | None = field(default=None, init=False)
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"

    def check_arguments(self) -> dict[str, Any]:
        """Makes the pool and its task; the processes start when there is something to do."""
        if not self.process_num or self.read_in_worker:
            return {}
        mapper = self.mapper if self.global_seed is None else SeededFunction(self.mapper)
        task = _FetchTask(mapper, self.worker_init_fn, next(_loader_numbers), self.global_seed)
        return {"pool": Processes(self.process_num), "task": task}

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader`."""
        if self.process_num and self.read_in_worker:
            return self._timed(lambda: self._read_in_worker(at), 1)
        if self.pool is not None and self.task is not None:
            ahead_of = (self.prefetch or _PREFETCH) * self.process_num
            task = self.task.latest_sent() if self.persistent else self.task.to_send_anew()

            def begin() -> Pass[Any]:
                up = start(self.reader, at)
                seed = self.global_seed
                return up if seed is None else seeded_items(up, seed, self.epoch)

            return self._submitted(self.pool, task, self._timed(begin, ahead_of))
        mapper = explained(self, self.mapper)
        if self.timeout:
            limits = Limits(1, _PREFETCH, timeout=self.timeout)
            return map_on_threads(self, lambda: start(self.reader, at), mapper, limits)
        return start(self.reader, at).mapped(mapper, located_errors(self))

    def _timed(self, begin: Callable[[], Pass[T]], window: int) -> Pass[T]:
        """The same pass, read on a thread if there is a timeout."""
        if not self.timeout:
            return begin()
        return map_on_threads(self, begin, itself, Limits(1, window, timeout=self.timeout))

    def _submitted(self, pool: Processes, task: MapTask, up: Pass[Any]) -> Pass[T]:
        many, timeout = self.process_num, self.timeout
        if self.prefetch:
            limits = Limits(many, many * self.prefetch, timeout=timeout)
        else:
            limits = Limits.of_each(many, _PREFETCH, _MAX_PREFETCH, timeout)

        def annotate(error: Exception, item: Any) -> None:
            explain(error, self, self.mapper, item)

        return made_ahead(ExecutorCrew(self, up, task, pool, limits, annotate))

    def _read_in_worker(self, at: Position) -> Pass[T]:
        """A pass in a process of its own; its positions are those of one without."""
        here = fetch_batches(self.mapper, self.reader)
        set_fields(here, made_at=self.made_at)  # for its errors
        begun = _with_worker_init(
            here, self.mapper, self.worker_init_fn, self.global_seed, self.epoch
        )
        one = multiprocess_reader((begun,), queue_size=self.prefetch or _PREFETCH)
        up = one.start(None if at is None else (0, ((False, at),)))
        return Pass(up.items, lambda: up.position()[1][0][1], up.close)

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)

    def written(self, *but: object) -> Iterator[str]:
        """Without the task, which repeats the arguments."""
        return super().written(*but, self.task)


class _FetchTask(MapTask):
    """A task that calls `worker_init_fn` first, once in each process."""

    def __init__(
        self,
        fn: Callable[[Any], Any],
        init: Callable[[int], object] | None,
        number: int,
        global_seed: int | None,
    ) -> None:
        super().__init__(fn)
        self.global_seed = global_seed
        self.init: Callable[[int], object] | None = init
        self.number = number  # of the loader: what another one sends is another task, though equal
        self.begun = False
        self.dataset_length = _dataset_length(fn)
        self.latest: _FetchTask | None = None  # that of the latest length

    def latest_sent(self) -> _FetchTask:
        """The task that was sent last, or a new one if the data set has another length by now."""
        sent = self.latest or self
        if sent.dataset_length != _dataset_length(self.fn):
            self.latest = sent = self.to_send_anew()
        return sent

    def to_send_anew(self) -> _FetchTask:
        """An equal task, which is sent with the function as it is now."""
        return _FetchTask(self.fn, self.init, self.number, self.global_seed)

    def __call__(self, samples: Any) -> TaskResult:
        try:
            _set_info(self.fn, self.global_seed)
            if (
                self.init
                and not self.begun
                and _call_worker_init(self.init)
                and self.global_seed is not None
            ):
                self.fn.left_alone = True
        except Exception as error:
            return TaskResult([Failure(error, None)], 0.0)
        self.begun = True
        outcome = super().__call__(samples)
        # so that few large items make a task, if not one alone: they all are in memory at once
        size = sum(getattr(leaf, "nbytes", 0) for leaf in leaves(outcome.results))
        return outcome._replace(seconds=outcome.seconds + size / _BYTES_PER_SECOND)

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: `Processes` sends it once, its arrays through shared memory."""
        return _FetchTask, (self.fn, self.init, self.number, self.global_seed)


def _dataset_length(fn: Callable[[Any], Any]) -> int | None:
    return length(getattr(fn, "dataset", None))  # type: ignore[arg-type]  # it need not be a reader


@cache
def _info_at_start() -> WorkerInfo | None:
    """What this process was told when it started, if it is a worker."""
    return get_worker_info()


def _set_info(fn: Callable[[Any], Any], global_seed: int | None) -> None:
    """Has `get_worker_info` tell of this loader's data set and seed: loaders share processes."""
    info = _info_at_start()
    if info is not None:
        seed = info.seed if global_seed is None else global_seed + info.id
        set_worker_info(replace(info, dataset=getattr(fn, "dataset", None), seed=seed))


def _call_worker_init(init: Callable[[int], object]) -> bool:
    """Calls `worker_init_fn` in a worker; tells whether it seeded the global generators."""
    info = get_worker_info()
    if info is None:
        return False
    try:
        return changes_generators(partial(init, info.id))
    except Exception as error:
        noted(error, f"raised by {described(init)}({info.id}), the worker_init_fn")
        raise


@op
class _with_worker_init(Node[T]):
    """A reader that calls `worker_init_fn` when a pass over it begins."""

    reader: Reader[T]
    mapper: Callable[[Any], Any]
    init: Callable[[int], object] | None
    global_seed: int | None
    epoch: int

    def start(self, at: Position) -> Pass[T]:
        """That of the reader."""
        _set_info(self.mapper, self.global_seed)
        if self.global_seed is not None:
            seed_global_generators(seed_bytes(self.global_seed, self.epoch))
        if self.init is not None:
            _call_worker_init(self.init)
        with in_epoch(self.epoch):
            return start(self.reader, at)
