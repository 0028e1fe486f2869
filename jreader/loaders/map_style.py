"""`DataLoader(dataset)`: batches of indices, whose samples are fetched, collated and placed.

A data set has no engine of its own: it is read as `fetch_batches(collation, batches of indices)`, a
plan like every other, so that epochs, seeds and cursors reach its samplers. Only its feeds differ:
strings, and whatever else a device cannot hold, stay in them on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jreader import errors
from jreader.batches import batch
from jreader.datasets.batch_samplers import BatchSampler, again
from jreader.datasets.fetching import check_dataset, is_stream
from jreader.datasets.samplers import RandomSampler, SequenceSampler
from jreader.feeds.collations import Collation, check_optional
from jreader.orders import as_seed
from jreader.readers import Reader, described
from jreader.workers import fetch_batches

_CALL = "DataLoader(dataset, ...)"


def indices(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool,
    drop_last: bool,
    sampler: Any,
    batch_sampler: Any,
    seed: Any,
    num_workers: int,
) -> Reader[Any]:
    """A reader of what to fetch: lists of indices (of a stream: samples), or single ones.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: Arguments contradict one another.
    """
    check_dataset(_CALL, dataset)
    errors.check_flag(f"shuffle of {_CALL}", shuffle)
    errors.check_flag(f"drop_last of {_CALL}", drop_last)
    ours = None if num_workers else seed  # with workers, a seed alone seeds their generators
    _check_together(dataset, batch_size, shuffle, drop_last, sampler, batch_sampler, ours)
    if batch_sampler is not None:
        return again(f"batch_sampler of {_CALL}", batch_sampler)
    if batch_size is not None:
        batch_size = errors.check_number(f"batch_size of {_CALL}", batch_size, 1)
    if is_stream(dataset):
        samples = again(f"dataset of {_CALL}", dataset, checked=True)
        return samples if batch_size is None else batch(samples, batch_size, drop_last)
    if sampler is not None:
        order = again(f"sampler of {_CALL}", sampler)
    else:
        order = RandomSampler(dataset, seed=seed) if shuffle else SequenceSampler(dataset)
    if batch_size is None:
        return order
    return BatchSampler(sampler=order, batch_size=batch_size, drop_last=drop_last)


def sampler_of(asked: Reader[Any], dataset: Any) -> Any:
    """The sampler of a data set; None for an `IterableDataset`."""
    return None if is_stream(dataset) else getattr(asked, "sampler", asked)


def _check_together(
    dataset: Any,
    batch_size: Any,
    shuffle: bool,
    drop_last: bool,
    sampler: Any,
    batch_sampler: Any,
    seed: Any,
) -> None:
    """Raises ValueError if arguments contradict each other."""
    given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    orders = [name for name, value in given.items() if value is not None]
    if is_stream(dataset) and orders:
        raise ValueError(
            f"{orders[0]} of {_CALL} needs indices, and {described(dataset)} is read from its "
            f"beginning: leave it out, or shuffle in windows, as in "
            f"Pipeline(lambda: iter(dataset)).shuffle(1000).batch(32).load()."
        )
    if batch_sampler is not None and (batch_size != 1 or shuffle or drop_last or seed is not None):
        raise ValueError(
            f"{_CALL} takes batch_sampler, or batch_size, shuffle, drop_last and seed, not both: "
            f"give them to BatchSampler(dataset, ...)."
        )
    if len(orders) > 1:
        raise ValueError(
            f"{_CALL} takes {orders[0]} or {orders[1]}, not both: a sampler has an order. Leave "
            f"{orders[0]} out, or shuffle in the sampler, as RandomSampler(dataset, seed=0) does."
        )
    if batch_size is None and drop_last:
        raise ValueError(f"{_CALL} makes no batches with batch_size=None: leave drop_last out.")


def in_processes(
    collation: Collation,
    asked: Reader[Any],
    num_workers: int,
    timeout: float,
    worker_init_fn: Callable[[int], object] | None,
    persistent_workers: bool,
    prefetch_factor: int | None,
    seed: Any,
) -> Reader[Any]:
    """A reader of host feeds: the batches of indices, fetched and collated, in their order.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is negative.
    """
    errors.check_flag(f"persistent_workers of {_CALL}", persistent_workers)
    workers = errors.check_number(f"num_workers of {_CALL}", num_workers)
    timeout = errors.check_seconds(f"timeout of {_CALL}", timeout)
    check_optional("worker_init_fn", worker_init_fn)
    if prefetch_factor is not None:
        call = f"prefetch_factor of {_CALL}"
        prefetch_factor = errors.check_number(call, prefetch_factor, 1)
        if not workers:
            raise ValueError(
                f"{call} counts batches for each worker, and num_workers is 0: give capacity=, "
                f"which counts feeds, or leave it out."
            )
    read_in_worker = is_stream(collation.dataset)
    global_seed = None if seed is None else as_seed(seed, _CALL)
    return fetch_batches(
        collation,
        asked,
        workers,
        timeout,
        worker_init_fn,
        persistent_workers,
        read_in_worker,
        prefetch_factor,
        global_seed if workers else None,
    )
