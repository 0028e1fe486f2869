"""PyTorch's DataLoader: item by item, and at its best; its tensors are placed as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.peers.jobs import SCALE, WINDOW, Job, Slow, Source, decode

PEER, NEEDS = "torch", ("torch", "jax")
Epoch = Callable[[int], Iterator[Any]]


def _placed(loader: Iterable[Any]) -> Iterator[Any]:
    feeds = iter(loader)  # worker processes are forked here, before jax begins its threads
    import jax

    for images, labels in feeds:
        yield jax.device_put((images.numpy(), labels.numpy()))


def _items(job: Job, scale: Any) -> Any:
    from torch.utils.data import Dataset

    class Items(Dataset):
        """One row for one index."""

        def __len__(self) -> int:
            return len(job.labels)

        def __getitem__(self, index: int) -> Any:
            row = job.images[index]
            return row if scale is None else row * scale, job.labels[index]

    return Items()


def _gathers(job: Job, scale: Any, *, tensors: bool = True) -> Any:
    """Rows of a list of indices at once."""
    import torch
    from torch.utils.data import Dataset

    images, labels = torch.from_numpy(job.images), torch.from_numpy(job.labels)

    class Gathers(Dataset):
        def __len__(self) -> int:
            return len(job.labels)

        def __getitem__(self, rows: list[int]) -> Any:
            if tensors:
                picked = images[rows]
                return picked if scale is None else picked * scale, labels[rows]
            picked = job.images[rows]
            return torch.from_numpy(picked * scale), torch.from_numpy(job.labels[rows])

        def __getitems__(self, rows: list[int]) -> Any:
            return self[rows]

    return Gathers()


def _sampled(job: Job, dataset: Any, **options: Any) -> Any:
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    sampler = BatchSampler(RandomSampler(dataset), job.batch, drop_last=True)
    return DataLoader(dataset, sampler=sampler, batch_size=None, **options)


def per_item(job: Job) -> Epoch:
    """DataLoader(dataset, batch_size=B, shuffle=True), X[i] * scale in __getitem__, no workers"""
    from torch.utils.data import DataLoader

    options = {"batch_size": job.batch, "shuffle": True, "drop_last": True}
    loader = DataLoader(_items(job, SCALE), **options)
    return lambda _number: _placed(loader)


def best(job: Job) -> Epoch:
    """sampler=BatchSampler(RandomSampler), batch_size=None, from_numpy(X[rows] * scale)"""
    loader = _sampled(job, _gathers(job, SCALE, tensors=False))
    return lambda _number: _placed(loader)


def getitems(job: Job) -> Epoch:
    """DataLoader(dataset with __getitems__, batch_size=B, shuffle=True, collate_fn=as it is)"""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _gathers(job, SCALE, tensors=False),
        batch_size=job.batch,
        shuffle=True,
        drop_last=True,
        collate_fn=_same,
    )
    return lambda _number: _placed(loader)


def _same(batch: Any) -> Any:
    return batch


def best_workers(job: Job) -> Epoch:
    """as best, num_workers=2, persistent_workers=True"""
    gathers = _gathers(job, SCALE, tensors=False)
    loader = _sampled(job, gathers, num_workers=2, persistent_workers=True)
    return lambda _number: _placed(loader)


def pixels_per_item(job: Job) -> Epoch:
    """DataLoader(dataset, batch_size=B, shuffle=True), no workers"""
    from torch.utils.data import DataLoader

    options = {"batch_size": job.batch, "shuffle": True, "drop_last": True}
    loader = DataLoader(_items(job, None), **options)
    return lambda _number: _placed(loader)


def pixels_best(job: Job) -> Epoch:
    """sampler=BatchSampler(RandomSampler), batch_size=None, Z[rows] on torch tensors"""
    loader = _sampled(job, _gathers(job, None))
    return lambda _number: _placed(loader)


def _streamed(make: Callable[[], Iterator[Any]]) -> Any:
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return make()

    return Stream()


def stream(job: Job) -> Epoch:
    """ShufflerIterDataPipe(IterableDataset of the generator, WINDOW), DataLoader(batch_size=B)"""
    from torch.utils.data import DataLoader
    from torch.utils.data.datapipes.iter import IterableWrapper

    pipe = IterableWrapper(_streamed(job.reader), deepcopy=False).shuffle(buffer_size=WINDOW)
    loader = DataLoader(pipe, batch_size=job.batch, drop_last=True)
    return lambda _number: _placed(loader)


def pictures(job: Job) -> Epoch:
    """DataLoader(dataset, batch_size=B, num_workers=2, persistent_workers=True)"""
    return _decoded(job, num_workers=2, persistent_workers=True)


def pictures_alone(job: Job) -> Epoch:
    """DataLoader(dataset, batch_size=B), no workers"""
    return _decoded(job)


def _decoded(job: Job, **options: Any) -> Epoch:
    from torch.utils.data import DataLoader, Dataset

    encoded, labels = job.images.encoded(), job.labels

    class Pictures(Dataset):
        def __len__(self) -> int:
            return len(encoded)

        def __getitem__(self, index: int) -> Any:
            return decode((encoded[index], labels[index]))

    loader = DataLoader(Pictures(), batch_size=job.batch, drop_last=True, **options)
    return lambda _number: _placed(loader)


def slow(job: Slow) -> Epoch:
    """DataLoader(IterableDataset of the source, batch_size=None, num_workers=1, prefetch 2)"""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _streamed(job.source), batch_size=None, num_workers=1, persistent_workers=True
    )
    return lambda _number: _placed(loader)


def any_size(job: Job) -> Epoch:
    """sampler=BatchSampler(RandomSampler), batch_size=None, on the host"""
    from torch.utils.data import Dataset

    source = Source(len(job.labels))

    class Gathers(Dataset):
        def __len__(self) -> int:
            return len(source)

        def __getitem__(self, rows: list[int]) -> Any:
            return source[np.array(rows)]

    loader = _sampled(job, Gathers())
    return lambda _number: iter(loader)


PLAYS = {
    "a": [per_item, getitems, best, best_workers],
    "b": [pixels_per_item, pixels_best],
    "c": [stream],
    "d": [pictures, pictures_alone],
    "e": [slow],
    "g": [any_size],
}
MOST = {"g": 1e6}  # its sampler makes a list of all numbers first: seconds for 1e7
