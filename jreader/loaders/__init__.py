"""Loaders: from batches to feeds on devices, prefetched before the step needs them.

There are three ways to make a `DataLoader`: `Pipeline.load`, Paddle's `DataLoader.from_generator`,
and `DataLoader(dataset)` of Paddle and PyTorch. Each epoch is a pass over a reader of batches;
batches are prepared on the host and put on the devices by a thread or by the consumer
(`workers/lookahead.py`). The position of a pass is that of the last batch handed over.

One rule for all loaders says what happens to short batches (`loaders/remainders.py`). Feeds of
`Pipeline.load` have one shape, so a step is compiled once; over several places, feeds have equal
parts; a single place of Paddle's loaders gets batches of any size.
"""

from jreader.loaders.as_function import as_function
from jreader.loaders.interrupts import graceful_stop
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loader import DataLoader
from jreader.loaders.paddle import PyReader
from jreader.loaders.train import train

__all__ = ["DataLoader", "FeedIterator", "PyReader", "as_function", "graceful_stop", "train"]
