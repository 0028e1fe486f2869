"""tf.data: `tf.train.Checkpoint` of the iterator (its guide, "Iterator Checkpointing").

Numbers in memory are shuffled by `tf.random.experimental.index_shuffle`, which keeps no buffer;
random maps are stateless, as the guide to augmentation says. Workers are threads
(`num_parallel_calls`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

from tests.benchmarks.gauntlet.scenarios import COUNT, ROW, Job, Run, documents

NO_HTTP = "has no file system for HTTP (tf.io.gfile: gs:// and, by tensorflow-io, s3://)"
NO_PARQUET = "has no reader of Parquet (guide to tf.data; tensorflow-io has one)"
NO_OTHER_HOSTS = (
    "a checkpoint belongs to one iterator, and shard(hosts, host) gives each host its own"
    " (guide to tf.data, Iterator Checkpointing)"
)
CANNOT = {
    "blocks": NO_PARQUET,
    "owned blocks": NO_PARQUET,
    "far": NO_HTTP,
    "far, shuffled": NO_HTTP,
    "far, by number": NO_HTTP,
}


def version() -> str:
    return f"tf.data {tf.__version__}"


def loaded(data: Any, job: Job) -> Run:
    """Batches of the samples of this host, and a checkpoint of their iterator."""
    state = job.own_state(NO_OTHER_HOSTS)
    iterator = iter(data.batch(job.local))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    if state is not None:
        checkpoint.read(str(state / "iterator")).assert_consumed()

    def save(path: Path) -> None:
        path.mkdir()
        checkpoint.write(str(path / "iterator"))

    return Run((batch.numpy() for batch in iterator), save)


def order(first: int, end: int, epoch: Any = 0) -> Any:
    """The numbers from the first to the end, in an order that is computed."""
    count = end - first

    def shuffled(index: Any) -> Any:
        seed = tf.stack([tf.constant(0, tf.int64), tf.cast(epoch, tf.int64)])
        return tf.random.experimental.index_shuffle(index, seed, count - 1) + first

    return tf.data.Dataset.range(count).map(shuffled)


def numbers(job: Job) -> Any:
    """Of all epochs, those of this host."""
    epochs = tf.data.Dataset.range(job.epochs)
    rows = epochs.flat_map(lambda epoch: order(1, job.count + 1, epoch))
    return rows.shard(job.leg.hosts, job.rank)


def mapped(data: Any, fn: Any, job: Job) -> Any:
    return data.map(fn, num_parallel_calls=max(job.leg.workers, 1))


def shuffled(job: Job) -> Run:
    return loaded(mapped(numbers(job), lambda number: number, job), job)


def moved(number: Any) -> Any:
    seed = tf.stack([tf.constant(1, tf.int64), number])
    drawn = tf.random.stateless_uniform((), seed, 1, 256, tf.int64)
    return tf.cast(number, tf.float64) + tf.cast(drawn, tf.float64) / 256


def random_map(job: Job) -> Run:
    return loaded(mapped(numbers(job), moved, job), job)


def cluster(job: Job) -> Run:
    """A dispatcher of the tf.data service, and its workers."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    configs = [service.WorkerConfig(address) for _ in range(job.leg.workers)]
    servers = dispatcher, *map(service.WorkerServer, configs)
    rows = numbers(job).map(moved)
    rows = rows.apply(service.distribute(service.ShardingPolicy.DYNAMIC, dispatcher.target))
    return loaded(rows, job)._replace(kept=servers)


def filtered(job: Job) -> Run:
    rows = mapped(numbers(job), lambda number: number, job)
    return loaded(rows.filter(lambda number: number % 4 != 0), job)


filter_learnt = filtered


def mixed(job: Job) -> Run:
    most, rest = order(1, 3 * COUNT // 4 + 1), order(3 * COUNT // 4 + 1, COUNT + 1)
    rows = tf.data.Dataset.sample_from_datasets(
        [most, rest], [0.75, 0.25], seed=0, stop_on_empty_dataset=True
    )
    rows = rows.shard(job.leg.hosts, job.rank)
    return loaded(mapped(rows, lambda number: number, job), job)


def packed(job: Job) -> Run:
    texts = tf.ragged.constant([each.tolist() for each in documents()], dtype=tf.int64)
    places = order(0, len(documents())).shard(job.leg.hosts, job.rank)
    tokens = mapped(places, lambda place: texts[place], job).unbatch()
    return loaded(tokens.batch(ROW, drop_remainder=True), job)


def streamed(job: Job) -> Run:
    paths = tf.data.Dataset.from_tensor_slices(job.paths("txt")).shuffle(len(job.paths("txt")), 0)
    rows = paths.shard(job.leg.hosts, job.rank).interleave(
        tf.data.TextLineDataset, cycle_length=4, num_parallel_calls=max(job.leg.workers, 1)
    )
    rows = rows.map(lambda line: tf.strings.to_number(line, tf.int64))
    return loaded(rows.shuffle(48, seed=0), job)
