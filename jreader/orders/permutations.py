"""Random permutations of any length, computed from a key one index at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import errors
from jreader.orders.arithmetic import NARROW, WIDE, Words, integers, lifted
from jreader.orders.keys import LENGTHS, Key, key, of_length

Indices = TypeVar("Indices")

_FIRST_COMPUTED, _MAX_COMPUTED = 1024, 32768  # indices of windows computed per call
INSERTED = 16
TURNS = (256, 16), (4096, 10), (1 << 48, 8)  # (up to this n, so many rotations)
NARROW_END = 1 << 31
WIDE_END = 1 << 48


def permutation(indices: Indices, n: int, key: Key, *, inverse: bool = False) -> Indices:
    """Map indices by the random permutation of range(n) that the key chooses.

    Each index is computed by itself, so the whole order needs no memory. On the host the indices
    are checked, which takes 1 ns each. Under jax they are not, as that would wait for the device:
    the result for an index outside range(n) is meaningless.

    >>> permutation(np.arange(10), 10, key(42))
    array([4, 9, 0, 7, 8, 6, 1, 5, 2, 3])
    >>> permutation(np.arange(3), 10**9, key(42))
    array([596757414, 724494133, 362674733])
    >>> permutation(np.array([596757414]), 10**9, key(42), inverse=True)
    array([0])

    Args:
        indices: An array of integers from 0 to n - 1, of NumPy or jax, traced or not.
        n: At most 2**31 under jax, 2**48 under NumPy.
        key: Made by `jreader.orders.key`; several keys make several permutations.
        inverse: Whether to undo the permutation: to map its results back to the indices.

    Returns:
        An array with the dtype of the indices, and the shape that the indices and the words of the
        key broadcast to: indices (1, n) and words (m, 1) give m permutations, (m, n).

    Raises:
        TypeError: `n` is not an int, `indices` is not an array of integers, or `key` is not a
            `Key`.
        ValueError: `n` is negative, or too large for jax or for the dtype of the indices.
        IndexError: On the host, an index is outside range(n).
    """
    length = errors.check_number("permutation(indices, n, key)", n)
    _check_key(key)
    given, namespace = _checked_indices(indices, length, key)
    several = key.low.shape
    shape = np.broadcast_shapes(given.shape, several) if several else given.shape
    words = WIDE if length > NARROW_END else NARROW
    cells, keys = lifted(given.astype(words.word)), _joined_key(of_length(key, length), words)
    if length > INSERTED and namespace is np and key.low.size == 1:
        moved = _turned_in_place(cells, _grid(length), keys, inverse=inverse)
    elif length > INSERTED:
        moved = _turned(cells, _grid(length), keys, namespace, inverse=inverse)
    else:
        moved = _inserted(cells, length, keys, namespace, inverse=inverse)
    return moved.reshape(shape).astype(given.dtype)  # type: ignore[no-any-return]  # NumPy's or jax's


def order(
    n: int, key: Key, start: int = 0, stop: int | None = None, block: int = 16384
) -> Iterator[NDArray[np.intp]]:
    """Yield `permutation(np.arange(n)[start:stop], n, key)` in blocks.

    Each block is computed on request, so only one is in memory at a time.

    >>> [block.tolist() for block in order(10, key(42), start=2, block=4)]
    [[0, 7, 8, 6], [1, 5, 2, 3]]

    Raises:
        TypeError: `n` or `block` is not an int, or `key` is not a `Key`.
        ValueError: `n` is negative or too large, `block` is not positive, or `key` is an array of
            keys.
    """
    span = range(errors.check_number("order(n, key)", n))[start:stop]
    size = errors.check_number("order(n, key, block=...)", block, 1)
    _check_key(key)
    if np.shape(key.low):
        raise ValueError("order needs one key, not an array of keys: type key(seed, epoch).")
    one = Key(*map(np.asarray, key))
    return (
        permutation(np.arange(begin, min(begin + size, span.stop)), n, one)
        for begin in span[::size]
    )


def windows(size: int, seed: int, *path: int, first: int = 0) -> Iterator[NDArray[np.intp]]:
    """Yield the orders of the windows `first`, `first + 1`, ... without end.

    The order of a window is `permutation(np.arange(size), size, key(seed, *path, window))`;
    starting at a later window costs nothing. Small windows are computed many at a time, large ones
    one by one.

    >>> orders = windows(3, 42, 0, first=1)
    >>> [next(orders).tolist() for _ in range(4)]
    [[0, 1, 2], [0, 1, 2], [1, 0, 2], [2, 1, 0]]

    Raises:
        TypeError: A number is not an int.
        ValueError: `size` is not positive, or another number is negative.
    """
    length = errors.check_number("windows(size, seed)", size, 1)
    window = errors.check_number("windows(size, seed, first=...)", first)
    key(seed, *path)
    return _some_windows(length, seed, path, window)


def _some_windows(
    size: int, seed: int, path: tuple[int, ...], window: int
) -> Iterator[NDArray[np.intp]]:
    """Compute ever more windows at a time: few for a short pass, many for a long one."""
    for begun in count():
        many = max(1, min(_FIRST_COMPUTED << begun, _MAX_COMPUTED) // size)
        yield from _orders(size, key(seed, *path, np.arange(window, window + many)))
        window += many


def _orders(size: int, keys: Key) -> Iterator[NDArray[np.intp]]:
    """Yield the orders of one size under several keys in one call, or under one key in blocks."""
    if len(keys.low) == 1:
        return iter([np.concatenate(list(order(size, Key(keys.low[0], keys.high[0]))))])
    return iter(permutation(np.arange(size)[None], size, Key(*(word[:, None] for word in keys))))


class Lengths(NamedTuple):
    """Several lengths, and a key for each.

    Attributes:
        sizes: The lengths, each below 2**31: an array of integers.
        keys: The key of the permutation of each.
        least: The shortest length, or less.
        most: The longest length, or more.
    """

    sizes: Any
    keys: Key
    least: int
    most: int


def permutation_of_each(indices: Any, which: Any, lengths: Lengths) -> Any:
    """Permute each `indices[i]` below `sizes[which[i]]`, by the key of that length.

    `permutation` takes one length, which must be known to a trace; these lengths may be traced.

    >>> lengths = Lengths(np.array([3, 500]), key(7, 0, np.arange(2)), 3, 500)
    >>> permutation_of_each(np.array([0, 1, 2, 7]), np.array([0, 0, 0, 1]), lengths)
    array([  0,   1,   2, 340])
    >>> permutation(np.array([7]), 500, key(7, 0, 1))
    array([340])

    Args:
        indices: Each from 0 to one less than its length, unchecked.
        which: For each index, the number of its length.
        lengths: The lengths and keys.
    """
    namespace = indices.__array_namespace__()
    hashed = key(LENGTHS, lengths.sizes)
    keys = (lengths.keys.low ^ hashed.low)[which], (lengths.keys.high ^ hashed.high)[which]
    given, sizes = indices.astype(np.uint32), lengths.sizes.astype(np.uint32)
    moved: Any = None
    if lengths.most > INSERTED:
        moved = _turned(given, _grids(sizes, which, lengths, namespace), keys, namespace)
    if lengths.least <= INSERTED:
        own = sizes[which]
        small = _inserted(given, min(lengths.most, INSERTED), keys, namespace, own)
        moved = small if moved is None else namespace.where(own > INSERTED, moved, small)
    return moved.astype(indices.dtype)


class _Grid(NamedTuple):
    """The grid of a length: 2**column_bits columns of `rows` rows, `left` cells in a last row.

    For several lengths, each number is an array over all indices.

    Attributes:
        words: The arithmetic to compute with.
        turns: For each number of rotations, the largest length that takes it.
        sizes: The length.
        even: Whether the last row is certainly full.
        column_bits: Log2 of the number of columns.
        row_bits: The number of bits of a row's number.
        last_column: The number of the last column.
        rows: The number of full rows.
        left: The number of cells in the last row.
    """

    words: Words
    turns: dict[int, int]
    sizes: Any
    even: bool
    column_bits: Any
    row_bits: Any
    last_column: Any
    rows: Any
    left: Any


@lru_cache(1024)
def _grid(n: int) -> _Grid:
    """Return the grid of n cells."""
    words = WIDE if n > NARROW_END else NARROW
    sides = _sides(n, int.bit_length)
    return _Grid(words, _rotations(n, n), n, sides[-1] == 0, *map(words.word, sides))


def _grids(sizes: Any, which: Any, lengths: Lengths, namespace: Any) -> _Grid:
    """Return the grids of many lengths, like `_grid` for one."""
    sizes = namespace.maximum(sizes, np.uint32(INSERTED + 1))  # shorter ones are not rotated
    turns = _rotations(max(lengths.least, INSERTED + 1), lengths.most)
    own = (number[which] for number in _sides(sizes, _bit_length))
    return _Grid._make((NARROW, turns, sizes[which], False, *own))


def _sides(sizes: Any, bit_length: Callable[[Any], Any]) -> tuple[Any, Any, Any, Any, Any]:
    """Return column bits, row bits, last column, rows, and cells left, for an int or uint32 array.

    Sides differ by a factor of at most two (four above 2**30, since a height times a fair hash must
    fit into a word). Twelve rotations would be enough from n = 48, eight from 256: the rest are a
    margin.
    """
    wide = (sizes - 1) >> 30 == 1  # above 2**30, up to 2**31
    column_bits = (bit_length(sizes - 1) + wide) >> 1
    last_column = (1 << column_bits) - 1
    rows, left = sizes >> column_bits, sizes & last_column
    return column_bits, bit_length(rows - (left == 0)), last_column, rows, left


def _bit_length(numbers: Any) -> Any:
    """Return the number of bits of each uint32."""
    powers = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (numbers[..., None] >= powers).sum(-1).astype(np.uint32)


def _rotations(least: int, most: int) -> dict[int, int]:
    """Return how many rotations lengths from `least` to `most` take: number to largest length."""
    begins = (0, *(end for end, _ in TURNS))
    return {
        turns: end
        for begin, (end, turns) in zip(begins, TURNS, strict=False)
        if begin < most and least <= end
    }


def _turned(
    indices: Any, grid: _Grid, keys: tuple[Any, Any], namespace: Any, *, inverse: bool = False
) -> Any:
    """Rotate the grid, columns first, rows last, and return the new cells of the indices.

    The inverse, for a grid of one length, does the same rotations backwards, the last one first.

    `+=` and the like work in place under NumPy, and make new arrays under jax. In a column that the
    last row reaches, `column - left` wraps around, and its top bit makes the column one higher; so
    does `row - rows` in a full row. It costs a third of `where`.
    """
    turns, moved = range(max(grid.turns)), None
    row, column = indices >> grid.column_bits, indices & grid.last_column
    for done, turn in enumerate(reversed(turns) if inverse else turns, 1):
        if turn % 2:
            to = _turn_of_rows(turn, row, grid, keys)
            to = -to if inverse else to
            to += column
            to &= grid.last_column
            column = to
        else:
            height, to = _turn_of_columns(turn, column, grid, keys)
            to = height - to if inverse else to
            to += row
            row = namespace.minimum(to, to - height)
        if (most := grid.turns.get(done)) is not None:
            here = (row << grid.column_bits) + column
            # shorter lengths take more turns
            moved = here if moved is None else namespace.where(grid.sizes <= most, here, moved)
    return moved


def _turned_in_place(cells: Any, grid: _Grid, keys: tuple[Any, Any], *, inverse: bool) -> Any:
    """Do as `_turned` for cells under one key, in place, in 0.6 to 0.8 of its time.

    No NumPy call needs new memory, and single numbers are arrays without axes, which take NumPy
    half the time. A full last row needs no branch, as the results are the same.
    """
    words, row, column = grid.words, cells >> grid.column_bits, cells
    column &= grid.last_column
    to, spare = np.empty_like(cells), np.empty_like(cells)
    top, to_columns, to_rows = (
        np.asarray(words.bits - bits) for bits in (words.word(1), grid.column_bits, grid.row_bits)
    )
    first, shift, second = map(np.asarray, (words.first, words.shift, words.second))
    column_bits, row_bits, last_column, rows, left = map(np.asarray, grid[-5:])
    added = [each.reshape(1) + words.tweaks for each in keys]
    other = [each.reshape(()) for each in keys]
    turns = range(max(grid.turns))
    for turn in reversed(turns) if inverse else turns:
        of_rows = turn % 2
        np.add(row if of_rows else column, added[1 - of_rows][turn, ...], out=to)
        to *= first
        to ^= np.right_shift(to, shift, out=spare)
        to ^= other[of_rows]
        to *= second
        if of_rows:
            to &= np.subtract(row, rows, out=spare)  # upper bits: zeros in the last row, else ones
            to >>= to_columns
            column += np.negative(to, out=to) if inverse else to
            column &= last_column
            continue
        to >>= row_bits
        height = np.subtract(column, left, out=spare)
        height >>= top
        height += rows
        to *= height
        to >>= to_rows
        row += np.subtract(height, to, out=to) if inverse else to
        np.minimum(row, np.subtract(row, height, out=to), out=row)
    row <<= column_bits
    row += column
    return row


def _turn_of_rows(turn: int, row: Any, grid: _Grid, keys: tuple[Any, Any]) -> Any:
    """Return how far a turn rotates each row; a last row that is not full stays."""
    words = grid.words
    to = hash_of(row, keys[0] + words.tweaks[turn], keys[1], words)
    to >>= words.bits - grid.column_bits
    if not grid.even:
        to *= (row - grid.rows) >> words.bits - words.word(1)
    return to


def _turn_of_columns(turn: int, column: Any, grid: _Grid, keys: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the height of each column, and how far a turn rotates it."""
    words, height = grid.words, grid.rows
    if not grid.even:
        height = ((column - grid.left) >> words.bits - words.word(1)) + height
    hashed = hash_of(column, keys[1] + words.tweaks[turn], keys[0], words)
    return height, below(height, grid.row_bits, hashed, words)


