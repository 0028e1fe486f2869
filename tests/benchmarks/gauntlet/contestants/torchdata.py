"""torchdata: `StatefulDataLoader`, and `torchdata.nodes` where sources are mixed.

The state of a loader is that of its rank ("Under the hood, StatefulDataLoader handles aggregation
and distribution of state across multiprocess workers (but not across ranks)", its README). What has
no index is an `IterableDataset` with `state_dict` and `load_state_dict`, as that page shows; rows
are packed as torchtitan does it, with the rest of the tokens in the state.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version as version_of
from itertools import chain, islice
from typing import Any

import fsspec
import numpy as np
import torch
from pyarrow import parquet
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchdata.nodes import Batcher, Loader, MultiNodeWeightedSampler, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from tests.benchmarks.gauntlet.far_rows import Rows
from tests.benchmarks.gauntlet.scenarios import COUNT, GROUP, ROW, Cannot, Job, Run, documents

CANNOT = {"cluster": "its workers are processes of one machine (num_workers)"}


def version() -> str:
    return f"torchdata {version_of('torchdata')}, torch {torch.__version__}"


def prepare(job: Job) -> None:
    """One thread: the machine has few cores."""
    torch.set_num_threads(1)


def state_of(job: Job) -> Any:
    path = job.own_state(
        "its state is not redistributed across ranks (README of StatefulDataLoader)"
    )
    return torch.load(path) if path else None


class Numbers(Dataset):
    """From 1 to a count, found by index."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index + 1


class Moved(Numbers):
    """A random fraction is added: by a generator of this worker, kept in the state of it."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.generator: torch.Generator | None = None

    def drawn(self) -> torch.Generator:
        if self.generator is None:
            info = get_worker_info()
            self.generator = torch.Generator().manual_seed(info.id if info else 0)
        return self.generator

    def __getitem__(self, index: int) -> Any:
        return index + 1 + int(torch.randint(1, 256, (1,), generator=self.drawn())) / 256

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.drawn().get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn().set_state(state["generator"])


def by_index(data: Any, job: Job) -> Run:
    """Batches of a data set, in an order that the sampler shuffles anew in each epoch."""
    sampler = StatefulDistributedSampler(data, job.leg.hosts, job.rank, shuffle=True, seed=0)
    loader = StatefulDataLoader(data, job.local, sampler=sampler, num_workers=job.leg.workers)
    return in_epochs(loader, sampler, job)


def in_order(data: Stream, job: Job) -> Run:
    """Batches of a stream."""
    loader = StatefulDataLoader(data, job.local, num_workers=job.leg.workers)
    return in_epochs(loader, data, job)


def in_epochs(loader: StatefulDataLoader, order: Any, job: Job) -> Run:
    """All epochs from that of the state, which is saved beside the state of the loader."""
    state = state_of(job)
    now = {"epoch": state["epoch"] if state else 0}

    def steps() -> Any:
        if state is not None:
            loader.load_state_dict(state["loader"])
        for epoch in range(now["epoch"], job.epochs):
            now["epoch"] = epoch
            order.set_epoch(epoch)
            yield from loader

    return Run(steps(), lambda path: torch.save({**now, "loader": loader.state_dict()}, path))


def shuffled(job: Job) -> Run:
    return by_index(Numbers(job.count), job)


def random_map(job: Job) -> Run:
    return by_index(Moved(job.count), job)


class Stream(IterableDataset):
    """Items of a shuffled order, of this host and worker; the place is the state."""

    def __init__(self, count: int, job: Job) -> None:
        self.count, self.hosts, self.rank = count, job.leg.hosts, job.rank
        self.epoch, self.place = 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def mine(self) -> list[int]:
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return order[self.rank + self.hosts * worker :: self.hosts * workers].tolist()

    def items(self) -> Any:
        """The items that are left, while the place moves on."""
        mine = self.mine()
        while self.place < len(mine):
            self.place += 1
            yield mine[self.place - 1]
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class Kept(Stream):
    """Three of four numbers."""

    def __iter__(self) -> Any:
        return (number + 1 for number in self.items() if (number + 1) % 4)


class Packed(Stream):
    """Rows of tokens, cut from documents that are joined."""

    def __init__(self, job: Job) -> None:
        self.texts = documents()
        super().__init__(len(self.texts), job)
        self.rest: list[int] = []

    def __iter__(self) -> Any:
        for text in self.items():
            self.rest += self.texts[text].tolist()
            while len(self.rest) >= ROW:
                row, self.rest = self.rest[:ROW], self.rest[ROW:]
                yield torch.tensor(row)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "rest": self.rest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.rest = state["rest"]


def filtered(job: Job) -> Run:
    return in_order(Kept(job.count, job), job)


filter_learnt = filtered


def packed(job: Job) -> Run:
    return in_order(Packed(job), job)


class Parts(Stream):
    """What is in some parts, mixed in windows; its state is how many items it gave."""

    def __init__(self, parts: list[Any], read: Any, window: int, job: Job) -> None:
        super().__init__(len(parts), job)
        self.parts, self.read, self.window = parts, read, window

    def __iter__(self) -> Any:
        """Reads up to the place again, as the loader itself does where there is no state."""
        for number in islice(self.mixed(), self.place, None):
            self.place += 1
            yield number
        self.place = 0

    def mixed(self) -> Any:
        numbers = chain.from_iterable(self.read(self.parts[part]) for part in self.mine())
        drawn = torch.Generator().manual_seed(self.epoch)
        while some := list(islice(numbers, self.window)):
            yield from (some[place] for place in torch.randperm(len(some), generator=drawn))


def lines_of(path: str) -> Any:
    with fsspec.open(path) as file:
        for line in file:
            yield json.loads(line)["n"]


def streamed(job: Job) -> Run:
    return in_order(Parts(job.paths("jsonl"), lines_of, 48, job), job)


def blocks(job: Job) -> Run:
    path = f"{job.folder}/all.parquet"
    groups = [*range(parquet.ParquetFile(path).num_row_groups)]
    return in_order(Parts(groups, partial(group_of, path), 4 * GROUP, job), job)


owned_blocks = blocks


def group_of(path: str, group: int) -> Any:
    return parquet.ParquetFile(path).read_row_group(group)["n"].to_pylist()


def far_shuffled(job: Job) -> Run:
    return in_order(Parts([f"{job.url}/all.jsonl"], lines_of, 4 * GROUP, job), job)


def far_by_number(job: Job) -> Run:
    return by_index(Rows(f"{job.url}/all.npy"), job)


def far(job: Job) -> Run:
    return in_order(Parts([f"{job.url}/all.jsonl"], lines_of, 1, job), job)


def mixed(job: Job) -> Run:
    if job.leg.workers:
        raise Cannot("torchdata.nodes has workers for maps (ParallelMapper), not for mixtures")
    state, most = state_of(job), 3 * COUNT // 4
    sources = {}
    for name, count in {"most": most, "rest": COUNT - most}.items():
        sampler = StatefulDistributedSampler(Numbers(count), job.leg.hosts, job.rank, seed=0)
        sources[name] = SamplerWrapper(sampler)
    weights = {"most": 3.0, "rest": 1.0}
    rows = MultiNodeWeightedSampler(
        sources, weights, "FIRST_DATASET_EXHAUSTED", job.rank, job.leg.hosts, seed=0
    )
    loader = Loader(Batcher(rows, job.local, drop_last=False))
    if state is not None:
        loader.load_state_dict(state)
    steps = (np.asarray(batch) + 1 for batch in loader)
    return Run(steps, lambda path: torch.save(loader.state_dict(), path))
