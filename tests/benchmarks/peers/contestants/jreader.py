"""jreader, as its README writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.benchmarks.peers.jobs import (
    TOKENS,
    WINDOW,
    Documents,
    Job,
    Mixture,
    Packing,
    Slow,
    Source,
    Windows,
    decode,
    normalised,
    scaled,
)

PEER, NEEDS = "jreader", ("jreader", "jax")
EMULATED = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "NPROC": "32"}
ENVIRONMENT = {"eight_devices": EMULATED, "eight_devices_stage": EMULATED}


def _rows(job: Job) -> Any:
    from jreader import Pipeline, arrays

    return Pipeline(arrays(job.images, job.labels)).shuffle(seed=0).batch(job.batch, drop_last=True)


def float32(job: Job) -> Any:
    """arrays(X, Y).shuffle().batch(B).map_batches(scale).load()"""
    return _rows(job).map_batches(scaled).load().epoch


def uint8(job: Job) -> Any:
    """arrays(X, Y).shuffle().batch(B).load().on_device(normalise)"""
    return _rows(job).load().on_device(normalised).epoch


def resident(job: Job) -> Any:
    """arrays(X, Y).shuffle().batch(B).load(resident=True).on_device(normalise)"""
    return _rows(job).load(resident=True).on_device(normalised).epoch


def pixels(job: Job) -> Any:
    """arrays(Z, Y).shuffle().batch(B).load(), Z a memory map"""
    return _rows(job).load().epoch


def stream(job: Job) -> Any:
    """Pipeline(reader).shuffle(WINDOW).batch(B).load()"""
    from jreader import Pipeline

    return (
        Pipeline(job.reader).shuffle(WINDOW, seed=0).batch(job.batch, drop_last=True).load().epoch
    )


def stack(job: Job) -> Callable[[], Any]:
    """jreader.stack(rows), 512 rows of 784 bytes"""
    import jreader

    rows = list(job.images)
    return lambda: jreader.stack(rows)


def pictures(job: Job) -> Any:
    """Pipeline(reader).map(decode, threads=2).batch(B).load()"""
    return _encoded(job).map(decode, threads=2).batch(job.batch, drop_last=True).load().epoch


def pictures_threads(job: Job) -> Any:
    """Pipeline(reader).xmap(decode, 2, 16, order=True).batch(B).load()"""
    mapped = _encoded(job).xmap(decode, 2, 16, order=True)
    return mapped.batch(job.batch, drop_last=True).load().epoch


def _encoded(job: Job) -> Any:
    from jreader import Pipeline

    samples = list(zip(job.images.encoded(), job.labels.tolist(), strict=True))
    return Pipeline(lambda: samples)


def slow(job: Slow) -> Any:
    """DataLoader.from_generator().set_batch_generator(source)"""
    from jreader import DataLoader

    return DataLoader.from_generator().set_batch_generator(job.source).epoch


def any_size(job: Job) -> Any:
    """source(obj, batched=True).shuffle().batch(B), on the host"""
    import jreader

    rows = jreader.Pipeline(jreader.source(Source(len(job.labels)), batched=True))
    batches = rows.shuffle(seed=0).batch(job.batch, drop_last=True)
    return lambda number: map(_columns, jreader.at_epoch(batches, number)())


def _columns(samples: Any) -> Any:
    return samples.columns


def trained(job: Any) -> Any:
    """load() of float32 made on the host; loss fetched at every step"""
    return _trained(job, float32(job), fetch=True)


def trained_uint8(job: Any) -> Any:
    """load().on_device(normalise); loss fetched at every step"""
    return _trained(job, uint8(job), fetch=True)


def trained_unfetched(job: Any) -> Any:
    """load(), uint8, normalised inside the step; no loss fetched"""
    return _trained(job, pixels(job), fetch=False)


def _trained(job: Any, epoch: Any, *, fetch: bool) -> Any:
    import jax

    update = jax.jit(job.update)

    def train(state: Any, number: int) -> Any:
        for feed in epoch(number):
            state, loss = update(state, feed)
            if fetch:
                float(loss)
        return state

    return train


def scanned(job: Any) -> Any:
    """an epoch as one XLA program: lax.scan over batch_at(data, epoch, step)"""
    import jax

    import jreader

    data, batch_at = jreader.as_function(_rows(job))

    @jax.jit
    def program(state: Any, data: Any, epoch: Any) -> Any:
        def body(state: Any, step: Any) -> Any:
            return job.update(state, batch_at(data, epoch, step))

        return jax.lax.scan(body, state, jax.numpy.arange(job.steps))[0]

    return lambda state, number: program(state, data, number)


def eight_seeds(job: Any) -> Any:
    """vmap over 8 seeds: 8 runs, each in its own order, as one program"""
    import jax

    import jreader

    data, batch_at = jreader.as_function(_rows(job))

    def run(state: Any, data: Any, epoch: Any, seed: Any) -> Any:
        def body(state: Any, step: Any) -> Any:
            feed = batch_at(data, epoch, step, seed)
            return job.update(state, feed)[0], feed[1]

        return jax.lax.scan(body, state, jax.numpy.arange(job.steps))

    program = jax.jit(jax.vmap(run, (None, None, None, 0)))

    def train(state: Any, number: int) -> Any:
        states, labels = program(state, data, number, jax.numpy.arange(8))
        orders = {labels[seed].tobytes() for seed in range(8)}
        if len(orders) < 8:
            job.wrong = f"8 seeds gave {len(orders)} orders"
        return states

    return train


def one_device(job: Job) -> Any:
    """float32 made on the host, load(), one device"""
    return float32(job)


def eight_devices(job: Job) -> Any:
    """float32 made on the host, load(sharding=Mesh of 8 emulated devices)"""
    return _rows(job).map_batches(scaled).load(sharding=_mesh()).epoch


def one_device_stage(job: Job) -> Any:
    """uint8, load().on_device(normalise), one device"""
    return uint8(job)


def eight_devices_stage(job: Job) -> Any:
    """uint8, load(sharding=Mesh of 8 emulated devices).on_device(normalise)"""
    return _rows(job).load(sharding=_mesh()).on_device(normalised).epoch


def _mesh() -> Any:
    import jax
    import numpy as np

    if len(jax.devices()) < 8:
        raise RuntimeError(f"8 devices are needed, here are {len(jax.devices())}")
    return jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))


def buckets(job: Documents) -> Any:
    """arrays(ragged(values, offsets), Y).bucket(bounds, tokens=N).load()"""
    from jreader import Pipeline, arrays, ragged

    documents = Pipeline(arrays(ragged(job.images, job.offsets), job.labels))
    return _bucketed(job, documents, job.bounds)


def buckets_chosen(job: Documents) -> Any:
    """arrays(ragged(values, offsets), Y).bucket(6, tokens=N).load(): as many, chosen, bounds"""
    from jreader import Pipeline, arrays, ragged

    documents = Pipeline(arrays(ragged(job.images, job.offsets), job.labels))
    return _bucketed(job, documents, len(job.bounds))


def buckets_of_a_stream(job: Documents) -> Any:
    """Pipeline(reader).bucket(bounds, tokens=N).load()"""
    from jreader import Pipeline

    return _bucketed(job, Pipeline(job.reader), job.bounds, fields=[0])


def _bucketed(job: Documents, documents: Any, bounds: Any, **options: Any) -> Any:
    """Short batches as they are, as tf.data has them."""
    from jreader import DataLoader

    batches = documents.bucket(bounds, tokens=job.tokens, seed=0, **options)
    loader = DataLoader.from_generator().set_sample_list_generator(batches)
    return lambda number: (feed[:2] for feed in loader.epoch(number))


def packed(job: Packing) -> Any:
    """Pipeline(ragged(values, offsets)).pack(T).batch(B).load()"""
    from jreader import Pipeline, ragged

    return _packed(job, Pipeline(ragged(job.images, job.offsets)))


def packed_cut(job: Packing) -> Any:
    """Pipeline(ragged(values, offsets)).pack(T, split="always").batch(B).load()"""
    from jreader import Pipeline, ragged

    return _packed(job, Pipeline(ragged(job.images, job.offsets)), split="always")


def packed_stream(job: Packing) -> Any:
    """Pipeline(reader).pack(T).batch(B).load(), windows of 4,096 documents"""
    from jreader import Pipeline

    return _packed(job, Pipeline(lambda: (document for document, _ in job.reader())))


def _packed(job: Packing, documents: Any, **options: Any) -> Any:
    rows = documents.pack(job.size, seed=0, **options).batch(job.batch)
    loader = rows.load(last="drop")
    return lambda number: (tuple(feed.values()) for feed in loader.epoch(number))


def windows(job: Windows) -> Any:
    """tokens(path).windows(T + 1, stride=T).shuffle().batch(B).load()"""
    return _windows(job.path, job.batch).load().epoch


def windows_start(job: Job) -> Callable[[], Any]:
    """next(tokens(folder).windows(T + 1, stride=T).shuffle().batch(B))"""
    return lambda: _windows(job.images, job.batch).peek()


def _windows(paths: Any, size: int) -> Any:
    from jreader import Pipeline, tokens

    cut = Pipeline(tokens(paths)).windows(TOKENS + 1, stride=TOKENS)
    return cut.shuffle(seed=0).batch(size, drop_last=True)


def mixed(job: Mixture) -> Any:
    """mix([arrays(X, Y), ...], weights, seed=0).batch(B), on the host"""
    import jreader

    several = [jreader.arrays(*columns) for columns in job.sources()]
    mixture = jreader.mix(several, job.shares, seed=0)
    return _on_the_host(jreader.Pipeline(mixture).batch(job.batch, drop_last=True))


def one_source(job: Mixture) -> Any:
    """arrays(X, Y).batch(B), on the host: a quarter of the rows, without a mix"""
    import jreader

    columns = jreader.arrays(*job.sources()[0])
    return _on_the_host(jreader.Pipeline(columns).batch(job.batch, drop_last=True))


def _on_the_host(batches: Any) -> Any:
    import jreader

    return lambda number: map(_columns, jreader.at_epoch(batches, number)())


PLAYS = {
    "a": [float32, uint8, resident],
    "b": [pixels],
    "c": [stream],
    "c stack": [stack],
    "d": [pictures, pictures_threads],
    "e": [slow],
    "g": [any_size],
    "l bucket": [buckets, buckets_chosen, buckets_of_a_stream],
    "m": [mixed, one_source],
    "l pack": [packed, packed_cut, packed_stream],
    "t mlp": [trained, trained_uint8],
    "t scan": [trained_unfetched, scanned, eight_seeds],
    "t devices": [one_device, eight_devices],
    "t devices stage": [one_device_stage, eight_devices_stage],
    "w": [windows],
    "w start": [windows_start],
}
