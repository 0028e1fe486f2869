"""Batches: made of samples, padded, taken apart, and what a plan knows of them before one is read.

plain_batches: Samples in batches of one size (`batch`), and functions of them (`map_batches`).
batch_sizes: How many samples batches have, from which step on.
lane_batches: The batches of a stream in lanes; `lanes_in_workers`: where workers read the lanes.
local_rows: Some rows of each batch of an indexed reader, by lane where lanes own blocks.
removed_samples: Samples taken out of a run, whose rows stay empty.
stacked: One tree of arrays for the samples of a batch.
padding: Batches of samples that differ in length (`padded_batch`), and their masks.
buckets: The same, of few lengths (`bucket`).
bucket_order: Which samples make their batches; `bucket_bounds` chooses those that pad least.
batching: What is known of the batches of a plan; only this file looks at the ops behind a batch.
made_in_workers: The batches of a plan, made by workers, which find them by number.
rebatching: Batches of another size (`rebatch`), and their samples (`unbatch`).
windows_and_groups: Consecutive samples as one: so many (`window`), or of one key (`group_by`).
"""

from jreader.batches.batching import Batching, batching, gives_batches, plain_batch
from jreader.batches.buckets import bucket
from jreader.batches.lane_batches import LaneBatches
from jreader.batches.made_in_workers import made_in_workers
from jreader.batches.padded_batches import padded_batch
from jreader.batches.plain_batches import batch, map_batches
from jreader.batches.rebatching import rebatch, unbatch
from jreader.batches.stacked import collate, stack
from jreader.batches.windows_and_groups import group_by, sliding_window
from jreader.workers.executor_map import Engine

__all__ = [
    "Batching",
    "Engine",
    "LaneBatches",
    "batch",
    "batching",
    "bucket",
    "collate",
    "gives_batches",
    "group_by",
    "made_in_workers",
    "map_batches",
    "padded_batch",
    "plain_batch",
    "rebatch",
    "sliding_window",
    "stack",
    "unbatch",
]
