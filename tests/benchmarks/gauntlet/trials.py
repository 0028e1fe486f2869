"""Runs sessions of real processes, kills them, resumes them, and counts every sample."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

from remote_server import RemoteServer
from together import COUNT as DEVICES
from together import free_port

from tests.benchmarks.gauntlet.judging import Steps, Verdict, at_million, judged
from tests.benchmarks.gauntlet.scenarios import (
    COUNT,
    FILES,
    GROUP,
    LATE_BATCH,
    LATE_COUNT,
    LATE_STEPS,
    Job,
    Leg,
    Scenario,
)

ROOT = Path(__file__).parents[3]
PATIENCE, LATE_PATIENCE = 180.0, 400.0  # seconds for a session, and for one to a late step
SHORT = 6.0  # seconds of resumes, after which they are not repeated


@dataclass
class Session:
    """The outcome of some processes: global steps, and why they failed if they did."""

    steps: Steps
    ended: str  # "over", "killed", "cannot", "failed"
    reason: str = ""
    seconds: float = 0


@dataclass
class Ring:
    """Where a contestant runs its scenarios; sessions that several of them share run once."""

    contestant: str
    python: str
    folder: Path
    url: str = ""
    whole: dict[Any, Session] = field(default_factory=dict)
    killed: dict[Any, tuple[Session, Path]] = field(default_factory=dict)

    def tried(self, scenario: Scenario) -> Verdict:
        """Runs the scenario uninterrupted, killed and resumed, and judges it."""
        told = Verdict(scenario.change, scenario.plan, "passed")
        whole = self.uninterrupted(scenario)
        first, folder = self.interrupted(scenario)
        for session in (whole, first):
            if session.ended not in ("over", "killed"):
                return replace(told, **stopped(session))
        folder = Path(shutil.copytree(folder, self.place(), symlinks=True))
        states = sorted(folder.glob("state.?"))
        told.size = sum(map(size, distinct(states)))
        changes = {"states": tuple(map(str, states)), "saved": 0, "killed": 0}
        rest = self.session(scenario, scenario.after, folder, **changes)
        if rest.ended != "over":
            return replace(told, **stopped(rest))
        seen = first.steps[: scenario.saved] + rest.steps
        alone = scenario.before.hosts == scenario.after.hosts == 1
        return judged(told, whole.steps, seen, alone=alone)

    def late(self, plan: str) -> dict[str, Any]:
        """Seconds to the first batch from the state of late steps, and the bytes of the last one.

        A step that would take too long to reach is left out: the time of step 10**6 is then
        extrapolated from the steps before.
        """
        scenario = Scenario("", plan, Leg(batch=LATE_BATCH))
        seconds: dict[int, float] = {}
        told: dict[str, Any] = {"seconds": seconds}
        for step in LATE_STEPS:
            folder, quiet = self.room(), {"quiet": True, "count": LATE_COUNT}
            began = time.monotonic()
            there = self.session(
                scenario, scenario.before, folder, **quiet, saved=step, killed=step
            )
            took = time.monotonic() - began
            if there.ended != "killed":
                break
            state = folder / "state.0"
            quiet |= {"states": (str(state),), "saved": 0, "killed": 1}
            times: list[float] = []
            while len(times) < 3 and sum(times) < SHORT:
                times.append(self.session(scenario, scenario.after, folder, **quiet).seconds)
            seconds[step], told["size"] = min(times), size(state)
            if len(seconds) > 1 and took * 10 > LATE_PATIENCE:
                break
        return {**told, "at_million": at_million(seconds)} if len(seconds) > 1 else {}

    def uninterrupted(self, scenario: Scenario) -> Session:
        key = scenario.plan, scenario.before, scenario.epochs
        if key not in self.whole:
            folder = self.room()
            self.whole[key] = self.session(scenario, scenario.before, folder, saved=0, killed=0)
        return self.whole[key]

    def interrupted(self, scenario: Scenario) -> tuple[Session, Path]:
        key = scenario.plan, scenario.before, scenario.epochs, scenario.saved, scenario.killed
        if key not in self.killed:
            folder = self.room()
            self.killed[key] = self.session(scenario, scenario.before, folder), folder
        return self.killed[key]

    def room(self) -> Path:
        """A folder for one session, with the files of the data; those that go on copy it."""
        folder = self.place()
        folder.mkdir()
        for path in sorted((self.folder / "data").iterdir()):
            (folder / path.name).symlink_to(path)
        return folder

    def place(self) -> Path:
        """A path that no session has used."""
        return self.folder / str(time.monotonic_ns())

    def session(self, scenario: Scenario, leg: Leg, folder: Path, **changes: Any) -> Session:
        job = Job(
            self.contestant,
            scenario.plan,
            str(folder),
            leg,
            port=free_port(),
            epochs=scenario.epochs,
            saved=scenario.saved,
            killed=scenario.killed,
            url=self.url,
        )
        job = replace(job, **changes)
        patience = LATE_PATIENCE if job.quiet else PATIENCE
        every = [replace(job, rank=rank) for rank in range(leg.hosts)]
        return session(every, self.python, patience)


def stopped(session: Session) -> dict[str, str]:
    """The verdict on a session that did not reach its end."""
    outcome = "refused" if session.ended == "failed" else session.ended
    return {"outcome": outcome, "reason": session.reason}


def distinct(states: list[Path]) -> list[Path]:
    """The states of all hosts, or the one that they share."""
    same = all(each.is_file() for each in states) and len({each.read_bytes() for each in states})
    return states[:1] if same == 1 else states


def size(state: Path) -> int:
    """The bytes of a state: a file, or all files of a folder."""
    files = [state] if state.is_file() else [each for each in state.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


def session(jobs: list[Job], python: str, patience: float) -> Session:
    """Starts a process for each host, and listens until all end or wait; then kills them."""
    said: queue.Queue[tuple[int, Any]] = queue.Queue()
    children = [_child(job, python, said) for job in jobs]
    told: list[dict[str, Any]] = [{"values": []} for _ in jobs]
    waited, limit = len(jobs), time.monotonic() + patience
    try:
        while waited:
            try:
                rank, words = said.get(timeout=max(limit - time.monotonic(), 0))
            except queue.Empty:
                return Session([], "failed", f"it did not end in {patience:.0f} s")
            if words is None:
                if told[rank].keys() & {"over", "reached"}:
                    continue
                return Session([], "failed", "it ended without a word")
            if "values" in words:
                told[rank]["values"].append(words.pop("values"))
            told[rank] |= words
            if words.keys() & {"cannot", "failed"}:
                ended, reason = next(iter(words.items()))
                return Session([], ended, reason)
            waited -= bool(words.keys() & {"over", "reached"})
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return Session(
        [[*chain(*each)] for each in zip_longest(*(host["values"] for host in told), fillvalue=[])],
        "killed" if "reached" in told[0] else "over",
        seconds=max(host.get("seconds", 0) for host in told),
    )


def _child(job: Job, python: str, said: queue.Queue[tuple[int, Any]]) -> subprocess.Popen[str]:
    log = Path(job.folder) / f"log.{job.rank}"
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if DEVICES not in flag]
    with log.open("a") as errors:
        child = subprocess.Popen(
            [python, "-m", "tests.benchmarks.gauntlet.child", job.written()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": " ".join(flags)},
            stdin=subprocess.PIPE,  # closes when this process ends
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )

    def hear() -> None:
        for line in child.stdout or ():
            said.put((job.rank, json.loads(line)))
        said.put((job.rank, None))

    threading.Thread(target=hear, daemon=True).start()
    return child


def prepared(folder: Path) -> str:
    """Writes the data files, and serves ranges of some on a local URL, which it returns."""
    folder.mkdir(parents=True)
    numbers, server = np.arange(1, COUNT + 1, dtype=np.int32), RemoteServer()
    for part, some in enumerate(np.split(numbers, FILES)):
        _write(folder / f"part-{part:02}", some)
    _write(folder / "all", numbers)
    np.save(folder / "all.npy", numbers)
    server.files |= {path.name: path.read_bytes() for path in folder.glob("all.*")}
    return server.url


def _write(path: Path, numbers: np.ndarray) -> None:
    """As lines of text, as JSON Lines, and as Parquet."""
    path.with_suffix(".txt").write_text("".join(f"{n}\n" for n in numbers))
    path.with_suffix(".jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    parquet.write_table(
        pa.table({"n": numbers}), path.with_suffix(".parquet"), row_group_size=GROUP
    )
