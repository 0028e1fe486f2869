"""Shards of ArrayRecord: samples are bytes, one record each, each compressed separately."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jreader.readers import described
from jreader.sinks.sample_fields import cannot_write
from jreader.sinks.shard_writers import Append, Format
from jreader.sources.array_record_files import array_record
from jreader.sources.transactions import FULL

_OPTIONS = "group_size:1"  # for random access to records


def record_shards(samples: Sequence[Any], name: str) -> Format:
    """Return the format that writes samples to ArrayRecord files.

    Args:
        samples: The first samples, at least one.
        name: The file name.

    Raises:
        FeedMismatch: They are not bytes.
    """
    _check_record(samples[0], 0)
    return Format((name,), _record_shard)


@contextmanager
def _record_shard(paths: Sequence[Path]) -> Iterator[Append]:
    """Open one file, which ends with the index of its records."""
    writer = array_record().ArrayRecordWriter(str(paths[0]), _OPTIONS)

    def append(batch: Sequence[Any], first: int) -> None:
        with _errors_of_files():
            for number, sample in enumerate(batch, first):
                if type(sample) is not bytes:
                    _check_record(sample, number)
                writer.write(sample)

    yield append
    with _errors_of_files():
        writer.close()


def _check_record(sample: Any, number: int) -> None:
    if not isinstance(sample, bytes):
        raise cannot_write(
            "arrayrecord",
            number,
            f"it is {described(sample)}, and records are bytes. Give encode=pickle.dumps, say, and "
            f'.map(pickle.loads) where they are read; or write as "parquet".',
        )


@contextmanager
def _errors_of_files() -> Iterator[None]:
    """Convert array_record's messages to Python's errors."""
    try:
        yield
    except RuntimeError as error:
        for number in (*FULL, errno.EIO):
            if os.strerror(number) in str(error):
                raise OSError(number, str(error)) from error
        raise
