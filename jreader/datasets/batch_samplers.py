"""Orders of batches: readers of lists of indices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.batches import batch
from jreader.datasets.samplers import (
    Places,
    RandomSampler,
    Sampler,
    SequenceSampler,
    indices_of,
)
from jreader.orders import as_seed
from jreader.readers import Node, Pass, Position, Reader, described, length, start
from jreader.readers.starting import native

T = TypeVar("T")


class BatchSampler(batch[int]):
    """Lists of `batch_size` indices: of a data set, or of a sampler.

    >>> list(BatchSampler("abcde", batch_size=2))
    [[0, 1], [2, 3], [4]]
    >>> BatchSampler(sampler=RandomSampler("abcde", seed=0), batch_size=2, drop_last=True)
    BatchSampler(RandomSampler(data_source=range(0, 5), seed=0), batch_size=2, drop_last=True)

    Args:
        dataset: Anything with a length; or a sampler, as in torch.
        sampler: Instead of a data set: a sampler, or what can be iterated again and again.
        shuffle: Whether the indices of a data set are dealt at random.
        batch_size: Indices per batch.
        drop_last: Whether a last batch with fewer indices is left out.
        seed: An int, or a jax key, fixes the order; epochs vary it. None draws anew for each pass.

    Raises:
        TypeError: There is neither a data set nor a sampler, or both, or one of the wrong kind.
        ValueError: `shuffle` comes with a sampler, which has an order.
    """

    start = batch.start  # no older than `__iter__`

    def __init__(
        self,
        dataset: Any = None,
        sampler: Any = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
        seed: Any = None,
    ) -> None:
        """Refuses what has no indices."""
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
                "BatchSampler(sampler=..., shuffle=True): a sampler has an order. Give it "
                "RandomSampler(dataset), or leave shuffle out."
            )
        if sampler is not None:
            indices = again("BatchSampler(sampler=...)", sampler)
        else:
            indices = RandomSampler(dataset, seed=seed) if shuffle else SequenceSampler(dataset)
        object.__setattr__(self, "reader", indices)
        object.__setattr__(self, "batch_size", batch_size)
        object.__setattr__(
            self, "drop_last", errors.check_flag("drop_last of BatchSampler", drop_last)
        )
        self.__post_init__()

    @property
    def sampler(self) -> Reader[int]:
        """Where its indices come from."""
        return self.reader

    def __setattr__(self, name: str, value: Any) -> None:
        """Is for subclasses: a plan never changes."""
        if type(self) is BatchSampler:
            raise FrozenInstanceError(
                f"a sampler never changes, so {name} cannot be set: make another one, "
                f"BatchSampler(dataset, {name}={value!r})."
            )
        object.__setattr__(self, name, value)

    def written(self, *but: object) -> Iterator[str]:
        """Without `drop_last=False`, which is what a sampler does anyway."""
        return (part for part in super().written(*but) if part != "drop_last=False")

    def __iter__(self) -> Iterator[Any]:
        """Begins a pass."""
        return native(self)


@dataclass(frozen=True, eq=False, repr=False)
class DistributedBatchSampler(Node[list[int]]):
    """The batches of one process among several that train together: as many for each, none shared.

    Batches are dealt round robin. What is left over in the end is split evenly, where indices from
    the beginning fill up; `drop_last` leaves it out instead, so that no index comes twice.

    >>> for rank in range(2):
    ...     print(list(DistributedBatchSampler(range(10), 2, num_replicas=2, rank=rank)))
    [[0, 1], [4, 5], [8]]
    [[2, 3], [6, 7], [9]]

    Args:
        dataset: Anything with a length.
        batch_size: Indices per batch.
        num_replicas: How many processes; None for those of jax (one, where jax is not imported).
        rank: Which of them this is, from 0; None for this process of jax.
        shuffle: Whether the indices are dealt at random: equally, in all processes.
        drop_last: Whether batches are left out that would not be full in all processes.
        seed: An int, or a jax key, fixes the order; epochs vary it.

    Raises:
        TypeError: An argument is of the wrong kind, or `seed` is None: processes would draw apart.
        ValueError: `rank` is not below `num_replicas`.
    """

    dataset: Any
    batch_size: int
    num_replicas: int | None = None
    rank: int | None = None
    shuffle: bool = False
    drop_last: bool = False
    seed: Any = 0
    epoch: int = field(default=0, init=False)
    cursor_ignores: ClassVar[tuple[str, ...]] = ("rank",)  # the cursor of one is that of all

    def __post_init__(self) -> None:
        """Refuses what is no part of a whole."""
        call = "DistributedBatchSampler(...)"
        jax = sys.modules.get("jax")  # a worker process must not import it
        replicas, rank = self.num_replicas, self.rank
        if replicas is None:
            replicas = jax.process_count() if jax else 1
        if rank is None:
            rank = jax.process_index() if jax else 0
        replicas = errors.check_number(f"num_replicas of {call}", replicas, 1)
        rank = errors.check_number(f"rank of {call}", rank)
        if rank >= replicas:
            raise ValueError(
                f"rank of {call} is {rank}, but ranks count from 0 to {replicas - 1}, as "
                f"num_replicas is {replicas}."
            )
        checked = {
            "dataset": indices_of(self, self.dataset),
            "batch_size": errors.check_number(f"batch_size of {call}", self.batch_size, 1),
            "num_replicas": replicas,
            "rank": rank,
            "shuffle": errors.check_flag(f"shuffle of {call}", self.shuffle),
            "drop_last": errors.check_flag(f"drop_last of {call}", self.drop_last),
            "seed": as_seed(self.seed, call),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def start(self, at: Position) -> Pass[list[int]]:
        """The position is the number of indices that are done."""
        return start(self._batches(), at)  # type: ignore[arg-type]  # batches of a list are lists

    def length(self) -> int | None:
        """The number of batches, the same for every rank."""
        return self._batches().length()

    def _batches(self) -> batch[int]:
        return batch(_share(self), self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Begins a pass."""
        return native(self)

    def set_epoch(self, epoch: int) -> NoReturn:
        """Is refused: a sampler never changes, and a loader counts epochs by itself."""
        raise TypeError(
            f"a sampler never changes, so set_epoch({epoch}) cannot be: `for feed in loader` takes "
            f"the next epoch by itself, loader.epoch({epoch}) gives one of them, and without a "
            f"loader there is jreader.at_epoch(sampler, {epoch})."
        )


