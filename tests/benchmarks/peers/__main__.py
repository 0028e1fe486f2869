"""The benchmark against every peer: the same work for all, in one run.

    python -m tests.benchmarks.peers OUT [--workloads a b ...] [--contestants jreader by_hand ...]
        [--rounds 3] [--sittings 2] [--size 1.0] [--seconds 0.4] [--python torch=/path/to/python]

It installs nothing, and runs whichever peers can be imported. OUT gets `table.md`, `summary.md`
(the fastest of each peer), `picture.svg` (where matplotlib can be imported), `figures.json`, and
the logs of contestants that failed.

Each contestant has a process of its own; they begin, warm up, and then take turns, round after
round, so that all see the same noise of the machine; who is not at work is stopped. A turn is some
batches that are not timed (of a pass that begins afresh) and then a fixed number that is, epoch
after epoch, or as many as fit in `--seconds`. Everybody ends with arrays on the jax device (what
does not, says so), and the last batch is waited for. What was seen is checked, outside the time:
see `jobs.py`. All of it takes some 12 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import contest, goals, jobs, pictures, tables

WORKLOADS = sorted({case.split()[0] for case in contest.CASES})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="a folder for the table and the picture")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, help="letters, or cases")
    parser.add_argument("--contestants", nargs="*", default=[], help="files, or file.function")
    parser.add_argument("--rounds", type=int, default=3, help="turns in a sitting")
    parser.add_argument("--sittings", type=int, default=2, help="with fresh processes")
    parser.add_argument("--size", type=float, default=1.0, help="a factor of the data")
    parser.add_argument("--seconds", type=float, default=0.4, help="the longest of a turn")
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PATH", help="elsewhere")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    field = contest.Field(asked.contestants, dict(each.split("=", 1) for each in asked.python))
    cases = [case for case in contest.CASES if {case, case.split()[0]} & set(asked.workloads)]
    terms = contest.Terms(asked.rounds, asked.sittings, asked.size, asked.seconds)
    began, results = time.perf_counter(), []
    page = written(asked.out, results, field, asdict(terms) | {"took": 0})
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        jobs.prepare(room, asked.size, [case.split()[0] for case in cases])
        for case in cases:
            contestants = list(field.of(case))
            contest.held(contestants, room, terms)
            results += contestants
            took = round(time.perf_counter() - began)
            print(f"{case}: {took} s", flush=True)
            for each in contestants:
                log = room / f"{each.name}.{each.case}.log".replace(" ", "-")
                if each.note and log.exists():
                    (asked.out / log.name).write_bytes(log.read_bytes())
            page = written(asked.out, results, field, asdict(terms) | {"took": took})
    print(page)
    print(pictures.drawn(results, asked.out / "picture.svg"))


def written(
    out: Path, results: list[contest.Contestant], field: contest.Field, settings: dict[str, Any]
) -> str:
    """Writes what is known so far, so that a run that is cut short is not lost; gives the page."""
    kept = [{**asdict(each), "python": "", "environment": {}} for each in results]
    told = {"settings": settings, "versions": field.versions, "results": kept}
    (out / "figures.json").write_text(json.dumps(told, indent=1))
    judged = goals.verdicts(results)
    page = tables.page(results, field, settings, judged)
    (out / "table.md").write_text(page + "\n")
    (out / "summary.md").write_text(tables.summary(results, field, settings, judged) + "\n")
    return page


if __name__ == "__main__":
    main()
