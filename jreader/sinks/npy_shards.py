"""Shards of `.npy`: for each field an array in a file of its own, which NumPy opens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jreader.sinks.sample_fields import SampleFields
from jreader.sinks.shard_writers import Format
from jreader.sources.column_files import npy_head


def npy_shards(samples: Sequence[Any], name: str) -> Format:
    """How samples become `.npy` files.

    Args:
        samples: The first ones, at least one.
        name: What the files of samples without fields are called; those of others, as the fields.

    Raises:
        FeedMismatch: They have fields that are no arrays, or no numbers.
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
    return Format(stems, partial(NpyShard, fields))


class NpyShard:
    """The files of one shard.

    Args:
        fields: What the samples have.
        paths: A file for each field.
    """

    def __init__(self, fields: SampleFields, paths: Sequence[Path]) -> None:
        self.fields, self.rows = fields, 0
        self.stack = ExitStack()
        self.files = [self.stack.enter_context(path.open("xb")) for path in paths]
        self._write_heads()

    def add(self, batch: Sequence[Any], first: int) -> None:
        """Appends samples."""
        columns = self.fields.columns(batch, first)
        for file, column in zip(self.files, columns, strict=True):
            file.write(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)
        self.rows += len(batch)

    def close(self) -> None:
        """Writes how many rows there are."""
        with self.stack:
            for file in self.files:
                file.seek(0)
            self._write_heads()

    def _write_heads(self) -> None:
        for file, field in zip(self.files, self.fields.fields, strict=True):
            file.write(npy_head(field.kind.dtype, field.kind.shape, self.rows))
