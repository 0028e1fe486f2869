"""`batch` and `map_batches`: samples in batches, and functions of them.

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
    per batch, and touches no single sample.

    >>> from jreader import arrays, shuffle
    >>> digits = arrays(np.arange(5))
    >>> [samples.columns.tolist() for samples in batch(shuffle(digits, seed=1), 3)()]
    [[2, 3, 1], [4, 0]]

    Batches may grow, by the steps of a pass:

    >>> [len(samples) for samples in batch(digits, {0: 1, 2: 3})()]
    [1, 1, 3]

    Cost: one batch is in memory. Over an indexed reader, it gathers each column once for each
    batch. Resuming costs what it costs in `reader`.

    Args:
        reader: Any reader.
        batch_size: Samples per batch; or a dict, as {0: 256, 10_000: 512}, of the size by the step
            from which on batches have it. Steps are batches of one pass: each epoch begins at step
            0, unless `epochs` below this op makes one pass of all.
        drop_last: Whether to leave out a last batch with fewer samples. None hands it over too, but
            `load` leaves it out then; with False, `load` pads it.

    Raises:
        BatchNotDivisible: The samples come in lanes (`read`), and their number does not divide
            `batch_size`.
        ValueError: The samples of a stream come in lanes, and batches have several sizes; a size is
            less than 1, or the first one has another step than 0.
    """

    reader: Reader[T]
    batch_size: int | Mapping[int, int] = argument(checked_sizes)
    drop_last: bool | None = truth(default=None)
    _wraps: Ends | None = field(default=None, init=False)
    """How lanes restart that have ended, where a loader says so."""
    _makers: Engine | None = field(default=None, init=False)
    """Whose workers read the lanes, where a loader says so."""
    removed: Removed | None = field(default=None, init=False)
    """Samples whose rows stay empty, where a loader says so."""
    unit = "batches"
    in_cursor = "counted"

    def check_arguments(self) -> dict[str, Any]:
        """Checks that every lane can give its share of a batch."""
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
        """How many samples batches have, from which step on."""
        return BatchSizes.of(self.batch_size)

    @property
    def named_size(self) -> int | str:
        """The size of batches, as cursors name it."""
        return self.batch_size if isinstance(self.batch_size, int) else repr(self.batch_size)

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """Begins a pass; its position is that of `reader`, or that of each of its lanes."""
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
        """Whether the rows of batches are found one by one."""
        if self.removed or (self.sizes.vary and mapped_rows(self.reader)):
            return True
        return dealt is not None and owners_of(self.reader) > 1

    def _of_varying_sizes(self, at: Position) -> Pass[Sequence[T]]:
        """Batches of a stream, of several sizes; the position begins with the samples done."""
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
        """A pass over the lanes that a stream is dealt to, or over those of some rows."""
        ends = self._wraps or ("drop" if self.drop_last else "pad")
        if self._makers is not None:
            return LanesInWorkers(self._makers, self, dealt, ends, at, rows)
        return LaneBatches(self, dealt, ends, at, rows)

    def length(self) -> int | None:
        """The number of batches."""
        known = length(self.reader)
        if known is None:
            return None
        many, end = self.sizes.full(0, known)
        return many + (end < known and not self.drop_last)

    def lookup(self) -> Callable[[int], Sequence[T]] | None:
        """Finds a batch by the indices of its samples."""
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
    """Apply `fn` to the stacked columns of each batch: one call for a whole batch, in NumPy.

    `fn` takes the tree of the samples with a leading batch axis (a tuple of arrays for tuple
    samples, a dict for dict samples), and returns such a tree. The result still reads as a sequence
    of samples.

    >>> from jreader import arrays
    >>> pixels = batch(arrays(image=np.arange(4, dtype=np.uint8)), 2)
    >>> scaled = map_batches(lambda columns: {"image": columns["image"] / 2}, pixels)
    >>> [samples.columns["image"].tolist() for samples in scaled()]
    [[0.0, 0.5], [1.0, 1.5]]

    Samples that differ in shape cannot be stacked: with `stacked=False`, `fn` takes the list of
    them, as a `collate_fn` does, and makes the arrays.

    >>> def pad(samples):
    ...     rows = np.zeros((len(samples), 3), int)
    ...     for row, sample in zip(rows, samples):
    ...         row[: len(sample)] = sample
    ...     return rows
    >>> texts = batch(lambda: [[1], [2, 3], [4, 5, 6]], 2)
    >>> [samples.columns.tolist() for samples in map_batches(pad, texts, stacked=False)()]
    [[[1, 0, 0], [2, 3, 0]], [[4, 5, 6]]]

    Threads or processes make several batches side by side. Batches, positions and errors stay the
    same.

    >>> brighter = map_batches(lambda columns: columns["image"] + 1, pixels, threads=2)
    >>> [samples.columns.tolist() for samples in brighter()]
    [[1, 2], [3, 4]]

    Cost: it calls `fn` once for each batch; samples that are not stacked yet are copied into arrays
    before. Workers have a few batches each in memory. Resuming costs what it costs in `reader`.

    Args:
        fn: Returns a tree of arrays of equal length. Several threads or processes call it at once.
        reader: A batch reader.
        stacked: Whether `fn` takes such a tree too; with False, it takes the list of the samples.
        threads: The number of threads; 0 calls `fn` on the thread that iterates.
        processes: The number of worker processes, instead of threads.

    Raises:
        WorkerDied: A batch lost its worker several times (while iterating).
    """

    fn: Callable[[Any], Any]
    reader: Reader[Sequence[Any]]
    stacked: bool = flag(default=True, cursor="values")
    threads: int = whole(default=0)
    processes: int = whole(default=0)
    pool: Processes | None = field(default=None, init=False)  # held as long as there is a plan
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"

    def check_arguments(self) -> dict[str, Any]:
        """Makes the pool, whose processes start when there is something to do."""
        if self.threads and self.processes:
            raise TypeError(
                "map_batches(fn, reader) runs on threads (threads=n) or processes (processes=n): "
                "give only one of them."
            )
        errors.warn_of_many(self.threads, "threads", each=64)
        return {"pool": Processes(self.processes)} if self.processes else {}

    def start(self, at: Position) -> Pass[Sequence[Any]]:
        """Begins a pass; its position is that of `reader`."""
        if self.pool is not None:
            return self._in_processes(self.pool, at)
        if self.threads:
            begin, limits = partial(start, self.reader, at), _limits(self.threads)
            return map_on_threads(self, begin, self.mapped, limits, function=described(self.fn))
        return start(self.reader, at).mapped(self._timed())

    def _timed(self) -> Callable[[Sequence[Any]], Columns[Any]]:
        """`mapped`, some calls of which are timed; where a profile is taken, all of them."""
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
            tasks.append((spent, 1))  # which other passes append to as well
            sampling.timed(spent)
            return made

        return timed

    def _in_processes(self, pool: Processes, at: Position) -> Pass[Sequence[Any]]:
        up = start(self.reader, at).watched(self, _AHEAD)
        sent = self.changed({"reader": _no_reader, "pool": None})  # what fails there says so there
        name, limits = described(self.fn), _limits(self.processes)
        work = working("map_batches", name, self.made_at, "processes", self.processes)
        task = MapTask(sent.mapped)

        def annotate(error: Exception, samples: Any) -> None:
            if "map_batches, made at" not in "".join(getattr(error, "__notes__", ())):
                explain(error, self, self.fn, samples)

        return made_ahead(ExecutorCrew(self, up, task, pool, limits, annotate, work))

    def mapped(self, samples: Sequence[Any]) -> Columns[Any]:
        """The batch that `fn` makes of one; an error says where it was raised."""
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
        if not self.stacked:
            return list(samples)
        note = (
            f"or have {described(self.fn)} take the list of the samples, and make the arrays: "
            f"map_batches(fn, stacked=False), made at {self.made_at}"
        )
        with errors.noting(note, errors.FeedMismatch):
            return stack(samples)

    def lookup(self) -> Callable[[int], Sequence[Any]] | None:
        """Applies `fn` to the batch that `reader` finds."""
        find = lookup_of(self.reader)
        return find and (lambda index: self.mapped(find(index)))


def _as_list(made: Columns[T]) -> Sequence[T]:
    """A batch as users know it: a list where its samples are not stacked."""
    is_short = len(made) < (made.full or 0) or made.valid is not None
    return made if made.stacked or is_short else list(made)


_AHEAD = 2  # batches of each worker that may be ahead
_MAX_AHEAD = 64  # and if they take next to no time


def _limits(workers: int) -> Limits:
    return Limits.of_each(workers, _AHEAD, _MAX_AHEAD)


def _no_reader() -> Iterator[Any]:
    """Stands for a reader that is not sent to workers."""
    return iter(())


def mapped_from(samples: Sequence[Any], columns: Any) -> Columns[Any]:
    """The batch of what a function has made of a batch; it may have changed the number of rows."""
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
