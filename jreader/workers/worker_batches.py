"""Whole batches made by workers: a task maps a run of samples and stacks them where they are made.

Over an indexed reader whose plan is small to send (files, memory maps), a task is sent places, and
the worker reads the samples itself. What is in memory here is not sent with the plan.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice
from typing import Any, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np

from jreader._worker.pickling import Sender
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


class Rows(Columns[T]):
    """Columns of samples that had Python's numbers in them, and give them back as such.

    >>> rows = Rows((np.zeros((2, 3)), np.array([5, 6])), [None, int])
    >>> rows[1], [label for _, label in rows]
    ((array([0., 0., 0.]), 6), [5, 6])

    Args:
        columns: A tree of stacked arrays.
        kinds: For each of its leaves the type of the numbers, or None for rows of the array.
    """

    __slots__ = ("kinds",)

    def __init__(self, columns: Any, kinds: Sequence[type | None]) -> None:
        """Takes both as they are."""
        super().__init__(columns)
        self.kinds = kinds

    def __iter__(self) -> Iterator[T]:
        """The samples, one after another."""
        parts = zip(leaves(self.columns), self.kinds, strict=True)
        return zipped(self.columns, [part.tolist() if kind else part for part, kind in parts])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Columns[T]: ...
    def __getitem__(self, index: int | slice) -> T | Columns[T]:
        """One sample, or the columns of several."""
        if isinstance(index, slice):
            return Rows(super().__getitem__(index).columns, self.kinds)
        parts = zip(leaves(self.columns), self.kinds, strict=True)
        row = (part[index].item() if kind else part[index] for part, kind in parts)
        picked: T = rebuilt(self.columns, row)
        return picked


class Mapped:
    """What a task makes of a run of samples: `fn` of each, stacked if that loses nothing.

    Args:
        fn: A function of a sample.
        source: The reader of the samples, where a run is sent as (first, one beyond the last).
        numbered: Gives what `fn` takes, of a sample and its number.
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
        """A sequence of samples, or a `Failure` with the sample that made it."""
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
            tree, several = map_and_stack(made, samples, _column)
        except Exception as error:
            sample = samples[min(at, len(samples) - 1)]
            return Failure(error, sample.sample if isinstance(sample, Keyed) else sample)
        if several is not None:
            return several
        return Rows(tree, [_kind(leaf) for leaf in leaves(results[0])])

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
        return Mapped, (self.fn, self.source, self.numbered, self.origins)

    def __repr__(self) -> str:
        """What an error calls it."""
        return described(self.fn)


_NUMBERS: WeakKeyDictionary[Node[Any], int] = WeakKeyDictionary()
_next = count()


def _origins(source: Reader[Any] | None) -> Iterator[int]:
    """The numbers of the ops that a plan begins with; each one that is made has its own."""
    if isinstance(source, Node):
        below = list(children(source))
        for child in below:
            yield from _origins(child)
        if not below:
            yield _NUMBERS.setdefault(source, next(_next))


def in_places(
    length: int, done: int, size: int, position: Callable[[int], Position]
) -> Pass[tuple[int, int]]:
    """The places from `done` on, `size` at a time, each as the first and one beyond the last."""

    def deal() -> Iterator[tuple[int, int]]:
        nonlocal done
        while done < length:
            low, done = done, min(done + size, length)
            yield low, done

    return Pass(deal(), lambda: position(done), lambda: None)


def is_small(reader: Reader[Any], plane: Plane) -> bool:
    """Whether a plan is worth sending to where its samples are needed: their data is not in it."""
    for column in leaves(plane.columns):
        if type(column) is np.ndarray and not column.flags.forc and column.nbytes > _SMALL:
            return False  # to pickle it would copy it
    room = _Little()
    try:
        Sender(room, room.take, reader).dump(reader)
    except Exception:  # it is too large, or cannot travel: its samples may
        return False
    return True


class _Little:
    """A file that takes no more than is little."""

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


def _kind(leaf: Any) -> type | None:
    return type(leaf) if type(leaf) in _PLAIN else None


def _column(values: Sequence[Any], _name: str) -> Any:
    """An array that gives back these values, type by type, or an error if there is none."""
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
