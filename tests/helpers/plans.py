"""Plans of 48 numbers, over rows and over a stream, and cursors of their loaders."""

import numpy as np
from seen import through_json

from jreader import (
    Pipeline,
    arrays,
)

COUNT = 48


def numbers():
    return iter(range(COUNT))


def evens():
    return iter(range(0, 2 * COUNT, 2))


def plan(count=COUNT, seed=1, size=None):
    return Pipeline(arrays(n=np.arange(count))).shuffle(size, seed=seed)


def streamed(fn=lambda n: n):
    return Pipeline(numbers).shuffle(9, 1).map(fn)


def cursor_of(loader, after=2):
    feeds = loader.epoch(0)
    for _ in range(after):
        next(feeds)
    return through_json(feeds.cursor)
