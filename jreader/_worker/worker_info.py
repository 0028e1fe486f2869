"""Which worker process this is, if it is one: `get_worker_info`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker process knows of itself, as in torch and Paddle.

    Attributes:
        id: Its number, from 0.
        num_workers: How many there are.
        seed: A number that no other worker has: the `seed` of its `DataLoader` and `id`; without
            one it differs in every run. What a data set draws of NumPy's and Python's global
            generators follows the seed of its loader by itself; elsewhere, let the op hand
            generators out: `Pipeline.map(fn, rng=True)`.
        dataset: This process's copy of the data set, in a loader over one.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any = None


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Returns the number and seed of this worker process; None in the main program.

    >>> get_worker_info() is None
    True
    """
    return _info


def set_worker_info(info: WorkerInfo) -> None:
    """Makes this process a worker: sets what `get_worker_info` returns."""
    global _info  # noqa: PLW0603  # a process is one worker
    _info = info
