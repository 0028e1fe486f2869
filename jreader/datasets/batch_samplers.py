"""Batch samplers: readers of lists of indices, one list per batch of a data set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, field
from typing import Any, NoReturn, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.batches import batch
from jreader.datasets.samplers import IntArray, RandomSampler, Sampler, SequenceSampler, indices_of
from jreader.orders import random_seed
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    described,
    flag,
    length,
    op,
    set_fields,
    start,
    whole,
)
from jreader.readers.starting import native

T = TypeVar("T")


class BatchSampler(batch[int]):
    """Yield lists of `batch_size` indices from a data set or a sampler.

    >>> list(BatchSampler("abcde", batch_size=2))
    [[0, 1], [2, 3], [4]]
    >>> BatchSampler(sampler=RandomSampler("abcde", seed=0), batch_size=2, drop_last=True)
    BatchSampler(RandomSampler(data_source=range(0, 5), seed=0), batch_size=2, drop_last=True)

    Args:
        dataset: Anything with a length; or a sampler, as in PyTorch.
        sampler: Instead of a data set: a sampler, a list of indices, or any other iterable that can
            be iterated more than once.
        shuffle: Whether to shuffle the indices of the data set.
        batch_size: The number of indices per batch.
        drop_last: Whether to drop an incomplete last batch.
        seed: An int or a jax key fixes the order, and each epoch has its own. None draws a new
            order for every pass.

    Raises:
        TypeError: Both a data set and a sampler are given, or neither, or one of the wrong type.
        ValueError: `shuffle` is given with a sampler, which has its own order.
    """

    start = batch.start  # so that `__iter__` here does not count as overriding it

    def __init__(
        self,
        dataset: Any = None,
        sampler: Any = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
        seed: Any = None,
    ) -> None:
        if isinstance(sampler, int):  # torch's order: sampler, batch_size, drop_last
            dataset, sampler, batch_size = None, dataset, sampler
            shuffle, drop_last = False, drop_last or shuffle
        if isinstance(dataset, Sampler):
            dataset, sampler = sampler, dataset
        if (dataset is None) == (sampler is None):
            seen = "neither" if dataset is None else "both"
            raise TypeError(
                f"BatchSampler(...) needs a data set or a sampler, not {seen}: type "
                f"BatchSampler(sampler=sampler, batch_size=2)."
            )
        if errors.check_flag("shuffle of BatchSampler(...)", shuffle) and sampler is not None:
            raise ValueError(
                "BatchSampler(sampler=..., shuffle=True): a sampler has an order of its own. Give "
                "sampler=RandomSampler(dataset), or leave shuffle out."
            )
        if sampler is not None:
            indices = reiterable("BatchSampler(sampler=...)", sampler)
        else:
            indices = RandomSampler(dataset, seed=seed) if shuffle else SequenceSampler(dataset)
        full = errors.check_flag("drop_last of BatchSampler", drop_last)
        set_fields(self, reader=indices, batch_size=batch_size, drop_last=full)
        self.__post_init__()

    @property
    def sampler(self) -> Reader[int]:
        """The sampler that the indices come from."""
        return self.reader

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise FrozenInstanceError; only subclasses may have mutable attributes."""
        if type(self) is BatchSampler:
            raise FrozenInstanceError(
                f"a sampler never changes, so {name} cannot be set: make another one, "
                f"BatchSampler(dataset, {name}={value!r})."
            )
        set_fields(self, **{name: value})

    def written(self, *but: object) -> Iterator[str]:
        """Yield the arguments for the repr, without `drop_last=False`, the default here."""
        return (part for part in super().written(*but) if part != "drop_last=False")

    def __iter__(self) -> Iterator[Any]:
        """Start a pass over the batches."""
        return native(self)


