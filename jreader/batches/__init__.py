"""Batches: make, pad, split and regroup them, and infer their properties before reading any.

plain_batches: Samples in batches of one size (`batch`), and functions of batches (`map_batches`).
batch_sizes: Batch sizes that change with the step.
lane_batches: Batches of a stream in lanes; `lanes_in_workers`: workers read the lanes.
local_rows: The rows of each batch that one process feeds, or all rows where lanes own blocks.
removed_samples: Samples removed from a run, whose rows stay empty.
stacked: Stack the samples of a batch into one tree of arrays.
padding: Pad samples of different lengths (`padded_batch`), with masks.
buckets: Pad them to a few lengths (`bucket`).
bucket_order: Assign samples to these batches; `bucket_bounds` chooses the bounds that pad least.
batching: What a plan shows about its batches; only this module looks at the ops above `batch`.
made_in_workers: Workers make the batches of an indexed plan, by number.
rebatching: Batches of another size (`rebatch`), and their samples (`unbatch`).
windows_and_groups: Merge consecutive samples: a fixed number (`window`), or one key (`group_by`).
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
