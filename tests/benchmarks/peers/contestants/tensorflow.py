"""tf.data: batched, with prefetch; its shuffle draws from a buffer, here as large as the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.peers.jobs import (
    IMAGE,
    SCALE,
    WIDTH,
    WINDOW,
    Documents,
    Job,
    Slow,
    decode,
)

PEER, NEEDS = "tf.data", ("tensorflow", "jax")
Epoch = Callable[[int], Iterator[Any]]


def _placed(dataset: Any) -> Epoch:
    import jax

    return lambda _number: map(jax.device_put, dataset.as_numpy_iterator())


def batched(job: Job) -> Epoch:
    """from_tensor_slices.shuffle(N).batch.map(scale, AUTOTUNE).prefetch(AUTOTUNE); device_put"""
    import tensorflow as tf

    def scaled(images: Any, labels: Any) -> Any:
        return tf.cast(images, tf.float32) * SCALE, labels

    rows = tf.data.Dataset.from_tensor_slices((job.images, job.labels)).shuffle(len(job.labels))
    batches = rows.batch(job.batch, drop_remainder=True)
    return _placed(batches.map(scaled, num_parallel_calls=tf.data.AUTOTUNE).prefetch(-1))


def indices(job: Job) -> Epoch:
    """range(N).shuffle(N).batch.map(tf.gather and scale, AUTOTUNE).prefetch(AUTOTUNE)"""
    return _gathered(job, float(SCALE))


def _gathered(job: Job, scale: float | None) -> Epoch:
    import tensorflow as tf

    images, labels = tf.constant(job.images), tf.constant(job.labels)

    def gathered(rows: Any) -> Any:
        picked = tf.gather(images, rows)
        return tf.cast(picked, tf.float32) * scale if scale else picked, tf.gather(labels, rows)

    rows = tf.data.Dataset.range(len(job.labels)).shuffle(len(job.labels))
    batches = rows.batch(job.batch, drop_remainder=True)
    return _placed(batches.map(gathered, num_parallel_calls=tf.data.AUTOTUNE).prefetch(-1))


def pixels(job: Job) -> Epoch:
    """from_tensor_slices(Z read into memory).shuffle(N).batch.prefetch(AUTOTUNE); device_put"""
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((np.asarray(job.images), job.labels))
    shuffled = rows.shuffle(len(job.labels))
    return _placed(shuffled.batch(job.batch, drop_remainder=True).prefetch(-1))


def pixels_indices(job: Job) -> Epoch:
    """range(N).shuffle(N).batch.map(tf.gather(Z in memory), AUTOTUNE).prefetch(AUTOTUNE)"""
    return _gathered(job, None)


def _from_generator(make: Callable[[], Iterator[Any]], job: Job, *rows: int) -> Any:
    import tensorflow as tf

    images = tf.TensorSpec((*rows, WIDTH), job.images.dtype)
    return tf.data.Dataset.from_generator(
        make, output_signature=(images, tf.TensorSpec(rows, tf.int32))
    )


def stream(job: Job) -> Epoch:
    """from_generator.shuffle(WINDOW).batch.prefetch(AUTOTUNE); device_put"""
    rows = _from_generator(job.reader, job).shuffle(WINDOW)
    return _placed(rows.batch(job.batch, drop_remainder=True).prefetch(-1))


def pictures(job: Job) -> Epoch:
    """from_tensor_slices.map(numpy_function(decode), num_parallel_calls=2).batch.prefetch"""
    import tensorflow as tf

    def pixels_of(encoded: bytes) -> np.ndarray:
        return decode((encoded, 0))[0]

    def mapped(encoded: Any, label: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(pixels_of, [encoded], tf.uint8), IMAGE), label

    samples = tf.data.Dataset.from_tensor_slices((job.images.encoded(), job.labels))
    decoded = samples.map(mapped, num_parallel_calls=2, deterministic=True)
    return _placed(decoded.batch(job.batch, drop_remainder=True).prefetch(-1))


def slow(job: Slow) -> Epoch:
    """from_generator.prefetch(2); device_put"""
    return _placed(_from_generator(job.source, job, job.batch).prefetch(2))


def buckets(job: Documents) -> Epoch:
    """from_tensor_slices(RaggedTensor).bucket_by_sequence_length(to boundary).prefetch(AUTOTUNE)"""
    return _bucketed(job, _ragged(job), to_boundary=True)


def buckets_of_any_length(job: Documents) -> Epoch:
    """the same, each batch padded to its longest row, its default"""
    return _bucketed(job, _ragged(job), to_boundary=False)


def buckets_of_a_stream(job: Documents) -> Epoch:
    """from_generator.bucket_by_sequence_length(to boundary).prefetch(AUTOTUNE); device_put"""
    import tensorflow as tf

    signature = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
    documents = tf.data.Dataset.from_generator(job.reader, output_signature=signature)
    return _bucketed(job, documents, to_boundary=True)


def _ragged(job: Documents) -> Any:
    import tensorflow as tf

    rows = tf.RaggedTensor.from_row_splits(job.images, job.offsets)
    return tf.data.Dataset.from_tensor_slices((rows, job.labels)).map(lambda *document: document)


def _bucketed(job: Documents, documents: Any, *, to_boundary: bool) -> Epoch:
    import tensorflow as tf

    batches = documents.bucket_by_sequence_length(
        lambda tokens, _label: tf.shape(tokens)[0],
        [bound + 1 for bound in job.bounds],
        [*job.rows, 1],
        pad_to_bucket_boundary=to_boundary,
    )
    return _placed(batches.prefetch(-1))


PLAYS = {
    "a": [batched, indices],
    "b": [pixels, pixels_indices],
    "c": [stream],
    "d": [pictures],
    "e": [slow],
    "l bucket": [buckets, buckets_of_any_length, buckets_of_a_stream],
}
