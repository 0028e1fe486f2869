"""Readers: what they are, how a pass over one starts, and where it is.

A reader is any function that can be called without arguments and iterated. Everything else is a
function from readers to readers. Each op is a frozen dataclass that is itself a reader (`Node`) and
defines one method, `start(at)`, which begins a `Pass`.

Words, as the code uses them:

reader: A function without arguments that returns an iterable of samples; each call is one pass.
sample: One item of a reader: a single value, a tuple, or a tree of dicts, tuples and dataclasses.
batch: A sequence of samples: a list, or `Columns`, stacked arrays that read as one.
op: A reader made of others, as `shuffle` and `batch` are: a `Node`.
plan: The tree of ops that a reader is. It never changes; building one reads nothing.
pass: One iteration over a reader, from the beginning or from a position.
epoch: A numbered pass; the number varies the order: `at_epoch(plan, 3)` is epoch 3 of a plan.
position: Where a pass is: a small nested tuple of ints. `start(plan, position)` resumes there.
cursor: A position, its epoch and step, and what the plan was (`fingerprints.py`): a dict for JSON.
checkpoint: What a user saves of a run: the cursor, and the state of the model.
index: The number of a sample in a reader, from 0. An indexed reader finds a sample by it.
plane: The index plane of an indexed reader: its columns, and the rows of each index (`planes.py`).
look-ahead, prefetch: Reading before the consumer asks (`buffered`, loaders). It moves no position.
shard: One of several parts of a reader that together are all of it.
lane: One of several parts of a stream that are read side by side, each by itself (`lanes.py`); or
    of the blocks of a shuffle, each of which owns the same rows of every batch.
worker: A process that loads or maps samples for another one.
host: One of several processes of a run on several machines, each with devices of its own.

Rules that every op keeps, and that tests/test_laws.py checks on random plans:

* Building a plan reads nothing; a plan never changes; only iterating acts.
* `start(reader, position)` resumes after the last item that was handed over, also in another
  process. Before the first item, it is the start position; after the end, the position of the end.
  After an error it means nothing: to resume, keep the position of the last good item.
* An op with a field `seed` is random, by that seed and its field `epoch` alone. With `seed=None` it
draws a new seed for each pass. The root of the pass draws once, for all such ops (`seeds.py`), and
the position of an unseeded pass is `(the draws, position)`, so it can be resumed too.
* `at_epoch(reader, 0)` is `reader`; other epochs have other orders. Epochs fold, so `epochs` may
  stand inside `epochs`. What a `cache` reads, or a filter that keeps bits, is pinned: neither
  epochs nor draws reach it.
* The order depends on seeds, epochs, windows and the number of samples; never on samples, batch
  sizes, workers, devices or hosts. Random functions of samples draw by seed, epoch, place in the
  plan and index of the sample. A cursor names all that, and another plan refuses it;
  `stream_version` guards the arithmetic of the orders itself.
"""

from jreader.readers.declarations import argument, choice, flag, op, set_fields, truth, whole
from jreader.readers.epochs import at_epoch, epochs
from jreader.readers.fingerprints import Cursor, Plan, fingerprint
from jreader.readers.mapped_rows import lookup_of
from jreader.readers.messages import described, explain, explained, refused
from jreader.readers.nodes import Node, Reader, length, origin
from jreader.readers.passes import Pass, Position, bad_position, checked_position, counted, itself
from jreader.readers.planes import Plane, indexed
from jreader.readers.starting import start
from jreader.readers.trees import (
    Columns,
    branches,
    first_column,
    joined,
    leaves,
    map_tree,
    rebuilt,
    same_structure,
)

__all__ = [
    "Columns",
    "Cursor",
    "Node",
    "Pass",
    "Plan",
    "Plane",
    "Position",
    "Reader",
    "argument",
    "at_epoch",
    "bad_position",
    "branches",
    "checked_position",
    "choice",
    "counted",
    "described",
    "epochs",
    "explain",
    "explained",
    "fingerprint",
    "first_column",
    "flag",
    "indexed",
    "itself",
    "joined",
    "leaves",
    "length",
    "lookup_of",
    "map_tree",
    "op",
    "origin",
    "rebuilt",
    "refused",
    "same_structure",
    "set_fields",
    "start",
    "truth",
    "whole",
]
