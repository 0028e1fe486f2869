"""Who takes part, and the rounds: one process each, in turns, so that all see the same noise."""

from __future__ import annotations

import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CASES = {
    "a": "MNIST rows: shuffle, float32 in [0, 1], batch 512, on the device; idle consumer",
    "b": "uint8 batches of 256 x 224 x 224 x 3 from a memory map: shuffle, on the device",
    "c": "a Python generator of rows: shuffle in windows, batch 512, on the device",
    "c stack": "512 rows of 784 bytes to one array",
    "d": "JPEG decode and resize (Pillow), exact order, batch 64, on the device",
    "e": "a source of 5 ms a batch beside a step of 5 ms",
    "f first": "a fresh process: import, first batch of the first loop and of the next one (a)",
    "f memory": "memory beyond the data (b), in batches, step awaited and not",
    "g 1e3": "an indexed source of 1e3 samples: shuffle, batch 250, on the host",
    "g 1e5": "an indexed source of 1e5 samples: shuffle, batch 512, on the host",
    "g 1e7": "an indexed source of 1e7 samples: shuffle, batch 512, on the host",
    "g 1e9": "an indexed source of 1e9 samples: shuffle, batch 512, on the host",
    "l bucket": "1e5 documents of log-normal lengths, in buckets of 6 lengths, on the device",
    "l pack": "1e5 documents of log-normal lengths in rows of 2,048, batch 32, on the device",
    "m": "four sources of 1e5 rows of 16 int32 in proportion 5 : 3 : 2 : 1, batch 512, on the host",
    "t mlp": "an epoch of an MLP with 128 hidden units, batch 512, its loss fetched at each step",
    "t scan": "an epoch of the same MLP at batch 64",
    "t devices": "(a) with float32 made on the host, on one device and over eight emulated ones",
    "t devices stage": "(a) with uint8 and a stage on the device, likewise",
    "w": "windows of 1,025 uint16 tokens from a flat file: shuffle, batch 32, on the device",
    "w start": "1,000 sparse files of 10^7 tokens: from nothing to the first batch of windows",
}
SETTLED = "cdeglmw"  # workloads whose processes are alike: one sitting does
CALM = 3  # seconds that a contestant may work on after its turn
LIMIT = 180  # seconds that a contestant may take to begin, or for one turn


@dataclass
class Contestant:
    """One way to do a case, and what came of it."""

    module: str
    play: str
    case: str
    title: str
    settings: str
    python: str
    environment: Mapping[str, str] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""
    digests: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the command line and the goals call it."""
        return f"{self.module}.{self.play}"

    @property
    def limit(self) -> bool:
        """Whether it shows what nobody can pass, and is no way to do the work."""
        return self.settings.endswith("limit")

    def median(self, case: str) -> float:
        """The middle one of its figures."""
        return statistics.median(self.figures[case])


@dataclass(frozen=True)
class Terms:
    """How long and how often: the same for all."""

    rounds: int = 3
    sittings: int = 2
    size: float = 1.0
    seconds: float = 0.4


class Process:
    """A contestant at work, in a process group of its own."""

    def __init__(self, contestant: Contestant, room: Path, terms: Terms) -> None:
        self.contestant = contestant
        name, play, case = contestant.module, contestant.play, contestant.case
        words = (name, play, case, room, terms.size, terms.seconds)
        self.log = (room / f"{contestant.name}.{contestant.case}.log".replace(" ", "-")).open("wb")
        self.process = subprocess.Popen(
            [contestant.python, "-m", "tests.benchmarks.peers.child", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
            env={**os.environ, **QUIET, **contestant.environment},
        )

    def reads(self) -> dict[str, Any]:
        """Its next answer; what fails is noted, and answers no more."""
        clock = threading.Timer(LIMIT, self.kill)
        clock.start()
        line = self.process.stdout.readline()
        clock.cancel()
        late = f"died, or took more than {LIMIT} s: see {Path(self.log.name).name}"
        answer = json.loads(line) if line else {"failed": late}
        self.contestant.note = answer.get("failed") or answer.get("wrong") or self.contestant.note
        return answer

    def turn(self) -> bool:
        """Has it take a turn; whether it may take another."""
        self._tell(signal.SIGCONT)
        with suppress(BrokenPipeError):
            print("turn", file=self.process.stdin, flush=True)
        answer = self.reads()
        self.rest()
        for case, figure in answer.get("figures", {}).items():
            self.contestant.figures.setdefault(case, []).append(figure)
        self.contestant.digests.append(answer.get("digest", ""))
        return "failed" not in answer

    def rest(self) -> None:
        """Keeps it from working on while others take their turns.

        What it began ahead of a pass that is over, it ends first, on nobody's time.
        """
        until, spent = time.monotonic() + CALM, -1.0
        while time.monotonic() < until and spent < (now := self._spent()):
            spent = now
            time.sleep(0.05)
        self._tell(signal.SIGSTOP)

    def _spent(self) -> float:
        """Ticks of the processor that its processes have used."""
        stats = (_stat(path) for path in Path("/proc").glob("[0-9]*/stat"))
        return sum(int(stat[11]) + int(stat[12]) for stat in stats if stat[2:3] == [self.group])

    @property
    def group(self) -> str:
        """Its process group, as /proc writes it."""
        return str(self.process.pid)

    def kill(self) -> None:
        """Ends it, and the workers that it started."""
        self._tell(signal.SIGKILL)

    def _tell(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def dismiss(self) -> None:
        """Lets it end by itself."""
        self._tell(signal.SIGCONT)
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """Ends it, if it does not end by itself."""
        self.dismiss()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        self.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def _stat(path: Path) -> list[str]:
    """The numbers of a process that are behind its name; none if it is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "ERROR",
    "PYTHONWARNINGS": "ignore",
    "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
}


