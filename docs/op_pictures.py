"""Pictures of what an op does to the order of samples: squares that were computed, not drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jreader
from jreader import Pipeline

SIDE, GAP, INK = 30, 9, 4
"""In pixels: a square, the room between samples, the room between rows of one sample."""

BREAK = ""

COLORS = ["#3b0f70", "#5a1680", "#7c2382", "#9c2e7f", "#bc3978", "#d8456c", "#c8571a", "#b06a00"]
"""Dark enough for white figures, on a page that is light or dark."""

ROWS: dict[str, list[str]] = {
    "batch": ["ten", "ten.batch(4)"],
    "buffered": ["ten", "ten.prefetch(4)"],
    "cache": ["ten", "ten.cache()"],
    "chain": ["low", "high", "low.chain(high)"],
    "compose": ["low", "high", "low.compose(high)"],
    "epochs": ["six", "six.shuffle(seed=0)", "six.shuffle(seed=0).epochs(2)"],
    "filter": ["ten", "ten.filter(lambda n: n % 3)"],
    "firstn": ["ten", "ten.firstn(4)"],
    "flat_map": ["ten", "ten.firstn(4).flat_map(range)"],
    "interleave": ["low", "high", "low.interleave(high)"],
    "map_batches": ["ten.batch(5)", "ten.batch(5).map_batches(lambda rows: rows[::-1])"],
    "map_readers": ["ten", "ten.map(lambda n: 9 - n)"],
    "map_samples": ["ten", "ten.map(lambda n: 9 - n, threads=2)"],
    "mix": ["low", "high", "low.mix(high, weights=[2, 1], seed=0)"],
    "pack": ["documents", "documents.pack(6, seed=0)"],
    "padded_batch": ["documents", "documents.padded_batch(3)"],
    "bucket": ["documents", "documents.bucket([2, 5], batch_size=2, seed=0)"],
    "rebatch": ["ten.batch(5)", "ten.batch(5).rebatch(4)"],
    "shard": ["ten", "ten.shard(2, 0)", "ten.shard(2, 1)"],
    "shuffle": ["ten", "ten.shuffle(seed=0)", "ten.shuffle(5, seed=0)"],
    "skip": ["ten", "ten.skip(4)"],
    "unbatch": ["ten.batch(4)", "ten.batch(4).unbatch()"],
    "sliding_window": ["ten", "ten.sliding_window(3, stride=2, drop_last=True)"],
    "windows": ["documents", "documents.windows(4, stride=3)"],
    "xmap_readers": ["ten", "ten.xmap(lambda n: 9 - n, 2, 4, order=True)"],
}
"""For each op the programs whose samples are shown, the first ones being what goes in."""


def page(name: str) -> str:
    """The picture of an op, as a part of its page; empty if it has none."""
    return f"```{{raw}} html\n{picture(ROWS[name])}\n```" if name in ROWS else ""


def picture(programs: list[str]) -> str:
    """A figure with one row of squares for each program."""
    shown = [
        f"<div><code>{escaped(each)}</code>{squares(samples(each))}</div>" for each in programs
    ]
    return f'<figure class="order">{"".join(shown)}</figure>'


def samples(program: str) -> list[list[Any]]:
    """The samples of a program, each as the list of the numbers in it."""
    rooms: dict[str, Callable[[], Any]] = {
        "ten": Pipeline(jreader.arrays(np.arange(10))),
        "six": Pipeline(jreader.arrays(np.arange(6))),
        "low": Pipeline(jreader.arrays(np.arange(5))),
        "high": Pipeline(jreader.arrays(np.arange(5, 10))),
        "documents": Pipeline(
            jreader.ragged(
                np.repeat(np.arange(1, 7), [4, 2, 5, 1, 3, 2]), [0, 4, 6, 11, 12, 15, 17]
            )
        ),
    }
    return [numbers(each) for each in eval(program, rooms)]  # noqa: S307  # of this file


def numbers(sample: Any) -> list[Any]:
    """The numbers of a sample; None for padding, BREAK between the rows of a padded batch."""
    parts = getattr(sample, "columns", sample)
    if not isinstance(parts, dict):
        return [int(each) for each in np.ravel(np.asarray(parts))]
    rows = np.atleast_2d(parts["tokens"])  # padded with zeros
    shown = [[int(each) or None for each in row] for row in rows]
    return [each for row in shown for each in (*row, BREAK)][:-1]


def squares(found: list[list[Any]]) -> str:
    """The samples as squares with figures; those of one sample stand close together."""
    left, parts = 0, []
    for sample in found:
        for number in sample:
            if number is BREAK:
                left += INK
                continue
            fill = "none" if number is None else COLORS[number % len(COLORS)]
            parts.append(
                f'<rect x="{left + 1}" y="1" width="{SIDE - 2}" height="{SIDE - 2}" rx="3"'
                f' fill="{fill}" stroke="{"#808080" if number is None else fill}"/>'
            )
            if number is not None:
                parts.append(f'<text x="{left + SIDE / 2}" y="{SIDE * 0.66}">{number}</text>')
            left += SIDE
        left += GAP
    label = "; ".join(
        " ".join("-" if each is None else str(each) for each in sample) for sample in found
    )
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {left} {SIDE}" width="{left}"'
        f' height="{SIDE}">{"".join(parts)}</svg>'
    )


def escaped(text: str) -> str:
    """A program as HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
