"""What it costs to go on at 90 % of an epoch, beside starting: through a filter, 10**7 samples.

    python tests/benchmarks/resume.py [rounds]

Both loops take turns, and the median of the differences counts: below 50 ms is the aim. Where Grain
is installed, it does the same.
"""

import json
import statistics
import sys
import time
from itertools import islice
from math import inf

import numpy as np

COUNT, BATCH_SIZE, SHARE, ROUNDS = 10**7, 256, 0.9, 15


def kept(row):
    """Whether a sample is used: three of four."""
    return row % 4 != 0


def ours():
    """What begins an epoch of a loader, at a cursor or not, and a cursor at 90 %."""
    from jreader import Pipeline, arrays  # noqa: PLC0415  # the peers' environment has no jreader

    plan = Pipeline(arrays(np.arange(COUNT))).shuffle(seed=0).filter(kept).batch(BATCH_SIZE)
    loader = plan.load(sharding="host", capacity=0)

    def begun(cursor):
        with loader.epoch(0, at=cursor) as feeds:
            return next(feeds).tolist()

    feeds = loader.epoch(0)
    steps = int(COUNT * 3 / 4 * SHARE / BATCH_SIZE)
    next(islice(feeds, steps - 1, None))
    return begun, json.loads(json.dumps(feeds.cursor)), next(feeds).tolist()


def grains():
    """The same in Grain, whose iterator is told its state."""
    import grain  # noqa: PLC0415  # where it is installed

    data = (
        grain.MapDataset.source(range(COUNT))
        .shuffle(seed=0)
        .to_iter_dataset(grain.ReadOptions(num_threads=0))
    )
    data = data.filter(kept).batch(BATCH_SIZE)

    def begun(state):
        items = iter(data)
        if state is not None:
            items.set_state(state)
        return next(items).tolist()

    items, steps = iter(data), int(COUNT * 3 / 4 * SHARE / BATCH_SIZE / 100)
    next(islice(items, steps - 1, None))  # a hundredth of the way: all of it would take minutes
    state = items.get_state()
    expected = next(items).tolist()
    return begun, state, expected


def compared(name, made, rounds):
    """The time to the first batch, from the beginning and from a cursor, in turns."""
    begun, cursor, expected = made()
    assert begun(cursor) == expected
    best, differences = [inf, inf], []
    for turn in range(rounds):
        times = {}
        for at in (None, cursor) if turn % 2 else (cursor, None):
            began = time.perf_counter()
            begun(at)
            times[at is None] = time.perf_counter() - began
        differences.append(times[False] - times[True])
        best = [min(best[0], times[True]), min(best[1], times[False])]
    print(
        f"{name:30} resuming costs {statistics.median(differences) * 1e3:7.2f} ms more than "
        f"starting (at best {best[1] * 1e3:.2f} and {best[0] * 1e3:.2f} ms)"
    )


if __name__ == "__main__":
    ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for name, made in {"jreader": ours, "Grain": grains}.items():
        try:
            compared(name, made, ROUNDS)
        except ImportError as error:
            print(f"{name:30} is not installed: {error}")
