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
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice, repeat
from operator import getitem, is_
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from jreader.errors import NotResumable, missing
from jreader.readers.joined_columns import Joined, axes_as_stored, stored_whole
from jreader.readers.mapped_memory import Mapped, advise, mapped_columns
from jreader.readers.nodes import Reader, plane_of
from jreader.readers.passes import Pass, Position, checked_position, counted
from jreader.readers.protected import protected
from jreader.readers.reading_ahead import opened_for_pass
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


@runtime_checkable
class Placed(Protocol):
    """A column that gathers, of which a device can hold what it gathers from."""

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to the device, and how rows are gathered there.

        Returns:
            A tree of arrays; and a function of that tree, on the device, and of rows, which jax
            traces: it gives what `gather` gives.
        """


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
        runs: Whether samples that follow one another are rows that do, in all columns.
        blocks: The sample at which each block begins, where samples lie in blocks that are decoded
            as a whole, in their order; the first 0. Else None.
    """

    columns: Any
    length: int
    route: Callable[[Indices], list[Indices]]
    straight: bool = field(default=False, kw_only=True)
    runs: bool = field(default=False, kw_only=True)
    blocks: Array | None = field(default=None, kw_only=True)

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
        checked: Any = None, 0
        for rows, column in zip(routed, leaves(self.columns), strict=True):
            now = rows, len(column)
            if all(map(is_, now, checked)):
                continue
            checked = now
            if len(rows) and not (rows.min() >= 0 and rows.max() < len(column)):
                beyond = rows[(rows < 0) | (rows >= len(column))]
                raise missing(_shape(column), int(beyond[0]), len(column))
        if len(indices) > 1 and self._mapped:
            advise(self._mapped, routed)
        return routed

    def samples(self, at: Position) -> Pass[Any]:
        """One by one, views where rows are arrays; the position is the number of the next one."""
        done, blocks = self._index(at), opened_for_pass(self.columns)

        def runs() -> Iterator[Array]:
            low, many = done, min(_AT_FIRST, self.at_once)
            while low < self.length:
                yield np.arange(low, min(low + many, self.length))
                low, many = low + many, min(2 * many, self.at_once)

        if blocks is None:
            items, count = counted(chain.from_iterable(map(self.each, runs())), done)
            return Pass(items, count, lambda: None)
        routed = map(iter, blocks.ahead(map(self.rows, runs())))
        each = map(partial(_samples, blocks.columns), routed)
        items, count = counted(chain.from_iterable(each), done)
        return Pass(items, count, blocks.close)

    def batches(self, size: int, at: Position) -> Pass[Sequence[Any]]:
        """In runs of `size`, the last one shorter; the position is as that of `samples`."""
        done, blocks = self._index(at), opened_for_pass(self.columns)
        gathered = Gathering(blocks.columns if blocks else self.columns, size)
        many = max(self.at_once // size, 1) * size
        second = min(done + many, self.length)  # soon there, and then twice as many at once
        firsts = range(second, self.length, many if blocks else 2 * many)
        begins, ends = (
            chain(range(done, second, many), firsts),
            chain([second], firsts[1:], [self.length]),
        )
        routes = map(self.rows, map(np.arange, begins, ends))

        def deal() -> Iterator[Sequence[Any]]:
            nonlocal done
            for routed in map(gathered.found, blocks.ahead(routes) if blocks else routes):
                total = len(routed[0])
                distinct = routed[:1] if all(rows is routed[0] for rows in routed) else routed
                for low in range(0, total, size):
                    high = min(low + size, total)
                    done += high - low
                    parts: list[Array] = []
                    for rows in distinct:
                        parts.append(rows[low:high])  # noqa: PERF401  # it would be one more call
                    yield gathered.gather(parts * (len(routed) // len(parts)))

        return Pass(deal(), lambda: done, blocks.close if blocks else lambda: None)

    def reordered(self, length: int, order: Callable[[Indices], Indices]) -> Plane:
        """The plane of `length` samples, of which sample i is sample `order(i)` of this one."""
        return Plane(self.columns, length, lambda indices: self.route(order(indices)))

    def part(self, first: int, length: int) -> Plane:
        """The plane of `length` samples, from sample `first` of this one on."""
        part = self.reordered(length, lambda indices: indices + first)
        blocks = self.blocks
        if blocks is not None:
            from_, to = blocks.searchsorted([first, first + length], "right")
            blocks = np.maximum(blocks[max(from_ - 1, 0) : max(to, 1)] - first, 0)
        return replace(part, runs=self.runs or self.straight, blocks=blocks)

    @cached_property
    def _mapped(self) -> list[Mapped]:
        return mapped_columns(self.columns)

    @cached_property
    def at_once(self) -> int:
        """How many indices to route in one go; fewer where each gives many rows."""
        each = max(getattr(column, "rows_each", 1) for column in leaves(self.columns))
        return max(_AT_ONCE // each, 1)

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
        self.tree, self.beside, self.stacks = columns, None, True
        if isinstance(columns, SideBySide):
            self.beside = [(Gathering(part, size), len(leaves(part))) for part in columns.parts]
            return
        every = leaves(columns)
        self.ways = [_gatherer(column, size) for column in every]
        self.arrays = all(isinstance(column, (np.ndarray, Joined)) for column in every)
        self.stacks = all(getattr(column, "stacks", True) for column in every)
        self.flat = _flat_kind(columns, every)
        self.joined: list[tuple[int, Any]] = [
            (number, column)
            for number, column in enumerate(every)
            if self.stacks and isinstance(column, Joined) and column.addresses is not None
        ]

    def __call__(self, routed: Sequence[Array]) -> Sequence[Any]:
        """The samples of those rows of each column."""
        return self.gather(self.found(routed))

    def found(self, routed: Sequence[Array]) -> list[Array]:
        """Those rows as `gather` needs them: of joined columns, by address.

        Rows of many batches may be found at once, which costs less.
        """
        if self.beside is not None:
            left = iter(routed)
            each = [part.found(list(islice(left, many))) for part, many in self.beside]
            return list(chain.from_iterable(each))
        found = list(routed)
        parts: dict[tuple[int, int], tuple[Array, Array]] = {}
        for number, column in self.joined:
            rows = routed[number]
            mark = id(rows), id(column.starts)
            if mark not in parts:
                parts[mark] = column.found(rows)
            found[number] = column.addresses(*parts[mark])
        return found

    def gather(self, routed: Sequence[Array]) -> Sequence[Any]:
        """The samples of those rows of each column, which were found."""
        if self.beside is not None:
            left = iter(routed)
            return _flat([part.gather(list(islice(left, many))) for part, many in self.beside])
        if not self.stacks:
            return list(_samples(self.tree, iter(routed)))
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
        batch.columns, batch.arrays = tree, parts
        return batch


def _gatherer(column: Any, size: int) -> tuple[Callable[..., Any], Staging | None]:
    """The call that gathers rows of a column; if it is `take`, what makes the array it fills.

    The method `take`, because NumPy's function of that name is three calls of Python.
    """
    if not isinstance(column, (np.ndarray, Joined)):
        return column.gather, None
    if isinstance(column, Joined):
        return column.gatherer(size), None
    axes = axes_as_stored(column)
    back = np.argsort(axes)
    staged = Staging(size, tuple(column.shape[axis] for axis in axes[1:]), column.dtype)
    stored = stored_whole(column, axes)
    if column.dtype.hasobject:
        return lambda rows: _objects(column, rows), None
    if stored is None:
        return column.__getitem__, None
    take = partial(stored.take, axis=0, mode="clip")
    if axes != tuple(range(column.ndim)):
        return lambda rows: take(rows, out=staged(len(rows))).transpose(back), None
    return (stored.take, staged) if staged.leases else (take, None)


def _objects(column: Array, rows: Array) -> Array:
    """Rows of an array of objects, of which no change reaches the column."""
    picked: Array = column[rows]
    for place in np.ndindex(picked.shape):
        picked[place] = protected(picked[place])
    return picked


def _flat_kind(tree: Any, columns: list[Any]) -> type | None:
    """Tuple or dict if a tree is one of nothing but these columns, ndarray if it is one column."""
    if tree is columns[0]:
        return np.ndarray
    if type(tree) not in {dict, tuple}:
        return None
    row = list(tree.values() if type(tree) is dict else tree)
    return type(tree) if len(row) == len(columns) and all(map(is_, row, columns)) else None


def one_by_one(column: Any, rows: Array) -> Iterator[Any]:
    """The rows of a column one by one: views of an array, not copies."""
    if isinstance(column, np.ndarray):
        each_row = map(getitem, repeat(column), rows.tolist())
        return map(protected, each_row) if column.dtype.hasobject else each_row
    each: Iterator[Any] = column.each(rows)
    return each


def _samples(columns: Any, routed: Iterator[Array]) -> Iterator[Any]:
    """The samples of those rows of each column, one by one."""
    if isinstance(columns, SideBySide):
        parts = [_samples(part, routed) for part in columns.parts]
        return map(flattened, zip(*parts, strict=True))
    return zipped(columns, [one_by_one(column, next(routed)) for column in leaves(columns)])


def begins(lengths: Sequence[int]) -> list[int]:
    """Where each begins, laid end to end."""
    starts = [0]
    for length in lengths[:-1]:
        starts.append(min(starts[-1] + length, ENDLESS))
    return starts


def _shape(column: Any) -> str:
    shape = getattr(column, "shape", (len(column),))
    return f"{getattr(column, 'dtype', 'samples')}[{', '.join(map(str, shape))}]"
