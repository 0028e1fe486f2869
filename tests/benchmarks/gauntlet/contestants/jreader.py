"""jreader: one cursor, the same on every host.

Workers make whole batches by number; of streams, and below a filter, they map samples.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

import jreader
from jreader import Pipeline, Processes, arrays
from tests.benchmarks.gauntlet.scenarios import ROW, Job, Run, documents

CANNOT: dict[str, str] = {}
PLACES = True  # its loader puts batches on devices


def version() -> str:
    return f"jreader {jreader.__version__}, jax {jax.__version__}"


def prepare(job: Job) -> None:
    """The hosts are processes of `jax.distributed`."""
    jax.config.update("jax_num_cpu_devices", job.leg.devices)
    if job.leg.hosts > 1:
        jax.distributed.initialize(
            f"127.0.0.1:{job.port}", num_processes=job.leg.hosts, process_id=job.rank
        )
    jax.devices()


def loaded(plan: Any, job: Job, workers: Any = None) -> Run:
    """Batches on the devices of all hosts, from where the cursor says, to the last epoch."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    where = "host" if job.quiet else mesh  # timed on the host, as the others are
    loader = plan.batch(job.leg.batch).load(sharding=where, last="pad", workers=workers)
    cursor = json.loads(job.any_state.read_text()) if job.any_state else None
    running: list[Any] = []

    def steps() -> Any:
        for epoch in range(cursor["epoch"] if cursor else 0, job.epochs):
            at = cursor if cursor and cursor["epoch"] == epoch else None
            with loader.epoch(epoch, at=at) as feeds:
                running[:] = [feeds]
                for feed in feeds:
                    yield feed["n"] if job.quiet else rows_here(feed["n"])
        if job.leg.hosts > 1:
            jax.distributed.shutdown()  # no host leaves before the others

    def save(path: Path) -> None:
        path.write_text(json.dumps(running[0].cursor))

    return Run(steps(), save)


def rows_here(array: Any) -> np.ndarray:
    """The rows of a global array that lie on devices of this host."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def numbers(job: Job) -> Any:
    return Pipeline(arrays(n=np.arange(1, job.count + 1, dtype=np.int32))).shuffle(seed=0)


def by_number(plan: Any, job: Job) -> Run:
    """Batches that workers make, if there are any: of plans whose samples are found by number."""
    return loaded(plan, job, Processes(job.leg.workers) if job.leg.workers else None)


def shuffled(job: Job) -> Run:
    return by_number(numbers(job), job)


def moved(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"n": np.float32(sample["n"] + rng.integers(1, 256) / 256)}


def random_map(job: Job) -> Run:
    return by_number(numbers(job).map(moved, rng=True, seed=1), job)


def cluster(job: Job) -> Run:
    dask = importlib.import_module("distributed")
    there = dask.LocalCluster(
        n_workers=job.leg.workers, threads_per_worker=1, dashboard_address=None
    )
    return loaded(numbers(job).map(moved, rng=True, seed=1), job, dask.Client(there))


def as_it_is(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def kept(sample: dict[str, Any]) -> bool:
    return bool(sample["n"] % 4)


def filtered(job: Job) -> Run:
    return loaded(numbers(job).map(as_it_is, processes=job.leg.workers).filter(kept), job)


def filter_learnt(job: Job) -> Run:
    return loaded(numbers(job).filter(kept, keep=f"{job.folder}/kept"), job)


def mixed(job: Job) -> Run:
    most = np.arange(1, 3 * job.count // 4 + 1, dtype=np.int32)
    rest = np.arange(most[-1] + 1, job.count + 1, dtype=np.int32)
    parts = [Pipeline(arrays(n=each)).shuffle(seed=0) for each in (most, rest)]
    return by_number(Pipeline(jreader.mix(parts, weights=(3, 1), seed=0)), job)


def packed(job: Job) -> Run:
    texts = documents()
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in texts])])
    rows = Pipeline(jreader.ragged(np.concatenate(texts).astype(np.int32), offsets))
    return by_number(rows.pack(ROW, seed=0).map(tokens_alone), job)


def tokens_alone(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["tokens"]}


def streamed(job: Job) -> Run:
    rows = jreader.files(job.paths("jsonl")).shuffle(seed=0).read(jreader.jsonl, lanes=4)
    rows = rows.map(as_it_is, processes=job.leg.workers)
    return loaded(rows.shuffle(12, seed=0), job)


def blocks(job: Job) -> Run:
    rows = Pipeline(jreader.parquet(Path(job.folder) / "all.parquet"))
    return by_number(rows.shuffle(seed=0, blocks=4), job)


def owned_blocks(job: Job) -> Run:
    rows = Pipeline(jreader.parquet(Path(job.folder) / "all.parquet"))
    return by_number(rows.shuffle(seed=0, blocks=8, lanes=4), job)


def far(job: Job) -> Run:
    return by_number(Pipeline(jreader.jsonl(job.url + "/all.jsonl")), job)


def far_shuffled(job: Job) -> Run:
    rows = Pipeline(jreader.jsonl(job.url + "/all.jsonl", block="512B"))
    return by_number(rows.shuffle(seed=0, blocks=4), job)


def far_by_number(job: Job) -> Run:
    rows = Pipeline(jreader.npy(job.url + "/all.npy")).map(named)
    return by_number(rows.shuffle(seed=0), job)


def named(row: np.int32) -> dict[str, Any]:
    return {"n": row}
