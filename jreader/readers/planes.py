"""The index plane: batches without samples.

A reader is *indexed* if it can find a sample by its index: it knows its `columns` (what there is to
gather from), its length, and a `route` from indices to rows. An op that does not look into samples
only reroutes. So over an indexed reader it is indexed too, and needs one more method, `plane()`.
Then only requested samples are read: a pass resumes anywhere at once, a shuffle without a window
holds nothing in memory, and a batch is one gather per column, at the cost of a copy.

The naive pass (`start`) is the specification: tests/readers/test_planes.py checks that both give
the same samples, and that a route gives the same rows under NumPy and under a trace of jax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any

import numpy as np

from jreader.errors import NotResumable, missing
from jreader.readers.columns import Array, Column, Dense, Indices, column_of
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS, ConcatArray
from jreader.readers.mapped_memory import Mapped, advise, for_large_batches, mapped_columns
from jreader.readers.messages import described
from jreader.readers.nodes import Reader, plane_of
from jreader.readers.passes import Pass, Position, checked_position, counted
from jreader.readers.reading_ahead import opened_for_pass
from jreader.readers.trees import Columns, leaves, map_tree, rebuilt, zipped

_ARRAYS = frozenset({Dense, ConcatArray})
_FIRST_ROUTED, _FIRST_IN_BATCHES, _ROUTED = 256, 4096, 16384  # indices per call


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
        route: Maps an array of indices to the rows of each column, in the order of the leaves.
        straight: Whether the row of every sample is its index.
        runs: Whether consecutive samples are consecutive rows, in all columns.
        blocks: The first sample of each block, if samples lie, in order, in blocks that are decoded
            whole; begins with 0. Else None.
        lanes: The number of lanes that own the blocks: sample i belongs to lane i % lanes, up to a
            shift between epochs. Lanes share no block, except for one at each border.
        held: The inverse of `route`: finds the samples that hold some rows, given the number of the
            column, the rows, and the index to stop at. None if the row of every sample is its
            index, or if only a search finds it.
    """

    columns: Any
    length: int
    route: Callable[[Indices], list[Indices]]
    straight: bool = field(default=False, kw_only=True)
    runs: bool = field(default=False, kw_only=True)
    blocks: Array | None = field(default=None, kw_only=True)
    lanes: int = field(default=1, kw_only=True)
    held: Callable[[int, Array, int], Held] | None = field(default=None, kw_only=True)

    def take(self, indices: Array) -> Sequence[Any]:
        """Return the samples at these indices."""
        return BatchGatherer(self.columns, len(indices))(self.rows(indices))

    def nth(self, index: int) -> Any:
        """Return the sample at this index."""
        return next(self.each(np.array([index])))

    def each(self, indices: Array) -> Iterator[Any]:
        """Return the samples at these indices one by one, as views where rows are arrays."""
        return _samples(self.columns, iter(self.rows(indices)))

    def rows(self, indices: Array) -> list[Array]:
        """Return the rows at these indices, checked once for many batches: gathers do not check."""
        routed = self.route(indices)
        checked: Any = None, 0
        for rows, column in zip(routed, leaves(self.columns), strict=True):
            if rows is checked[0] and len(column) == checked[1]:
                continue
            checked = rows, len(column)
            if len(rows) and not (rows.min() >= 0 and rows.max() < len(column)):
                beyond = rows[(rows < 0) | (rows >= len(column))]
                raise missing(_shape(column), int(beyond[0]), len(column))
        if len(indices) > 1 and self._mapped:
            advise(self._mapped, routed)
        return routed

    def holding(self, rows: Array, end: int = ENDLESS, column: int = 0) -> Held:
        """Return the samples that hold these rows of a column, up to an index.

        >>> from jreader import arrays, epochs, shuffle
        >>> plane = indexed(epochs(shuffle(arrays(np.arange(5) * 10), seed=0), 2))
        >>> held = plane.holding(np.array([3]))
        >>> held.index, list(plane.take(held.index))
        (array([1, 5]), [np.int64(30), np.int64(30)])

        Args:
            rows: Rows as the source numbers them; for windows and packs, documents.
            end: The index to stop at; needed if the plane is endless.
            column: The number of the column, in the order of the leaves.
        """
        end = min(end, self.length)
        held = Held.of(rows)
        if end <= 0 or not len(rows):
            return held.within(0)
        if self.held is not None:
            held = self.held(column, rows, end)
        elif not self.straight:
            held = held.searched(lambda indices: self.route(indices)[column], end)
        return held.within(end)

    def samples(self, at: Position) -> Pass[Any]:
        """Return a pass over single samples; its position is the number of the next one."""
        done = self._index(at)
        opened = opened_for_pass(self.columns, in_batches=False)

        runs = self._runs(done, min(_FIRST_ROUTED, self.at_once), self.at_once)
        routed = map(iter, opened.ahead(map(self.rows, runs)))
        each = map(partial(_samples, opened.columns), routed)
        items, count = counted(chain.from_iterable(each), done)
        return Pass(items, count, opened.close)

    def batches(self, size: int, at: Position) -> Pass[Sequence[Any]]:
        """Return a pass over batches of `size`, the last one shorter; positions count samples."""
        done = self._index(at)
        opened = opened_for_pass(self.columns, in_batches=True)
        gathered = BatchGatherer(opened.columns, size)
        many = max(self.at_once // size, 1) * size
        soon = max(min(_FIRST_IN_BATCHES, self.at_once) // size, 1) * size  # the first waits for it
        first, most = (many, many) if opened.readings else (soon, 2 * many)
        routes = map(self.rows, self._runs(done, first, most))

        def deal() -> Iterator[Sequence[Any]]:
            nonlocal done
            for routed in map(gathered.found, opened.ahead(routes)):
                total = len(routed[0])
                distinct = routed[:1] if all(rows is routed[0] for rows in routed) else routed
                for low in range(0, total, size):
                    high = min(low + size, total)
                    done += high - low
                    parts: list[Array] = []
                    for rows in distinct:
                        parts.append(rows[low:high])  # noqa: PERF401  # a comprehension costs one more call
                    yield gathered.gather(parts * (len(routed) // len(parts)))

        return Pass(deal(), lambda: done, opened.close)

    def _runs(self, low: int, many: int, most: int) -> Iterator[Array]:
        """Yield the indices from `low` on, in runs of `many`, doubled up to `most`."""
        while low < self.length:
            yield np.arange(low, min(low + many, self.length))
            low, many = low + many, min(2 * many, most)

    def reordered(
        self,
        length: int,
        order: Callable[[Indices], Indices],
        back: Callable[[Held], Held] | None = None,
        reach: Callable[[int], int] = lambda end: end,
    ) -> Plane:
        """Return the plane of `length` samples whose sample i is sample `order(i)` of this one.

        Args:
            length: The number of samples.
            order: Maps an array of sample numbers to their indices in this plane.
            back: The inverse: maps indices of this plane to sample numbers, some of which may lie
                outside range(length). Without it, all samples are searched.
            reach: For an endless plane: maps an end of the samples to an index of this plane,
                before which they all lie.
        """

        def held(column: int, rows: Array, end: int) -> Held:
            all_of_them = self.length if self.length < ENDLESS else reach(end)
            below = self.holding(rows, all_of_them, column)
            return below.searched(order, end) if back is None else back(below)

        return Plane(self.columns, length, lambda indices: self.route(order(indices)), held=held)

    def part(self, first: int, length: int) -> Plane:
        """Return the plane of `length` samples of this one, from sample `first` on."""
        part = self.reordered(
            length,
            lambda indices: indices + first,
            lambda held: held.strided(first),
            lambda end: end + first,
        )
        blocks = self.blocks
        if blocks is not None:
            from_, to = blocks.searchsorted([first, first + length], "right")
            blocks = np.maximum(blocks[max(from_ - 1, 0) : max(to, 1)] - first, 0)
        return replace(part, runs=self.runs or self.straight, blocks=blocks, lanes=self.lanes)

    @cached_property
    def _mapped(self) -> list[Mapped]:
        return mapped_columns(self.columns)

    @cached_property
    def at_once(self) -> int:
        """The number of indices to route per call; smaller if each gives many rows."""
        each = [each.rows_each for each in leaves(self.columns) if isinstance(each, Column)]
        return max(_ROUTED // max(each, default=1), 1)

    @property
    def last_position(self) -> int:
        """The last position that a pass can resume at: the end."""
        return self.length

    @property
    def extent(self) -> str:
        """Its length, as cursors name it."""
        return "no end" if self.length >= ENDLESS else str(self.length)

    def _index(self, at: Position) -> int:
        if isinstance(at, int) and not 0 <= at <= self.last_position:
            raise NotResumable(
                f"cannot resume after sample {at} of {map_tree(_shape, self.columns)}: it has "
                f"{self.length:,} samples. Start at the beginning (at=None), or give it the data "
                f"it had."
            )
        done: int = checked_position(at, 0)
        return done


def indexed(reader: Reader[Any]) -> Plane | None:
    """Return the plane of a reader; None if samples must be read to be found.

    >>> from jreader import arrays, filter, shuffle
    >>> digits = arrays(np.arange(10))
    >>> indexed(shuffle(digits, seed=0)).length, indexed(filter(bool, digits)) is None
    (10, True)
    """
    return plane_of(reader)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Trees of columns side by side, if only their rows show whether they are tuples.

    Attributes:
        parts: The trees: a sample is one tuple, into which samples that are tuples are unpacked.
    """

    parts: tuple[Any, ...]


def flattened(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return one tuple of parts side by side; parts that are tuples are unpacked into it.

    >>> flattened([(1, 2), "a"])
    (1, 2, 'a')
    """
    flat: tuple[Any, ...] = ()
    for part in row:
        flat += part if isinstance(part, tuple) else (part,)
    return flat


def _flat(parts: list[Sequence[Any]]) -> Sequence[Any]:
    """Return batches side by side as one batch, stacked if all of them are."""
    trees = [part.columns for part in parts if isinstance(part, Columns)]
    if len(trees) == len(parts):
        return Columns(flattened(trees))
    return list(map(flattened, zip(*parts, strict=True)))


class BatchGatherer:
    """Gathers batches of up to `size` samples from columns, into staged memory.

    >>> gathered = BatchGatherer({"x": np.arange(4) * 10}, 2)
    >>> gathered([np.array([3, 0])]).columns
    {'x': array([30,  0])}
    """

    def __init__(self, columns: Any, size: int) -> None:
        self.tree, self.beside, self.stacks = columns, None, True
        if isinstance(columns, SideBySide):
            self.beside = [(BatchGatherer(part, size), len(leaves(part))) for part in columns.parts]
            return
        row = leaves(columns)
        every = list(map(column_of, row))
        self.ways = [for_large_batches(*column.gatherer(size)) for column in every]
        self.arrays = _ARRAYS.issuperset(map(type, every))
        self.flat = _flat_kind(columns, row)
        # a single column may gather a list, which is a batch as it is; in a tree, all have to stack
        self.stacks = self.flat is np.ndarray or all(map(attrgetter("stacks"), every))
        self.joined = [
            (number, column)
            for number, column in enumerate(every)
            if self.stacks and isinstance(column, ConcatArray) and column.addresses is not None
        ]

    def __call__(self, routed: Sequence[Array]) -> Sequence[Any]:
        """Return the samples of these rows of each column."""
        return self.gather(self.found(routed))

    def found(self, routed: Sequence[Array]) -> list[Array]:
        """Return these rows as `gather` needs them: by address in joined columns.

        Finding the rows of many batches at once costs less.
        """
        if self.beside is not None:
            left = iter(routed)
            each = [part.found(list(islice(left, many))) for part, many in self.beside]
            return list(chain.from_iterable(each))
        found = list(routed)
        parts: dict[tuple[int, int], tuple[Array, Array]] = {}
        for number, column in self.joined:
            found[number] = column.places(routed[number], parts)
        return found

    def gather(self, routed: Sequence[Array]) -> Sequence[Any]:
        """Return the samples of rows that `found` returned."""
        if self.beside is not None:
            left = iter(routed)
            return _flat([part.gather(list(islice(left, many))) for part, many in self.beside])
        if not self.stacks:
            return list(_samples(self.tree, iter(routed)))
        parts: list[Any] = []
        for (gather, staged), rows in zip(self.ways, routed, strict=True):
            # clip, as rows are checked already: to raise, take would gather into a buffer first
            given = () if staged is None else (0, staged(len(rows)), "clip")
            parts.append(gather(rows, *given))
        if self.flat is tuple:
            tree: Any = tuple(parts)
        elif self.flat is dict:
            tree = dict(zip(self.tree, parts, strict=True))
        else:
            tree = rebuilt(self.tree, iter(parts)) if self.flat is None else parts[0]
        if not self.arrays:  # a column that gathers by itself may return a tree
            return tree if isinstance(tree, list) else Columns(tree)
        batch: Columns[Any] = Columns.__new__(Columns)  # __init__ would look at the leaves again
        batch.columns, batch.arrays = tree, parts
        return batch


def _flat_kind(tree: Any, columns: list[Any]) -> type | None:
    """Return tuple or dict for a flat tree of these columns, ndarray for a single column."""
    if tree is columns[0]:
        return np.ndarray
    if type(tree) not in {dict, tuple}:
        return None
    row = list(tree.values() if type(tree) is dict else tree)
    return type(tree) if len(row) == len(columns) and all(map(is_, row, columns)) else None


def _samples(columns: Any, routed: Iterator[Array]) -> Iterator[Any]:
    """Return the samples of these rows of each column, one by one."""
    if isinstance(columns, SideBySide):
        parts = [_samples(part, routed) for part in columns.parts]
        return map(flattened, zip(*parts, strict=True))
    return zipped(columns, [column_of(column).each(next(routed)) for column in leaves(columns)])


def _shape(column: Any) -> str:
    many = f"samples[{len(column)}]"
    return described(column) if column_of(column).kind else many
