"""Grain: as its README writes it, tuned, and with a source of whole batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.peers.jobs import (
    TOKENS,
    WINDOW,
    Job,
    Mixture,
    Packing,
    Slow,
    Source,
    Windows,
    decode,
    scaled,
)

PEER, NEEDS = "Grain", ("grain", "jax")
Epoch = Callable[[int], Iterator[Any]]


class Rows:
    """One row for one index."""

    def __init__(self, job: Job) -> None:
        self.images, self.labels = job.images, job.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]


def _placed(dataset: Any) -> Iterator[Any]:
    import jax

    for feed in dataset:
        yield jax.device_put(feed)


def _options(threads: int, ahead: int) -> Any:
    import grain

    return grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)


def readme(job: Job) -> Epoch:
    """source.shuffle.map(scale).batch, default ReadOptions (16 threads, 500 ahead); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=number).map(scaled)
        return _placed(rows.batch(job.batch, drop_remainder=True))

    return epoch


def threads(job: Job) -> Epoch:
    """source.shuffle.map(scale).to_iter_dataset(), default ReadOptions, .batch; device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=number).map(scaled)
        return _placed(rows.to_iter_dataset().batch(job.batch, drop_remainder=True))

    return epoch


def tuned(job: Job) -> Epoch:
    """source.shuffle.batch.map(scale of a batch).to_iter_dataset(ReadOptions(1, 2)); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=number)
        batches = rows.batch(job.batch, drop_remainder=True).map(scaled)
        return _placed(batches.to_iter_dataset(_options(1, 2)))

    return epoch


class Batches:
    """A whole batch for one index, gathered from a permutation of its own."""

    def __init__(self, job: Any, columns: Any, number: int) -> None:
        self.columns, self.batch, self.steps = columns, job.batch, job.steps
        self.order = np.random.default_rng(number).permutation(len(job.labels))

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> Any:
        rows = self.order[index * self.batch : (index + 1) * self.batch]
        return tuple(column[rows] for column in self.columns)


def whole_batches(job: Job) -> Epoch:
    """a source whose items are shuffled batches, .map(scale), ReadOptions(1, 2); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        source = Batches(job, (job.images, job.labels), number)
        batches = grain.MapDataset.source(source).map(scaled)
        return _placed(batches.to_iter_dataset(_options(1, 2)))

    return epoch


def pixels(job: Job) -> Epoch:
    """source.shuffle.batch.to_iter_dataset(ReadOptions(1, 2)); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Rows(job)).shuffle(seed=number)
        batches = rows.batch(job.batch, drop_remainder=True)
        return _placed(batches.to_iter_dataset(_options(1, 2)))

    return epoch


def pixels_whole_batches(job: Job) -> Epoch:
    """a source whose items are shuffled batches, ReadOptions(1, 2); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        source = Batches(job, (job.images, job.labels), number)
        return _placed(grain.MapDataset.source(source).to_iter_dataset(_options(1, 2)))

    return epoch


def _iter_dataset(make: Callable[[], Iterator[Any]]) -> Any:
    """A stream as Grain has its users write one."""
    import grain

    class Iterating(grain.DatasetIterator):
        def __init__(self) -> None:
            super().__init__()
            self.items = make()

        def __next__(self) -> Any:
            return next(self.items)

        def get_state(self) -> dict[str, int]:
            return {}

        def set_state(self, state: dict[str, int]) -> None:
            pass

    class Stream(grain.IterDataset):
        def __iter__(self) -> Any:
            return Iterating()

    return Stream()


def stream(job: Job) -> Epoch:
    """an IterDataset of the generator, WindowShuffleIterDataset, batch; device_put"""
    from grain import experimental

    def epoch(number: int) -> Iterator[Any]:
        rows = _iter_dataset(job.reader)
        mixed = experimental.WindowShuffleIterDataset(rows, window_size=WINDOW, seed=number)
        return _placed(mixed.batch(job.batch, drop_remainder=True))

    return epoch


def pictures(job: Job) -> Epoch:
    """source.map(decode).batch, default ReadOptions (16 threads, 500 ahead); device_put"""
    return _decoded(job, lambda rows: rows.batch(job.batch, drop_remainder=True))


def pictures_threads(job: Job) -> Epoch:
    """source.map(decode).to_iter_dataset(ReadOptions(2, 128)).batch; device_put"""

    def read(rows: Any) -> Any:
        return rows.to_iter_dataset(_options(2, 128)).batch(job.batch, drop_remainder=True)

    return _decoded(job, read)


def pictures_processes(job: Job) -> Epoch:
    """source.map(decode).batch.to_iter_dataset(ReadOptions(1, 2)).mp_prefetch(2 workers)"""
    import grain
    from absl import flags

    flags.FLAGS(sys.argv[:1])  # mp_prefetch reads a flag, which a script has to parse

    def read(rows: Any) -> Any:
        batches = rows.batch(job.batch, drop_remainder=True).to_iter_dataset(_options(1, 2))
        return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))

    return _decoded(job, read)


def _decoded(job: Job, read: Callable[[Any], Any]) -> Epoch:
    import grain

    samples = list(zip(job.images.encoded(), job.labels, strict=True))
    return lambda _number: _placed(read(grain.MapDataset.source(samples).map(decode)))


def slow(job: Slow) -> Epoch:
    """an IterDataset of the source, experimental.device_put (4 ahead on the host, 2 placed)"""
    import jax
    from grain import experimental

    place = jax.devices()[0]
    return lambda _number: iter(experimental.device_put(_iter_dataset(job.source), place))


def any_size(job: Job) -> Epoch:
    """source.shuffle.batch.to_iter_dataset(ReadOptions(1, 2)), on the host"""
    import grain

    source = Source(len(job.labels))

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(source).shuffle(seed=number)
        batches = rows.batch(job.batch, drop_remainder=True)
        return iter(batches.to_iter_dataset(_options(1, 2)))

    return epoch


class Slices:
    """One window of a memory map for one index."""

    def __init__(self, job: Windows) -> None:
        self.stored = np.memmap(job.path, np.uint16, "r")
        self.length = len(job.labels)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.stored[index * TOKENS : index * TOKENS + TOKENS + 1]


def windows(job: Windows) -> Epoch:
    """source(memmap[i : i + T + 1]).shuffle.batch, default ReadOptions; device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Slices(job)).shuffle(seed=number)
        return _placed(rows.batch(job.batch, drop_remainder=True))

    return epoch


