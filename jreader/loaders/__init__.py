"""Loaders: from batches to feeds on devices, prefetched before the step needs them.

There are three ways to make a `DataLoader`: `Pipeline.load`, Paddle's `DataLoader.from_generator`,
and `DataLoader(dataset)` of Paddle and PyTorch. Each epoch is a pass over a reader of batches. The
loader makes host feeds of batches, and a thread puts them on the devices before the loop asks for
them (`workers/lookahead.py`). The position of a pass is always that after the last feed that the
loop got, never that of what was prefetched.

Which file to open, in the order in which a feed is made:

loader: `DataLoader`: its arguments and its methods.
arguments: The arguments that a loader keeps, and those of PyTorch and Paddle without meaning here.
map_style: `DataLoader(dataset)`: samplers, workers and feeds of collated samples.
source: What a loader is given: its source, and its options.
steering: mixtures whose weights change during a run, or when it resumes.
loading: What it loads, as one frozen value: source, options, placement, the end of epochs.
epoch_batches: The batches of an epoch, from any position on.
remainders: The samples at the end of an epoch that fill no step: dropped, padded or wrapped.
assembling: One feed on the host out of one or several batches: stacked, split, padded.
host_feeds: The host feeds of an epoch, with the position after each.
prefetching: The feeds of a pass on the devices: placed ahead of the loop, and agreed on by hosts.
ends: What an epoch leaves out at its end, and the warnings of it.
run: What the passes of a loader share: the place of the latest, and what it leaves for the next.
iterators: `FeedIterator`, which a loop iterates: its step, its cursor, `seek`, `set_weights`.
checkpoints: Cursors, and the places that they store.
queries: What a loader answers without moving: shapes, warm-up, samples of a step, stats.
device_programs: Functions of feeds that run jitted on the devices, and `as_function`.
tuning: `load(tune=True)`: threads and capacity, moved while the loop runs.
multihost: Several processes that feed one global array.
interrupts: `graceful_stop`.
"""

from jreader.loaders.device_programs.as_function import as_function
from jreader.loaders.device_programs.exported import export
from jreader.loaders.interrupts import graceful_stop
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loader import DataLoader

__all__ = ["DataLoader", "FeedIterator", "as_function", "export", "graceful_stop"]
