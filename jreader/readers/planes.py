"""The index plane: batches without samples.

A reader is *indexed* when the index of a sample is enough to find it: it knows its `columns` (what
there is to gather from), its length, and a `route` from indices to rows. An op that does not look
into samples only reroutes, so over an indexed reader it is indexed too, and needs one more method,
`plane()`. Then nothing is read that is not asked for: a pass goes on anywhere at once, a shuffle
without a window holds nothing, and a batch is one gather for each column, whose cost a sample is
that of a copy.

The naive pass (`start`) is the specification: tests/readers/test_planes.py holds that both give the
same samples, and that a route gives the same rows under NumPy and under a trace of jax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat
from operator import getitem, is_
from typing import Any, Protocol, TypeAlias

import numpy as np

from jreader.errors import NotResumable, missing
from jreader.readers.nodes import Reader, plane_of
from jreader.readers.passes import Pass, Position, checked_position, counted
from jreader.readers.trees import Columns, leaves, map_tree, rebuilt, zipped
from jreader.staging import Staging

Array: TypeAlias = np.ndarray[Any, Any]
Indices: TypeAlias = Any
"""An array of integers, of NumPy or jax, traced or not."""

ENDLESS = 1 << 62
"""The length of a plane without an end; products with it stay in 64 bits."""

_AT_FIRST, _AT_ONCE = 256, 16384  # indices that are routed in one go: NumPy's calls cost too


class Gathers(Protocol):
    """A column that is no array: it makes its rows when they are asked for."""

    def __len__(self) -> int:
        """The number of rows."""

    def gather(self, rows: Array) -> Any:
        """Those rows: an array, a tree of arrays, or a list where they are not to be stacked."""

    def each(self, rows: Array) -> Iterator[Any]:
        """Those rows one by one, each made when it is asked for."""


@dataclass(frozen=True, eq=False)
class Plane:
    """An indexed reader: sample i is row `route([i])` of the columns.

    >>> from jreader import arrays, chain, skip
    >>> plane = indexed(chain(skip(arrays(np.arange(5) * 10), 3), arrays(np.arange(3))))
    >>> plane.length, plane.route(np.arange(5))
    (5, [array([3, 4, 5, 6, 7])])
    >>> list(plane.take(np.array([0, 4])))
    [np.int64(30), np.int64(2)]

    Attributes:
        columns: A tree of arrays, or of columns that gather.
        length: The number of samples; `ENDLESS` for no end.
        route: Gives, for an array of indices, the rows of each column, in the order of the leaves.
        straight: Whether the row of every sample is its index.
    """

    columns: Any
    length: int
    route: Callable[[Indices], list[Indices]]
    straight: bool = field(default=False, kw_only=True)

    def take(self, indices: Array) -> Sequence[Any]:
        """The samples of these indices."""
        return Gathering(self.columns, len(indices))(self.rows(indices))

    def nth(self, index: int) -> Any:
        """The sample of this index."""
        return next(self.each(np.array([index])))

    def each(self, indices: Array) -> Iterator[Any]:
        """The samples of these indices one by one, views where rows are arrays."""
        return _samples(self.columns, iter(self.rows(indices)))

    def rows(self, indices: Array) -> list[Array]:
        """The rows of these indices, checked here once for many batches: a gather does not look."""
        routed = self.route(indices)
        for rows, column in zip(routed, leaves(self.columns), strict=True):
            if len(rows) and not (rows.min() >= 0 and rows.max() < len(column)):
                beyond = rows[(rows < 0) | (rows >= len(column))]
                raise missing(_shape(column), int(beyond[0]), len(column))
        return routed

    def samples(self, at: Position) -> Pass[Any]:
        """One by one, views where rows are arrays; the position is the number of the next one."""
        done = self._index(at)

        def runs() -> Iterator[Iterator[Any]]:
            low, many = done, _AT_FIRST
            while low < self.length:
                yield self.each(np.arange(low, min(low + many, self.length)))
                low, many = low + many, min(2 * many, _AT_ONCE)

        items, count = counted(chain.from_iterable(runs()), done)
        return Pass(items, count, lambda: None)

    def batches(self, size: int, at: Position) -> Pass[Sequence[Any]]:
        """In runs of `size`, the last one shorter; the position is as that of `samples`."""
        done = self._index(at)
        gathered = Gathering(self.columns, size)

        def deal() -> Iterator[Sequence[Any]]:
            nonlocal done
            while done < self.length:
                many = max(_AT_ONCE // size, 1) * size
                indices = np.arange(done, min(done + many, self.length))
                routed = self.rows(indices)
                for low in range(0, len(indices), size):
                    high = min(low + size, len(indices))
                    done += high - low
                    parts: list[Array] = []
                    for rows in routed:  # a comprehension would be one more call for each batch
                        parts.append(rows[low:high])  # noqa: PERF401
                    yield gathered(parts)

        return Pass(deal(), lambda: done, lambda: None)

    def reordered(self, length: int, order: Callable[[Indices], Indices]) -> Plane:
        """The plane of `length` samples, of which sample i is sample `order(i)` of this one."""
        return Plane(self.columns, length, lambda indices: self.route(order(indices)))

    @property
    def furthest(self) -> int:
        """The last position that a pass can go on from: the end."""
        return self.length

    @property
    def extent(self) -> str:
        """Its length, as cursors name it."""
        return "no end" if self.length >= ENDLESS else str(self.length)

    def _index(self, at: Position) -> int:
        if isinstance(at, int) and not 0 <= at <= self.furthest:
            raise NotResumable(
                f"cannot go on after sample {at} of {map_tree(_shape, self.columns)}: it has "
                f"{self.length:,} samples. Start at the beginning (at=None), or give it the data "
                f"it had."
            )
        done: int = checked_position(at, 0)
        return done


def indexed(reader: Reader[Any]) -> Plane | None:
    """The plane of a reader; None where samples have to be read to be found.

    >>> from jreader import arrays, filter, shuffle
    >>> digits = arrays(np.arange(10))
    >>> indexed(shuffle(digits, seed=0)).length, indexed(filter(bool, digits)) is None
    (10, True)
    """
    return plane_of(reader)


def parted(which: Array) -> Iterator[tuple[int, Any]]:
    """Each number that occurs, and where: a slice if it is the only one."""
    if len(which) and which[0] == which[-1] and (which == which[0]).all():
        yield int(which[0]), slice(None)
        return
    order = np.argsort(which, kind="stable")
    cuts = np.flatnonzero(np.diff(which[order])) + 1
    for run in np.split(order, cuts) if len(order) else []:
        yield int(which[run[0]]), run


class Joined:
    """Columns end to end, as one column."""

    def __init__(self, parts: Sequence[Any]) -> None:
        flat = [each for part in parts for each in getattr(part, "parts", (part,))]
        self.parts, self.starts = flat, np.array(begins([len(part) for part in flat]))
        self.shape = (sum(map(len, flat)), *flat[0].shape[1:])
        self.dtype = flat[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1]) + len(self.parts[-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.asarray(part, dtype) for part in self.parts])

    def each(self, rows: Array) -> Iterator[Any]:
        """The rows as their parts have them."""
        which, local = self.found(rows)
        return map(getitem, map(self.parts.__getitem__, which.tolist()), local.tolist())

    def gather(self, rows: Array, out: Array) -> Array:
        """A few rows from many parts one by one, many from few part by part; as they are stored."""
        order = np.argsort(rows, kind="stable")
        which, local = self.found(rows[order])
        if len(self.parts) * 4 > len(rows):
            triples = zip(order.tolist(), which.tolist(), local.tolist(), strict=True)
            for index, part, row in triples:
                out[index] = self.parts[part][row]
        else:
            for part, here in parted(which):
                out[order[here]] = self.parts[part][local[here]]
        return out

    def found(self, rows: Array) -> tuple[Array, Array]:
        """Which part each row is of, and which row of it."""
        return found(self.starts, rows)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Trees of columns side by side, of which only the rows tell whether they are tuples.

    Attributes:
        parts: The trees: a sample is one tuple, into which those that are tuples are laid.
    """

    parts: tuple[Any, ...]


