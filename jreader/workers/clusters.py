"""Clusters as executors for `map(fn, executor=...)`, such as Ray; and detecting that one is gone.

Dask has its own executor: `distributed.Client(...).get_executor()`.

A task of a cluster that is gone never ends, and raises nothing. So the thread that waits for one
asks the cluster now and then.
"""

from __future__ import annotations

import json
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Container
from concurrent.futures import Executor, Future
from typing import Any

from jreader.extras import extra


def ray_executor(**options: Any) -> Executor:
    """Return an executor on the Ray cluster of this program, or on a local one that it starts.

    A function goes to the cluster once, not with every task. Results are read in place from this
    machine's object store: their arrays are read-only.

    >>> ray_executor(num_cpus=2)  # doctest: +SKIP
    <ray_executor of 8 tasks>

    Args:
        **options: Options of `ray.remote`, such as the needs of a task (`num_cpus=2`,
            `resources=...`). Ray does not retry tasks that lose their node (`max_retries=0`):
            jreader does, and knows when to stop.

    Raises:
        ModuleNotFoundError: Ray is not installed.
    """
    ray = extra("ray", "ray", "ray_executor needs Ray")
    if not ray.is_initialized():
        ray.init(include_dashboard=False)
    each = options.get("num_cpus", 1) or 1
    workers = max(1, int(ray.cluster_resources().get("CPU", 1) / each))
    return _RayExecutor(ray, workers, {"max_retries": 0, **options})


class _RayExecutor(Executor):
    def __init__(self, ray: Any, workers: int, options: dict[str, Any]) -> None:
        self.ray, self.workers = ray, workers
        self.options, self.alone = options, list[Executor]()
        self.call = ray.remote(**options)(_call_there)
        self.sent: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()
        self.session = self._session()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, **kwargs)` on the cluster.

        Raises:
            RuntimeError: Ray was shut down; a call would start another cluster.
        """
        if why := self.gone():
            raise RuntimeError(why)
        if fn not in self.sent:
            self.sent[fn] = self.ray.put(fn)
        reference = self.call.remote(self.sent[fn], args, kwargs)
        future: Future[Any] = reference.future()

        def ended(future: Future[Any]) -> None:
            if future.cancelled() and not self.gone():
                self.ray.cancel(reference)

        future.add_done_callback(ended)
        return future

    def each_alone(self) -> list[Executor]:
        """Return single-process executors, one for each worker; the same ones every time."""
        self.alone = self.alone or [_RayActor(self) for _ in range(self.workers)]
        return self.alone

    def gone(self) -> str:
        """Return why it can run no more tasks; "" if it can."""
        if not self.ray.is_initialized():
            return "Ray was shut down"
        same = self._session() == self.session
        return "" if same else "Ray was shut down, and started again"

    def _session(self) -> tuple[str, str]:
        here = self.ray.get_runtime_context()
        return here.get_node_id(), here.get_job_id()

    def __repr__(self) -> str:
        return f"<ray_executor of {self.workers} tasks>"


class _RayActor(_RayExecutor):
    """An executor of one process, which keeps the state of tasks; a lost one is replaced."""

    def __init__(self, executor: _RayExecutor) -> None:
        vars(self).update(vars(executor))
        of_tasks = ("max_retries", "retry_exceptions", "max_calls")
        options = {name: each for name, each in self.options.items() if name not in of_tasks}
        self.kind = self.ray.remote(**{"max_restarts": 0, **options})(_Caller)
        self.workers, self.call = 1, None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, **kwargs)` in that process."""
        self.call = self.call or self.kind.remote().called
        future, lost = super().submit(fn, *args, **kwargs), self.ray.exceptions.RayActorError

        def ended(future: Future[Any]) -> None:
            if not future.cancelled() and isinstance(future.exception(), lost):
                self.call = None

        future.add_done_callback(ended)
        return future


class _Caller:
    def called(self, *given: Any) -> Any:
        return _call_there(*given)


def _call_there(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


class _DaskWorker(Executor):
    """An executor on one worker of a Dask cluster; on another one, once that is lost.

    Dask forgets a task bound to a worker that is gone, if there was no other worker just then.
    """

    def __init__(self, executor: Any, client: Any, number: int) -> None:
        self._executor, self._client, self._number = executor, client, number
        self._address, self._latest = "", Future[Any]()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, **kwargs)` on that worker."""
        if not self._address and (workers := sorted(self._client.nthreads())):
            self._address = workers[self._number % len(workers)]
        there = {"workers": [self._address], "allow_other_workers": True} if self._address else {}
        self._latest = self._executor.submit(fn, *args, **kwargs, **there)
        self._latest.add_done_callback(self._ended)
        return self._latest

    def _ended(self, future: Future[Any]) -> None:
        if future.cancelled() or future.exception():
            self._address = ""

    def keep_to(self, workers: Container[str]) -> None:
        """Cancel a task bound to a lost worker, so that it is sent again."""
        if self._address and self._address not in workers:
            self._latest.cancel()


