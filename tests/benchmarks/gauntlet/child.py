"""One host of a session, in a process of its own: reports its batches, and waits to be killed.

    python -m tests.benchmarks.gauntlet.child JOB

It writes lines of JSON to its standard output; what libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.gauntlet.scenarios import Cannot, Job, Run, function_of

Say = Callable[..., None]


def main(words: str) -> None:
    """Runs one job to its kill or its end, and reports the outcome."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = Job.read(words)
    contestant = importlib.import_module(f"tests.benchmarks.gauntlet.contestants.{job.contestant}")

    def say(**told: Any) -> None:
        print(json.dumps(told), file=answers)

    try:
        run_through(job, contestant, say)
    except Cannot as reason:
        say(cannot=str(reason))
    except Exception as error:
        line = str(traceback.extract_tb(error.__traceback__)[-1].line)
        first = (str(error).strip() or line).splitlines()[0]
        traceback.print_exc()  # first: once the failure is reported, this process is killed
        say(failed=f"{type(error).__name__}: {first}")


def end_with_parent() -> None:
    """Kills this process and its workers when the one that started it has gone."""
    os.read(0, 1)  # not `sys.stdin`, whose lock a forked worker would wait for
    os.killpg(0, signal.SIGKILL)


def run_through(job: Job, contestant: Any, say: Say) -> None:
    """Reports each step, saves the state after the given step, and waits for the kill."""
    plan = plan_of(job, contestant)
    if hasattr(contestant, "prepare"):
        contestant.prepare(job)
    placed = placing(job, contestant)
    began = time.perf_counter()
    run: Run = plan(job)
    for step, values in enumerate(placed(run.steps), 1):
        if step == 1:
            say(seconds=time.perf_counter() - began)
        if not job.quiet:
            say(values=[number for number in np.asarray(values).ravel().tolist() if number])
        if step == job.saved:
            run.save(Path(job.folder) / f"state.{job.rank}")
        if step == job.killed:
            say(reached=step)
            signal.pause()
    say(over=True)


def plan_of(job: Job, contestant: Any) -> Callable[[Job], Run]:
    """The contestant's function for the plan."""
    if job.plan in contestant.CANNOT:
        raise Cannot(contestant.CANNOT[job.plan])
    return getattr(contestant, function_of(job.plan))


def placing(job: Job, contestant: Any) -> Callable[[Any], Any]:
    """The function that puts batches on several devices, if the library does not do so itself."""
    if job.leg.devices == 1 or hasattr(contestant, "PLACES"):
        return iter
    module = importlib.import_module("tests.benchmarks.gauntlet.placing")
    return partial(map, module.placer(job.leg.devices))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads of libraries
