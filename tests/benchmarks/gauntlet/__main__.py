"""The gauntlet: kills runs of jreader and its peers, and resumes them with other settings.

    python -m tests.benchmarks.gauntlet OUT [--contestants jreader grain ...] [--plans filtered ...]
        [--late shuffled ...] [--python /path/to/python] [--page docs/measurements.md]

It installs nothing, and runs the libraries that can be imported. It writes `table.md` and
`verdicts.json` to OUT, and adds to the results there, so you can run contestants one by one.

`scenarios.py` defines numbered samples, a plan in words, when the state is saved, when all
processes are killed by SIGKILL, and how they start again. Each library is used as its documentation
says (`contestants/`), and each host is a process of its own. The steps before the saved state and
after the resume are compared with an uninterrupted run. Where a library has no way to do it, the
table says so, with the reason and the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.gauntlet import tables
from tests.benchmarks.gauntlet.scenarios import LATE, SCENARIOS
from tests.benchmarks.gauntlet.trials import ROOT, Ring, prepared

CONTESTANTS = ("jreader", "grain", "torchdata", "hugging_face", "tf_data")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.gauntlet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="a folder for the table")
    parser.add_argument("--contestants", nargs="*", default=CONTESTANTS)
    parser.add_argument("--plans", nargs="*", help="the plans to run (default: all)")
    parser.add_argument("--changes", nargs="*", help="the changes at the resume (default: all)")
    parser.add_argument("--late", nargs="*", default=LATE, help="the plans to resume at step 10**6")
    parser.add_argument(
        "--page", type=Path, help="a page to write the tables into, between its marks"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter that has the libraries"
    )
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "verdicts.json"
    told: tables.Told = json.loads(path.read_text()) if path.exists() else {}
    with TemporaryDirectory() as room:
        for name in asked.contestants:
            version = version_of(name, asked.python)
            if version is None:
                print(f"{name}: cannot be imported")
                continue
            kept = told.setdefault(name, {"verdicts": {}, "late": {}})
            kept["version"] = version
            folder = Path(room) / name
            ring = Ring(name, asked.python, folder, prepared(folder / "data"))
            for done in trials_of(ring, asked, kept):
                print(f"{name}: {done}", flush=True)
                path.write_text(json.dumps(told, indent=1))
    (asked.out / "table.md").write_text(tables.page(told) + "\n")
    if asked.page:
        tables.written(told, asked.page)
    print(tables.page(told))


def trials_of(ring: Ring, asked: argparse.Namespace, kept: dict[str, Any]) -> Iterator[str]:
    """Runs what was asked for; keeps and yields each verdict."""
    for scenario in SCENARIOS:
        if _named(scenario.plan, asked.plans) and _named(scenario.change, asked.changes):
            verdict = kept["verdicts"][scenario.key] = asdict(ring.tried(scenario))
            yield f"{scenario.key}: {verdict}"
    for plan in asked.late:
        kept["late"][plan] = ring.late(plan)
        yield f"{plan}, late: {kept['late'][plan]}"


def _named(name: str, names: list[str] | None) -> bool:
    return names is None or name in names


def version_of(name: str, python: str) -> str | None:
    """The name and version of a contestant; None if it cannot be imported."""
    module = f"tests.benchmarks.gauntlet.contestants.{name}"
    script = f"import {module} as it; print(it.version())"
    done = subprocess.run(
        [python, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()[-1] if done.returncode == 0 else None


if __name__ == "__main__":
    main()
