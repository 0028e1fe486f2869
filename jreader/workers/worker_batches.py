"""Whole batches made by workers: a task maps the samples of a batch, and stacks the results.

Over an indexed reader whose plan is small to send (files, memory maps), a task is sent a range of
indices, and the worker reads the samples itself; otherwise it is sent the samples.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from typing import Any, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np

from jreader._worker.pickling import WorkerPickler
from jreader._worker.stacking import NotAlikeError, map_and_stack
from jreader.errors import noted
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    described,
    indexed,
    leaves,
    rebuilt,
)
from jreader.readers.nodes import children
from jreader.readers.trees import zipped
from jreader.transforms.sample_rng import Keyed
from jreader.workers.map_tasks import Failure

T = TypeVar("T")

_SMALL = 1 << 16  # bytes of a plan that is sent to every worker
_PLAIN = (bool, int, float, complex)  # what an array gives back as it was


class ScalarColumns(Columns[T]):
    """Columns of samples that give Python's numbers back as such, not as NumPy's.

    >>> rows = ScalarColumns((np.zeros((2, 3)), np.array([5, 6])), [None, int])
    >>> rows[1], [label for _, label in rows]
    ((array([0., 0., 0.]), 6), [5, 6])

    Args:
        columns: A tree of stacked arrays.
        number_types: For each of its leaves the type of the numbers, or None for rows of the array.
    """

    __slots__ = ("number_types",)

    def __init__(self, columns: Any, number_types: Sequence[type | None]) -> None:
        """Keeps both as they are."""
        super().__init__(columns)
        self.number_types = number_types

    def __iter__(self) -> Iterator[T]:
        """The samples, one after another."""
        parts = zip(leaves(self.columns), self.number_types, strict=True)
        return zipped(self.columns, [part.tolist() if kind else part for part, kind in parts])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Columns[T]: ...
    def __getitem__(self, index: int | slice) -> T | Columns[T]:
        """One sample, or the columns of several."""
        if isinstance(index, slice):
            return ScalarColumns(super().__getitem__(index).columns, self.number_types)
        parts = zip(leaves(self.columns), self.number_types, strict=True)
        row = (part[index].item() if kind else part[index] for part, kind in parts)
        picked: T = rebuilt(self.columns, row)
        return picked


class BatchMap:
    """Maps the samples of a batch, and stacks the results if that loses nothing.

    Args:
        fn: A function of a sample.
        source: The reader of the samples, if the range of their indices is sent instead.
        numbered: Gives what `fn` takes, from a sample and its index.
        origins: Tells this source from an equal one, whose files may be others by now.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any],
        source: Reader[Any] | None = None,
        numbered: Callable[[Any, int], Any] | None = None,
        origins: Sequence[int] = (),
    ) -> None:
        self.fn, self.source, self.numbered = fn, source, numbered
        self.origins = origins or tuple(_origins(source))

    def __call__(self, run: Any) -> Any:
        """The results, stacked or in a list; or a `Failure` with the sample that made it."""
        try:
            samples = run if self.source is None else self._read(*run)
        except Exception as error:
            noted(error, "raised while a worker read the samples from {} to {}".format(*run))
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
            tree, several = map_and_stack(made, samples, _exact_column)
        except Exception as error:
            sample = samples[min(at, len(samples) - 1)]
            return Failure(error, sample.sample if isinstance(sample, Keyed) else sample)
        if several is not None:
            return several
        return ScalarColumns(tree, [_number_type(leaf) for leaf in leaves(results[0])])

    def _read(self, low: int, high: int) -> list[Any]:
        samples = list(islice(self.plane.samples(low).items, high - low))
        if self.numbered is None:
            return samples
        return [self.numbered(sample, low + turn) for turn, sample in enumerate(samples)]

    @cached_property
    def plane(self) -> Any:
        """Where the samples are; found once in each worker."""
        return indexed(self.source) if self.source else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the plane."""
        return BatchMap, (self.fn, self.source, self.numbered, self.origins)

    def __repr__(self) -> str:
        """What an error calls it."""
        return described(self.fn)


_ORIGINS: WeakKeyDictionary[Node[Any], int] = WeakKeyDictionary()
_numbers = count()


def _origins(source: Reader[Any] | None) -> Iterator[int]:
    """The numbers of the sources of a plan; each source that is made has its own."""
    if isinstance(source, Node):
        below = list(children(source))
        for child in below:
            yield from _origins(child)
        if not below:
            yield _ORIGINS.setdefault(source, next(_numbers))


def index_ranges(
    length: int, done: int, size: int, position: Callable[[int], Position]
) -> Pass[tuple[int, int]]:
    """The ranges of `size` indices from `done` on, each as (first, one beyond the last)."""

    def deal() -> Iterator[tuple[int, int]]:
        nonlocal done
        while done < length:
            low, done = done, min(done + size, length)
            yield low, done

    return Pass(deal(), lambda: position(done), lambda: None)


def is_cheap_to_send(reader: Reader[Any], plane: Plane) -> bool:
    """Whether a plan is small to send to workers, because the data of its samples is not in it."""
    for column in leaves(plane.columns):
        if type(column) is np.ndarray and not column.flags.forc and column.nbytes > _SMALL:
            return False  # to pickle it would copy it
    room = _SizeLimit()
    try:
        WorkerPickler(room, room.take, reader).dump(reader)
    except Exception:  # it is too large, or cannot travel: its samples may
        return False
    return True


class _SizeLimit:
    """A file that raises OverflowError once more is written than is small to send."""

    def __init__(self) -> None:
        self.left = _SMALL

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.left -= size
        if self.left < 0:
            raise OverflowError
        return size

    def take(self, buffer: pickle.PickleBuffer) -> None:
        with buffer.raw() as view:
            self.write(view)


def _number_type(leaf: Any) -> type | None:
    return type(leaf) if type(leaf) in _PLAIN else None


def _exact_column(values: Sequence[Any], _name: str) -> Any:
    """An array that gives these values back with their types.

    Raises:
        NotAlikeError: There is none.
    """
    kind, first = type(values[0]), np.asarray(values[0])
    alike = all(type(value) is kind for value in values)
    if kind is np.ndarray:
        shape = first.shape
        alike = alike and all(each.dtype == first.dtype and each.shape == shape for each in values)
        alike = alike and first.ndim > 0  # the row of a column has no axis, but is no array
    if not alike or first.dtype.kind not in "biufc":
        raise NotAlikeError
    column = np.asarray(values)
    if column.dtype != first.dtype or (kind in _PLAIN and first.dtype != np.dtype(kind)):
        raise NotAlikeError
    if not (kind in _PLAIN or kind is np.ndarray or issubclass(kind, np.generic)):
        raise NotAlikeError
    return column
