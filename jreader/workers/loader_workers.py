"""What a loader's `num_workers` map on: processes that stay, and have a clock and a beginning."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import cache, partial
from itertools import count
from math import inf
from typing import Any, TypeVar

from jreader._worker.shared_memory import AHEAD
from jreader._worker.stacking import WorkerInfo, get_worker_info, informed
from jreader.errors import noted
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    described,
    explain,
    itself,
    leaves,
    length,
    op,
    start,
)
from jreader.readers.plain_functions import in_epoch
from jreader.workers.executor_map import submitted
from jreader.workers.global_rng import Seeding, seed_generators, seeded_items, seeds_itself, words
from jreader.workers.map_tasks import Failure, Outcome, Task
from jreader.workers.processes import Processes, multiprocess_reader
from jreader.workers.threads import ahead

T = TypeVar("T")

_AHEAD = 2  # items per process that are asked for ahead
_MOST = 32  # and if they cost next to nothing
_LOADERS = count()
_WEIGHT = 2e9  # bytes of an item that count like a second of work


@op
class fetch_batches(Node[T]):
    """`mapper` of the items of `reader`, in their order, in any number of processes.

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
        apart: Whether `reader` is what takes the time: one process reads it, and maps.
        prefetch: How many items are asked of each process ahead; None for 2, and more where they
            take little time.
        noise: The seed of the global generators of NumPy and Python in the processes; None leaves
            them as they are.

    Raises:
        TimeoutError: An item was waited for longer than that (while iterating).
        WorkerDied: An item lost its process several times (while iterating).
    """

    mapper: Callable[[Any], T]
    reader: Reader[Any]
    process_num: int = 0
    timeout: float = 0
    worker_init_fn: Callable[[int], object] | None = None
    persistent: bool = False
    apart: bool = False
    prefetch: int | None = None
    noise: int | None = None
    epoch: int = field(default=0, init=False)
    pool: Processes | None = field(default=None, init=False)
    task: _Fetch | None = field(default=None, init=False)
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"
    cursor_ignores = ("worker_init_fn",)

    def __post_init__(self) -> None:
        """Finds the processes; they begin when there is something to do."""
        if self.process_num and not self.apart:
            object.__setattr__(self, "pool", Processes(self.process_num))
            mapper = self.mapper if self.noise is None else Seeding(self.mapper)
            task = _Fetch(mapper, self.worker_init_fn, next(_LOADERS), self.noise)
            object.__setattr__(self, "task", task)

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader`."""
        if self.process_num and self.apart:
            return self._timed(self._read_apart(at), 1)
        up = start(self.reader, at)
        if self.pool is not None and self.task is not None:
            ahead_of = (self.prefetch or _AHEAD) * self.process_num
            task = self.task.kept() if self.persistent else self.task.anew()
            if self.noise is not None:
                up = seeded_items(up, self.noise, self.epoch)
            return self._submitted(self.pool, task, self._timed(up, ahead_of))
        if self.timeout:
            return ahead(self, up, self._mapped, 1, _AHEAD, timeout=self.timeout)
        return up.mapped(self._mapped)

    def _timed(self, up: Pass[T], window: int) -> Pass[T]:
        """The same, on a thread, where there is a clock."""
        return ahead(self, up, itself, 1, window, timeout=self.timeout) if self.timeout else up

    def _submitted(self, pool: Processes, task: Task, up: Pass[Any]) -> Pass[T]:
        here = submitted(
            self,
            up,
            task,
            pool,
            self.process_num,
            (self.prefetch or _AHEAD) * self.process_num,
            (self.prefetch or _MOST) * self.process_num,
            self.timeout,
            inf if self.prefetch else AHEAD * self.process_num,
        )

        def deal() -> Generator[T, None, None]:
            try:
                for result in here.items:
                    if type(result) is Failure:
                        self._raise(result)
                    yield result
            finally:
                result = None  # or a traceback would hold this frame, and the frame the error
                here.close()

        items = deal()

        def close() -> None:
            here.close()
            with suppress(ValueError):  # another thread waits in it, and has been told
                items.close()

        return Pass(items, here.position, close)

    def _raise(self, failure: Failure) -> None:
        error, sample = failure.error, failure.sample
        try:
            if isinstance(error, Exception) and sample is not None:
                explain(error, self, self.mapper, sample)
            raise error
        finally:
            del error, failure  # or the traceback would hold this frame, and the frame the error

    def _read_apart(self, at: Position) -> Pass[T]:
        """A pass in a process of its own; its position is the one that it has without."""
        here = fetch_batches(self.mapper, self.reader)
        object.__setattr__(here, "made_at", self.made_at)  # for its errors
        begun = _begun(here, self.mapper, self.worker_init_fn, self.noise, self.epoch)
        one = multiprocess_reader((begun,), queue_size=self.prefetch or _AHEAD)
        up = one.start(at and (0, ((False, at),)))
        return Pass(up.items, lambda: up.position()[1][0][1], up.close)

    def _mapped(self, item: Any) -> T:
        try:
            return self.mapper(item)
        except Exception as error:
            explain(error, self, self.mapper, item)
            raise

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)

    def written(self, *but: object) -> Iterator[str]:
        """Without the task, which repeats the arguments."""
        return super().written(*but, self.task)


