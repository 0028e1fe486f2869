"""Columns end to end, as one column; arrays are gathered by one call of NumPy.

A call for each array costs more than its work on a batch of small rows. So rows are gathered by
address: all arrays are seen as one, with an item for each byte from the lowest address on, and only
the items at which rows begin are read. In a table of 500 record batches, a column of a batch of 256
rows takes 10 us, instead of 90 row by row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from math import prod
from operator import getitem, is_
from typing import Any

import numpy as np

from jreader.readers.columns import (
    Array,
    ArrayColumn,
    Column,
    Dense,
    Indices,
    Take,
    Where,
    array_column,
    axes_as_stored,
    column_of,
    rows_on_device,
)
from jreader.readers.messages import described
from jreader.readers.protected import read_only
from jreader.readers.trees import leaves, map_tree, rebuilt, same_structure, zipped
from jreader.staging import Staging

ENDLESS = 1 << 62
"""The length of an endless plane; products with it stay in 64 bits."""

_FEW = 8  # parts; for no more than this, rows are compared with each part
_LARGE = 4096  # bytes: rows that cost more to copy twice, by address, than one by one


class Addresses:
    """Arrays of contiguous rows as one: rows are found by their addresses.

    Args:
        parts: Arrays of one dtype and row shape.
        size: The bytes of a row.

    Attributes:
        items: All memory from the lowest row on, with an item per byte: the row that would begin
            there, as bytes.
    """

    def __init__(self, parts: Sequence[Array], size: int) -> None:
        firsts = np.array([part.__array_interface__["data"][0] for part in parts])
        self._steps = np.array([part.strides[0] for part in parts])
        lasts = firsts + self._steps * [len(part) - 1 for part in parts]
        lowest = min(firsts.min(), lasts.min())
        many = max(firsts.max(), lasts.max()) - lowest + 1
        self._firsts = firsts - lowest
        self.items: Array = np.asarray(_ByteItems(parts, int(lowest), int(many), size))

    def __call__(self, which: Array, local: Array) -> Array:
        """Return the items of rows `local` of the parts `which`."""
        items = self._steps.take(which)
        items *= local
        items += self._firsts.take(which)
        return items


class _ByteItems:
    """Memory as `many` items of `size` bytes with stride 1: one item per byte address."""

    def __init__(self, parts: Sequence[Array], address: int, many: int, size: int) -> None:
        self.parts = parts  # an array over these items keeps their memory alive
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (many,),
            "strides": (1,),
            "typestr": f"|V{size}",
        }


class ConcatColumn(Column):
    """Columns end to end, as one column whose rows are made by the column they belong to.

    Columns may be so long that several of them exceed 32 bits, and samples that are made whole
    cannot get an extra field. Then a row is a pair, its number in a column and the number of the
    column, and an order may alternate between columns.

    >>> from jreader.readers.columns import Objects
    >>> squares = Objects(9, lambda rows: ({"n": row**2} for row in rows.tolist()))
    >>> both = ConcatColumn([squares, squares], lambda sample, part: {**sample, "of": int(part)})
    >>> both.gather(np.array([[2, 0], [3, 1]]))
    [{'n': 4, 'of': 0}, {'n': 9, 'of': 1}]

    Args:
        parts: The columns.
        label: For rows that are pairs, adds the number of a column to its samples, or to a tree of
            their columns.

    Attributes:
        parts: The columns.
        starts: Where each of them begins.
    """

    def __init__(
        self, parts: Sequence[Any], label: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self.in_pairs, self.label = label is not None, label
        self.parts = list(parts if label else chain.from_iterable(map(_flat_parts, parts)))
        lengths = list(map(len, self.parts))
        self.starts: Array = np.array(begins(lengths))
        self._length = max(len(parts), *lengths) if label else min(sum(lengths), ENDLESS)
        self.form = self if label else None  # no other column has such pairs
        every = list(map(column_of, self.parts))
        self.stacks = all(column.stacks for column in every)
        self.asks_users_class = not label and all(column.asks_users_class for column in every)
        self.late = any(column.late for column in every)

    def __len__(self) -> int:
        """Return the number of rows; for pairs, the bound of their numbers."""
        return self._length

    @property
    def source(self) -> Column:
        """The sources of all parts, end to end."""
        every = list(map(column_of, self.parts))
        parts = [column.source for column in every]
        own = all(map(is_, parts, every)) and not self.in_pairs
        return self if own else ConcatColumn(parts)

    def without(self, documents: Array) -> Column | None:
        """Return each part without its documents; None if one of these parts cannot pad."""
        parts = list(map(column_of, self.parts))
        starts = np.array(begins([len(part.source) for part in parts]))
        which, local = locate(starts, documents)
        for number, here in by_part(which):
            emptied = parts[number].without(local[here])
            if emptied is None:
                return None
            parts[number] = emptied
        return ConcatColumn(parts, self.label)

    def cuts(self, size: int) -> Array:
        """Return the cuts of all columns."""
        parts = zip(map(column_of, self.parts), self.starts, strict=True)
        return np.concatenate([part.cuts(size) + start for part, start in parts])

    def __repr__(self) -> str:
        return " or ".join(map(described, self.parts)) if self.in_pairs else super().__repr__()

    def found(self, rows: Any) -> tuple[Any, Any]:
        """Return the part of each row, and the row in that part."""
        return (rows[..., 1], rows[..., 0]) if self.in_pairs else locate(self.starts, rows)

    def each(self, rows: Array) -> Iterator[Any]:
        """Return the rows in order; each column is asked once, for all of its rows."""
        which, local = self.found(rows)
        streams = {
            number: column_of(self.parts[number]).each(local[here])
            for number, here in by_part(which)
        }
        samples = (next(streams[number]) for number in which.tolist())
        return samples if self.label is None else map(self.label, samples, which.astype(np.int32))

    def gather(self, rows: Array) -> Any:
        """Return the rows stacked, if all columns give the same form; else as a list of samples."""
        which, local = self.found(rows)
        given = [
            (here, column_of(self.parts[number]).gather(local[here]))
            for number, here in by_part(which)
        ]
        return self._labelled(merged(given, len(rows)), which)

    def _labelled(self, samples: Any, which: Indices) -> Any:
        if self.label is None:
            return samples
        numbers = which.astype(np.int32)
        each = isinstance(samples, list)
        return list(map(self.label, samples, numbers)) if each else self.label(samples, numbers)

    def held(self, low: int, high: int) -> Any:
        """Read these rows of one column."""
        which, (first,) = self.found(np.array([low]))
        return column_of(self.parts[int(which[0])]).held(int(first), int(first) + high - low)

    def where(self, rows: Array) -> list[Where] | None:
        """Return where these rows lie in files; None if some lie in none."""
        places: list[Where] = []
        which, local = self.found(rows)
        for part, row in zip(which.tolist(), local, strict=True):
            files = column_of(self.parts[part]).where(row[None])
            if files is None:
                return None
            places += files
        return places

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return what each column puts on a device: a trace asks all of them, and selects."""
        trees, ways = zip(*(column_of(part).placed() for part in self.parts), strict=True)

        def rows_of(placed: Any, rows: Indices) -> Any:
            namespace, chosen = rows.__array_namespace__(), None
            which, local = self._traced_parts(rows)
            for number, (tree, way) in enumerate(zip(placed, ways, strict=True)):
                mine = which == number
                given = way(tree, namespace.where(mine, local, 0))
                chosen = (
                    given if chosen is None else map_tree(partial(_choose, mine), given, chosen)
                )
            return self._labelled(chosen, which)

        return trees, rows_of

    def _traced_parts(self, rows: Indices) -> tuple[Indices, Indices]:
        if self.in_pairs:
            return self.found(rows)
        namespace = rows.__array_namespace__()
        starts = namespace.asarray(self.starts)
        which = namespace.searchsorted(starts, rows, side="right") - 1
        return which, rows - starts[which]