@op
class DistributedBatchSampler(Node[list[int]]):
    """Yield one process's share of the batches of a data set, for distributed training.

    Every process gets the same number of batches. Full batches go to the processes in turn. The
    indices left over at the end are padded with indices from the beginning, and split evenly; with
    `drop_last` they are dropped instead, so that no index comes twice.

    >>> for rank in range(2):
    ...     print(list(DistributedBatchSampler(range(10), 2, num_replicas=2, rank=rank)))
    [[0, 1], [4, 5], [8]]
    [[2, 3], [6, 7], [9]]

    Args:
        dataset: Anything with a length.
        batch_size: The number of indices per batch.
        num_replicas: The number of processes; None for `jax.process_count()`, or 1 if jax is not
            imported.
        rank: The number of this process, from 0; None for `jax.process_index()`.
        shuffle: Whether to shuffle the indices, in the same order on all processes.
        drop_last: Whether to drop batches that would not be full on all processes.
        seed: An int or a jax key fixes the order, and each epoch has its own.

    Raises:
        TypeError: An argument has the wrong type; or `seed` is None: each process would draw a
            different order.
        ValueError: `rank` is not below `num_replicas`.
    """

    dataset: Any = argument(indices_of)
    batch_size: int = whole(least=1)
    num_replicas: int | None = whole(default=None, least=1)
    rank: int | None = whole(default=None, cursor="never")  # all processes share one cursor
    shuffle: bool = flag(default=False)
    drop_last: bool = flag(default=False)
    seed: Any = random_seed(default=0)
    epoch: int = field(default=0, init=False)

    def check_arguments(self) -> dict[str, Any]:
        """Get the process from jax if necessary."""
        jax = sys.modules.get("jax")  # a worker process must not import it
        replicas, rank = self.num_replicas, self.rank
        if replicas is None:
            replicas = jax.process_count() if jax else 1
        if rank is None:
            rank = jax.process_index() if jax else 0
        if rank >= replicas:
            raise ValueError(
                f"rank of DistributedBatchSampler(...) is {rank}, but ranks count from 0 to "
                f"{replicas - 1}, as num_replicas is {replicas}."
            )
        return {"num_replicas": replicas, "rank": rank}

    def start(self, at: Position) -> Pass[list[int]]:
        """Start a pass; its position is the number of indices yielded."""
        return start(self._batches(), at)

    def length(self) -> int | None:
        """Return the number of batches, the same for every rank."""
        return self._batches().length()

    def _batches(self) -> Node[Any]:
        return batch(_share(self), self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Start a pass over the batches."""
        return native(self)

    def set_epoch(self, epoch: int) -> NoReturn:
        """Raise TypeError: a sampler never changes, and a loader counts epochs by itself."""
        raise TypeError(
            f"a sampler never changes, so it has no set_epoch({epoch}): each `for feed in loader` "
            f"is the next epoch, loader.epoch({epoch}) is this one, and without a loader type "
            f"jreader.at_epoch(sampler, {epoch})."
        )


@op
class _share(Sampler[int]):
    """Yield the indices of one process, batch by batch."""

    of: DistributedBatchSampler

    def order(self) -> Callable[[IntArray], IntArray]:
        """Return a function from positions of this process to positions among all, and indices."""
        of, n = self.of, len(self.of.dataset)
        size, replicas = of.batch_size, of.num_replicas or 1
        whole, rest = self._rounds()
        shared = whole * size
        key = orders.key(of.seed, of.epoch, 1, 0)

        def indices(positions: IntArray) -> IntArray:
            in_turn = (positions // size * replicas + (of.rank or 0)) * size + positions % size
            left = shared * replicas + (of.rank or 0) * rest + positions - shared
            among = np.where(positions < shared, in_turn, left) % n
            return orders.permutation(among, n, key) if of.shuffle else among

        return indices

    def _rounds(self) -> tuple[int, int]:
        """Return the number of full batches of each process, and of indices after them."""
        of, n = self.of, len(self.of.dataset)
        replicas = of.num_replicas or 1
        whole = of.batch_size * replicas
        if of.drop_last:
            return n // whole, 0
        padded = -(-n // replicas) * replicas
        return padded // whole, padded % whole // replicas

    def length(self) -> int:
        """Return the number of indices of each process."""
        whole, rest = self._rounds()
        return whole * self.of.batch_size + rest


@op
class _again(Node[T]):  # this name stands in stored cursors
    """Iterate an iterable again in every pass, such as a sampler of another library."""

    iterable: Any

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is the number of items; resuming iterates them again."""
        return start(self.iterable.__iter__, at)

    def length(self) -> int | None:
        """Return the length of the iterable, if it has one."""
        return length(self.iterable)

    def __repr__(self) -> str:
        """Return the class name of the iterable."""
        return type(self.iterable).__name__


def reiterable(call: str, items: Any, *, checked: bool = False) -> Reader[Any]:
    """Return a reader of an iterable that can be iterated more than once; return readers unchanged.

    Iterators usually cannot be, so they are rejected, unless `checked` says that it is a data set.

    >>> list(reiterable("DataLoader(batch_sampler=...)", [[0, 1], [2]])())
    [[0, 1], [2]]

    Raises:
        TypeError: It cannot be iterated, or only once.
    """
    if isinstance(items, Node):
        return items
    if hasattr(items, "__next__") and not checked:
        raise TypeError(
            f"{call} can be read only once, and every epoch reads it: give a list, a sampler, or "
            f"the generator function itself, not the {type(items).__name__} that it returned."
        )
    if hasattr(items, "__iter__"):
        return _again(items)
    if not callable(items):
        raise TypeError(
            f"{call} needs an iterable that every epoch can read, not the {type(items).__name__} "
            f"{described(items)}: give a list, or a sampler."
        )
    reader: Reader[Any] = items
    return reader
