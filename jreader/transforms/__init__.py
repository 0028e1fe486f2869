"""Sample to sample, and the order of samples: every op here is lazy, in one thread, and resumable.

Functions run inside `try`, so that an error names op, place and sample, and a `StopIteration` that
a function raises cannot end a pass in silence (as C `map` and `filter` would let it).
"""

from jreader.transforms.caches import cache
from jreader.transforms.joins import chain, compose
from jreader.transforms.lengths import exactly
from jreader.transforms.maps import filter, flat_map, map_readers  # noqa: A004  # the field's word
from jreader.transforms.shuffles import shuffle
from jreader.transforms.slices import firstn, shard, skip

__all__ = [
    "cache",
    "chain",
    "compose",
    "exactly",
    "filter",
    "firstn",
    "flat_map",
    "map_readers",
    "shard",
    "shuffle",
    "skip",
]
