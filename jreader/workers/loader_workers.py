"""`fetch_batches`: the op behind a loader's `num_workers`, with timeout and `worker_init_fn`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

from jreader._worker.worker_info import WorkerInfo, get_worker_info, set_worker_info
from jreader.errors import noting
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
    length,
    op,
    start,
)
from jreader.readers.plain_functions import in_epoch
from jreader.workers.ahead import made_ahead
from jreader.workers.executor_map import ExecutorCrew
from jreader.workers.global_rng import (
    changes_generators,
    seed_bytes,
    seed_global_generators,
    seeded_generators,
    seeded_items,
)
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import Failure, MapTask
from jreader.workers.processes import Processes, multiprocess_reader
from jreader.workers.threads import map_on_threads

T = TypeVar("T")

_PREFETCH = 2  # items per process that are requested ahead
_MAX_PREFETCH = 32  # the same for items that cost next to nothing
_loader_numbers = count()


@op
class fetch_batches(Node[T]):
    """Apply `mapper` to the items of `reader` (index batches), in order, in workers or here.

    >>> list(fetch_batches(str.upper, lambda: "abc", process_num=2)())
    ['A', 'B', 'C']

    Args:
        mapper: Takes an item, returns one.
        reader: Any reader; read here, unless `read_in_worker`.
        process_num: The number of processes; 0 maps on the calling thread.
        timeout: Seconds to wait for an item; 0 for no limit. It takes a thread.
        worker_init_fn: Called in each process with its number before its first item.
        persistent: Whether the processes keep their copy of `mapper` for the next pass. Otherwise
            each pass sends it again if it has changed. The processes stay anyway, and a data set of
            another length is sent again.
        read_in_worker: Whether `reader` is the slow part: one process reads it, and maps.
        prefetch: The number of items to request from each process ahead; None for 2, and more if
            they take little time.
        global_seed: The seed of the global generators of NumPy and Python in the processes; None
            leaves them alone.

    Raises:
        TimeoutError: An item took longer than `timeout` (while iterating).
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
    sent: list[MapTask] = field(default_factory=list, init=False)  # only the latest task
    in_worker: bool = field(default=False, init=False)  # whether a worker reads all of it
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"

    def check_arguments(self) -> dict[str, Any]:
        """Make the pool and its task; the processes start when there is work."""
        if not self.process_num or self.read_in_worker:
            return {}
        return {"pool": Processes(self.process_num), "sent": [self._task(next(_loader_numbers))]}

    def _task(self, number: int) -> MapTask:
        """Return a task that sends the function in its present state; `number` is the loader's."""
        return MapTask(self._function(number), number=number)

    def _function(self, number: int) -> _WorkerFunction:
        return _WorkerFunction(self.mapper, self.worker_init_fn, number, self.global_seed)

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass, with the positions of `reader`."""
        if self.in_worker:
            self._begin_in_worker()
            with in_epoch(self.epoch):
                return self.changed({"in_worker": False}).start(at)
        if self.process_num and self.read_in_worker:
            return self._timed(lambda: self._read_in_worker(at), 1)
        if self.pool is not None:
            ahead_of = (self.prefetch or _PREFETCH) * self.process_num

            def begin() -> Pass[Any]:
                up = start(self.reader, at)
                seed = self.global_seed
                return up if seed is None else seeded_items(up, seed, self.epoch)

            return self._submitted(self.pool, self._timed(begin, ahead_of))
        begin, mapper = partial(start, self.reader, at), explained(self, self.mapper)
        limits = Limits(int(self.timeout > 0), _PREFETCH, timeout=self.timeout)
        return map_on_threads(self, begin, mapper, limits, held=1)

    def _timed(self, begin: Callable[[], Pass[T]], window: int) -> Pass[T]:
        """Return the same pass, read on a thread if there is a timeout."""
        if not self.timeout:
            return begin()
        return map_on_threads(
            self,
            begin,
            itself,
            Limits(1, window, timeout=self.timeout),
            held=None if window > 1 else 1,
        )

    def _submitted(self, pool: Processes, up: Pass[Any]) -> Pass[T]:
        many, timeout, sent = self.process_num, self.timeout, self.sent[0]
        if not self.persistent or sent.fn.length != _dataset_length(self.mapper):
            self.sent[0] = sent = self._task(sent.fn.number)
        if self.prefetch:
            limits = Limits(many, many * self.prefetch, timeout=timeout)
        else:
            limits = Limits.of_each(many, _PREFETCH, _MAX_PREFETCH, timeout)

        def annotate(error: Exception, item: Any) -> None:
            explain(error, self, self.mapper, item)

        return made_ahead(ExecutorCrew(self, up, sent, pool, limits, annotate))

    def _read_in_worker(self, at: Position) -> Pass[T]:
        """Return a pass in its own process; its positions are those of a pass without one."""
        begun = self.changed({"process_num": 0, "timeout": 0, "in_worker": True})
        one = multiprocess_reader((begun,), queue_size=self.prefetch or _PREFETCH)
        up = one.start(None if at is None else (0, ((False, at),)))
        return Pass(up.items, lambda: up.position()[1][0][1], up.close)

    def _begin_in_worker(self) -> None:
        if self.global_seed is not None:
            seed_global_generators(seed_bytes(self.global_seed, self.epoch))
        self._function(0).begin()

    def written(self, *but: object) -> Iterator[str]:
        """Yield the arguments without the task, which repeats them."""
        return super().written(*but, self.sent)


class _WorkerFunction:
    """`mapper` as a loader's worker calls it: `worker_init_fn` first, once per process.

    Attributes:
        dataset: The mapper's data set.
        number: The loader's number: another loader's function is a different one, even if equal.
        global_seed: Items are then `SeededItem`s; None for plain items.
        begun: Whether `worker_init_fn` was called here.
        left_alone: Whether the generators are not seeded, as `worker_init_fn` seeded them.
    """

    begun = left_alone = False

    def __init__(
        self,
        mapper: Callable[[Any], Any],
        init: Callable[[int], object] | None,
        number: int,
        global_seed: int | None,
    ) -> None:
        self.mapper, self.init, self.number, self.global_seed = mapper, init, number, global_seed
        self.dataset, self.length = getattr(mapper, "dataset", None), _dataset_length(mapper)

    def __call__(self, item: Any) -> Any:
        """Return the mapped item; or a `Failure` of the setup."""
        try:
            self.begin()
        except Exception as error:
            return Failure(error, None)
        if self.global_seed is None:
            return self.mapper(item)
        if self.left_alone:
            return self.mapper(item.item)
        with seeded_generators(item.seed):
            return self.mapper(item.item)

    def begin(self) -> None:
        """Set `get_worker_info` to this loader's data set and seed: loaders share processes.

        Call `worker_init_fn`, unless it was called.
        """
        info, seed = _info_at_start(), self.global_seed
        if info is not None:
            seed = info.seed if seed is None else seed + info.id
            set_worker_info(replace(info, dataset=self.dataset, seed=seed))
            if self.init is not None and not self.begun:
                with noting(f"raised by {described(self.init)}({info.id}), the worker_init_fn"):
                    self.left_alone = changes_generators(partial(self.init, info.id))
        self.begun = True

    def __repr__(self) -> str:
        """Show it as errors do."""
        return described(self.mapper)


def _dataset_length(mapper: Callable[[Any], Any]) -> int | None:
    return length(getattr(mapper, "dataset", None))  # type: ignore[arg-type]  # it need not be a reader


@cache
def _info_at_start() -> WorkerInfo | None:
    """Return the worker info with which this process started, if it is a worker."""
    return get_worker_info()
