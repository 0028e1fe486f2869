"""Grain: `ElasticIterator` where it takes the plan, and else a state for each host.

Where possible, a plan stays a `MapDataset` and ends in an `ElasticIterator`: that is Grain's way to
resume with other hosts and batch sizes. It takes no filter and no stream ("This iterator explicitly
disallows many-to-one transformations without a fixed ratio, like `filter` and generic `IterDataset`
transformations", its docstring): such plans are sliced by hosts, and each host keeps the state of
its own iterator.
"""

from __future__ import annotations

import json
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import fsspec
import grain
import numpy as np
from absl import flags

from tests.benchmarks.gauntlet.far_rows import Rows
from tests.benchmarks.gauntlet.scenarios import COUNT, ROW, Cannot, Job, Run, documents

CANNOT = {"cluster": "its workers are processes of one machine (mp_prefetch)"}
READ = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # numbers in memory need no threads


def version() -> str:
    return f"Grain {version_of('grain')}"


def prepare(job: Job) -> None:
    """Parses the flags of absl, which workers read."""
    flags.FLAGS(["gauntlet"])


def run(steps: Any, state: Path | None) -> Run:
    if state is not None:
        steps.set_state(json.loads(state.read_text()))
    return Run(steps, lambda path: path.write_text(json.dumps(steps.get_state())))


def workers(job: Job) -> grain.MultiprocessingOptions | None:
    return grain.MultiprocessingOptions(num_workers=job.leg.workers) if job.leg.workers else None


def elastic(data: Any, job: Job) -> Run:
    shards = grain.sharding.ShardOptions(shard_index=job.rank, shard_count=job.leg.hosts)
    steps = grain.experimental.ElasticIterator(
        data, job.leg.batch, shards, read_options=READ, multiprocessing_options=workers(job)
    )
    return run(iter(steps), job.any_state)


def inelastic(data: Any, job: Job) -> Run:
    """Batches of a stream, from the state of this host."""
    state = job.own_state("ElasticIterator takes neither filters nor streams (its docstring)")
    data = data.batch(job.local)
    if job.leg.workers:
        data = data.mp_prefetch(workers(job))
    return run(iter(data), state)


def numbers(job: Job) -> Any:
    return grain.MapDataset.range(1, job.count + 1).shuffle(seed=0).repeat(job.epochs)


def shuffled(job: Job) -> Run:
    return elastic(numbers(job), job)


class Moved(grain.transforms.RandomMap):
    """Adds a random fraction."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element + rng.integers(1, 256) / 256


def random_map(job: Job) -> Run:
    return elastic(numbers(job).seed(1).random_map(Moved()), job)


def kept(number: int) -> bool:
    return bool(number % 4)


def filtered(job: Job) -> Run:
    rows = numbers(job)[job.rank :: job.leg.hosts].to_iter_dataset(READ)
    return inelastic(rows.filter(kept), job)


filter_learnt = filtered


def mixed(job: Job) -> Run:
    most = grain.MapDataset.range(1, 3 * COUNT // 4 + 1).shuffle(seed=0)
    rest = grain.MapDataset.range(3 * COUNT // 4 + 1, COUNT + 1).shuffle(seed=1)
    return elastic(grain.MapDataset.mix([most, rest], weights=[3, 1]), job)


def packed(job: Job) -> Run:
    texts = [{"n": each} for each in documents()]
    rows = grain.MapDataset.source(texts).shuffle(seed=0)[job.rank :: job.leg.hosts]
    rows = grain.experimental.FirstFitPackIterDataset(
        rows.to_iter_dataset(READ), length_struct={"n": ROW}, num_packing_bins=8
    )
    return inelastic(rows.map(lambda row: row["n"]), job)


def streamed(job: Job) -> Run:
    paths = grain.MapDataset.source(job.paths("parquet")).shuffle(seed=0)
    files = paths[job.rank :: job.leg.hosts].map(grain.experimental.ParquetIterDataset)
    rows = grain.experimental.InterleaveIterDataset(files, cycle_length=4)
    rows = grain.experimental.WindowShuffleIterDataset(rows, window_size=48, seed=0)
    return inelastic(rows.map(lambda row: row["n"]), job)


def blocks(job: Job) -> Run:
    if job.leg.hosts > 1:
        raise Cannot("ParquetIterDataset deals files to hosts, not row groups")
    rows = grain.experimental.ParquetIterDataset(f"{job.folder}/all.parquet")
    rows = grain.experimental.WindowShuffleIterDataset(rows, window_size=120, seed=0)
    return inelastic(rows.map(lambda row: row["n"]), job)


owned_blocks = blocks


class Lines:
    """A custom source: the lines of a far file, by number."""

    def __init__(self, url: str) -> None:
        with fsspec.open(url) as file:
            self.ends = np.cumsum([len(line) for line in file]).tolist()
        self.url, (self.files, self.path) = url, fsspec.core.url_to_fs(url)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Any:
        begin = self.ends[index - 1] if index else 0
        return json.loads(self.files.cat_file(self.path, begin, self.ends[index]))["n"]

    def __repr__(self) -> str:
        return f"Lines({self.url!r})"


def far_shuffled(job: Job) -> Run:
    """In an order of all samples, each by its own request: the order that it resumes best."""
    lines = grain.MapDataset.source(Lines(f"{job.url}/all.jsonl"))
    return elastic(lines.shuffle(seed=0), job)


def far_by_number(job: Job) -> Run:
    return elastic(grain.MapDataset.source(Rows(f"{job.url}/all.npy")).shuffle(seed=0), job)


def far(job: Job) -> Run:
    return elastic(grain.MapDataset.source(Lines(f"{job.url}/all.jsonl")), job)
