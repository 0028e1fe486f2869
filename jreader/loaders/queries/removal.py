"""`loader.without(indices)`: the same run, with the rows of some samples empty, under a mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jreader.batches.removed_samples import Removed
from jreader.loaders.loading import Loading
from jreader.loaders.queries.asked_rows import AskedRows
from jreader.readers import described, indexed
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import seeded
from jreader.transforms.maps import without_maps


def loading_without(loading: Loading, asked: AskedRows) -> Loading:
    """Return what a loader loads, without some samples.

    Raises:
        TypeError: The plan is not indexed, its batches come from buckets, or the data are on the
            devices.
        ValueError: There is no such source, field or file.
        IndexError: There is no such sample.
    """
    source, op = loading.source, loading.source.batching.counted
    rows: Any = seeded(without_maps(op.reader), 0) if op else None
    plane: Any = indexed(rows) if source.batching.indexed else None
    if op is None or loading.resident or plane is None:
        raise TypeError(
            f"{asked.call} needs samples that are found by their index, in batches that the host "
            f"makes, and {described(source.batches)} gives others, or the loader is resident: type "
            ".batch(n) after arrays, files with an index or source, maps after shuffle, mix, chain "
            "and epochs, and leave resident=True out; of a stream, leave samples out by "
            ".filter(fn)."
        )
    numbers, first, column = asked.found(rows, plane)
    before = op.removed.rows if op.removed else {}
    of_column = np.union1d(before.get(column, np.zeros(0, np.int64)), numbers + first)
    removed = {"removed": Removed({**before, column: of_column})}
    batches = rewritten(source.batches, lambda node: removed if node is op else {})
    return Loading.of(replace(source, batches=batches), loading.options)
