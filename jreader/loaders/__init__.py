"""Batches to feeds on devices, ahead of the step: three doors, one engine.

`DataLoader.from_generator` and `DataLoader(dataset)` are the seeds' doors, `Pipeline.load` the one
for JAX; all make the same `DataLoader`. Each epoch is a pass over a reader of batches, prepared on
the host and placed by whoever is free (`workers/lookahead.py`), so its position is that of the
batch handed over last.

What becomes of short batches follows one rule for all doors (`loaders/remainders.py`). Feeds of
`Pipeline.load` have one shape, so a step compiles once; over several places, feeds have equal
parts; and one place of the seeds' doors gets batches as they come.
"""

from jreader.loaders.as_function import as_function
from jreader.loaders.interrupts import graceful_stop
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loader import DataLoader
from jreader.loaders.paddle import PyReader
from jreader.loaders.train import train

__all__ = ["DataLoader", "FeedIterator", "PyReader", "as_function", "graceful_stop", "train"]
