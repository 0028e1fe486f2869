"""`jreader index`: index many files ahead of the first run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from tempfile import TemporaryFile
from typing import Any

from jreader.commands.named_pipelines import CommandFailed
from jreader.readers import length
from jreader.readers.credentials import masked
from jreader.sources.files.file_readers import files_named
from jreader.sources.files.index_cache import cache_folder
from jreader.sources.files.set_indices import MANY, SETS, folder_beside
from jreader.sources.json_lines import jsonl
from jreader.sources.remote import is_remote
from jreader.sources.tables.parquet_files import parquet
from jreader.sources.tar_files import tar
from jreader.sources.tfrecord_files import tfrecord

INDEXED: dict[str, Any] = {"parquet": parquet, "jsonl": jsonl, "tar": tar, "tfrecord": tfrecord}
"""The readers whose files have an index, by the format name that a user types."""


def index(paths: Sequence[str], kind: str | None, *, beside: bool) -> Iterator[str]:
    """Index many files; yield their number, and where the index is.

    Args:
        paths: Folders, patterns, or files.
        kind: One of `INDEXED`; None to infer it from file suffixes.
        beside: Whether to keep the index next to the files, for all hosts, instead of in the cache
            folder.

    Raises:
        CommandFailed: The file names do not show the format.
        FileNotFoundError: A file does not exist, or a folder or pattern has none.
        OSError: The index cannot be written next to the files.
    """
    reader, began = _indexed_reader(paths, kind), time.monotonic()
    many = len(reader.paths) >= MANY
    place = folder_beside(reader.paths) if beside else None
    if many and place is not None:
        place.mkdir(exist_ok=True)
        TemporaryFile(dir=place).close()  # fail here, or it goes to this host's cache
    samples = length(reader)
    found = "streamed" if samples is None else f"{samples:,} samples"
    yield f"{len(reader.paths):,} files, {found}, in {time.monotonic() - began:.1f} s"
    if many and samples is not None:
        yield f"the index is in {place or cache_folder() / SETS}"
    else:
        yield f"no index is needed: data sets have one from {MANY} files on, if none is compressed"


def _indexed_reader(paths: Sequence[str], kind: str | None) -> Any:
    if kind is not None:
        return INDEXED[kind](paths)
    known = tuple(chain.from_iterable(make.suffixes for make in INDEXED.values()))
    names = paths[:1] if is_remote(paths[0]) else files_named("jreader index", paths[:1], known)
    for make in INDEXED.values():
        if any(name.endswith(make.suffixes) for name in names):
            return make(paths)
    raise CommandFailed(
        f"cannot infer the format of {masked(paths[0])!r} from the file names: type --format "
        f"and one of {', '.join(INDEXED)}"
    )
