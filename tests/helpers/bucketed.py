"""A pipeline whose batches have a few shapes, for tests of loaders."""

from __future__ import annotations

from texts import numbered, streamed

from jreader import Pipeline

BOUNDS = [2, 5, 9]
LENGTHS = [1, 4, 9, 3, 2, 7, 5] * 11


def plan(seed=0, stream=False, **options):
    rows = numbered(LENGTHS)
    return Pipeline(streamed(rows) if stream else rows).bucket(
        BOUNDS, **({"tokens": 36} | options), seed=seed
    )


def shape_of(feed):
    return {name: (leaf.shape, leaf.dtype.name) for name, leaf in feed.items()}
