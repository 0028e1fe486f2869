"""Loaders: from batches to feeds on devices, prefetched before the step needs them.

There are three ways to make a `DataLoader`: `Pipeline.load`, Paddle's `DataLoader.from_generator`,
and `DataLoader(dataset)` of Paddle and PyTorch. Each epoch is a pass over a reader of batches. The
loader makes host feeds from batches, and a thread puts them on the devices before the loop asks for
them (`workers/lookahead.py`). The position of a pass is always the one after the last feed that the
loop got, never the position of prefetched feeds.

Which file to open, in the order in which a feed is made:

loader: `DataLoader`: its arguments and its methods.
arguments: The arguments that a loader keeps, and those of PyTorch and Paddle without meaning here.
map_style: `DataLoader(dataset)`: samplers, workers and feeds of collated samples.
source: The input of a loader: its source, and its options.
steering: Mixtures whose weights change during a run, or when it resumes.
loading: What a loader loads, as one frozen value: source, options, placement, the end of epochs.
epoch_batches: The batches of an epoch, from any position on.
remainders: The samples at the end of an epoch that fill no step: dropped, padded or wrapped.
assembling: One host feed from one or several batches: stacked, split, padded.
host_feeds: The host feeds of an epoch, with the position after each.
prefetching: The feeds of a pass on the devices: placed ahead of the loop, and agreed on by hosts.
ends: What an epoch drops at its end, and the warnings about it.
run: The state that a loader's passes share: the latest position, and what it leaves for the next.
iterators: `FeedIterator`, which a loop iterates: its step, its cursor, `seek`, `set_weights`.
checkpoints: Cursors, and the places that they store.
queries: Questions that a loader answers without moving: shapes, warm-up, samples of a step, stats.
device_programs: Functions of feeds that run jitted on the devices, and `as_function`.
tuning: `load(tune=True)`: threads and capacity, changed while the loop runs.
multihost: Several processes that feed one global array.
interrupts: `graceful_stop`.
"""

from jreader.loaders.device_programs.as_function import as_function
from jreader.loaders.device_programs.exported import export
from jreader.loaders.interrupts import graceful_stop
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loader import DataLoader

__all__ = ["DataLoader", "FeedIterator", "as_function", "export", "graceful_stop"]
