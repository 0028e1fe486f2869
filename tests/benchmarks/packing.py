"""Packing documents of two lengths: CPU time and fill, beside Grain's.

    python -m tests.benchmarks.packing [documents] [rounds]

So many documents (20,000) with inputs and targets, in arrays in memory, become rows of 512 and 128
tokens, one after another. Both libraries read them in each round (7), in turns; the time is that of
the process, and the ratio that of one round. jreader packs them in windows of 4,096, as a stream,
and as a whole, planned anew in each round; Grain packs best fit and first fit in 64 bins, and best
fit in 1,024.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from statistics import median

import grain
import numpy as np

from jreader import arrays, pack, ragged

SIZES = {"inputs": 512, "targets": 128}


def fields(many):
    """The tokens of each field, document by document."""
    rng = np.random.default_rng(0)
    inputs = np.clip(rng.lognormal(4.3, 0.9, many), 1, 512).astype(int)
    targets = np.clip(inputs * rng.lognormal(-1.4, 0.5, many), 1, 128).astype(int)
    return {
        name: np.split(np.ones(lengths.sum(), np.int32), np.cumsum(lengths)[:-1])
        for name, lengths in zip(SIZES, (inputs, targets), strict=True)
    }


def planned(reader):
    return pack(reader, SIZES, seed=0)()


def contestants(found):
    samples = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    columns = {
        name: ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
        for name, rows in found.items()
    }

    def in_grain(packing, bins):
        data = grain.MapDataset.source(samples).to_iter_dataset()
        return packing(data, length_struct=SIZES, num_packing_bins=bins)

    return {
        "jreader, a stream": partial(planned, lambda: iter(samples)),
        "jreader, as a whole": partial(planned, arrays(**columns)),
        "Grain, best fit": partial(in_grain, grain.experimental.BestFitPackIterDataset, 64),
        "Grain, first fit": partial(in_grain, grain.experimental.FirstFitPackIterDataset, 64),
        "Grain, 1,024 bins": partial(in_grain, grain.experimental.BestFitPackIterDataset, 1024),
    }


def main(many: int, rounds: int) -> None:
    found = fields(many)
    tokens = sum(len(row) for rows in found.values() for row in rows)
    runs = contestants(found)
    times: dict[str, list[float]] = {name: [] for name in runs}
    fill = {}
    for _ in range(rounds):
        for name, run in runs.items():
            begun = time.process_time()
            rows = sum(1 for _ in run())
            times[name].append((time.process_time() - begun) / many)
            fill[name] = tokens / (rows * sum(SIZES.values()))
    least = max(sum(map(len, rows)) / SIZES[name] for name, rows in found.items())
    most = tokens / (least * sum(SIZES.values()))
    print(f"{many:,} documents; no packing fills more than {most:.1%}")
    for name, each in times.items():
        ratios = sorted(
            one / other for one, other in zip(times["Grain, best fit"], each, strict=True)
        )
        print(
            f"{name:20} {median(each) * 1e6:7.1f} us a document, fill {fill[name]:.1%}; Grain best "
            f"fit takes {median(ratios):.1f} times as long ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] + ["20000", "7"][len(sys.argv) - 1 :]))