_MAX_LAG = 64  # batches that one program may be behind another and still share results


class SharedDask(Executor):
    """An executor on a Dask cluster: programs that submit the same task share its result.

    They do as long as one of them holds the result: each holds those of its latest tasks.
    """

    def __init__(self, client: Any) -> None:
        self._client, self._tries = client, Counter[str]()
        self._held = deque[Any](maxlen=_MAX_LAG + 2 * sum(client.nthreads().values()))

    def submit(self, fn: Any, /, *args: Any, **_kwargs: Any) -> Future[Any]:
        """Run a `MapTask`, whose results are shared with any equal one with its `share`."""
        (given,) = args
        key = f"jreader {fn.share} {json.dumps(given.items)} {bool(fn.function_pickle)}"
        lasting = self._client.submit(fn, given, key=f"{key} {self._tries[key]}")
        self._held.append(lasting)
        made: Future[Any] = Future()

        def done(_future_kept: Any) -> None:
            if not made.set_running_or_notify_cancel():
                return
            try:
                made.set_result(lasting.result())
            except BaseException as error:  # the cluster's error: errors of tasks are results
                self._tries[key] += 1
                made.set_exception(error)

        lasting.add_done_callback(done)
        return made


def dask_workers(executor: Executor, client: Any) -> list[Executor]:
    """Return an executor per thread of the workers of a Dask cluster, at least one."""
    threads = sum(client.nthreads().values())
    return [_DaskWorker(executor, client, number) for number in range(threads or 1)]


_MAX_IDLE = 60.0  # seconds that a Dask cluster may be without workers, after it had some


class ClusterWatch:
    """Checks whether the cluster of an executor is gone.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> ClusterWatch(ThreadPoolExecutor(1)).known
    False

    Attributes:
        known: Whether the executor is Dask's or Ray's; for others the future reports a loss.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor: Any = executor
        self._client: Any = getattr(executor, "_client", None)  # Dask's
        self.known = isinstance(executor, _RayExecutor) or hasattr(self._client, "scheduler")
        self._had_workers, self._alone_since = False, 0.0

    def gone(self, *, asking: bool = True) -> str:
        """Return why none of its tasks will finish; "" if they may.

        Args:
            asking: Whether to ask the cluster for its workers, which takes a moment.
        """
        if isinstance(self._executor, _RayExecutor):
            return self._executor.gone()
        status = getattr(self._client, "status", "running")
        if status != "running":  # it would look for its scheduler for minutes
            return f"its Dask client has no scheduler any more: it is {status!r}"
        return self._why_no_workers() if self.known and asking else ""

    def _why_no_workers(self) -> str:
        """Return why a Dask cluster counts as gone: its workers left long ago; "" otherwise."""
        client, now = self._client, time.monotonic()
        try:
            workers = client.sync(client.scheduler.ncores_running, callback_timeout=5)
        except Exception:  # busy, or shutting down: check its status
            return ""
        if isinstance(self._executor, _DaskWorker):
            self._executor.keep_to(workers)
        if workers:
            self._had_workers, self._alone_since = True, 0.0
        elif self._had_workers:
            self._alone_since = self._alone_since or now
            if now - self._alone_since > _MAX_IDLE:
                return f"its Dask cluster has had no worker for {_MAX_IDLE:.0f} s"
        return ""