class ConcatArray(ArrayColumn, ConcatColumn):
    """Arrays end to end, as one column.

    Attributes:
        parts: The arrays, or maps that are indexed as arrays are.
        starts: Where each of them begins; columns whose parts have equal lengths share it.
        addresses: Those of its rows; None if rows are large, or not contiguous.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        flat = [read_only(each) for part in parts for each in _flat_parts(part)]
        self._begins = [0, *accumulate(map(len, flat[:-1]))]
        self.parts, self.starts = flat, np.array(self._begins)
        self.shape = (sum(map(len, flat)), *flat[0].shape[1:])
        self.dtype, self.arrays = flat[0].dtype, flat
        self.kind = self.dtype, self.shape[1:]
        self.late = any(getattr(part, "late", False) for part in flat)
        self._axes = axes_as_stored(flat[0])
        width = prod(self.shape[1:]) * self.dtype.itemsize
        whole = 0 < width < _LARGE and all(_rows_are_whole(part, self._axes) for part in flat)
        self.addresses = Addresses(flat, width) if whole else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild it from its parts: addresses are valid in one process only."""
        return ConcatArray, (self.parts,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.concatenate([np.asarray(part, dtype) for part in self.parts])

    def __getitem__(self, rows: Any) -> Any:
        """Return consecutive rows, as a view if one part has them all; or any rows."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return super().__getitem__(rows)
        first, last, _ = rows.indices(self.shape[0])
        which = bisect_right(self._begins, first) - 1
        pieces: list[Array] = []
        while first < last or not pieces:
            part, start = self.parts[which], self._begins[which]
            pieces.append(part[first - start : last - start])
            first, which = start + len(part), which + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def each(self, rows: Array) -> Iterator[Any]:
        """Return the rows as their parts have them."""
        which, local = self.found(rows)
        return map(getitem, map(self.parts.__getitem__, which.tolist()), local.tolist())

    def gather(self, rows: Array) -> Array:
        """Return these rows as one array."""
        take, _ = self.gatherer(len(rows))
        given: Array = take(self.places(rows, {}))
        return given

    def places(self, rows: Array, parts: dict[tuple[int, int], tuple[Array, Array]]) -> Array:
        """Return the rows by address, if they have addresses.

        Args:
            rows: Rows of the column.
            parts: Caches what `found` returns for columns whose parts have equal lengths.
        """
        if self.addresses is None:
            return rows
        mark = id(rows), id(self.starts)
        if mark not in parts:
            parts[mark] = self.found(rows)
        return self.addresses(*parts[mark])

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Return a function that copies up to `size` rows, by place, into staged memory."""
        axes, dtype = self._axes, self.dtype
        staged = Staging(size, tuple(self.shape[axis] for axis in axes[1:]), dtype)
        back = None if axes == tuple(range(len(axes))) else np.argsort(axes)
        items = None if self.addresses is None else self.addresses.items

        def gather(places: Array) -> Array:
            if items is None:
                out = self._by_part(places, staged(len(places)))
            elif staged.leases:
                out = staged(len(places))
                out.reshape(-1).view(items.dtype)[:] = items[places]
            else:
                out = items[places].view(dtype).reshape(len(places), *staged.shape)
            return out if back is None else out.transpose(back)

        return gather, None

    def _by_part(self, rows: Array, out: Array) -> Array:
        """Copy few rows of many parts, and large rows, one by one; others part by part."""
        which, local = self.found(rows)
        turned = out.transpose(np.argsort(self._axes))
        large = out.nbytes >= _LARGE * len(out)
        if large or len(self.parts) * 4 > len(which):
            for place, (part, row) in enumerate(zip(which.tolist(), local.tolist(), strict=True)):
                turned[place] = self.parts[part][row]
        else:
            for part, here in by_part(which):
                turned[here] = self.parts[part][local[here]]
        return out

    def slices(self, begins: Array, size: int, out: Array | None = None) -> Array:
        """Take slices part by part, if parts are few; in one call if none crosses the end."""
        if len(self.parts) * 4 > len(begins):
            return super().slices(begins, size, out)
        taken = np.empty((len(begins), size, *self.shape[1:]), self.dtype) if out is None else out
        which, local = self.found(begins)
        for number, here in by_part(which):
            part = array_column(self.parts[number])
            whole = local[here].max() + size <= len(part)
            slices, from_ = (part.slices, local) if whole else (super().slices, begins)
            taken[here] = slices(from_[here], size)
        return taken

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return all of them as one array."""
        return np.asarray(self), rows_on_device


def _flat_parts(column: Any) -> Sequence[Any]:
    """Return the columns that make up a joined one; of any other, itself."""
    if isinstance(column, Dense):
        return [column.array]
    return column.parts if isinstance(column, ConcatColumn) and not column.in_pairs else [column]


def concat_columns(columns: Sequence[Any]) -> Any:
    """Join columns into one: arrays as an array, others as their class does, or `ConcatColumn`.

    >>> concat_columns([np.arange(2), np.arange(3)])
    int64[5]
    """
    every = list(map(column_of, columns))
    way = every[0].concat
    made = way(columns) if all(column.concat is way for column in every) else None
    if made is None:
        whole = any(column.kind is None for column in every)
        made = ConcatColumn(columns) if whole else ConcatArray(columns)
    if made.block_starts is None:
        _join_blocks(made, every)
    return made


def _join_blocks(made: Column, parts: Sequence[Column]) -> None:
    """Set the block starts of joined columns, if all of them have blocks."""
    starts = [part.block_starts for part in parts if part.block_starts is not None]
    if len(starts) == len(parts):
        firsts = zip(starts, begins(list(map(len, parts))), strict=True)
        made.block_starts = np.concatenate([each + first for each, first in firsts])
        made.block_bytes = max(part.block_bytes for part in parts)


def share_starts(columns: Sequence[Any]) -> None:
    """Make joined columns whose parts have equal lengths share `starts`: rows are found once."""
    joined = [column for column in columns if isinstance(column, ConcatArray)]
    for column in joined[1:]:
        if np.array_equal(column.starts, joined[0].starts):
            column.starts = joined[0].starts


def locate(starts: Array, rows: Array) -> tuple[Array, Array]:
    """Return the part of each row, given where parts begin, and the row in that part."""
    if len(starts) > min(_FEW, len(rows) // _FEW):
        which = starts.searchsorted(rows, "right") - 1
    else:
        which = np.full(len(rows), -1)
        for start in starts.tolist():
            which += rows >= start
    return which, rows - starts[which]


def by_part(which: Array) -> Iterator[tuple[int, Any]]:
    """Yield each number that occurs, and where; a slice if there is only one."""
    if len(which) and which[0] == which[-1] and (which == which[0]).all():
        yield int(which[0]), slice(None)
        return
    order = which.argsort(kind="stable")
    rising = which[order]
    cuts = np.flatnonzero(rising[1:] != rising[:-1]) + 1
    for low, high in pairwise([0, *cuts.tolist(), len(order)] if len(order) else []):
        yield int(rising[low]), order[low:high]


def _rows_are_whole(part: Any, axes: tuple[int, ...]) -> bool:
    """Return whether a part is an array whose rows are contiguous, with these axes."""
    if not isinstance(part, np.ndarray) or part.dtype.hasobject:
        return False
    return bool(np.asarray(part)[:1].transpose(axes).flags.c_contiguous)


def begins(lengths: Sequence[int]) -> list[int]:
    """Return where each part begins, laid end to end."""
    starts = [0]
    for length in lengths[:-1]:
        starts.append(min(starts[-1] + length, ENDLESS))
    return starts


def merged(given: Sequence[tuple[Any, Any]], many: int) -> Any:
    """Merge what several columns gave: stacked if all of it is alike, else a list of samples.

    >>> merged([(np.array([1]), np.array([5])), (np.array([0, 2]), np.array([6, 7]))], 3)
    array([6, 5, 7])

    Args:
        given: The places of the rows that a column gave, and the rows.
        many: The number of all rows.
    """
    if len(given) == 1:
        return given[0][1]
    if given and alike([tree for _, tree in given]):
        return _stacked(given, many)
    samples: list[Any] = [None] * many
    for here, rows in given:
        each = rows if isinstance(rows, list) else zipped(rows, leaves(rows))
        for index, sample in zip(here.tolist(), each, strict=True):
            samples[index] = sample
    return samples


def _stacked(given: Sequence[tuple[Any, Any]], many: int) -> Any:
    first = given[0][1]
    columns = [np.empty((many, *leaf.shape[1:]), leaf.dtype) for leaf in leaves(first)]
    for here, tree in given:
        for column, leaf in zip(columns, leaves(tree), strict=True):
            column[here] = leaf
    return rebuilt(first, iter(columns))


def alike(trees: Sequence[Any]) -> bool:
    """Return whether all these are trees of arrays that can hold each other's rows."""
    first = trees[0]
    return not any(isinstance(tree, list) for tree in trees) and all(
        same_structure(first, tree) and all(map(_fit, leaves(first), leaves(tree)))
        for tree in trees
    )


def _fit(leaf: Any, other: Any) -> bool:
    both = isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray)
    return both and leaf.dtype == other.dtype and leaf.shape[1:] == other.shape[1:]


def _choose(mine: Indices, rows: Indices, others: Indices) -> Indices:
    here = mine.reshape(*mine.shape, *[1] * (rows.ndim - mine.ndim))
    return rows.__array_namespace__().where(here, rows, others)
