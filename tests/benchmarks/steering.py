"""What a change of the weights of a mixture costs: CPU, and bytes in the cursor after a hundred.

python -m tests.benchmarks.steering
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from jreader import Pipeline, arrays, jsonl, mix

SOURCES, CHANGES, ROWS = 4, 100, 100_000


def in_memory(number):
    return arrays(of=np.full(ROWS, number), n=np.arange(ROWS))


def in_files(number):
    path = Path(tempfile.gettempdir()) / f"jreader-steering-{number}.jsonl"
    lines = "\n".join(json.dumps({"of": number, "n": n}) for n in range(ROWS))
    path.write_text(lines, "utf-8")
    return Pipeline(jsonl(str(path))).filter(lambda _: True)  # which makes it a stream


def generators(number):
    return lambda: ({"of": np.int64(number), "n": np.int64(n)} for n in range(ROWS))


PLANS = {
    "in memory": (in_memory, lambda mixed: mixed),
    "lines of files": (in_files, lambda mixed: mixed),
    "lines of files, below shuffle(1000)": (in_files, lambda mixed: mixed.shuffle(1000, seed=1)),
    "generators": (generators, lambda mixed: mixed),
}


def main() -> None:
    """Prints a line for each kind of plan."""
    for name, (make, above) in PLANS.items():
        readers = {f"source{number}": make(number) for number in range(SOURCES)}
        mixed = Pipeline(mix(readers, seed=0, stop="repeat"))
        feeds = above(mixed).batch(256).load().steps()
        next(feeds)
        before, began = len(json.dumps(feeds.cursor)), time.process_time()
        for _ in range(CHANGES):
            next(feeds)
        plain, began = time.process_time() - began, time.process_time()
        for change in range(CHANGES):
            feeds.set_weights([1 + change % 7, 2, 3, 4])
            next(feeds)
        spent, after = time.process_time() - began - plain, len(json.dumps(feeds.cursor))
        print(
            f"{name}: {1e3 * spent / CHANGES:.1f} ms of CPU a change, with what is read again; "
            f"cursor {before} -> {after} bytes"
        )


if __name__ == "__main__":
    main()
