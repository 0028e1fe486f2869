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
run: Where a loader is: its passes, the position of the latest one, and the next epoch.
loading: What a loader loads, as one frozen value: source, options, placement.
source: The batches of an epoch, from any position on.
remainders: The samples at the end of an epoch that fill no step: dropped, padded or wrapped.
assembling: One feed on the host out of one or several batches: stacked, split, padded.
host_feeds: The host feeds of an epoch, or of epoch after epoch, with the position after each.
device_feeds: The feeds of a pass on the devices: placed ahead of the loop, and agreed on by hosts.
left_out: What an epoch leaves out at its end, and the warnings of it.
shared: What the passes of one loader share.
on_device: Functions of feeds that run jitted on the devices, with random keys.
iterators: `FeedIterator`, which a loop iterates: its step, its cursor, `seek`.
cursors: What a cursor holds, how it is checked, and which plans it fits.
seeking: The cursor of any step of an indexed plan, found without reading.
provenance: `loader.samples(step)`: which samples a step sees.
stats: `loader.stats()`: what the stages took for the last feeds.
tuning: `load(tune=True)`: threads and capacity, moved while the loop runs.
as_function: A pipeline as a function of (epoch, step) that jax can trace.
strided: Columns with overlapping rows, as `as_function` keeps them on a device.
resident: Loaders whose data lie on the devices, where feeds are gathered.
multihost: Several processes that feed one global array.
train, paddle, html, interrupts: The training loop, `PyReader`, notebooks, `graceful_stop`.
"""

from jreader.loaders.as_function import as_function
from jreader.loaders.interrupts import graceful_stop
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loader import DataLoader
from jreader.loaders.paddle import PyReader
from jreader.loaders.train import train

__all__ = ["DataLoader", "FeedIterator", "PyReader", "as_function", "graceful_stop", "train"]
