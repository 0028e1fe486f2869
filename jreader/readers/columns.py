"""Columns: rows found by number, wherever they are stored.

An array is a column as it is. Everything else extends `Column`, and defines only what differs: a
length, and rows by number (`gather`, or `each`). A tree of columns of one length makes samples
(`planes.py`).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from math import prod
from operator import getitem
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.readers.messages import described
from jreader.readers.overlaps import overlapping
from jreader.readers.protected import protected, read_only_columns
from jreader.readers.trees import Columns, branches, joined, map_tree
from jreader.staging import Staging

Array: TypeAlias = np.ndarray[Any, Any]
Indices: TypeAlias = Any
"""An array of integers, of NumPy or jax, traced or not."""

Take: TypeAlias = Callable[..., Any]
"""Returns rows of an array, as its method `take` does; or rows of a column, given only the rows."""


class Where(NamedTuple):
    """The file of a row, and the byte at which the row begins in it."""

    path: str
    offset: int


class Column:
    """Rows that are found by number; a subclass defines `__len__`, and `gather` or `each`.

    >>> class Squares(Column):
    ...     def __len__(self):
    ...         return 9
    ...     def gather(self, rows):
    ...         return {"n": rows**2}
    >>> squares = Squares()
    >>> squares[2], list(squares.each(np.array([4]))), squares[np.array([1, 3])]
    ({'n': np.int64(4)}, [{'n': np.int64(16)}], {'n': array([1, 9])})

    Attributes:
        stacks: Whether its rows can be stacked; batches of other columns are lists of samples.
        kind: The dtype and shape of its rows; None if only a row shows them.
        form: The form of a row number; None for a plain int. Columns of one form can be joined.
        in_pairs: Whether a row number is two: the row in a column, and the number of the column.
        rows_each: The number of another column's rows that make one of its own.
        at_once: The number of rows to gather at once when they are requested one by one.
        block_starts: The first row of each block, if an order by blocks reads blocks whole
            (`held`).
        block_bytes: The size of such a block, if `set_block_starts` made them; else 0.
        arrays: The arrays, or maps of files, that hold its rows, for checks of files and for advice
            on how they are read; none if rows are computed.
        tables: Arrays that locate rows in those.
        asks_users_class: Whether each row is a call of a `__getitem__` in Python.
        late: Whether rows come late, from other machines or a decoder of sounds or videos, so that
            a pass requests some batches ahead.
    """

    stacks: bool = True
    kind: Any = None
    form: Any = None
    in_pairs: bool = False
    rows_each: int = 1
    at_once: int = 64
    block_starts: Array | None = None
    block_bytes: int = 0
    arrays: Sequence[Any] = ()
    tables: Sequence[Array] = ()
    asks_users_class: bool = False
    late: bool = False

    def __len__(self) -> int:
        """Return the number of rows; if a row is several numbers, the bound of each."""
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __repr__(self) -> str:
        return f"samples[{len(self)}]"

    @property
    def source(self) -> Column:
        """The column that its rows are made from: the documents, for windows of documents."""
        return self

    def without(self, _documents: Array) -> Column | None:
        """Return it with padding in place of these rows of its source; None if it cannot pad."""
        return None

    def __getitem__(self, rows: Any) -> Any:
        """Return one row, or several: an array, or a list if rows cannot be stacked."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        which = np.asarray(rows)
        if which.ndim == self.in_pairs:
            (row,) = self.each(self._checked(which[None]))
            return row
        if which.ndim > 1 + self.in_pairs:
            return [self[each] for each in which]
        return self.gather(self._checked(which))

    def _checked(self, rows: Array) -> Array:
        if not self.in_pairs:
            rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"a row of {rows!r} is not one of the {len(self):,} of {self!r}")
        return rows

    def gather(self, rows: Array) -> Any:
        """Return these rows: an array, a tree of arrays, or a list if they cannot be stacked."""
        return list(self.each(rows))

    def each(self, rows: Array) -> Iterator[Any]:
        """Yield these rows one by one; a row that fails raises after those before it."""
        for low in range(0, len(rows), self.at_once):
            yield from self.rows_until_error(rows[low : low + self.at_once])

    def rows_until_error(self, rows: Array) -> Iterable[Any]:
        """Return these rows, gathered at once; if one raises, one by one, those before it first."""
        try:
            given: Iterable[Any] = [self.gather(rows)]
        except Exception:  # one by one, the failing row shows
            given = (self.gather(rows[at : at + 1]) for at in range(len(rows)))
        return chain.from_iterable(map(_samples, given))

    def gatherer(self, _size: int) -> tuple[Take, Staging | None]:
        """Return a call that gathers up to so many rows; for `take`, also its output's staging.

        It is the method `take`, because NumPy's function of that name makes three Python calls.
        """
        return self.gather, None

    def where(self, _rows: Array) -> list[Where] | None:
        """Return where these rows lie in files; None if they lie in none."""
        return None

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return what to put on a device, and how to gather rows there.

        Returns:
            A tree of arrays; and a traceable function of that tree, on the device, and of rows: it
            returns what `gather` returns.

        Raises:
            ValueError: Rows are made on access.
        """
        raise ValueError(
            f"{described(self)} makes its rows when they are asked for, and a device needs columns "
            f"that fit on it as a whole: use .load(...)."
        )

    @staticmethod
    def concat(columns: Sequence[Any]) -> Any:
        """Return columns of one class as one column of it; None if they cannot be joined so."""

    def cuts(self, size: int) -> Array:
        """Return the first row of each run of about `size` bytes."""
        raise NotImplementedError(f"{type(self).__name__} must define cuts(self, size)")

    def held(self, low: int, high: int) -> Any:
        """Read these rows, which lie in one block, at once: a tree of columns in memory."""
        return list(self.each(np.arange(low, high)))

    def reading(self, *, in_batches: bool = True) -> Column:  # noqa: ARG002  # for columns of blocks
        """Return the same rows for one pass, which calls `prefetch`, and `close` at its end."""
        return self

    def prefetch(self, rows: Array) -> None:
        """Note that these rows come next, so that they can be read ahead."""

    def full(self) -> bool:
        """Return whether to stop calling `prefetch`: it cannot read further ahead."""
        return True

    def close(self) -> None:
        """Release what is open for a pass; any thread may call it."""


class ArrayColumn(Column):
    """A column whose rows stand in one array; a subclass defines `gatherer`, and `each`.

    Attributes:
        dtype: The dtype of the array.
        shape: The shape of all rows.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def gather(self, rows: Array) -> Array:
        """Return these rows as a new array."""
        take, staged = self.gatherer(len(rows))
        given: Array = take(rows) if staged is None else take(rows, 0, staged(len(rows)), "clip")
        return given

    def spans(self, begins: Array, ends: Array) -> Iterable[Array]:
        """Return the rows from each begin to its end."""
        return map(self.__getitem__, map(slice, begins.tolist(), ends.tolist()))

    def slices(self, begins: Array, size: int, out: Array | None = None) -> Array:
        """Return `size` rows from each of these on, as an array of [slices, size, ...]."""
        taken = np.empty((len(begins), size, *self.shape[1:]), self.dtype) if out is None else out
        for row, span in zip(taken, self.spans(begins, begins + size), strict=True):
            row[...] = span
        return taken

    def cuts(self, size: int) -> Array:
        """Return the first row of each run; all runs have the same number of rows."""
        each = prod(self.shape[1:]) * self.dtype.itemsize
        return np.arange(0, max(len(self), 1), max(size // max(each, 1), 1))

    def held(self, low: int, high: int) -> Array:
        """Return a copy of those rows."""
        return np.array(self[low:high])


class Dense(ArrayColumn):
    """The rows of an array, or of an object that is indexed like one.

    >>> Dense(np.arange(4) * 10).gather(np.array([3, 0]))
    array([30,  0])

    Args:
        array: Anything with `shape`, `dtype`, and `__getitem__` of an array of indices.
    """

    def __init__(self, array: Any) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        if isinstance(array, np.ndarray):  # others are not joined
            self.arrays, self.kind = (array,), (array.dtype, array.shape[1:])

    def each(self, rows: Array) -> Iterator[Any]:
        """Return the rows as views; objects as `protected` returns them."""
        each_row = map(getitem, repeat(self.array), rows.tolist())
        return map(protected, each_row) if self.array.dtype.hasobject else each_row

    def spans(self, begins: Array, ends: Array) -> Iterable[Array]:
        """Return views of the array."""
        return map(getitem, repeat(self.array), map(slice, begins.tolist(), ends.tolist()))

    def gatherer(self, size: int) -> tuple[Take, Staging | None]:
        """Return a `take` of whole rows in the order of memory, into staged memory if it pays."""
        array = self.array
        if array.dtype.hasobject:
            return self._objects, None
        if not isinstance(array, np.ndarray):
            return array.__getitem__, None
        axes = axes_as_stored(array)
        back = sorted(range(array.ndim), key=axes.__getitem__)
        staged = Staging(size, tuple(map(array.shape.__getitem__, axes[1:])), array.dtype)
        stored = stored_whole(array, axes)
        if stored is None:
            return array.__getitem__, None
        take = partial(stored.take, axis=0, mode="clip")
        if axes != tuple(range(array.ndim)):
            return lambda rows: take(rows, out=staged(len(rows))).transpose(back), None
        return (stored.take, staged) if staged.leases else (take, None)

    def slices(self, begins: Array, size: int, out: Array | None = None) -> Array:
        """Take rows of a view in which they overlap: a third of a loop, a tenth of `np.stack`."""
        taken = np.asarray(overlapping(self.array, size)[begins])
        if out is None:
            return taken
        out[...] = taken
        return out

    def where(self, rows: Array) -> list[Where] | None:
        """Return where these rows lie in the mapped file."""
        mapped = self.array
        while not (isinstance(mapped, np.memmap) and isinstance(mapped.base, mmap.mmap)):
            if not isinstance(mapped, np.ndarray):
                return None
            mapped = mapped.base
        if not mapped.filename:
            return None
        first = mapped.offset + _memory_address(self.array) - _memory_address(mapped)
        step = self.array.strides[0]
        return [Where(str(mapped.filename), first + row * step) for row in rows.tolist()]

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return the array, and how to gather its rows on a device."""
        return np.asarray(self.array), rows_on_device

    def _objects(self, rows: Array) -> Array:
        """Return rows of an array of objects, protected: no change reaches the column."""
        picked: Array = self.array[rows]
        for place in np.ndindex(picked.shape):
            picked[place] = protected(picked[place])
        return picked


class Objects(Column):
    """Rows of any form, which a function makes on access.

    >>> squares = Objects(9, lambda rows: (row**2 for row in rows.tolist()))
    >>> squares, squares[-1], squares.gather(np.array([3, 0]))
    (samples[9], 64, [9, 0])

    Args:
        length: The number of rows.
        make: Makes the rows of these numbers, one after another.
        where: Finds where rows lie in files.
        name: The name of the rows in errors.
    """

    stacks = False

    def __init__(
        self,
        length: int,
        make: Callable[[Array], Iterator[Any]],
        where: Callable[[Array], list[Where]] | None = None,
        name: str = "samples",
    ) -> None:
        self._length, self._make, self._where, self._name = length, make, where, name

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{self._name}[{self._length}]"

    def each(self, rows: Array) -> Iterator[Any]:
        """Return these rows one by one, made on access."""
        return self._make(rows)

    def where(self, rows: Array) -> list[Where] | None:
        """Return where these rows lie in files, if they lie in any."""
        return self._where and self._where(rows)


def in_dtype(number: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a number to a dtype.

    >>> in_dtype(7, np.dtype("f4")), in_dtype(None, np.dtype(object))
    (np.float32(7.0), None)

    Raises:
        ValueError: The dtype cannot represent it, or it is not a single number.
    """
    try:
        made = np.asarray(number).astype(dtype)
        same = not made.ndim and bool(made == number or number != number)  # noqa: PLR0124  # nan is not itself
    except (OverflowError, TypeError):
        same = False
    if not same:
        raise ValueError(f"{dtype} has no number that is {number!r}")
    return made[()]


def gathered_in_order(rows: Array, read: Callable[[Array], Iterable[Any]]) -> list[Any]:
    """Read rows by ascending number, as from the begin of a file to its end; return them in order.

    >>> gathered_in_order(np.array([5, 2, 5]), lambda rows: print(rows) or rows.tolist())
    [2 5 5]
    [5, 2, 5]

    Args:
        rows: The numbers of the rows.
        read: Reads rows of ascending numbers, one after another.
    """
    if len(rows) < 2 or bool((rows[1:] >= rows[:-1]).all()):
        return list(read(rows))
    order = rows.argsort(kind="stable")
    given: list[Any] = [None] * len(rows)
    for place, row in zip(order.tolist(), read(rows[order]), strict=True):
        given[place] = row
    return given


def set_block_starts(columns: Sequence[Column], size: int) -> None:
    """Set the same blocks in columns of the same samples: `size` bytes of the largest column."""
    starts = max((column.cuts(size) for column in columns), key=len)
    for column in columns:
        column.block_starts, column.block_bytes = starts, size


def run_begins(offsets: Array, size: int) -> list[int]:
    """Return the first row of each run of at most `size`; a longer row is a run by itself.

    >>> run_begins(np.array([0, 2, 4, 5, 20, 21]), 5)
    [0, 3, 4]

    Args:
        offsets: Where each row begins, and where the last one ends.
        size: In the unit of the offsets.
    """
    starts, row = list[int](), 0
    while row < len(offsets) - 1:
        starts.append(row)
        end = int(offsets.searchsorted(int(offsets[row]) + size, "right")) - 1
        row = max(end, row + 1)
    return starts


def offsets_of(lengths: Any) -> Array:
    """Return where each part begins, laid end to end, and where the last one ends.

    >>> offsets_of([3, 0, 2])
    array([0, 3, 3, 5])
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _samples(gathered: Any) -> Iterable[Any]:
    """Return gathered rows as samples that are read-only."""
    return gathered if isinstance(gathered, list) else Columns(read_only_columns(gathered))


def column_of(leaf: Any) -> Column:
    """Return a leaf of a tree of columns (an array, a list of objects, a column) as a `Column`."""
    if isinstance(leaf, Column):
        return leaf
    return (
        Objects(len(leaf), partial(_protected_objects, leaf))
        if isinstance(leaf, list)
        else Dense(leaf)
    )


def array_column(array: Any) -> ArrayColumn:
    """Return an array, or a column whose rows stand in one, as a column."""
    return array if isinstance(array, ArrayColumn) else Dense(array)


def _protected_objects(objects: list[Any], rows: Array) -> Iterator[Any]:
    """Return these objects, protected from changes."""
    return map(protected, map(objects.__getitem__, rows.tolist()))


def each_column(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to each column of a tree; a list is one column.

    >>> each_column(len, {"ids": [5, 6, 7], "pair": (np.zeros(3), "abc")})
    {'ids': 3, 'pair': (3, 3)}
    """
    if isinstance(tree, Mapping):
        tree = dict(tree)
    parts = None if isinstance(tree, list) else branches(tree)
    if parts is None:
        return fn(tree)
    return joined(tree, {key: each_column(fn, part) for key, part in parts.items()})


def rows_on_device(placed: Any, rows: Indices) -> Any:
    """Gather rows of a tree of arrays on a device, in a trace."""
    return map_tree(lambda array: array.at[rows].get(mode="promise_in_bounds"), placed)


def stored_whole(array: Array, axes: tuple[int, ...]) -> Array | None:
    """Return a view with these axes if they are in the order of memory, without gaps; else None.

    Otherwise `take` would copy the whole array for every batch.
    """
    stored = np.asarray(array).transpose(axes)
    whole = stored.flags.c_contiguous and stored.flags.aligned and not array.dtype.hasobject
    return stored if whole else None


def axes_as_stored(array: Array) -> tuple[int, ...]:
    """Return the axes of an array in the order of memory; its first axis stays the first."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:  # the usual case
        return tuple(range(array.ndim))
    inner = range(1, array.ndim)
    return 0, *sorted(inner, key=lambda axis: -abs(array.strides[axis]))


def _memory_address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
