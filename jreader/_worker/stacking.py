"""Where this code runs: in which worker, if in one, and where arrays belong that will be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader._worker.shared_memory import Blocks
from jreader.readers import branches, leaves, rebuilt, same_structure
from jreader.readers.trees import restores
from jreader.staging import Array

_LARGE = 4096  # bytes of a leaf; smaller ones are quicker stacked all at once


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


blocks: Blocks | None = None  # of this process, where it is a worker
_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What this worker process is, or None where the program itself runs.

    >>> get_worker_info() is None
    True
    """
    return _info


def informed(info: WorkerInfo) -> None:
    """Says what this process is."""
    global _info  # noqa: PLW0603  # a process is one worker
    _info = info


def array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array with anything in it; in a worker one that need not be copied to be sent."""
    room = blocks.array(shape, dtype) if blocks is not None else None
    return np.empty(shape, dtype) if room is None else room


def stacked_in_shared_memory(values: Sequence[Any]) -> Array | None:
    """The stacked arrays of one shape and dtype, in a worker, where they are sent from.

    None where they are no such arrays, or few, or this is no worker: stack them elsewhere then.
    """
    first = values[0]
    if blocks is None or type(first) is not np.ndarray:
        return None
    room = blocks.array((len(values), *first.shape), first.dtype)
    if room is None:
        return None
    try:
        return np.stack(values, out=room, casting="no")
    except (TypeError, ValueError):
        return None


def map_and_stack(
    make: Callable[[Any], Any],
    items: Sequence[Any],
    column: Callable[[Sequence[Any], str], Any] | None = None,
) -> tuple[Any, list[Any] | None]:
    """What `make` gives for each item, stacked: each large array is copied once, when it is made.

    In a worker its place is in shared memory, so that it is never copied again.

    >>> (image, label), samples = map_and_stack(lambda n: (np.full(9999, n), n), range(3))
    >>> image.shape, label.tolist(), samples
    ((3, 9999), [0, 1, 2], None)

    Samples that are not alike, have no large arrays, or are of containers of the user's own, are
    given as they are.

    >>> map_and_stack(lambda n: (n, "a"), range(2))
    (None, [(0, 'a'), (1, 'a')])

    Args:
        make: Gives a sample of an item.
        items: What samples are made of, at least one.
        column: Stacks the values of a small leaf, whose name it is given for its errors; None
            stacks numbers, and takes samples with anything else in them for not alike.

    Returns:
        The tree of stacked arrays and None; or None and the list of samples.
    """
    first = make(items[0])
    slots = _Slots(first, len(items))
    if not (slots.large and restores(first)):
        return None, [first, *map(make, items[1:])]
    for row, item in enumerate(items[1:], 1):
        sample = make(item)
        if not slots.put(row, sample):
            return None, [*map(slots.sample, range(row)), sample, *map(make, items[row + 1 :])]
    try:
        return slots.stacked(column or _numbers), None
    except NotAlikeError:
        return None, [*map(slots.sample, range(len(items)))]


class NotAlikeError(Exception):
    """Values that make no column of numbers."""


def _numbers(values: Sequence[Any], _name: str) -> Array:
    try:
        made = np.asarray(values)
    except ValueError:
        raise NotAlikeError from None
    if made.dtype.kind not in "biufc":
        raise NotAlikeError
    return made


class _Slots:
    """The leaves of samples: large arrays in one with a row for each sample, others in lists."""

    def __init__(self, first: Any, rows: int) -> None:
        self.first, self.columns = first, [_slot(leaf, rows) for leaf in leaves(first)]
        self.large = any(isinstance(column, np.ndarray) for column in self.columns)
        if self.large:
            self.put(0, first)

    def put(self, row: int, sample: Any) -> bool:
        """Takes a sample; false, and nothing taken, where it is not like the first."""
        if not same_structure(self.first, sample):
            return False
        pairs = list(zip(self.columns, leaves(sample), strict=True))
        if not all(_fits(column, leaf) for column, leaf in pairs):
            return False
        for column, leaf in pairs:
            if isinstance(column, list):
                column.append(leaf)
            else:
                column[row] = leaf
        return True

    def sample(self, row: int) -> Any:
        """One that was taken."""
        return rebuilt(self.first, (column[row] for column in self.columns))

    def stacked(self, column: Callable[[Sequence[Any], str], Any]) -> Any:
        """The tree of all."""
        made = (
            column(slot, name) if isinstance(slot, list) else slot
            for slot, name in zip(self.columns, _names(self.first, "a sample"), strict=True)
        )
        return rebuilt(self.first, made)


def _slot(leaf: Any, rows: int) -> Any:
    if type(leaf) is not np.ndarray or leaf.nbytes < _LARGE or leaf.dtype.hasobject:
        return []
    return array((rows, *leaf.shape), leaf.dtype)


def _fits(column: Any, leaf: Any) -> bool:
    if isinstance(column, list):
        return True
    return (
        type(leaf) is np.ndarray and leaf.dtype == column.dtype and leaf.shape == column.shape[1:]
    )


def _names(tree: Any, name: str) -> Iterator[str]:
    parts = branches(tree)
    if parts is None:
        yield name
    else:
        for key, part in parts.items():
            yield from _names(part, f"{name}[{key!r}]")
