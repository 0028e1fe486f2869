"""jreader feeds JAX: a reader is any function that you can call and iterate.

Everything else is a function from readers to readers (`shuffle`, `batch`, ...), a `Pipeline` that
spells them out from left to right, and a `DataLoader` that puts batches on devices.

    >>> import jreader
    >>> reader = jreader.batch(jreader.shuffle(lambda: range(6), buf_size=6, seed=0), 3)
    >>> sorted(sum(reader(), []))
    [0, 1, 2, 3, 4, 5]

Importing it does not import jax: worker processes must not. The names that need jax are loaded when
they are first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from jreader.batches import batch, map_batches, stack
from jreader.errors import (
    BatchNotDivisible,
    ComposeNotAligned,
    DamagedData,
    EOFException,
    FeedMismatch,
    NotResumable,
    ReaderError,
    WorkerDied,
)
from jreader.orders import permutation
from jreader.pipelines import Pipeline
from jreader.readers import Columns, Cursor, Node, Pass, Reader, at_epoch, epochs, start
from jreader.sources import arrays, idx, jsonl, mnist_json, npy, npz, text
from jreader.transforms import (
    cache,
    chain,
    compose,
    filter,  # noqa: A004  # the field's word
    firstn,
    flat_map,
    map_readers,
    shard,
    shuffle,
    skip,
)
from jreader.workers import buffered, multiprocess_reader, xmap_readers

__version__ = "0.1.0"

__all__ = [
    "BatchNotDivisible",
    "Columns",
    "ComposeNotAligned",
    "Cursor",
    "DamagedData",
    "EOFException",
    "FeedMismatch",
    "Node",
    "NotResumable",
    "Pass",
    "Pipeline",
    "Reader",
    "ReaderError",
    "WorkerDied",
    "arrays",
    "at_epoch",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "epochs",
    "filter",
    "firstn",
    "flat_map",
    "idx",
    "jsonl",
    "map_batches",
    "map_readers",
    "mnist_json",
    "multiprocess_reader",
    "npy",
    "npz",
    "permutation",
    "shard",
    "shuffle",
    "skip",
    "stack",
    "start",
    "text",
    "xmap_readers",
]
