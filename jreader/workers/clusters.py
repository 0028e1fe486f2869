"""Clusters as executors, for `map(fn, executor=...)`: Ray.

Dask has an executor of its own: `distributed.Client(...).get_executor()`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


def ray_executor(**options: Any) -> Executor:
    """An executor over the Ray cluster of this program, or over a local one that it starts.

    A function goes to the cluster once, not with every task, and what is sent back is read where it
    lies in this machine's object store: such arrays are read-only.

    >>> ray_executor(num_cpus=2)  # doctest: +SKIP
    <ray_executor of 8 tasks>

    Args:
        **options: What `ray.remote` takes: what a task needs (`num_cpus=2`, `resources=...`). Tasks
            that lose their node are not tried again by Ray (`max_retries=0`), since who waits for
            them does it, and knows when to stop.

    Raises:
        ModuleNotFoundError: Ray is not installed.
    """
    try:
        import ray  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        error.add_note("ray_executor needs Ray: python -m pip install 'jreader[ray]'")
        raise
    if not ray.is_initialized():
        ray.init(include_dashboard=False)
    each = options.get("num_cpus", 1) or 1
    workers = max(1, int(ray.cluster_resources().get("CPU", 1) / each))
    return _RayExecutor(ray, workers, {"max_retries": 0, **options})


class _RayExecutor(Executor):
    def __init__(self, ray: Any, workers: int, options: dict[str, Any]) -> None:
        self.ray, self.workers = ray, workers
        self.call = ray.remote(**options)(_called)
        self.sent: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Has `fn(*args, **kwargs)` called on the cluster."""
        if fn not in self.sent:
            self.sent[fn] = self.ray.put(fn)
        reference = self.call.remote(self.sent[fn], args, kwargs)
        future: Future[Any] = reference.future()

        def ended(future: Future[Any]) -> None:
            if future.cancelled():
                self.ray.cancel(reference)

        future.add_done_callback(ended)
        return future

    def __repr__(self) -> str:
        return f"<ray_executor of {self.workers} tasks>"


def _called(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)
