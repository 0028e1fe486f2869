"""What a verb costs per sample, beside a bare generator that does the same job, in one run.

    python tests/benchmarks/verbs.py [samples] [rounds]

Rounds are interleaved (bare, verb, bare, ...), because machines are noisy; the ratio is that of the
medians, and the spread is the middle half of the ratios of the rounds.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from itertools import islice

import numpy as np

import jreader

SIZE = 512


def rows(n):
    def source():
        yield from range(n)

    return source


def double(sample):
    return sample * 2


def odd(sample):
    return sample % 2


def bare_map(reader):
    for sample in reader():
        yield double(sample)


def bare_filter(reader):
    for sample in reader():
        if odd(sample):
            yield sample


def bare_chain(*readers):
    for reader in readers:
        yield from reader()


def bare_firstn(reader, n):
    yield from islice(reader(), n)


def bare_skip(reader, n):
    yield from islice(reader(), n, None)


def bare_batch(reader, size):
    samples = iter(reader())
    while held := list(islice(samples, size)):
        yield held


def bare_shuffle(reader, size):
    """NumPy's permutation of each window."""
    samples, generator = iter(reader()), np.random.default_rng(0)
    while held := list(islice(samples, size)):
        for place in generator.permutation(len(held)).tolist():
            yield held[place]


def bare_compose(one, two):
    """A checked zip; tuples of the samples, which here are no tuples."""
    yield from zip(one(), two(), strict=True)


def bare_compose_flat(one, two):
    """A checked zip that flattens tuples, as compose must."""
    for left, right in zip(one(), two(), strict=True):
        left = left if isinstance(left, tuple) else (left,)  # noqa: PLW2901  # the same sample
        right = right if isinstance(right, tuple) else (right,)  # noqa: PLW2901  # the same sample
        yield left + right


def jobs(n):
    """(verb, goal, the bare job, the same in jreader)."""
    source, half = rows(n), n // 2
    two = (source, source)
    return [
        ("map_readers", 1.3, bare_map, (source,), jreader.map_readers(double, source)),
        ("filter", 1.3, bare_filter, (source,), jreader.filter(odd, source)),
        ("chain", 1.3, bare_chain, two, jreader.chain(*two)),
        ("firstn", 1.3, bare_firstn, (source, half), jreader.firstn(source, half)),
        ("skip", 1.3, bare_skip, (source, half), jreader.skip(source, half)),
        ("batch", 1.3, bare_batch, (source, SIZE), jreader.batch(source, SIZE)),
        ("shuffle", 1.5, bare_shuffle, (source, SIZE), jreader.shuffle(source, SIZE, 0)),
        ("compose", 1.5, bare_compose_flat, two, jreader.compose(*two)),
        ("compose, zip", None, bare_compose, two, jreader.compose(*two)),
    ]


def seconds(iterable):
    began = time.perf_counter()
    deque(iterable, maxlen=0)
    return time.perf_counter() - began


def main(n=200_000, rounds=15):
    print("| verb | bare, ns a sample | jreader, ns | ratio | middle half | goal |")
    print("|---|---|---|---|---|---|")
    for name, goal, bare, given, verb in jobs(n):
        times = np.array([(seconds(bare(*given)), seconds(verb())) for _ in range(rounds)])
        plain, ours = np.median(times, axis=0)
        low, high = np.percentile(times[:, 1] / times[:, 0], [25, 75])
        print(
            f"| {name} | {plain / n * 1e9:.0f} | {ours / n * 1e9:.0f} | {ours / plain:.2f} | "
            f"{low:.2f}-{high:.2f} | {goal or ''} |"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
