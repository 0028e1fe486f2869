"""The scenarios that every contestant runs, in words and numbers that name no library.

A scenario is a plan, how it is run before and after the kill, the step after which the state is
saved, and the step after which all processes are killed by SIGKILL. Samples are numbers from 1 on,
and the data have each of them once; 0 is padding. No size leaves a short batch at the end of an
epoch, so rules for short ends do not matter.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

COUNT, FILES, ROW, GROUP = 960, 16, 64, 30
"""Samples of an epoch; files; tokens of a packed row; rows of a Parquet row group."""

PLANS = {
    "shuffled": f"{COUNT} numbers in memory, shuffled as a whole, in another order each epoch",
    "random map": "*shuffled*, and a function adds a random fraction to each number",
    "filtered": "*shuffled*, and a function drops every fourth number",
    "filter learnt": "*filtered* for two epochs; in the second, a library may know the answers of"
    " the first",
    "mixed": "three numbers from one source for each number from another, both shuffled",
    "packed": f"documents of 1 to 40 numbers, packed into rows of {ROW}; rows or documents are"
    " shuffled",
    "streamed": f"{FILES} files, in shuffled order, several read side by side from start to end;"
    " their samples are shuffled again, in a window of 48",
    "blocks": f"a Parquet file with row groups of {GROUP} rows, of which some are read at a time"
    " and mixed",
    "owned blocks": "*blocks*, and each block is read by one host",
    "far": "a file of JSON Lines behind HTTP, in order",
    "far, shuffled": "the same file, shuffled, fetched in parts that are larger than a sample",
    "far, by number": "a .npy file behind HTTP, shuffled, whose rows are found by number",
    "cluster": "*random map*, on the workers of a cluster (all on this machine)",
}


@dataclass(frozen=True)
class Leg:
    """How a session is run: `batch` is that of all hosts, `devices` those of each host."""

    hosts: int = 1
    batch: int = 24
    workers: int = 0
    devices: int = 1


@dataclass(frozen=True)
class Scenario:
    """A plan, and a kill."""

    change: str
    plan: str
    before: Leg = Leg()
    after: Leg = Leg()
    saved: int = 10
    killed: int = 14
    epochs: int = 1

    @property
    def key(self) -> str:
        return f"{self.plan}: {self.change}"


def _scenarios() -> list[Scenario]:
    rows = [
        Scenario("nothing", "shuffled"),
        Scenario("nothing, in the second epoch", "shuffled", saved=50, killed=53, epochs=2),
        Scenario("batches of 24, then 16", "shuffled", after=Leg(batch=16)),
        Scenario("1 device, then 4", "shuffled", after=Leg(devices=4)),
        Scenario("no workers, then 2", "shuffled", after=Leg(workers=2)),
        Scenario("2 workers, then 3", "shuffled", Leg(workers=2), Leg(workers=3)),
        Scenario("nothing, on 2 hosts", "shuffled", Leg(2), Leg(2)),
        Scenario("1 host, then 2", "shuffled", after=Leg(2)),
        Scenario("2 hosts, then 4", "shuffled", Leg(2), Leg(4)),
        Scenario("4 hosts, then 1", "shuffled", Leg(4), Leg(1)),
        Scenario("2 hosts, then 4, and batches of 16", "shuffled", Leg(2), Leg(4, batch=16)),
    ]
    for plan in ("random map", "filtered", "mixed", "packed", "streamed"):
        rows += [
            Scenario("nothing", plan),
            Scenario("2 workers, then 3", plan, Leg(workers=2), Leg(workers=3)),
            Scenario("2 hosts, then 4", plan, Leg(2), Leg(4)),
        ]
    second = {"saved": 40, "killed": 43, "epochs": 2}
    rows += [
        Scenario("nothing", "filter learnt", epochs=2),
        Scenario("nothing, in the second epoch", "filter learnt", **second),
        Scenario("batches of 24, then 16, there", "filter learnt", after=Leg(batch=16), **second),
        Scenario("2 hosts, then 4, there", "filter learnt", Leg(2), Leg(4), **second),
        Scenario("batches of 24, then 16", "filtered", after=Leg(batch=16)),
        Scenario("batches of 24, then 16", "packed", after=Leg(batch=16), saved=3, killed=5),
        Scenario("nothing", "blocks"),
        Scenario("2 hosts, then 4", "blocks", Leg(2), Leg(4)),
        Scenario("2 workers, then 3", "blocks", Leg(workers=2), Leg(workers=3)),
        Scenario("2 hosts, then 4", "owned blocks", Leg(2), Leg(4)),
        Scenario("4 hosts, then 1", "owned blocks", Leg(4), Leg(1)),
        Scenario("nothing", "far"),
        Scenario("1 host, then 2", "far", after=Leg(2)),
        Scenario("nothing", "far, shuffled"),
        Scenario("1 host, then 2", "far, shuffled", after=Leg(2)),
        Scenario("nothing", "far, by number"),
        Scenario("1 host, then 2", "far, by number", after=Leg(2)),
        Scenario("nothing", "cluster", Leg(workers=2), Leg(workers=2)),
        Scenario("2 workers, then 3", "cluster", Leg(workers=2), Leg(workers=3)),
    ]
    return rows


class Run(NamedTuple):
    """A contestant at work: what it gives this host, step by step, and how its state is kept."""

    steps: Any  # an iterator of arrays of numbers
    save: Any  # a function of a path: writes the state after the step that was handed over last
    kept: Any = None  # what has to live as long


class Cannot(Exception):
    """Raised by a contestant whose library has no way to do this, with the reason and the page."""


@dataclass(frozen=True)
class Job:
    """The orders of one process of a session."""

    contestant: str
    plan: str
    folder: str
    leg: Leg = field(default_factory=Leg)
    rank: int = 0
    port: int = 0
    count: int = COUNT
    epochs: int = 1
    states: tuple[str, ...] = ()
    saved: int = 0
    killed: int = 0
    url: str = ""
    quiet: bool = False  # report no values

    @classmethod
    def read(cls, words: str) -> Job:
        told = json.loads(words)
        return cls(**{**told, "leg": Leg(**told["leg"]), "states": tuple(told["states"])})

    def written(self) -> str:
        return json.dumps(asdict(self))

    @property
    def local(self) -> int:
        """The rows of a batch that this host gets."""
        return self.leg.batch // self.leg.hosts

    def own_state(self, otherwise: str) -> Path | None:
        """The state that this host left, None at the beginning.

        Args:
            otherwise: Why the library cannot go on with more or fewer hosts than saved a state.
        """
        if self.states and len(self.states) != self.leg.hosts:
            raise Cannot(otherwise)
        return Path(self.states[self.rank]) if self.states else None

    @property
    def any_state(self) -> Path | None:
        """The state of the first host, where all have the same one."""
        return Path(self.states[0]) if self.states else None

    def paths(self, kind: str) -> list[str]:
        return sorted(map(str, Path(self.folder).glob(f"part-*.{kind}")))


def function_of(plan: str) -> str:
    """The name of the function that each contestant has for a plan."""
    return plan.replace(",", "").replace(" ", "_")


def documents() -> list[np.ndarray]:
    """Documents of 1 to 40 numbers, all of which are different."""
    lengths = np.random.default_rng(0).integers(1, 41, 3 * COUNT)
    ends = np.cumsum(lengths)
    return np.split(np.arange(1, ends[-1] + 1), ends[:-1])


SCENARIOS = _scenarios()
LATE = "shuffled", "filtered"
"""Plans of which the time to the first batch is taken, from a state of a late step."""
LATE_STEPS, LATE_BATCH, LATE_COUNT = (10**4, 10**5, 10**6), 2, 3 * 10**6
