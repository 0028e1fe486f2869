"""PaddlePaddle: the decorators alone, its loader of generators, and `paddle.io.DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np

from tests.benchmarks.peers.contestants.by_hand import stacked
from tests.benchmarks.peers.jobs import SCALE, WINDOW, Job, Slow, decode, scaled

PEER, NEEDS = "Paddle", ("paddle", "jax")
Epoch = Callable[[int], Iterator[Any]]


def _stacked(batches: Iterable[list[Any]]) -> Iterator[Any]:
    import jax

    return map(jax.device_put, map(stacked, batches))


def _placed(loader: Iterable[Any]) -> Iterator[Any]:
    feeds = iter(loader)  # worker processes are forked here, before jax begins its threads
    import jax

    for images, labels in feeds:
        yield jax.device_put((images.numpy(), labels.numpy()))


def _scaled_rows(job: Job) -> Callable[[], Iterator[Any]]:
    return lambda: map(scaled, job.reader())


def _from_generator(reader: Any) -> Any:
    import paddle
    from paddle.base.io import DataLoader

    loader = DataLoader.from_generator(capacity=4, return_list=True)
    return loader.set_sample_list_generator(reader, places=paddle.CPUPlace())


def rows_decorators(job: Job) -> Epoch:
    """buffered(batch(shuffle(reader of X[i] * scale, N), B), 4); np.stack; device_put"""
    import paddle

    shuffled = paddle.reader.shuffle(_scaled_rows(job), len(job.labels))
    batches = paddle.reader.buffered(paddle.batch(shuffled, job.batch, drop_last=True), 4)
    return lambda _number: _stacked(batches())


def rows_from_generator(job: Job) -> Epoch:
    """DataLoader.from_generator(capacity=4) over batch(shuffle(reader, N), B); device_put"""
    import paddle

    shuffled = paddle.reader.shuffle(_scaled_rows(job), len(job.labels))
    loader = _from_generator(paddle.batch(shuffled, job.batch, drop_last=True))
    return lambda _number: _placed(loader)


def _items(job: Job, scale: Any) -> Any:
    from paddle.io import Dataset

    class Items(Dataset):
        """One row for one index."""

        def __len__(self) -> int:
            return len(job.labels)

        def __getitem__(self, index: int) -> Any:
            row = job.images[index]
            return row if scale is None else row * scale, job.labels[index]

    return Items()


def _whole(job: Job, scale: Any) -> Epoch:
    """Items that are shuffled batches already."""
    from paddle.io import DataLoader, Dataset

    class Batches(Dataset):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.order = np.random.default_rng(number).permutation(len(job.labels))

        def __len__(self) -> int:
            return job.steps

        def __getitem__(self, index: int) -> Any:
            rows = self.order[index * job.batch : (index + 1) * job.batch]
            picked = np.asarray(job.images[rows])
            return picked if scale is None else picked * scale, job.labels[rows]

    return lambda number: _placed(DataLoader(Batches(number), batch_size=None))


def per_item(job: Job) -> Epoch:
    """paddle.io.DataLoader(dataset, batch_size=B, shuffle=True), no workers; device_put"""
    from paddle.io import DataLoader

    options = {"batch_size": job.batch, "shuffle": True, "drop_last": True}
    loader = DataLoader(_items(job, SCALE), **options)
    return lambda _number: _placed(loader)


def whole_batches(job: Job) -> Epoch:
    """paddle.io.DataLoader(items that are shuffled batches, batch_size=None); device_put"""
    return _whole(job, SCALE)


def pixels(job: Job) -> Epoch:
    """paddle.io.DataLoader(items that are shuffled batches, batch_size=None); device_put"""
    return _whole(job, None)


def decorators(job: Job) -> Epoch:
    """buffered(batch(shuffle(reader, WINDOW), B), 4); np.stack; device_put"""
    import paddle

    shuffled = paddle.reader.shuffle(job.reader, WINDOW)
    batches = paddle.reader.buffered(paddle.batch(shuffled, job.batch, drop_last=True), 4)
    return lambda _number: _stacked(batches())


def unbuffered(job: Job) -> Epoch:
    """batch(shuffle(reader, WINDOW), B), no thread; np.stack; device_put"""
    import paddle

    shuffled = paddle.reader.shuffle(job.reader, WINDOW)
    batches = paddle.batch(shuffled, job.batch, drop_last=True)
    return lambda _number: _stacked(batches())


def from_generator(job: Job) -> Epoch:
    """DataLoader.from_generator(capacity=4) over batch(shuffle(reader, WINDOW), B); device_put"""
    import paddle

    shuffled = paddle.reader.shuffle(job.reader, WINDOW)
    loader = _from_generator(paddle.batch(shuffled, job.batch, drop_last=True))
    return lambda _number: _placed(loader)


def pictures(job: Job) -> Epoch:
    """paddle.io.DataLoader(dataset, batch_size=B, num_workers=2)"""
    from paddle.io import DataLoader, Dataset

    encoded = job.images.encoded()

    class Pictures(Dataset):
        def __len__(self) -> int:
            return len(encoded)

        def __getitem__(self, index: int) -> Any:
            return decode((encoded[index], np.int32(index)))

    options = {"num_workers": 2, "drop_last": True}
    loader = DataLoader(Pictures(), batch_size=job.batch, **options)
    return lambda _number: _placed(loader)


def pictures_xmap(job: Job) -> Epoch:
    """batch(xmap_readers(decode, reader, 2, 16, order=True), B); np.stack; device_put"""
    import paddle

    encoded = job.images.encoded()
    mapped = paddle.reader.xmap_readers(decode, lambda: zip(encoded, count()), 2, 16, order=True)
    batches = paddle.batch(mapped, job.batch, drop_last=True)
    return lambda _number: _stacked(batches())


def slow(job: Slow) -> Epoch:
    """DataLoader.from_generator(capacity=4).set_batch_generator(source); device_put"""
    import paddle
    from paddle.base.io import DataLoader

    loader = DataLoader.from_generator(capacity=4, return_list=True)
    loader.set_batch_generator(job.source, places=paddle.CPUPlace())
    return lambda _number: _placed(loader)


PLAYS = {
    "a": [rows_decorators, rows_from_generator, per_item, whole_batches],
    "b": [pixels],
    "c": [decorators, unbuffered, from_generator],
    "d": [pictures, pictures_xmap],
    "e": [slow],
}
