"""Worker processes as an executor of `concurrent.futures`."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jreader import errors
from jreader._worker.pickling import pickled_for_worker
from jreader.readers import described
from jreader.workers.processes.pickled_functions import PickledFunction
from jreader.workers.processes.worker_pool import WorkerPool
from jreader.workers.processes.worker_process import TaskFuture

T = TypeVar("T")
P = ParamSpec("P")

_pools: weakref.WeakValueDictionary[tuple[object, ...], WorkerPool] = weakref.WeakValueDictionary()
"""Pools by size, `init` and `sys.path`."""
_pools_lock = threading.RLock()  # guards them; reentrant: gc may run a user's code anywhere


class Processes(Executor):
    """Call functions in worker processes: an executor of `concurrent.futures`.

    Workers start with the first task, and live as long as a `Processes` of that size and `init`
    exists; all of these share the same workers. Workers import neither the main script nor jax,
    unless the function does. A function is sent once, by cloudpickle, when you first submit it, so
    later changes of its state have no effect. Large arrays in results come back through shared
    memory, without a copy; it is released when you drop them.

    >>> with Processes(2) as workers:
    ...     print(list(workers.map(lambda n: n * n, range(4))))
    [0, 1, 4, 9]

    A worker that dies is replaced, and its task is repeated. A running call that you cancel may
    continue for two seconds; then its worker is replaced.

    Args:
        workers: The number of worker processes.
        init: Called in each worker with its number, from 0, before anything else.

    Raises:
        NotImplementedError: On Windows, where a child cannot inherit descriptors; use threads
            there.
    """

    def __init__(self, workers: int, init: Callable[[int], object] | None = None) -> None:
        self.workers = errors.check_number("Processes(workers)", workers, 1)
        if init is not None and not callable(init):
            raise TypeError(f"init of Processes(workers, init) needs a function, not {init!r}.")
        if sys.platform == "win32":
            raise NotImplementedError(
                "worker processes do not run on Windows: use threads there (threads=n)."
            )
        errors.warn_of_many(self.workers, "worker processes", each=4)
        self.init = init
        self._pool: WorkerPool | None = None
        self._latest: PickledFunction | None = None  # the next pass may send the same again
        self._tasks: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._shut = False
        self._alone: list[Executor] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` on the first free worker; return a future.

        Raises:
            RuntimeError: After `shutdown`.
        """
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        pool = self._current_pool()
        function = pool.functions.of(fn)
        with errors.noting(f"the arguments of {described(fn)} cannot be sent to a worker process"):
            arguments = pickled_for_worker((args, kwargs))
        while not pool.submit(task := TaskFuture(pool.wake, function, arguments)):
            pool = self._current_pool()  # for example, `init` failed meanwhile
            function = pool.functions.of(fn)
        self._latest = function
        self._tasks.add(task)
        return task

    def each_alone(self) -> list[Executor]:
        """Return single-worker executors, one for each worker; the same ones every time."""
        if not self._alone:
            begins = (partial(_begin_alone, self.init, number) for number in range(self.workers))
            self._alone = [Processes(1, each) for each in begins]
        return self._alone

    def _current_pool(self) -> WorkerPool:
        if self._pool is None or self._pool.gone:
            begins_with = self.workers, id(self.init), tuple(sys.path)
            with _pools_lock:
                pool = _pools.get(begins_with)
                if pool is None or pool.gone:
                    pool = _pools[begins_with] = WorkerPool(self.workers, self.init, self)
            pool.join(self)  # it may just have ended as idle: then it takes no task
            self._pool = pool
        return self._pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; the workers end with the last `Processes` of that size."""
        self._shut = True
        tasks = list(self._tasks)
        if cancel_futures:
            for task in tasks:
                task.cancel()
        if wait:
            _waited_for(tasks)
        if self._pool is not None:
            self._pool.leave(self)
        self._pool = self._latest = None
        for each in self._alone:
            each.shutdown(wait, cancel_futures=cancel_futures)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was written: elsewhere it has its own workers."""
        return Processes, (self.workers, self.init)

    def __repr__(self) -> str:
        """Show it as it was written."""
        init = f", {described(self.init)}" if self.init else ""
        return f"Processes({self.workers}{init})"


def _begin_alone(init: Callable[[int], object] | None, number: int, _alone: int) -> None:
    if init:
        init(number)


def _forget_pools() -> None:
    """Reset the pools in a fork: they are the parent's, and the lock may be held there."""
    global _pools, _pools_lock  # one per process
    _pools, _pools_lock = weakref.WeakValueDictionary(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _waited_for(tasks: list[Future[Any]]) -> None:
    wait(tasks)
