"""Shards of `.npy`: one array file per field, which NumPy can open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jreader.sinks.sample_fields import SampleFields
from jreader.sinks.shard_writers import Append, Format
from jreader.sources.stored_columns import npy_head


def npy_shards(samples: Sequence[Any], name: str) -> Format:
    """Return the format that writes samples like these to `.npy` files.

    Args:
        samples: The first samples, at least one.
        name: The file name for samples without fields; other files are named after the fields.

    Raises:
        FeedMismatch: Fields are not arrays, or not numbers.
    """
    fields = SampleFields.of("npy", samples)
    stems = tuple(field.name or name for field in fields.fields)
    for field, stem in zip(fields.fields, stems, strict=True):
        text = field.kind.dtype.kind in "US" and not field.kind.shape
        if field.kind.how != "array" or text:
            raise fields.refused(
                field,
                "files of npy hold numbers, and arrays of one shape: leave the field out in a "
                '.map(fn) before, or write as "parquet"',
            )
        if {"/", "\0"} & {*stem} or stem.startswith(".") or stems.count(stem) > 1:
            raise fields.refused(
                field,
                f"its file cannot be called {stem!r} (or another field's is): rename the field",
            )
    return Format(stems, partial(_npy_shard, fields))


@contextmanager
def _npy_shard(fields: SampleFields, paths: Sequence[Path]) -> Iterator[Append]:
    """Open one file per field; write its number of rows to the header at the end."""
    rows = 0
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("xb")) for path in paths]

        def write_heads() -> None:
            for file, field in zip(files, fields.fields, strict=True):
                file.seek(0)
                file.write(npy_head(field.kind.dtype, field.kind.shape, rows))

        def append(batch: Sequence[Any], first: int) -> None:
            nonlocal rows
            for file, column in zip(files, fields.columns(batch, first), strict=True):
                file.write(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
            rows += len(batch)

        write_heads()
        yield append
        write_heads()
