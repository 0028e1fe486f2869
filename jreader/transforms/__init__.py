"""Ops that map, select, reorder and combine samples: lazy, single-threaded, and resumable.

User functions run inside `try`, so that an error names the op, its line and the sample, and so that
a `StopIteration` of a function cannot end a pass silently, as it does with the built-in `map`.
"""

from jreader.transforms.caches import cache
from jreader.transforms.joins import chain, compose, interleave
from jreader.transforms.maps import filter, flat_map, map_readers  # noqa: A004  # the field's word
from jreader.transforms.mixtures import mix
from jreader.transforms.packing import pack
from jreader.transforms.reading import read
from jreader.transforms.selections import fixed_order, select
from jreader.transforms.shuffles import shuffle
from jreader.transforms.slices import exactly, firstn, shard, skip
from jreader.transforms.windows import windows

__all__ = [
    "cache",
    "chain",
    "compose",
    "exactly",
    "filter",
    "firstn",
    "fixed_order",
    "flat_map",
    "interleave",
    "map_readers",
    "mix",
    "pack",
    "read",
    "select",
    "shard",
    "shuffle",
    "skip",
    "windows",
]
