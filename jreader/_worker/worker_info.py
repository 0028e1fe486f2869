"""Which worker process this is, if any: `get_worker_info`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """The identity of a worker process, as in torch and Paddle.

    Attributes:
        id: Its number, from 0.
        num_workers: The number of workers.
        seed: A number that no other worker has: the `seed` of its `DataLoader` plus `id`; without a
            seed it differs in every run. A data set's draws from NumPy's and Python's global
            generators follow the loader's seed by themselves; elsewhere, let the op make
            generators: `Pipeline.map(fn, rng=True)`.
        dataset: This process's copy of the data set, in a loader over one.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any = None


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return the number and seed of this worker process; None in the main program.

    >>> get_worker_info() is None
    True
    """
    return _info


def set_worker_info(info: WorkerInfo) -> None:
    """Make this process a worker: set what `get_worker_info` returns."""
    global _info  # noqa: PLW0603  # a process is one worker
    _info = info