def flattened(row: Sequence[Any]) -> tuple[Any, ...]:
    """One tuple of what lies side by side; those that are tuples are laid into it.

    >>> flattened([(1, 2), "a"])
    (1, 2, 'a')
    """
    flat: tuple[Any, ...] = ()
    for part in row:
        flat += part if isinstance(part, tuple) else (part,)
    return flat


def _flat(parts: list[Sequence[Any]]) -> Sequence[Any]:
    """Batches side by side as one, stacked if all of them are."""
    trees = [part.columns for part in parts if isinstance(part, Columns)]
    if len(trees) == len(parts):
        return Columns(flattened(trees))
    return list(map(flattened, zip(*parts, strict=True)))


class Gathering:
    """Gathers batches of up to `size` samples from columns, into staged memory.

    >>> gathered = Gathering({"x": np.arange(4) * 10}, 2)
    >>> gathered([np.array([3, 0])]).columns
    {'x': array([30,  0])}
    """

    def __init__(self, columns: Any, size: int) -> None:
        self.tree, self.beside = columns, None
        if isinstance(columns, SideBySide):
            self.beside = [(Gathering(part, size), len(leaves(part))) for part in columns.parts]
            return
        every = leaves(columns)
        self.ways = [_gatherer(column, size) for column in every]
        self.arrays = all(isinstance(column, (np.ndarray, Joined)) for column in every)
        self.flat = _flat_kind(columns, every)

    def __call__(self, routed: Sequence[Array]) -> Sequence[Any]:
        """The samples of those rows of each column."""
        if self.beside is not None:
            left = iter(routed)
            return _flat([part(list(islice(left, many))) for part, many in self.beside])
        parts: list[Any] = []
        for (gather, staged), rows in zip(self.ways, routed, strict=True):
            # clip, since the rows were checked: to raise, take would gather into a buffer first
            given = () if staged is None else (0, staged(len(rows)), "clip")
            parts.append(gather(rows, *given))
        if self.flat is tuple:
            tree: Any = tuple(parts)
        elif self.flat is dict:
            tree = dict(zip(self.tree, parts, strict=True))
        else:
            tree = rebuilt(self.tree, iter(parts)) if self.flat is None else parts[0]
        if not self.arrays:  # what gathers by itself may give trees
            return tree if isinstance(tree, list) else Columns(tree)
        batch: Columns[Any] = Columns.__new__(Columns)  # __init__ would look at the leaves again
        batch.columns, batch.arrays, batch.made_of = tree, parts, None
        return batch