def modules() -> list[str]:
    """The files of contestants."""
    names = sorted(path.stem for path in (HERE / "contestants").glob("*.py"))
    return sorted(names, key=lambda name: (name != "by_hand", name != "jreader", name))


def found(names: Sequence[str], python: str) -> dict[str, str | None]:
    """The versions of what can be imported, None for what cannot."""
    script = (
        "import json, sys, importlib.util as u, importlib.metadata as m\n"
        "known = m.packages_distributions()\n"
        "def version(name):\n"
        "    if u.find_spec(name) is None: return None\n"
        "    try: return m.version(known.get(name, [name])[0])\n"
        "    except m.PackageNotFoundError: return 'of this tree'\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))\n"
    )
    command = [python, "-c", script, *names]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


class Field:
    """All contestants that can be imported, those that were asked for."""

    def __init__(self, wanted: Sequence[str], pythons: Mapping[str, str]) -> None:
        self.versions: dict[str, str] = {}
        self.absent: list[str] = []
        self.wanted, self.pythons, self.loaded = wanted, pythons, []
        for name in modules():
            module = importlib.import_module(f"tests.benchmarks.peers.contestants.{name}")
            if wanted and not any(each.split(".")[0] == name for each in wanted):
                continue
            versions = found(module.NEEDS, pythons.get(name, sys.executable))
            missing = [needed for needed, version in versions.items() if version is None]
            if missing:
                self.absent.append(f"{module.PEER} ({', '.join(missing)} cannot be imported)")
                continue
            self.versions |= {key: version for key, version in versions.items() if version}
            self.loaded.append((name, module))

    def of(self, case: str) -> Iterator[Contestant]:
        """Those of a case."""
        plays = {"f first": "a", "f memory": "b"}.get(case, case)
        plays = "g" if plays.startswith("g ") else plays
        for name, module in self.loaded:
            for play in module.PLAYS.get(plays, []):
                known = getattr(module, "MOST", {}).get("g", 1e99)
                if case.startswith("g ") and float(case.split()[1]) > known:
                    continue
                made = Contestant(
                    name,
                    play.__name__,
                    case,
                    module.PEER,
                    (play.__doc__ or "").splitlines()[0],
                    self.pythons.get(name, sys.executable),
                    getattr(module, "ENVIRONMENT", {}).get(play.__name__, {}),
                )
                if not self.wanted or {made.name, made.module} & set(self.wanted):
                    yield made


def held(contestants: Sequence[Contestant], room: Path, terms: Terms) -> None:
    """The sittings of one case.

    Each begins with fresh processes: where NumPy's memory happens to begin in one of them decides
    whether jax copies it, and so moves all of its rounds by up to a third.
    """
    once = any(each.case in ("f first", "f memory") for each in contestants)
    if once:
        _one_by_one(contestants, room, terms)
        return
    if contestants and contestants[0].case[0] in SETTLED:
        terms = replace(terms, rounds=terms.rounds * terms.sittings, sittings=1)
    for _ in range(terms.sittings):
        _sitting([each for each in contestants if not each.note], room, terms)


def _sitting(contestants: Sequence[Contestant], room: Path, terms: Terms) -> None:
    """Everybody begins and warms up, then all take turns."""
    with ExitStack() as ends:
        running: list[Process] = []
        waiting = iter(contestants)
        while pair := list(islice(waiting, 2)):  # two cores begin two at a time
            processes = [Process(each, room, terms) for each in pair]
            for each in processes:
                ends.callback(each.close)
            begun = [each for each in processes if each.reads().get("ready")]
            for each in begun:
                each.rest()
            running += begun
        for nth in range(terms.rounds):
            turn = nth % max(1, len(running))
            for each in running[turn:] + running[:turn]:
                if not each.turn():
                    running = [other for other in running if other is not each]
        for each in running:
            each.dismiss()  # all at once, before they are waited for


def _one_by_one(contestants: Sequence[Contestant], room: Path, terms: Terms) -> None:
    """What is asked of a fresh process: one turn each, in every sitting."""
    for _ in range(terms.sittings):
        for contestant in contestants:
            if contestant.note:
                continue
            process = Process(contestant, room, terms)
            try:
                if process.reads().get("ready"):
                    process.turn()
            finally:
                process.close()
