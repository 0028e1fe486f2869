"""`batch` and `map_batches`: group samples into batches, and map functions over them.

A batch is a sequence of samples: a `list` from a stream, `Columns` from the index plane
(`readers/planes.py`). `stack` (`stacked.py`) makes arrays of either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader.batches.batch_sizes import BatchSizes, checked_sizes
from jreader.batches.lane_batches import Ends, LaneBatches, check_divides
from jreader.batches.lanes_in_workers import LanesInWorkers
from jreader.batches.local_rows import rows_pass
from jreader.batches.removed_samples import Removed
from jreader.batches.stacked import checked_result, stack
from jreader.counters import Sampling, working
from jreader.profiling import annotated, profiler
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Position,
    Reader,
    argument,
    checked_position,
    described,
    explain,
    flag,
    indexed,
    length,
    lookup_of,
    op,
    start,
    truth,
    whole,
)
from jreader.readers.lanes import Lanes, by_lane, dealt_below, owners_of
from jreader.readers.located import located_errors
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.starting import in_batches, mapped_last
from jreader.readers.trees import Rows
from jreader.workers import Processes
from jreader.workers.ahead import made_ahead
from jreader.workers.executor_map import Engine, ExecutorCrew
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import MapTask
from jreader.workers.threads import map_on_threads

T = TypeVar("T")


@op
class batch(Node[Sequence[T]]):
    """Group the samples into batches of `batch_size`: lists, or `Columns` over an indexed reader.

    >>> list(batch(lambda: "abcde", 2)())
    [['a', 'b'], ['c', 'd'], ['e']]

    Over arrays, and over ops that only select or reorder their rows, it gathers each column once
    per batch, without touching individual samples.

    >>> from jreader import arrays, shuffle
    >>> digits = arrays(np.arange(5))
    >>> [samples.columns.tolist() for samples in batch(shuffle(digits, seed=1), 3)()]
    [[2, 3, 1], [4, 0]]

    Batch sizes may grow with the step of the pass:

    >>> [len(samples) for samples in batch(digits, {0: 1, 2: 3})()]
    [1, 1, 3]

    Cost: keeps one batch in memory. Over an indexed reader, it gathers each column once per batch.
    Resuming costs as much as resuming `reader`.

    Args:
        reader: Any reader.
        batch_size: Samples per batch; or a dict that maps the step at which a size begins to that
            size, such as {0: 256, 10_000: 512}. Steps are batches of one pass: each epoch begins at
            step 0, unless an `epochs` before this op joins all epochs into one pass.
        drop_last: Whether to drop an incomplete last batch. None and False both yield it; `load`
            then drops it for None, and pads it for False.

    Raises:
        BatchNotDivisible: The samples come in lanes (`read`), and the number of lanes does not
            divide `batch_size`.
        ValueError: The samples of a stream come in lanes and batch sizes vary; a size is less than
            1; or the first size is not for step 0.
    """

    reader: Reader[T]
    batch_size: int | Mapping[int, int] = argument(checked_sizes)
    drop_last: bool | None = truth(default=None)
    _wraps: Ends | None = field(default=None, init=False)
    """What a lane does when it ends; set by a loader."""
    _makers: Engine | None = field(default=None, init=False)
    """The engine whose workers read the lanes; set by a loader."""
    removed: Removed | None = field(default=None, init=False)
    """Samples whose rows stay empty; set by a loader."""
    unit = "batches"
    in_cursor = "counted"

    def check_arguments(self) -> dict[str, Any]:
        """Check that every lane can supply its share of a batch."""
        dealt = dealt_below(self.reader)
        if dealt is None:
            return {}
        if not dealt.owned and self.sizes.vary:
            raise ValueError(
                f"batch(reader, {self.batch_size!r}) counts the samples of one stream, and "
                f"{described(dealt)} deals them to lanes: type lanes=1, or one batch size."
            )
        for size in self.sizes.sizes if not dealt.owned or owners_of(self.reader) > 1 else ():
            check_divides(self, size, dealt)
        return {}

    @cached_property
    def sizes(self) -> BatchSizes:
        """The batch sizes, by step."""
        return BatchSizes.of(self.batch_size)

    @property
    def named_size(self) -> int | str:
        """The batch size, as cursors write it."""
        return self.batch_size if isinstance(self.batch_size, int) else repr(self.batch_size)

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """Start a pass; its position is that of `reader`, or that of each lane."""
        dealt = dealt_below(self.reader)
        if dealt and not dealt.owned:
            return self.in_lanes(dealt, at).batches()
        if self._in_rows(dealt):
            return rows_pass(np.arange, self, at).mapped(_as_list)
        if self.sizes.vary:
            return self._of_varying_sizes(at)
        reader, size = mapped_last(self.reader, at), self.sizes.sizes[0]
        whole = in_batches(reader, size, at)
        up = whole or start(reader, at).watched(self, size).in_runs(size, located_errors(self))
        if not self.drop_last:
            return up
        full = (held for held in up.items if len(held) == size)
        return Pass(full, up.position, up.close)

    def _in_rows(self, dealt: Lanes | None) -> bool:
        """Return whether the rows of batches are found one by one."""
        if self.removed or (self.sizes.vary and mapped_rows(self.reader)):
            return True
        return dealt is not None and owners_of(self.reader) > 1

    def _of_varying_sizes(self, at: Position) -> Pass[Sequence[T]]:
        """Batch a stream in varying sizes; the position begins with the number of samples done."""
        sizes, (done, inner) = self.sizes, checked_position(at, (0, None))
        up = start(self.reader, inner).watched(self, max(sizes.sizes))

        def deal() -> Iterator[Sequence[T]]:
            nonlocal done
            with located_errors(self):
                while held := list(islice(up.items, size := sizes.at(done))):
                    done += len(held)
                    short = len(held) < size
                    if not (short and self.drop_last):
                        yield Columns(Rows(held), full=size) if short else held

        return Pass(deal(), lambda: (done, up.position()), up.close)

    def in_lanes(self, dealt: Lanes, at: Position, rows: Any = None) -> LaneBatches[T]:
        """Start a pass over the lanes of a stream, or over the lanes of some rows."""
        ends = self._wraps or ("drop" if self.drop_last else "pad")
        if self._makers is not None:
            return LanesInWorkers(self._makers, self, dealt, ends, at, rows)
        return LaneBatches(self, dealt, ends, at, rows)

    def length(self) -> int | None:
        """Return the number of batches."""
        known = length(self.reader)
        if known is None:
            return None
        many, end = self.sizes.full(0, known)
        return many + (end < known and not self.drop_last)

    def lookup(self) -> Callable[[int], Sequence[T]] | None:
        """Find a batch by the indices of its samples."""
        find, plane, known = lookup_of(self.reader), indexed(self.reader), length(self.reader)
        if find is None:
            return None

        sizes, lanes = self.sizes, owners_of(self.reader)

        def samples(index: int) -> Sequence[T]:
            begin = sizes.after(0, index)
            indices = begin + by_lane(sizes.at(begin), lanes, begin)
            indices = indices if known is None else indices[indices < known]
            return list(map(find, indices.tolist())) if plane is None else plane.take(indices)

        return samples


@op
class map_batches(Node[Sequence[Any]]):
    """Apply `fn` to the stacked columns of each batch: one NumPy call per batch.

    `fn` takes the tree of the samples with a leading batch axis (a tuple of arrays for tuple
    samples, a dict for dict samples), and returns such a tree. The result still reads as a sequence
    of samples.

    >>> from jreader import arrays
    >>> pixels = batch(arrays(image=np.arange(4, dtype=np.uint8)), 2)
    >>> scaled = map_batches(lambda columns: {"image": columns["image"] / 2}, pixels)
    >>> [samples.columns["image"].tolist() for samples in scaled()]
    [[0.0, 0.5], [1.0, 1.5]]

    Samples that differ in shape cannot be stacked. With `stacked=False`, `fn` takes the list of
    samples, as a `collate_fn` does, and makes the arrays.

    >>> def pad(samples):
    ...     rows = np.zeros((len(samples), 3), int)
    ...     for row, sample in zip(rows, samples):
    ...         row[: len(sample)] = sample
    ...     return rows
    >>> texts = batch(lambda: [[1], [2, 3], [4, 5, 6]], 2)
    >>> [samples.columns.tolist() for samples in map_batches(pad, texts, stacked=False)()]
    [[[1, 0, 0], [2, 3, 0]], [[4, 5, 6]]]

    Threads or processes run several batches in parallel. Batches, positions and errors stay the
    same.

    >>> brighter = map_batches(lambda columns: columns["image"] + 1, pixels, threads=2)
    >>> [samples.columns.tolist() for samples in brighter()]
    [[1, 2], [3, 4]]

    Cost: calls `fn` once per batch, after copying unstacked samples into arrays. Each worker keeps
    a few batches in memory. Resuming costs as much as resuming `reader`.

    Args:
        fn: Returns a tree of arrays of equal length. Must be safe to call from several threads or
            processes at once.
        reader: A batch reader.
        stacked: Whether `fn` takes a stacked tree; with False, it takes the list of samples.
        threads: The number of threads; 0 calls `fn` on the thread that iterates.
        processes: The number of worker processes, instead of threads.

    Raises:
        WorkerDied: Several workers died on the same batch (while iterating).
    """

    fn: Callable[[Any], Any]
    reader: Reader[Sequence[Any]]
    stacked: bool = flag(default=True, cursor="values")
    threads: int = whole(default=0)
    processes: int = whole(default=0)
    pool: Processes | None = field(default=None, init=False)  # lives as long as the plan
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"

    def check_arguments(self) -> dict[str, Any]:
        """Create the pool; its processes start on first use."""
        if self.threads and self.processes:
            raise TypeError(
                "map_batches(fn, reader) runs on threads (threads=n) or processes (processes=n): "
                "give only one of them."
            )
        errors.warn_of_many(self.threads, "threads", each=64)
        return {"pool": Processes(self.processes)} if self.processes else {}

    def start(self, at: Position) -> Pass[Sequence[Any]]:
        """Start a pass; its position is that of `reader`."""
        if self.pool is not None:
            return self._in_processes(self.pool, at)
        if self.threads:
            begin, limits = partial(start, self.reader, at), _limits(self.threads)
            return map_on_threads(self, begin, self.mapped, limits, function=described(self.fn))
        return start(self.reader, at).mapped(self._timed())

    def _timed(self) -> Callable[[Sequence[Any]], Columns[Any]]:
        """Wrap `mapped` to time some calls, or all of them under a profiler."""
        mapped, clock, sampling = self.mapped, time.perf_counter_ns, Sampling()
        name = described(self.fn)
        tasks, label = working("map_batches", name, self.made_at).tasks, f"map_batches {name}"

        def timed(samples: Sequence[Any]) -> Columns[Any]:
            if sampling.left and not profiler.active:
                sampling.left -= 1
                return mapped(samples)
            began = clock()
            made = annotated(label, mapped, samples) if profiler.active else mapped(samples)
            spent = clock() - began
            tasks.append((spent, 1))  # other passes append to it as well
            sampling.timed(spent)
            return made

        return timed

    def _in_processes(self, pool: Processes, at: Position) -> Pass[Sequence[Any]]:
        up = start(self.reader, at).watched(self, _AHEAD)
        sent = self.changed({"reader": _no_reader, "pool": None})  # noted where raised
        name, limits = described(self.fn), _limits(self.processes)
        work = working("map_batches", name, self.made_at, "processes", self.processes)
        task = MapTask(sent.mapped)

        def annotate(error: Exception, samples: Any) -> None:
            if "map_batches, made at" not in "".join(getattr(error, "__notes__", ())):
                explain(error, self, self.fn, samples)

        return made_ahead(ExecutorCrew(self, up, task, pool, limits, annotate, work))

    def mapped(self, samples: Sequence[Any]) -> Columns[Any]:
        """Apply `fn` to a batch; errors name the op."""
        given = self._arguments(samples)
        try:
            mapped = self.fn(given)
        except Exception as error:
            explain(error, self, self.fn, given)
            raise
        note = f"given by {described(self.fn)} in map_batches, made at {self.made_at}"
        with errors.noting(note, TypeError, ValueError):
            return mapped_from(samples, checked_result(self.fn, mapped))

    def _arguments(self, samples: Sequence[Any]) -> Any:
        if isinstance(samples, (dict, str)) or not hasattr(samples, "__len__"):
            raise errors.FeedMismatch(
                f"map_batches(fn, reader) needs batches, that is, sequences of samples, not "
                f"{described(samples)}: type .batch(n) before .map_batches(fn)."
            )
        if not self.stacked:
            return list(samples)
        note = (
            f"or have {described(self.fn)} take the list of the samples, and make the arrays: "
            f"map_batches(fn, stacked=False), made at {self.made_at}"
        )
        with errors.noting(note, errors.FeedMismatch):
            return stack(samples)

    def lookup(self) -> Callable[[int], Sequence[Any]] | None:
        """Apply `fn` to the batch that `reader` finds."""
        find = lookup_of(self.reader)
        return find and (lambda index: self.mapped(find(index)))


def _as_list(made: Columns[T]) -> Sequence[T]:
    """Return a batch as users see it: a list if its samples are not stacked."""
    is_short = len(made) < (made.full or 0) or made.valid is not None
    return made if made.stacked or is_short else list(made)


_AHEAD = 2  # batches in flight per worker
_MAX_AHEAD = 64  # the most, if they take next to no time


def _limits(workers: int) -> Limits:
    return Limits.of_each(workers, _AHEAD, _MAX_AHEAD)


def _no_reader() -> Iterator[Any]:
    """Stand in for a reader that is not sent to workers."""
    return iter(())


def mapped_from(samples: Sequence[Any], columns: Any) -> Columns[Any]:
    """Wrap the result of a function of a batch, which may have changed the number of rows."""
    made: Columns[Any] = Columns(columns)
    rows, many = len(made), len(samples)
    if isinstance(samples, Columns):
        made.full = samples.full
        if samples.valid is not None and rows == many:
            made.rows, made.valid = samples.rows, samples.valid
        many = many if samples.made_of is None else samples.made_of
    if rows != many:
        made.made_of = many
    return made
