"""Whole batches made by workers: a task maps the samples of a batch, and stacks the results.

Over an indexed reader whose plan is small to send (files, memory maps), a task gets a range of
indices, and the worker reads the samples itself. Over a data set of a user's class it gets rows,
for the worker to call `__getitem__`; otherwise it gets the samples.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from math import inf
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from jreader._worker.pickling import WorkerPickler
from jreader._worker.stacking import NotAlikeError, map_and_stack
from jreader.errors import noting
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    described,
    indexed,
    itself,
    leaves,
)
from jreader.readers.columns import Array, column_of
from jreader.readers.keyed import without_keys
from jreader.readers.nodes import children, ops_of
from jreader.workers.map_tasks import Failure

_SMALL = 1 << 16  # bytes of a plan that every worker gets
_ROUTED = 1024  # indices routed per call
_PLAIN = (bool, int, float, complex)  # types that an array returns unchanged


class SampleRun(NamedTuple):
    """Samples that a worker reads itself.

    Attributes:
        low: The index of the first one.
        high: One beyond the last index.
        rows: Their rows in each column; None if their indices are enough.
        numbered: Makes the function's argument from a sample and its index; None for the sample.
    """

    low: int
    high: int
    rows: list[Array] | None
    numbered: Callable[[Any, int], Any] | None


class BatchMap:
    """Maps the samples of a batch, and stacks the results if that loses nothing.

    Args:
        fn: A function of a sample.
        source: Where a worker finds the samples, if it gets a `SampleRun` instead: the reader, or
            the columns.
        origins: Distinguishes this source from an equal one, whose files may have changed.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any],
        source: Reader[Any] | Plane | None = None,
        origins: Sequence[int] = (),
    ) -> None:
        self.fn, self.source = fn, source
        self.origins = origins or tuple(_origins(source))

    def __call__(self, run: Any) -> Any:
        """Return the results, stacked or in a list; or a `Failure` with the sample that made it."""
        try:
            samples = run if self.source is None else self.read(run)
        except Exception as error:
            return Failure(error, None)
        results: list[Any] = []
        at = 0

        def made(sample: Any) -> Any:
            nonlocal at
            result = self.fn(sample)
            results[:] = [result] if at == 0 else results
            at += 1
            return result

        try:
            tree, several = map_and_stack(made, samples, exact_column)
        except Exception as error:
            sample = samples[min(at, len(samples) - 1)]
            return Failure(error, without_keys(sample))
        if several is not None:
            return several
        batch: Columns[Any] = Columns(tree)
        batch.numbers = [number_type(leaf) for leaf in leaves(results[0])]
        return batch

    def read(self, run: SampleRun) -> list[Any]:
        """Return the samples of a run, as the function takes them."""
        low, high, rows, numbered = run
        with noting(f"raised while a worker read the samples from {low} to {high}"):
            each = self.plane.samples(low).items if rows is None else self.plane.each(rows)
            samples = list(islice(each, high - low))
        if numbered is None:
            return samples
        return [numbered(sample, low + turn) for turn, sample in enumerate(samples)]

    @cached_property
    def plane(self) -> Any:
        """The plane of the samples; found once in each worker."""
        source: Any = self.source
        return source if isinstance(source, Plane) else indexed(source)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it without the plane that it found."""
        return type(self), (self.fn, self.source, self.origins)

    def __repr__(self) -> str:
        """Show it as errors do."""
        return described(self.fn)


class SampleMap(BatchMap):
    """Maps the one sample of a run."""

    def __call__(self, run: SampleRun) -> Any:
        """Return the result; or a `Failure` with the sample that made it."""
        try:
            (sample,) = self.read(run)
        except Exception as error:
            return Failure(error, None)
        try:
            return self.fn(sample)
        except Exception as error:
            return Failure(error, without_keys(sample))


_ORIGINS: WeakKeyDictionary[Node[Any], int] = WeakKeyDictionary()
_numbers = count()


def _origins(source: Reader[Any] | Plane | None) -> Iterator[int]:
    """Yield the numbers of the sources of a plan; every new source has its own."""
    for op in () if source is None or isinstance(source, Plane) else ops_of(source):
        if not any(True for _ in children(op)):
            yield _ORIGINS.setdefault(op, next(_numbers))


def runs_of(
    plane: Plane,
    done: int,
    size: int,
    position: Callable[[int], Position],
    numbered: Callable[[Any, int], Any] | None,
    *,
    routed: bool,
) -> Pass[SampleRun]:
    """Return the samples from index `done` on, in runs of `size`.

    Args:
        plane: The plane of the samples.
        done: The first index.
        size: The number of samples in a run.
        position: Makes a position from an index.
        numbered: As in `SampleRun`.
        routed: Whether workers get rows, instead of only indices.
    """
    many = max(_ROUTED // size, 1) * size

    def deal() -> Iterator[SampleRun]:
        nonlocal done
        for first in range(done, plane.length, many):
            last = min(first + many, plane.length)
            every = plane.rows(np.arange(first, last)) if routed else None
            while done < last:
                low, done = done, min(done + size, last)
                rows = every and [each[low - first : done - first] for each in every]
                yield SampleRun(low, done, rows, numbered)

    return Pass(deal(), lambda: position(done), lambda: None)


def found_by_workers(
    reader: Reader[Any], *, sent_once: bool, single: bool
) -> tuple[Plane, Reader[Any] | Plane] | None:
    """Return the plane of an indexed reader, and what workers need to find its samples.

    None if they get the samples.

    Args:
        reader: The reader.
        sent_once: Whether each worker gets it once, so that it may be large.
        single: Whether each task has one sample, which pays only for a user's class.
    """
    plane = indexed(reader)
    if plane is None:
        return None
    if sent_once and _calls_users_class(plane):
        found = Plane(plane.columns, plane.length, itself)
        return (plane, found) if _travels(found, inf) else None
    if single or any(map(_is_copied_whole, leaves(plane.columns))):
        return None
    return (plane, reader) if _travels(reader, _SMALL) else None


def _is_copied_whole(column: Any) -> bool:
    """Return whether pickling a column copies more than may be sent."""
    return type(column) is np.ndarray and not column.flags.forc and column.nbytes > _SMALL


def _calls_users_class(plane: Plane) -> bool:
    """Return whether a user's class makes each of its samples, by `__getitem__`."""
    columns = leaves(plane.columns)
    return bool(columns) and all(column_of(column).asks_users_class for column in columns)