class _Fetch(Task):
    """A task that begins with the user's function, in each process."""

    def __init__(
        self,
        fn: Callable[[Any], Any],
        init: Callable[[int], object] | None,
        number: int,
        noise: int | None,
    ) -> None:
        super().__init__(fn)
        self.noise = noise
        self.init: Callable[[int], object] | None = init
        self.number = number  # of the loader: what another one sends is another task, though equal
        self.begun = False
        self.extent = _extent(fn)
        self.later: _Fetch | None = None  # that of the latest length

    def kept(self) -> _Fetch:
        """The one that was sent last; one anew where the data set has another length by now."""
        sent = self.later or self
        if sent.extent != _extent(self.fn):
            self.later = sent = self.anew()
        return sent

    def anew(self) -> _Fetch:
        """The same, to be sent as the function is now."""
        return _Fetch(self.fn, self.init, self.number, self.noise)

    def __call__(self, samples: Any) -> Outcome:
        try:
            _tell(self.fn, self.noise)
            if self.init and not self.begun and _begin(self.init) and self.noise is not None:
                self.fn.left_alone = True
        except Exception as error:
            return Outcome([Failure(error, None)], 0.0)
        self.begun = True
        outcome = super().__call__(samples)
        # so that few large items make a task, if not one alone: they all are in memory at once
        size = sum(getattr(leaf, "nbytes", 0) for leaf in leaves(outcome.results))
        return outcome._replace(seconds=outcome.seconds + size / _WEIGHT)

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: `Processes` sends it once, its arrays through shared memory."""
        return _Fetch, (self.fn, self.init, self.number, self.noise)


def _extent(fn: Callable[[Any], Any]) -> int | None:
    return length(getattr(fn, "dataset", None))  # type: ignore[arg-type]  # it need not be a reader


@cache
def _as_begun() -> WorkerInfo | None:
    """What this process was told when it began, where it is a worker."""
    return get_worker_info()


def _tell(fn: Callable[[Any], Any], noise: int | None) -> None:
    """Tells the worker of its data set, one of several perhaps, and of its seed."""
    info = _as_begun()
    if info is not None:
        seed = info.seed if noise is None else noise + info.id
        informed(replace(info, dataset=getattr(fn, "dataset", None), seed=seed))


def _begin(init: Callable[[int], object]) -> bool:
    """Calls the user's function in a worker; whether it seeds the global generators."""
    info = get_worker_info()
    if info is None:
        return False
    try:
        return seeds_itself(partial(init, info.id))
    except Exception as error:
        noted(error, f"raised by {described(init)}({info.id}), the worker_init_fn")
        raise


@op
class _begun(Node[T]):
    """A reader that begins with the user's function."""

    reader: Reader[T]
    mapper: Callable[[Any], Any]
    init: Callable[[int], object] | None
    noise: int | None
    epoch: int

    def start(self, at: Position) -> Pass[T]:
        """That of the reader."""
        _tell(self.mapper, self.noise)
        if self.noise is not None:
            seed_generators(words(self.noise, self.epoch))
        if self.init is not None:
            _begin(self.init)
        with in_epoch(self.epoch):
            return start(self.reader, at)