@dataclass(frozen=True, eq=False, repr=False)
class _share(Sampler[int]):
    """The indices of one rank, batch after batch, as its batch sampler deals them."""

    of: DistributedBatchSampler

    def order(self) -> Callable[[Places], Places]:
        """From places of this rank to places among all, and to indices."""
        of, n = self.of, len(self.of.dataset)
        size, replicas = of.batch_size, of.num_replicas or 1
        whole, rest = self._rounds()
        shared = whole * size
        key = orders.key(of.seed, of.epoch, 1, 0)

        def indices(places: Places) -> Places:
            dealt = (places // size * replicas + (of.rank or 0)) * size + places % size
            left = shared * replicas + (of.rank or 0) * rest + places - shared
            among = np.where(places < shared, dealt, left) % n
            return orders.permutation(among, n, key) if of.shuffle else among

        return indices

    def _rounds(self) -> tuple[int, int]:
        """How many full batches each rank gets, and how many indices after them."""
        of, n = self.of, len(self.of.dataset)
        replicas = of.num_replicas or 1
        whole = of.batch_size * replicas
        if of.drop_last:
            return n // whole, 0
        padded = -(-n // replicas) * replicas
        return padded // whole, padded % whole // replicas

    def length(self) -> int:
        """The share of each rank."""
        whole, rest = self._rounds()
        return whole * self.of.batch_size + rest


@dataclass(frozen=True, eq=False, repr=False)
class _again(Node[T]):
    """What an iterable gives, begun anew in every pass: samplers and streams of other libraries."""

    iterable: Iterable[T]

    def start(self, at: Position) -> Pass[T]:
        """The position is the number of items that are done; they are given once more."""
        return start(self.iterable.__iter__, at)

    def length(self) -> int | None:
        """That of the iterable, if it tells."""
        return length(self.iterable)  # type: ignore[arg-type]  # it need not be called for that

    def __repr__(self) -> str:
        """What kind of iterable."""
        return type(self.iterable).__name__


def again(call: str, items: Any) -> Reader[Any]:
    """A reader of what can be iterated again and again; a reader is one.

    >>> list(again("DataLoader(batch_sampler=...)", [[0, 1], [2]])())
    [[0, 1], [2]]

    Raises:
        TypeError: It cannot be iterated, or once only.
    """
    if isinstance(items, Node):
        return items
    if hasattr(items, "__next__"):
        raise TypeError(
            f"{call} can be read once only, and every epoch reads it: give a list, a sampler, or "
            f"the generator function itself, not the {type(items).__name__} it returned."
        )
    if hasattr(items, "__iter__"):
        return _again(items)
    if callable(items):
        return items  # type: ignore[no-any-return]  # a plain function is a reader
    raise TypeError(
        f"{call} needs what can be iterated again and again, not the {type(items).__name__} "
        f"{described(items)}: give a list, or a sampler."
    )
