"""What a reader is: any function that can be called without arguments and iterated.

Everything else is a function from readers to readers. Each op is a frozen dataclass that is itself
a reader (`Node`), and defines one method, `start(at)`, that begins a `Pass`: the items, the
position after the last one handed over, and a way to stop early. Positions are small nested tuples
of ints, survive JSON, and cost nothing until they are asked for.

Rules that every op keeps, and tests/test_laws.py checks on random graphs:

* Building a plan reads nothing; a plan never changes; iterating is the only verb that acts.
* A position is a place: `start(reader, position)` goes on after the last item handed over, also in
  another process. Before the first item it is the place of the start; after the end, the end. After
  an error it means nothing: whoever wants to go on keeps the position of the last good item.
* An op with a field `seed` is random, by that seed and its field `epoch` alone. `seed=None` draws
  anew for each pass: the root of the pass draws once, for every such op (`start`), so the
  position of an unseeded pass is `(what was drawn, position)`, and it can be resumed too.
* `at_epoch(reader, 0)` is `reader`; other epochs deal other orders. Epochs fold, so `epochs` may
  stand inside `epochs`. What lies below a `cache`, towards the sources, is pinned: neither epochs
  nor draws reach it.
* The order depends on seeds, epochs, windows and the number of samples; never on samples, batch
  sizes, workers, devices or hosts. Random functions of samples draw by seed, epoch, place in the
  plan and number of the sample. A cursor names all that (`fingerprints.py`), and is refused where
  it differs; `stream_version` guards the arithmetic of the orders itself.
"""

from jreader.readers.declarations import op, whole
from jreader.readers.epochs import at_epoch, epochs
from jreader.readers.fingerprints import Cursor, Plan, fingerprint
from jreader.readers.messages import described, explain, refused
from jreader.readers.nodes import Node, Reader, length, lookup_of, origin
from jreader.readers.passes import Pass, Position, counted, itself
from jreader.readers.planes import Plane, indexed
from jreader.readers.starting import start
from jreader.readers.trees import (
    Columns,
    branches,
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
    "at_epoch",
    "branches",
    "counted",
    "described",
    "epochs",
    "explain",
    "fingerprint",
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
    "start",
    "whole",
]
