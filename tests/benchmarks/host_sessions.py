"""Runs that are killed, and go on with other numbers of hosts: no sample may be lost or doubled.

    python -m tests.benchmarks.host_sessions [--sessions 30] [--seed 0]

A session is a random plan, and runs of 1, 2 or 4 real processes of `jax.distributed`; in some
sessions each of these has two workers, by `load(workers=)`. At a random step one process, or all,
is killed by SIGKILL, and the next run goes on from the cursor that was saved last. What all runs
together gave must be what one process gives that has no workers and that nobody kills, step by
step. The same seed gives the same sessions.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from together import ended

BY_WORKERS = " by workers"
KINDS = (
    "indexed",
    "mapped",
    "lanes",
    "packing",
    "mixture",
    "filtered",
    "kept filter",
    "blocks",
    "owned blocks",
    "mapped" + BY_WORKERS,
    "lanes" + BY_WORKERS,
    "owned blocks" + BY_WORKERS,
)
RUN = """
import os, random, signal
from pathlib import Path
from jreader import Pipeline, Processes, arrays, jsonl, mix, ragged, source

draw = random.Random(given["seed"])
count, seed = draw.randrange(150, 400), draw.randrange(100)
rows = Pipeline(arrays(n=np.arange(count)))

def lines(file):
    for place in range(int(file) % 19 + 3):
        yield {"n": np.int64(1000 * int(file) + place)}

def drawn(row, rng):
    return {"n": row["n"] * 1000 + rng.integers(1000)}

def odd(row):
    return row["n"] % 3 != 1

def documents():
    lengths = np.random.default_rng(seed).integers(1, 9, count)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return Pipeline(ragged(np.arange(ends[-1]), ends)).pack(16, seed=seed)

def of_blocks(blocks=3, lanes=1):
    path = Path(given["folder"], "rows.jsonl")
    if not path.exists():
        made = path.with_suffix(f".{me}")
        made.write_text("".join(json.dumps({"n": n}) + "\\n" for n in range(count)))
        made.replace(path)
    return Pipeline(jsonl(path, block="200B")).shuffle(seed=seed, blocks=blocks, lanes=lanes)

plans = {
    "indexed": lambda: rows.shuffle(seed=seed),
    "mapped": lambda: rows.map(drawn, rng=True, seed=seed).shuffle(40, seed=seed),
    "lanes": lambda: Pipeline(source(list(range(8, 8 + count // 8)))).shuffle(seed=seed)
        .read(lines, lanes=8).filter(odd).shuffle(5, seed=seed),
    "packing": documents,
    "mixture": lambda: Pipeline(mix([rows.shuffle(seed=seed), rows.map(drawn, rng=True, seed=1)],
        weights=[3, 1], seed=seed)),
    "filtered": lambda: rows.shuffle(seed=seed).filter(odd),
    "kept filter": lambda: rows.filter(odd, keep=given["folder"] + "/kept").shuffle(seed=seed),
    "blocks": of_blocks,
    "owned blocks": lambda: of_blocks(blocks=4, lanes=4),
}
mesh = jax.make_mesh((8,), ("data",))
loader = plans[given["plan"]]().batch(8).load(
    sharding=mesh, last=given["last"], capacity=given["capacity"],
    workers=Processes(2) if given["workers"] else None)
whole = jax.jit(lambda feed: feed, out_shardings=jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec()))
cursor = given["cursor"]
began = cursor["step"] if cursor else 0
with open(given["told"], "a") as told, loader.epoch(1, at=cursor) as feeds:
    for feed in feeds:
        feed = whole(feed)
        if me == 0:
            parts = [part.addressable_data(0) for part in jax.tree.leaves(feed)]
            values = [np.asarray(part).tolist() for part in parts]
            told.write(json.dumps([feeds.step, values]) + "\\n")
            told.flush()
        if feeds.step % given["every"] == 0:
            kept = feeds.cursor
            if me == 0:
                saved = Path(given["saved"])
                saved.with_suffix(".new").write_text(json.dumps(kept))
                saved.with_suffix(".new").replace(saved)
        if feeds.step - began == given["dies"] and me in given["who"]:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def session(seed: int, folder: Path) -> str:
    """Plays one session; returns what it was.

    Raises:
        AssertionError: A sample is lost, doubled or elsewhere.
    """
    draw, told, saved = random.Random(seed), folder / "told", folder / "saved.json"
    kind = KINDS[seed % len(KINDS)]
    given: dict[str, Any] = {
        "seed": seed,
        "plan": kind.removesuffix(BY_WORKERS),
        "last": draw.choice(["drop", "pad"]),
        "every": draw.randrange(1, 5),
        "capacity": draw.choice([0, 2, 5]),
        "folder": str(folder),
        "told": str(told),
        "saved": str(saved),
    }

    def run(count: int, dies: int, who: list[int], *, workers: bool) -> dict[int, Any]:
        """What a run gave, after the cursor that was saved last."""
        told.write_text("")
        cursor = json.loads(saved.read_text()) if saved.exists() else None
        more = {"cursor": cursor, "dies": dies, "who": who, "workers": workers}
        every = ended(RUN, count, devices=8 // count, given=given | more, limit=200, patience=20)
        steps = dict(json.loads(line) for line in told.read_text().splitlines())
        assert steps or dies, every
        hung = [each for n, each in enumerate(every) if each.code == -9 and n not in who]
        assert not hung, every
        return steps

    expected, workers = run(1, 0, [], workers=False), kind.endswith(BY_WORKERS)
    saved.unlink(missing_ok=True)
    found: dict[int, Any] = {}
    runs = []
    for number in range(draw.randrange(2, 4)):
        count = draw.choice([2, 4]) if not number else draw.choice([1, 2, 4])
        left = len(expected) - len(found)
        dies = draw.randrange(1, max(left, 2))
        who = draw.choice([[draw.randrange(count)], list(range(count))])
        runs.append(f"{count} until {dies} (kills {who})")
        given_now = run(count, dies, who, workers=workers)
        check(given_now, expected)
        until = first(json.loads(saved.read_text())) if saved.exists() else 0
        found |= {step: feed for step, feed in given_now.items() if step <= until}
        assert sorted(found) == list(range(1, until + 1)), (sorted(found), until)
    count = draw.choice([1, 2, 4])
    found |= run(count, 0, [], workers=workers)
    assert found == expected
    return f"{kind}, {given['last']}: {', '.join([*runs, f'{count} to the end'])}"


def first(cursor: Any) -> int:
    """How many steps were done before a cursor."""
    return int(cursor["step"]) if cursor else 0


def check(steps: dict[int, Any], expected: dict[int, Any]) -> None:
    """Every step that was given, also those after the last save, is as in one run."""
    wrong = [step for step, feed in steps.items() if feed != expected[step]]
    assert not wrong, wrong


def main() -> None:
    """Prints a line for each session; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    asked = parser.parse_args()
    for seed in range(asked.seed, asked.seed + asked.sessions):
        with TemporaryDirectory() as folder:
            print(f"{seed}: {session(seed, Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
