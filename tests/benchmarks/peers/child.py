"""One contestant in a process of its own: says that it is ready, then takes a turn when told.

    python -m tests.benchmarks.peers.child CONTESTANT PLAY CASE ROOM SIZE SECONDS

Lines of JSON on the standard output that it was started with; what libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.peers.jobs import Job, made


def main(contestant: str, play: str, case: str, room: str, size: str, seconds: str) -> None:
    """Answers until its input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(**words: Any) -> None:
        print(json.dumps(words), file=answers)

    try:
        module = importlib.import_module(f"tests.benchmarks.peers.contestants.{contestant}")
        chosen = getattr(module, play)
        job = made(case, Path(room), float(size), float(seconds))
        if case in ONCE:
            answer(ready=True)
            sys.stdin.readline()
            answer(figures=ONCE[case](module, chosen, job))
            return
        begun = chosen(job)
        job.turn(begun, 0)
        answer(ready=True)
        for nth, _ in enumerate(sys.stdin, 1):
            figures = job.turn(begun, nth)
            answer(figures=figures, wrong=job.wrong, digest=getattr(job, "digest", ""))
    except Exception as error:
        answer(failed=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        raise


def _backend() -> Any:
    """jax with its backend up, and the first `device_put` behind it."""
    import jax

    jax.block_until_ready(jax.device_put(np.zeros(8)))
    return jax


def first(module: Any, play: Callable[[Job], Any], job: Job) -> dict[str, float]:
    """What there is to wait for: the import (after NumPy's), and batches of a loop that starts."""
    began = time.perf_counter()
    importlib.import_module(module.NEEDS[0])
    imported = time.perf_counter() - began
    jax, epoch = _backend(), play(job)
    times = []
    for number in range(2):
        began = time.perf_counter()
        feeds = iter(epoch(number))
        jax.block_until_ready(next(feeds))
        times.append(time.perf_counter() - began)
        del feeds
    return {"f import": imported, "f first": times[0], "f again": times[1]}


def memory(_module: Any, play: Callable[[Job], Any], job: Job) -> dict[str, float]:
    """The most memory that a pass held beyond the data, in batches; the feed at hand counts."""
    jax = _backend()
    step = jax.jit(lambda feed: (feed[0].astype("float32") ** 2).sum())
    step((np.zeros(job.images[: job.batch].shape, "uint8"), 0)).block_until_ready()
    unit, figures = job.images[: job.batch].nbytes, {}
    epoch, begun = play(job), _anonymous()
    for number, (name, awaited) in enumerate({"awaited": True, "not awaited": False}.items()):
        with Watch(begun) as watch:
            for feed in islice(_epochs(epoch, number), 16):
                result = step(feed)
                if awaited:
                    result.block_until_ready()
            result.block_until_ready()
            del feed, result
        figures[f"f memory {name}"] = watch.most / unit
    return figures


def _epochs(epoch: Callable[[int], Any], number: int) -> Any:
    for nth in range(number * 100, number * 100 + 100):
        yield from epoch(nth)


class Watch:
    """The peak of the memory that no file backs, above what it was."""

    def __init__(self, begun: int) -> None:
        self.begun, self.most, self.over = begun, 0, threading.Event()

    def __enter__(self) -> Watch:
        """Looks every millisecond."""
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.001):
            self.most = max(self.most, _anonymous() - self.begun)

    def __exit__(self, *_error: object) -> None:
        """Looks no longer."""
        self.over.set()
        self.thread.join()


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    parts = [line.split() for line in lines if line.startswith(("RssAnon", "RssShmem"))]
    return sum(int(part[1]) for part in parts) * 1024


ONCE = {"f first": first, "f memory": memory}

if __name__ == "__main__":
    main(*sys.argv[1:])
