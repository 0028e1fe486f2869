"""`pipeline.prepare()`: fill the folders of a plan before its first pass."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from jreader import errors
from jreader.progress import Bar
from jreader.readers import Node, Reader, described, length, start
from jreader.readers.nodes import readers_below, sources_first
from jreader.transforms.disk_caches import DiskCache
from jreader.transforms.pieces import Pieces
from jreader.workers import map_samples

_TIMED_SAMPLES = 1000  # samples
_SECONDS = 2.0  # the most seconds for them


@dataclass(frozen=True)
class Prepared:
    """What one folder of a plan has, or will take.

    Attributes:
        path: The folder.
        samples: The number of samples below; None if it is unknown before reading them.
        made: The number of samples in the folder.
        bytes: Their size on disk, or the estimate for all; None if unknown.
        seconds: The time they took, or the estimate for the rest on one core; None if unknown.
        ahead: Whether this is an estimate.
    """

    path: str
    samples: int | None
    made: int
    bytes: float | None
    seconds: float | None
    ahead: bool = False

    def __str__(self) -> str:
        """Return one line."""
        of = "" if self.samples is None else f" of {self.samples:,}"
        many = f"{self.path}: {self.made:,}{of} samples are there"
        if self.bytes is None or self.seconds is None:
            return f"{many}; the rest is read once"
        does = "all take about" if self.ahead else "these took"
        free = f"{_free(self.path) / 1e9:,.1f} GB are free"
        return f"{many}; {does} {self.seconds:,.0f} s and {self.bytes / 1e6:,.2f} MB; {free}"


def prepare(
    reader: Reader[Any], workers: Any = None, part: tuple[int, int] | None = None
) -> list[Prepared]:
    """Fill every `cache(path)` and `filter(keep=path)` of a plan, before its first pass.

    Folders are filled from the source upwards; complete ones stay as they are. You can kill this at
    any moment, and call it again: it resumes where it stopped. If the plan is indexed, maps
    included, workers make pieces in parallel, and so do other programs and hosts that see the same
    folders. Each piece is made once, and the last one to finish joins them: the files are the same
    as after one pass. If the plan is a stream, this program reads it in order. Nothing is put on
    devices.

    >>> from tempfile import TemporaryDirectory
    >>> from jreader import Pipeline, arrays
    >>> with TemporaryDirectory() as folder:
    ...     def rows():
    ...         return Pipeline(arrays(range(6))).filter(lambda n: n % 2, keep=folder)
    ...     (made,) = rows().prepare()
    ...     made.made, len(rows())
    (6, 3)

    Args:
        reader: A plan.
        workers: `jreader.Processes(4)`, any executor of `concurrent.futures`, a Dask client, or
            `jreader.workers.clusters.ray_executor()`; None to use this thread.
        part: (3, 8) makes the third of eight parts, for hosts that cannot lock shared files. A
            folder above one that other parts still fill waits for a later call.

    Returns:
        A `Prepared` for each folder, whose text is one line.

    Raises:
        TypeError: `workers` is not an executor.
        ValueError: A folder belongs to another plan; or there is no such part, or the plan of a
            part is not indexed.
        OSError: The disk is full, or a folder cannot be written.
    """
    return [each for each in preparing(reader, workers, part) if not each.ahead]


def preparing(
    reader: Reader[Any], workers: Any = None, part: tuple[int, int] | None = None
) -> Iterator[Prepared]:
    """Fill each folder; yield an estimate first, and then the result (`prepare`)."""
    executor = workers.get_executor() if hasattr(workers, "get_executor") else workers
    map_samples(abs, list, executor=executor)  # checks the executor
    _check_part(part or (1, 1))
    ops: list[Any] = [op for op in sources_first(reader, readers_below) if isinstance(op, Node)]
    for store in {op.kept.folder: op.kept for op in ops if op.stores}.values():
        began = time.monotonic()
        if not store.refresh().whole:
            yield _expected(store)
        _fill(store, executor, part)
        yield _folder_contents(store, time.monotonic() - began)
        if not store.refresh().whole:
            return  # the folder above waits for the other parts


def _check_part(part: Any) -> None:
    numbers = isinstance(part, tuple) and all(isinstance(each, int) for each in part)
    if not (numbers and len(part) == 2 and 1 <= part[0] <= part[1]):
        raise ValueError(f"part of prepare needs two numbers, such as (3, 8), not {part}.")


def _fill(store: DiskCache[Any], executor: Executor | None, part: tuple[int, int] | None) -> None:
    pieces = Pieces.of(store)
    if part is not None and pieces is None and not store.refresh().whole:
        raise ValueError(
            f"part={part} of prepare needs an indexed plan, and {described(store.of)} can only be "
            "read in order: leave part out, and prepare it on one host."
        )
    if pieces is None or not (executor or part or pieces.begun):
        store.written()
        return
    missing = pieces.missing(part)
    made, name = (
        map_samples(pieces, lambda: iter(missing), executor=executor),
        Path(store.folder).name,
    )
    with (
        closing(start(made)) as up,
        Bar(f"preparing {name}", len(missing), " pieces") as bar,
        warnings.catch_warnings(),
    ):
        # other threads of a worker draw during a long task
        warnings.filterwarnings("ignore", ".*draws from the global generators")
        for _ in up.items:
            bar.add()
    pieces.join(waits=part is None)


def _expected(store: DiskCache[Any]) -> Prepared:
    """Estimate what a folder takes, from its first samples."""
    rows, looked, size = length(store.of), 0, 0.0
    began = time.monotonic()
    with closing(start(store.of)) as up:
        for sample in islice(up.items, _TIMED_SAMPLES):
            looked, size = looked + 1, size + store.bytes_of(sample)
            if time.monotonic() - began > _SECONDS:
                break
    made = store.held().rows
    if rows is None or not looked:
        return Prepared(store.folder, rows, made, None, None, ahead=True)
    seconds = (time.monotonic() - began) / looked * (rows - made)
    expected = Prepared(store.folder, rows, made, size / looked * rows, seconds, ahead=True)
    if size / looked * rows > _free(store.folder):
        errors.warn(f"{expected}: free some space, or give another folder.")
    return expected


def _folder_contents(store: DiskCache[Any], seconds: float) -> Prepared:
    """Return the present contents of a folder."""
    held, pieces = store.refresh(), Pieces.of(store)
    rows, there = held.rows, [held]
    if pieces and not held.whole:
        rows, there = pieces.rows, [held, *pieces.held()]
    made = min(rows, sum(each.rows for each in there))
    size = sum(file.end for each in there for file in each.files)
    return Prepared(store.folder, rows, made, size, seconds)


def _free(folder: str) -> int:
    """Return the free bytes where a folder is, or will be."""
    path = Path(folder)
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
