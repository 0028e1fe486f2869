"""What it costs to ask which steps hold a sample: microseconds of CPU time a sample.

    python -m tests.benchmarks.where

Each plan is asked for one sample, and for 10,000 at once, in three epochs. A search through an
order of 10**9 rows takes half a minute.
"""

import time
import warnings
from functools import partial

import numpy as np

from jreader import Pipeline, arrays, mix, ragged

EPOCHS, MANY = range(3), 10_000


def plans(rows):
    """Some plans over so many rows, which take no memory."""
    table = Pipeline(arrays(np.broadcast_to(np.zeros(1, np.int8), rows)))
    yield "shuffle", table.shuffle(seed=0).batch(256)
    yield "shuffle in windows", table.shuffle(1000, seed=0).batch(256)
    yield "mix", Pipeline(mix([table, table], [3, 1], seed=0, stop="once")).batch(256)
    if rows <= 10**6:
        texts = Pipeline(ragged(np.zeros(rows * 8, np.uint16), np.arange(rows + 1) * 8))
        yield "windows of documents, shuffled", texts.windows(32).shuffle(seed=0).batch(256)
        yield "pack", texts.pack(32, seed=0).batch(256)


def spent(fn):
    """Seconds of CPU time, the least of five."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        fn()
        times.append(time.process_time() - begin)
    return min(times)


def main():
    warnings.simplefilter("ignore")  # of windows that are small
    print(f"{'':32}{'rows':>14}{'one sample':>14}{'of 10,000':>14}  (us a sample, 3 epochs)")
    for rows in (10**3, 10**6, 10**9):
        some = np.random.default_rng(0).integers(0, rows, MANY)
        for name, plan in plans(rows):
            loader = plan.load(sharding="host")
            one = spent(partial(loader.where, int(some[0]), EPOCHS))
            many = spent(partial(loader.where, some, EPOCHS)) / MANY
            print(f"{name:32}{rows:14,}{one * 1e6:14,.0f}{many * 1e6:14.2f}")


if __name__ == "__main__":
    main()