def _travels(value: Any, most: float) -> bool:
    """Return whether something can be sent to workers, in so many bytes."""
    room = _SizeLimit(most)
    pickler = WorkerPickler(room, room.take, value)
    try:
        pickler.dump(value)
    except Exception:  # too large, or not picklable: its samples may be
        return False
    return pickler.drawing is None  # each worker would draw the same numbers


class _SizeLimit:
    """A file that raises OverflowError once more is written than it takes."""

    def __init__(self, most: float) -> None:
        self.left = most

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.left -= size
        if self.left < 0:
            raise OverflowError
        return size

    def take(self, buffer: pickle.PickleBuffer) -> None:
        with buffer.raw() as view:
            self.write(view)


def number_type(leaf: Any) -> type | None:
    """Return the type of a leaf that is a Python number; None for any other."""
    return type(leaf) if type(leaf) in _PLAIN else None


def exact_column(values: Sequence[Any], _name: str) -> Any:
    """Return an array whose items are these values with their types.

    Raises:
        NotAlikeError: No array does.
    """
    if not _of_one_kind(values):
        raise NotAlikeError
    first = values[0]
    dtype = np.dtype(type(first)) if type(first) in _PLAIN else first.dtype
    column = np.asarray(values) if dtype.kind in "biufc" else None
    if column is None or column.dtype != dtype:
        raise NotAlikeError
    return column


def _of_one_kind(values: Sequence[Any]) -> bool:
    """Return whether values are numbers of one type, or arrays of one shape and dtype."""
    first, kind = values[0], type(values[0])
    if any(type(value) is not kind for value in values):
        return False
    if kind is np.ndarray:
        like = first.dtype, first.shape
        alike = all((each.dtype, each.shape) == like for each in values)
        return alike and first.ndim > 0  # the row of a column has no axis, but is no array
    return kind in _PLAIN or issubclass(kind, np.generic)
