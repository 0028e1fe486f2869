"""`DataLoader(dataset)`: batches of indices, whose samples are fetched, collated and placed.

A data set has no engine of its own: it is read as `fetch_batches(collation, batches of indices)`, a
plan like every other, so that epochs, seeds and cursors reach its samplers. Only its feeds differ:
strings, and whatever else a device cannot hold, stay on the host.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jreader import errors
from jreader.batches import batch
from jreader.datasets.batch_samplers import BatchSampler, reiterable
from jreader.datasets.fetching import check_dataset, is_stream
from jreader.datasets.samplers import RandomSampler, SequenceSampler
from jreader.devices import sharding_placement
from jreader.feeds.collations import Collation, check_optional
from jreader.loaders.arguments import CALL
from jreader.orders import as_seed
from jreader.readers import Reader, described
from jreader.workers import fetch_batches


class DatasetArguments(SimpleNamespace):
    """The arguments of `DataLoader(dataset, ...)`, by name, and what follows from them."""

    batch_size: Any
    sampler: Any
    batch_sampler: Any

    def batches(self) -> Reader[Any]:
        """Return a reader of host feeds, and set the arguments as the loader shows them.

        Raises:
            TypeError: An argument is of the wrong kind.
            ValueError: Arguments contradict each other, or a number is too small.
        """
        batched = self.batch_size is not None or self.batch_sampler is not None
        collation = Collation(
            self.dataset, batched, self.collate_fn, self.feed_list, self.return_list
        )
        asked = self._indices()
        batches = self._fetched(collation, asked)
        if self.sampler is None and not is_stream(self.dataset):
            self.sampler = getattr(asked, "sampler", asked)
        if self.batch_sampler is not None:
            self.batch_size = None
        if isinstance(asked, BatchSampler):
            self.batch_sampler = asked
        return batches

    def placed(self) -> Any:
        """Return where feeds go: `places`, or `sharding` as in `Pipeline.load`.

        Raises:
            TypeError: Both are given, or `sharding` is not a place.
            ValueError: `sharding` depends on a mesh that is not set, or has several axes.
        """
        if self.sharding is None:
            return self.places
        if self.places is not None:
            raise TypeError(f"{CALL} takes sharding or places, not both: leave one of them out.")
        sharding_placement(self.sharding)
        return self.sharding

    def _indices(self) -> Reader[Any]:
        """Return a reader of what to fetch: lists of indices (of a stream: samples), or single."""
        dataset, size = self.dataset, self.batch_size
        check_dataset(CALL, dataset)
        _check_is_rows(dataset)
        errors.check_flag(f"shuffle of {CALL}", self.shuffle)
        self._check_orders()
        if self.batch_sampler is not None:
            return reiterable(f"batch_sampler of {CALL}", self.batch_sampler)
        if size is not None:
            size = errors.check_number(f"batch_size of {CALL}", size, 1)
        elif self.drop_last:
            raise ValueError(f"{CALL} makes no batches with batch_size=None: leave drop_last out.")
        if is_stream(dataset):
            samples = reiterable(f"dataset of {CALL}", dataset, checked=True)
            return samples if size is None else batch(samples, size, self.drop_last)
        if self.sampler is not None:
            order = reiterable(f"sampler of {CALL}", self.sampler)
        else:
            shuffled = self.shuffle
            order = RandomSampler(dataset, seed=self.seed) if shuffled else SequenceSampler(dataset)
        if size is None:
            return order
        return BatchSampler(sampler=order, batch_size=size, drop_last=self.drop_last)

    def _check_orders(self) -> None:
        """Raise ValueError if arguments ask for two orders, or for an impossible one."""
        orders = [name for name in ("sampler", "batch_sampler") if vars(self)[name] is not None]
        orders = ["shuffle"] * bool(self.shuffle) + orders
        if orders and is_stream(self.dataset):
            raise ValueError(
                f"{orders[0]} of {CALL} needs indices, and {described(self.dataset)} is read from "
                f"its beginning: leave it out, or shuffle in windows, as in "
                f"Pipeline(lambda: iter(dataset)).shuffle(1000).batch(32).load()."
            )
        # with workers, a seed also seeds their generators
        seeds = self.seed is not None and not self.num_workers
        of_batches = self.batch_size != 1, self.shuffle, self.drop_last, seeds
        if self.batch_sampler is not None and any(of_batches):
            raise ValueError(
                f"{CALL} takes batch_sampler, or batch_size, shuffle, drop_last and seed, not "
                f"both: give them to BatchSampler(dataset, ...)."
            )
        if len(orders) > 1:
            raise ValueError(
                f"{CALL} takes {orders[0]} or {orders[1]}, not both: a sampler has an order. Leave "
                f"{orders[0]} out, or shuffle in the sampler, as RandomSampler(dataset, seed=0) "
                f"does."
            )

    def _fetched(self, collation: Collation, asked: Reader[Any]) -> Reader[Any]:
        """Fetch and collate the requested batches, in order."""
        errors.check_flag(f"persistent_workers of {CALL}", self.persistent_workers)
        workers = errors.check_number(f"num_workers of {CALL}", self.num_workers)
        timeout = errors.check_seconds(f"timeout of {CALL}", self.timeout)
        check_optional("worker_init_fn", self.worker_init_fn)
        ahead = self.prefetch_factor
        if ahead is not None:
            call = f"prefetch_factor of {CALL}"
            ahead = errors.check_number(call, ahead, 1)
            if not workers:
                raise ValueError(
                    f"{call} counts batches for each worker, and num_workers is 0: give capacity=, "
                    f"which counts feeds, or leave it out."
                )
        seed = None if self.seed is None else as_seed(self.seed, CALL)
        return fetch_batches(
            collation,
            asked,
            workers,
            timeout,
            self.worker_init_fn,
            self.persistent_workers,
            read_in_worker=is_stream(self.dataset),
            prefetch=ahead,
            global_seed=seed if workers else None,
        )


def _check_is_rows(dataset: Any) -> None:
    """Raise TypeError for a path, whose samples are letters, columns in a tuple, and a loader."""
    seen = ""
    if isinstance(dataset, str) and (os.sep in dataset or Path(dataset[:99]).exists()):
        seen = "is a text of letters: type Pipeline(image_folder(path)), or another source of files"
    elif isinstance(dataset, tuple) and dataset and all(hasattr(each, "shape") for each in dataset):
        seen = "has arrays as samples: type TensorDataset(*arrays) for columns, else list(arrays)"
    elif hasattr(dataset, "next_epoch"):
        seen = "is a loader already: iterate it"
    if seen:
        raise TypeError(f"{CALL} needs a data set, and {described(dataset)} {seen}.")
