"""Hugging Face datasets: streams that keep a state, in batches of a `StatefulDataLoader`.

What it promises: "Resuming returns exactly where the checkpoint was saved except in two cases:
examples from shuffle buffers are lost when resuming and the buffers are refilled with new data ..."
(`IterableDataset.state_dict`). Numbers in memory are a `Dataset` whose order is shuffled whole,
which needs no buffer.
"""

from __future__ import annotations

import os
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # all data are local

import datasets
import numpy as np
import torch
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.benchmarks.gauntlet.scenarios import COUNT, ROW, Job, Run, documents

NO_OTHER_HOSTS = (
    "split_dataset_by_node gives each node shards or samples of its own, and a state belongs to"
    " one node (docs, Stream)"
)
CANNOT = {
    "far, by number": "reads no .npy; a data set with an index (load_dataset without streaming) is"
    " copied to this machine first (docs, Dataset or IterableDataset)",
    "cluster": "its workers are those of a StatefulDataLoader, processes of one machine",
}
SHARDS = 24  # of a data set: each worker of each host reads some of them


def version() -> str:
    return f"datasets {version_of('datasets')}"


def prepare(job: Job) -> None:
    """No bars, and a cache of its own."""
    datasets.disable_progress_bars()
    datasets.config.HF_DATASETS_CACHE = Path(job.folder) / f"cache.{job.rank}"


def loaded(epoch_of: Any, job: Job) -> Run:
    """Batches of the data sets of epochs, of this host."""
    path = job.own_state(NO_OTHER_HOSTS)
    state = torch.load(path) if path else None
    now: dict[str, Any] = {"epoch": state["epoch"] if state else 0}

    def steps() -> Any:
        for epoch in range(now["epoch"], job.epochs):
            now["epoch"] = epoch
            data = split_dataset_by_node(epoch_of(epoch), job.rank, job.leg.hosts)
            now["loader"] = loader = StatefulDataLoader(
                data, job.local, num_workers=job.leg.workers
            )
            if state is not None and state["epoch"] == epoch:
                loader.load_state_dict(state["loader"])
            for batch in loader:
                yield batch["n"]

    def save(path: Path) -> None:
        torch.save({**now, "loader": now["loader"].state_dict()}, path)

    return Run(steps(), save)


def numbers(job: Job, first: int = 1, end: int | None = None) -> Any:
    rows = np.arange(first, end or job.count + 1)
    return datasets.Dataset.from_dict({"n": rows})


def of_epoch(rows: Any, epoch: int) -> Any:
    return rows.shuffle(seed=epoch).to_iterable_dataset(num_shards=SHARDS)


def shuffled(job: Job) -> Run:
    return loaded(lambda epoch: of_epoch(numbers(job), epoch), job)


def moved(row: dict[str, Any], index: int) -> dict[str, Any]:
    return {"n": row["n"] + np.random.default_rng((1, row["n"])).integers(1, 256) / 256}


def random_map(job: Job) -> Run:
    return loaded(lambda epoch: of_epoch(numbers(job), epoch).map(moved, with_indices=True), job)


def filtered(job: Job) -> Run:
    return loaded(lambda epoch: of_epoch(numbers(job), epoch).filter(lambda row: row["n"] % 4), job)


filter_learnt = filtered


def mixed(job: Job) -> Run:
    parts = numbers(job, 1, 3 * COUNT // 4 + 1), numbers(job, 3 * COUNT // 4 + 1)
    return loaded(
        lambda epoch: datasets.interleave_datasets(
            [of_epoch(part, epoch) for part in parts], probabilities=[0.75, 0.25], seed=0
        ),
        job,
    )


def rows_of(texts: dict[str, Any]) -> dict[str, Any]:
    """The tokens of some documents in rows, as the examples of transformers group texts."""
    joined = [number for text in texts["n"] for number in text]
    ends = range(ROW, len(joined) + 1, ROW)
    return {"n": [joined[end - ROW : end] for end in ends]}


def packed(job: Job) -> Run:
    texts = datasets.Dataset.from_dict({"n": documents()})
    return loaded(
        lambda epoch: of_epoch(texts, epoch).map(rows_of, batched=True).with_format("torch"), job
    )


def files(kind: str, paths: Any) -> Any:
    return datasets.load_dataset(kind, data_files=paths, split="train", streaming=True)


def streamed(job: Job) -> Run:
    rows = files("json", job.paths("jsonl"))
    return loaded(lambda epoch: rows.shuffle(seed=epoch, buffer_size=48), job)


def blocks(job: Job) -> Run:
    rows = files("parquet", f"{job.folder}/all.parquet")
    return loaded(lambda epoch: rows.shuffle(seed=epoch, buffer_size=120), job)


owned_blocks = blocks


def far_shuffled(job: Job) -> Run:
    rows = files("json", f"{job.url}/all.jsonl")
    return loaded(lambda epoch: rows.shuffle(seed=epoch, buffer_size=120), job)


def far(job: Job) -> Run:
    return loaded(lambda _epoch: files("json", f"{job.url}/all.jsonl"), job)