def _gatherer(column: Any, size: int) -> tuple[Callable[..., Any], Staging | None]:
    """The call that gathers rows of a column; if it is `take`, what makes the array it fills.

    The method `take`, because NumPy's function of that name is three calls of Python.
    """
    if not isinstance(column, (np.ndarray, Joined)):
        return column.gather, None
    axes = _as_stored(column.parts[0] if isinstance(column, Joined) else column)
    back = np.argsort(axes)
    staged = Staging(size, tuple(column.shape[axis] for axis in axes[1:]), column.dtype)
    if isinstance(column, Joined):
        return lambda rows: column.gather(rows, staged(len(rows)).transpose(back)), None
    stored = np.asarray(column).transpose(axes)
    whole = stored.flags.c_contiguous and stored.flags.aligned
    if column.dtype.hasobject or not whole:
        # take would copy what is not whole, all of it, for every batch
        return column.__getitem__, None
    take = partial(stored.take, axis=0, mode="clip")
    if axes != tuple(range(column.ndim)):
        return lambda rows: take(rows, out=staged(len(rows))).transpose(back), None
    return (stored.take, staged) if staged.leases else (take, None)


def _flat_kind(tree: Any, columns: list[Any]) -> type | None:
    """Tuple or dict if a tree is one of nothing but these columns, ndarray if it is one column."""
    if tree is columns[0]:
        return np.ndarray
    if type(tree) not in {dict, tuple}:
        return None
    row = list(tree.values() if type(tree) is dict else tree)
    return type(tree) if len(row) == len(columns) and all(map(is_, row, columns)) else None


def _as_stored(column: Array) -> tuple[int, ...]:
    """The axes of a column in the order of memory, as far as its rows stay rows."""
    inner = range(1, column.ndim)
    return 0, *sorted(inner, key=lambda axis: -abs(column.strides[axis]))


def one_by_one(column: Any, rows: Array) -> Iterator[Any]:
    """The rows of a column one by one: views of an array, not copies."""
    if isinstance(column, np.ndarray):
        return map(getitem, repeat(column), rows.tolist())
    each: Iterator[Any] = column.each(rows)
    return each


def _samples(columns: Any, routed: Iterator[Array]) -> Iterator[Any]:
    """The samples of those rows of each column, one by one."""
    if isinstance(columns, SideBySide):
        parts = [_samples(part, routed) for part in columns.parts]
        return map(flattened, zip(*parts, strict=True))
    return zipped(columns, [one_by_one(column, next(routed)) for column in leaves(columns)])


def found(starts: Array, rows: Array) -> tuple[Array, Array]:
    """Which part each row is of, where parts begin so, and which row of it."""
    which = np.searchsorted(starts, rows, "right") - 1
    return which, rows - starts[which]


def begins(lengths: Sequence[int]) -> list[int]:
    """Where each begins, laid end to end."""
    starts = [0]
    for length in lengths[:-1]:
        starts.append(min(starts[-1] + length, ENDLESS))
    return starts


def _shape(column: Any) -> str:
    shape = getattr(column, "shape", (len(column),))
    return f"{getattr(column, 'dtype', 'samples')}[{', '.join(map(str, shape))}]"