def _inserted(
    indices: Any,
    most: int,
    keys: tuple[Any, Any],
    namespace: Any,
    sizes: Any = None,
    *,
    inverse: bool = False,
) -> Any:
    """Shuffle by insertion: each i swaps with a random position up to i (Fisher-Yates).

    Args:
        indices: The indices to shuffle, below `most`.
        most: The length, or a bound of all lengths.
        keys: The words of the keys.
        namespace: NumPy's or jax's.
        sizes: The length of each index, if there are several.
        inverse: Whether to swap in reverse, which undoes it.
    """
    moved = namespace.broadcast_to(indices, np.broadcast_shapes(indices.shape, keys[0].shape))
    shape = (-1, *(1,) * keys[0].ndim)
    ends = np.arange(2, most + 1, dtype=np.uint32)
    hashed = hash_of(NARROW.tweaks[: len(ends)].reshape(shape), *keys, NARROW)
    chosen = below(ends.reshape(shape), np.uint32(INSERTED.bit_length()), hashed, NARROW)
    swaps = [*zip(ends - np.uint32(1), chosen, strict=True)]
    for last, to in reversed(swaps) if inverse else swaps:
        swapped = namespace.where(moved == to, last, namespace.where(moved == last, to, moved))
        moved = swapped if sizes is None else namespace.where(last < sizes, swapped, moved)
    return moved