def windows_tuned(job: Windows) -> Epoch:
    """source(memmap[i : i + T + 1]).shuffle.batch.to_iter_dataset(ReadOptions(1, 2)); device_put"""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(Slices(job)).shuffle(seed=number)
        batches = rows.batch(job.batch, drop_remainder=True)
        return _placed(batches.to_iter_dataset(_options(1, 2)))

    return epoch


def mixed(job: Mixture) -> Epoch:
    """MapDataset.mix(sources, weights).batch, default ReadOptions; on the host"""
    return lambda _number: iter(_mixed(job))


def mixed_tuned(job: Mixture) -> Epoch:
    """MapDataset.mix(sources, weights).batch.to_iter_dataset(ReadOptions(1, 2)); on the host"""
    return lambda _number: iter(_mixed(job).to_iter_dataset(_options(1, 2)))


def _mixed(job: Mixture) -> Any:
    import grain

    several = [grain.MapDataset.source(Pairs(*columns)) for columns in job.sources()]
    weights = [share / sum(job.shares) for share in job.shares]
    return grain.MapDataset.mix(several, weights).batch(job.batch, drop_remainder=True)


class Pairs:
    """A row and its label for one index."""

    def __init__(self, rows: Any, labels: Any) -> None:
        self.rows, self.labels = rows, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], self.labels[index]


class Sequences:
    """One document for one index."""

    def __init__(self, job: Packing) -> None:
        self.values, self.offsets = job.images, job.offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        return {"tokens": self.values[self.offsets[index] : self.offsets[index + 1]]}


def packed(job: Packing) -> Epoch:
    """source.shuffle, ReadOptions(1, 2), BestFitPackIterDataset(64 bins).batch; device_put"""
    return _packed(job, _options(1, 2))


def packed_threads(job: Packing) -> Epoch:
    """source.shuffle, default ReadOptions, BestFitPackIterDataset(64 bins).batch; device_put"""
    return _packed(job, None)


def _packed(job: Packing, options: Any) -> Epoch:
    import grain
    from grain import experimental

    names = "tokens", "tokens_segment_ids", "tokens_positions"

    def epoch(number: int) -> Iterator[Any]:
        documents = grain.MapDataset.source(Sequences(job)).shuffle(seed=number)
        rows = experimental.BestFitPackIterDataset(
            documents.to_iter_dataset(options),
            length_struct={"tokens": job.size},
            num_packing_bins=64,
        )
        batches = rows.batch(job.batch, drop_remainder=True)
        return (tuple(feed[name] for name in names) for feed in _placed(batches))

    return epoch


PLAYS = {
    "a": [readme, threads, tuned, whole_batches],
    "b": [pixels, pixels_whole_batches],
    "c": [stream],
    "d": [pictures, pictures_threads, pictures_processes],
    "e": [slow],
    "g": [any_size],
    "m": [mixed, mixed_tuned],
    "l pack": [packed, packed_threads],
    "w": [windows, windows_tuned],
}
