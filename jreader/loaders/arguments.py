"""The arguments of a loader: attributes to read, and foreign ones of PyTorch and Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from jreader import errors, hints
from jreader.batches import Batching, Engine
from jreader.batches.made_in_workers import check_numbered
from jreader.feeds import data
from jreader.readers import Node, Reader, described
from jreader.readers.seeds import lacks_seed
from jreader.workers.clusters import SharedDask

CAPACITY = 2  # one feed is placed while another one is used

CALL = "DataLoader(dataset, ...)"


class Fixed:
    """A read-only attribute for an argument of a loader.

    Running passes would not notice another value; make another loader for that.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Set the name of the attribute."""
        self.name = name

    def __get__(self, loader: Any, kind: type | None = None) -> Any:
        """Return the value that the loader was made with, or the default."""
        if loader is None:
            return self
        given = vars(loader).get("_given", {})
        if self.name not in given:
            if given.get("dataset") is None and self.name in hints.known_words()["loader"]:
                raise AttributeError(hints.missing_attribute(type(loader), self.name, "loader"))
            reads = "no data set" if given.get("dataset") is None else "a data set"
            raise AttributeError(f"this loader has no {self.name}: it reads {reads}")
        return given[self.name]

    def __set__(self, loader: Any, value: Any) -> NoReturn:
        """Raise AttributeError."""
        raise AttributeError(
            f"{self.name} of a loader cannot be set: make another one, as in DataLoader(dataset, "
            f"{self.name}={described(value)})."
        )


def names_given(kind: type) -> list[str]:
    """Return the names of the read-only arguments of a class of loaders."""
    return [name for name, value in vars(kind).items() if isinstance(value, Fixed)]


_PINNED_MEMORY = "feeds are placed on the devices ahead of the step, and jax stages what it copies"
# arguments of torch and Paddle: the only allowed value, and the reason
_FOREIGN: dict[str, tuple[Any, str]] = {
    "generator": (
        None,
        "an order is a function of seed=, epoch and index, so that a run can be resumed",
    ),
    "pin_memory": (False, _PINNED_MEMORY),
    "pin_memory_device": ("", _PINNED_MEMORY),
    "multiprocessing_context": (
        None,
        "workers are fresh processes, never forked, since a fork of one that runs jax hangs",
    ),
    "in_order": (True, "batches come in their order, for any number of workers"),
    "use_shared_memory": (
        True,
        "large arrays of workers come through memory of their own, and none of /dev/shm",
    ),
}


def capacity_of(capacity: int, foreign: dict[str, Any], known: list[str]) -> int:
    """Return how many feeds to prefetch; check foreign arguments too.

    >>> capacity_of(2, {"pin_memory": False, "use_buffer_reader": False}, [])
    0

    Args:
        capacity: The argument `capacity`.
        foreign: The arguments with names that jreader does not have.
        known: The names that jreader has, for a hint.

    Raises:
        TypeError: An argument is unknown, or its value has no meaning here.
    """
    others = dict(foreign)
    size = others.pop("reader_buffer_size", capacity)
    if size != capacity != CAPACITY:
        raise TypeError(f"{CALL} takes capacity, or Paddle's word reader_buffer_size, not both.")
    size = errors.check_number(f"capacity of {CALL}", size)
    if not errors.check_flag(f"use_buffer_reader of {CALL}", others.pop("use_buffer_reader", True)):
        size = 0
    for name, value in others.items():
        if name not in _FOREIGN:
            instead = hints.accepted_keyword("DataLoader", known, name)
            raise TypeError(f"{CALL} takes no {name}=: {instead}")
        says_nothing, reason = _FOREIGN[name]
        if value is not says_nothing and value != says_nothing:
            raise TypeError(
                f"{name}={described(value)} of {CALL} means nothing here: {reason}. So leave it "
                f"out{', and give seed=' if name == 'generator' else ''}."
            )
    return size


def check_order(batch_size: Any, shuffle: Any, drop_last: Any) -> None:
    """Check that arguments are not in the order of Paddle (dataset, feed_list, places) or torch.

    Raises:
        TypeError: They are; the error says what to type.
    """
    is_fields = isinstance(batch_size, Mapping) or (
        isinstance(batch_size, (list, tuple)) and any(isinstance(each, data) for each in batch_size)
    )
    places = shuffle if isinstance(shuffle, (list, tuple)) else [shuffle]
    if is_fields or (places and all(map(_is_place, places))):
        raise TypeError(
            f"these are arguments in the order of Paddle, where feed_list and places follow the "
            f"data set, and in {CALL} batch_size and shuffle do: type DataLoader(dataset, "
            f"feed_list=feed_list, places=places)."
        )
    if isinstance(drop_last, Node):
        raise TypeError(
            f"these are arguments in the order of torch, where a sampler follows shuffle, and in "
            f"{CALL} drop_last does: type DataLoader(dataset, batch_size, sampler=sampler)."
        )


def checked_workers(
    workers: Any, batches: Reader[Any], *, resident: bool, share: str | None = None
) -> Engine:
    """Return the executor for the argument `workers` of `load`.

    Raises:
        TypeError: It is no executor, or cannot share; or batches cannot be found by number.
        ValueError: The data are already on the devices, or batches to share are not seeded.
    """
    call = "load(workers=...)"
    executor = workers.get_executor() if hasattr(workers, "get_executor") else workers
    if isinstance(workers, type) or not callable(getattr(executor, "submit", None)):
        many = workers if type(workers) is int and workers > 0 else 4
        raise TypeError(
            f"{call} needs workers that make the batches, not {described(workers)}: give "
            f"jreader.Processes({many}), another executor of concurrent.futures, a Dask client, or "
            "jreader.workers.clusters.ray_executor()."
        )
    if resident:
        raise ValueError(
            f"{call} makes feeds ahead of the step, while resident=True puts all data on the "
            "devices before the first one: leave one of them out."
        )
    found = check_numbered(batches)
    if share is None:
        return Engine(executor, {})
    return _shared_workers(executor, found, batches, share)


def _shared_workers(executor: Any, found: Batching, batches: Reader[Any], share: Any) -> Engine:
    """Return the executor that loaders with an equal `share` have in common."""
    call = f"load(workers=..., share={described(share)})"
    client = getattr(executor, "_client", None)  # Dask's
    if not (isinstance(share, str) and share):
        raise TypeError(f"{call} needs the name that other jobs type too: give share='sweep', say.")
    if client is None:
        raise TypeError(
            f"{call} needs a cluster that several programs use, and {described(executor)} is of "
            "this one: give workers=dask.distributed.Client(address), or leave share= out."
        )
    if found.lanes:
        raise TypeError(
            f"{call} needs batches that are found by number, and {described(batches)} reads lanes "
            "in order: leave share= out, or use an indexed source, or .cache(path)."
        )
    if lacks_seed(batches):
        raise ValueError(
            f"{call} needs what other jobs draw too, and {described(batches)} draws other numbers "
            "in each: type seed=0 where it is random."
        )
    return Engine(SharedDask(client), {}, share)


def _is_place(value: Any) -> bool:
    """Return whether a value is a jax device, a sharding, or a Paddle place."""
    kind = type(value).__name__
    return hasattr(value, "platform") or hasattr(value, "device_set") or kind.endswith("Place")