def hash_of(side: Any, chosen: Any, other: Any, words: Words) -> Any:
    """Hash each number, with good upper bits; one word of the key is added, one xored.

    If both were added, they would act as a single word.
    """
    hashed = side + chosen
    hashed *= words.first
    hashed ^= hashed >> words.shift
    hashed ^= other
    hashed *= words.second
    return hashed


def below(size: Any, size_bits: Any, hashed: Any, words: Words) -> Any:
    """Return a number below `size` (at most 2**size_bits), from the upper bits of a hash."""
    hashed >>= size_bits
    hashed *= size
    hashed >>= words.bits - size_bits
    return hashed


def _joined_key(key: Key, words: Words) -> tuple[Any, Any]:
    """Return the two words of a key; for 64 bits, both words joined in either order."""
    low, high = key.low.astype(words.word), key.high.astype(words.word)
    if words is NARROW:
        return low, high
    return low | high << np.uint64(32), high | low << np.uint64(32)


@lru_cache(16)
def _largest(dtype: Any) -> int:
    """Return the largest integer of a dtype."""
    return int(np.iinfo(dtype).max)


def _check_key(key: object) -> None:
    if not isinstance(key, Key):
        raise TypeError(f"key is {key!r}, but a Key is needed: type key(seed, epoch).")


def _checked_indices(indices: Any, n: int, key: Key) -> tuple[Any, Any]:
    """Return the checked indices, and the namespace to compute in: NumPy's or jax.numpy's."""
    if isinstance(indices, np.generic):
        indices = np.asarray(indices)
    integers(indices, "indices", IndexError)
    host = isinstance(indices, np.ndarray)
    namespace = (key.low if host else indices).__array_namespace__()
    if n > (WIDE_END if namespace is np else NARROW_END):
        raise ValueError(
            f"n is {n}, but an order ends at 2**31 indices under jax and at 2**48 on the host: "
            f"type np.asarray(indices), with a key of ints, or shard before you shuffle."
        )
    if n - 1 > _largest(indices.dtype):
        raise ValueError(f"n is {n}, beyond {indices.dtype}: type indices.astype(np.int64).")
    if host and indices.size and (most := indices.max()) >= n:
        raise IndexError(f"indices holds {most}, but n is {n}: type indices % n.")
    return (indices if namespace is np else namespace.asarray(indices)), namespace
