"""Orders are computed, not drawn: an index's place is a function of index, length and key.

`permutation` lays the indices out as a grid of 2**k columns, the n % 2**k left over in a last row
that is not full, and turns it: every column by a number of rows hashed from the column, every row
by a number of columns hashed from the row, in alternation. Each turn can be undone, so every index
appears once. That is an alternating Feistel network, as in format-preserving encryption (Black and
Rogaway 2002, "Ciphers with arbitrary finite domains"; NIST SP 800-38G). The usual way to a length
that fits no grid, to encrypt until the result is in range ("cycle walking"), is a loop whose length
depends on the data: neither NumPy nor a trace can vectorise it. Here columns may differ in height
by one, and the short row sits out the turns of the rows, so that any n, prime or not, costs a fixed
number of operations per index. Up to 16 indices, where a network has few turns to choose from, an
order is made by Fisher-Yates insertion, every choice fair to within one part in 10**6.

All is arithmetic on uint32 words, the key's two and the indices: the same bits under NumPy and
jax.numpy, eager or traced. Beyond n = 2**31, up to 2**48, the host computes in 64-bit words.

The guarantee: under one `STREAM_VERSION` an order never changes, on any machine, in any release.
Cursors carry the version; `tests/orders/test_pinned.py` pins exact orders.

What belongs in a key: `key(seed, epoch, place, window)`. A seeded op's place counts the seeded ops
*below* it, towards the sources, never those above, so that an op put on top of a plan leaves its
order alone. Parallel branches given the same seed therefore deal alike, which is what
`compose(shuffle(images, seed=7), shuffle(labels, seed=7))` needs. The length is no part of a key.

Measured on two noisy cores, ns an index in blocks of 8,192-32,768: 13-26 from n = 1,000 to 2**31,
23-30 at 10**10, 16-40 at most below 1,000 (blocks of 512: 140-320; small windows: 60-140). Over
2 * 10**6 to 2 * 10**8 samples at 33 lengths from 8 to 10**12, the z-scores of positions, of
neighbours along row, column and diagonal, of their inverses, and of consecutive keys looked like
those of NumPy's generator (the largest of some 500 was 3.5, and 1.1 in ten times the sample).
"""

import operator
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, takewhile
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from jreader import errors

__all__ = ["STREAM_VERSION", "Key", "key", "order", "permutation", "windows"]

STREAM_VERSION = 1

Indices = TypeVar("Indices")
Number: TypeAlias = Any  # an int, or an array of integers, of NumPy or jax

_AT_FIRST, _AT_ONCE = 1024, 32768  # indices that windows are computed for in one go
_INSERTED = 16
_TURNS = (256, 16), (4096, 10), (1 << 48, 8)
_NARROW_END = 1 << 31
_WIDE_END = 1 << 48
_PATH_END = 1 << 64


class Key(NamedTuple):
    """Two uint32 words that choose an order, or arrays of them of one shape; made by `key`."""

    low: Any
    high: Any


_OPENED = Key(np.array([STREAM_VERSION], np.uint32), np.array([1], np.uint32))  # 64 bits of seed


class _Words(NamedTuple):
    """The arithmetic of one word size; its numbers are fixed for ever under a `STREAM_VERSION`."""

    word: Any
    bits: Any
    first: Any
    shift: Any
    second: Any
    tweaks: NDArray[Any]


def _words(word: Any, golden: int, *numbers: int) -> _Words:
    """The numbers as words, and multiples of the golden ratio, which lie far from one another."""
    bits, first, shift, second = map(word, numbers)
    tweaks = [golden * turn % (1 << int(bits)) for turn in range(1, 17)]
    return _Words(word, bits, first, shift, second, np.array(tweaks, word))


# The products are those of Wellons' lowbias32 and of Stafford's Mix13, which were searched for.
_NARROW = _words(np.uint32, 0x9E3779B9, 32, 0x7FEB352D, 15, 0x846CA68B)
_WIDE = _words(np.uint64, 0x9E3779B97F4A7C15, 64, 0xBF58476D1CE4E5B9, 31, 0x94D049BB133111EB)


def key(seed: Number, *path: Number) -> Key:
    """The key of one order: 64 bits that depend on all of the seed and of every number on the path.

    Order and count of the numbers matter: epoch 1 of seed 42 is not epoch 0 of seed 43, and
    `key(7)` is not `key(7, 0)`. An array gives as many keys, each equal to the key of the equal
    int; a traced seed, epoch or window is such an array.

    >>> key(42, 1) == key(43, 0)
    False
    >>> key(7, 0, np.arange(3)[:, None]).low.shape
    (3, 1)

    Args:
        seed: A number >= 0; an int may be of any size, and all of it counts.
        path: Numbers from 0 to 2**64 - 1: epoch, the op's place in the plan, window.

    Raises:
        TypeError: A number is not an integer: a float, a bool, a string.
        ValueError: A number is negative (jax arrays are not looked at) or beyond 2**64 - 1.
    """
    entries = (_number(entry, f"path[{at}]", _PATH_END) for at, entry in enumerate(path))
    numbers = [_number(seed, "seed"), *entries]
    known = tuple(takewhile(lambda number: isinstance(number, int), numbers))
    state = _absorbed(known) if known else _OPENED
    for number in numbers[len(known) :]:
        state = _folded(state, number)
    shape = np.broadcast_shapes(*(np.shape(number) for number in numbers[len(known) :]))
    return Key(state.low.reshape(shape), state.high.reshape(shape))


def permutation(indices: Indices, n: int, key: Key) -> Indices:
    """Where each of the indices goes in the order of range(n) that the key chooses.

    One index at a time, in O(1) memory. The result has the dtype of the indices and the shape that
    they and the key's words broadcast to: indices (1, size) and words (many, 1) are many windows.
    On the host the indices are checked, at 1 ns each. Under jax they are not, since that would wait
    for the device: an index out of range goes to a meaningless place.

    >>> permutation(np.arange(10), 10, key(42))
    array([9, 8, 3, 0, 6, 5, 7, 2, 1, 4])
    >>> permutation(np.arange(3), 10**9, key(42))
    array([766767570,  92871632,  36527513])

    Args:
        indices: An array of integers from 0 to n - 1, of NumPy or jax, traced or not.
        n: At most 2**31 under jax, 2**48 under NumPy.
        key: Made by `key`.

    Raises:
        TypeError: `n` is not an int, `indices` no array of integers or `key` not made by `key`.
        ValueError: `n` is negative, or too large for jax or for the dtype of the indices.
        IndexError: On the host, an index is outside of range(n).
    """
    length = errors.check_number("permutation(indices, n, key)", n)
    _check_key(key)
    given, namespace = _given(indices, length, key)
    shape = np.broadcast_shapes(given.shape, key.low.shape)
    if length > _INSERTED:
        moved = _turned(given, _grid(length), key, namespace)
    else:
        moved = _inserted(given, length, key, namespace)
    return moved.reshape(shape).astype(given.dtype)  # type: ignore[no-any-return]  # NumPy's or jax's


def order(
    n: int, key: Key, start: int = 0, stop: int | None = None, block: int = 16384
) -> Iterator[NDArray[np.intp]]:
    """Blocks of a whole order, each computed when it is asked for.

    Together they are `permutation(np.arange(n)[start:stop], n, key)`, in memory for one block.

    >>> [block.tolist() for block in order(10, key(42), start=2, block=4)]
    [[3, 0, 6, 5], [7, 2, 1, 4]]

    Raises:
        TypeError, ValueError: As `permutation` does, or `key` is an array of keys.
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
    """The orders of window `first`, the window after it, and so on without end.

    The order of a window is `permutation(np.arange(size), size, key(seed, *path, window))`, and to
    start at any window costs the same. Small windows are computed many at once, large ones singly,
    when they are asked for.

    >>> orders = windows(3, 42, 0, first=1)
    >>> [next(orders).tolist() for _ in range(4)]
    [[1, 0, 2], [2, 1, 0], [0, 2, 1], [0, 2, 1]]

    Raises:
        TypeError, ValueError: As `key` does, or `size` is not a positive int.
    """
    length = errors.check_number("windows(size, seed)", size, 1)
    window = errors.check_number("windows(size, seed, first=...)", first)
    key(seed, *path)
    return _windows(length, seed, path, window)


def _windows(
    size: int, seed: int, path: tuple[int, ...], window: int
) -> Iterator[NDArray[np.intp]]:
    """Ever more windows at once, so that a short pass computes little, and a long one cheaply."""
    for begun in count():
        many = max(1, min(_AT_FIRST << begun, _AT_ONCE) // size)
        yield from _dealt(size, key(seed, *path, np.arange(window, window + many)))
        window += many


def _dealt(size: int, keys: Key) -> Iterator[NDArray[np.intp]]:
    """The orders of one size under many keys at once, or block after block under one."""
    if len(keys.low) == 1:
        return iter([np.concatenate(list(order(size, Key(keys.low[0], keys.high[0]))))])
    return iter(permutation(np.arange(size)[None], size, Key(*(word[:, None] for word in keys))))


class _Grid(NamedTuple):
    """One length as words: 2**column_bits columns of `rows` rows, and `left` places over."""

    words: _Words
    turns: int
    even: bool
    column_bits: Any
    row_bits: Any
    last_column: Any
    rows: Any
    left: Any
    top: Any


@lru_cache(1024)
def _grid(n: int) -> _Grid:
    """The grid of n places.

    Its sides are within a factor of two (above 2**30 of four: a word holds a height times a fair
    hash). Of the turns, twelve would do from 48 places and eight from 256: the rest are to spare.
    """
    words = _WIDE if n > _NARROW_END else _NARROW
    column_bits = ((n - 1).bit_length() + (1 << 30 < n <= _NARROW_END)) // 2
    rows, left = divmod(n, 1 << column_bits)
    row_bits = (rows - (left == 0)).bit_length()
    turns = next(turns for end, turns in _TURNS if n <= end)
    numbers = (column_bits, row_bits, (1 << column_bits) - 1, rows, left, words.bits - 1)
    return _Grid(words, turns, left == 0, *map(words.word, numbers))


def _turned(indices: Any, grid: _Grid, key: Key, namespace: Any) -> Any:
    """Where the turns of the grid take the indices: the columns turn first, the rows last.

    Written with `+=` and its like: in place under NumPy, pure under jax. Where the last row reaches
    a column, the difference to `left` wraps, and its top bit makes the column one higher.
    """
    words = grid.words
    places, keys = _lifted(indices.astype(words.word)), _keys(key, words)
    row, column = places >> grid.column_bits, places & grid.last_column
    for turn, tweak in enumerate(words.tweaks[: grid.turns]):
        chosen, other = keys if turn % 2 else keys[::-1]
        if turn % 2:
            to = _hashed(row, chosen + tweak, other, words)
            to >>= words.bits - grid.column_bits
            to += column
            to &= grid.last_column
            column = to if grid.even else namespace.where(row < grid.rows, to, column)
        else:
            height = grid.rows if grid.even else ((column - grid.left) >> grid.top) + grid.rows
            to = _below(height, grid.row_bits, _hashed(column, chosen + tweak, other, words), words)
            to += row
            row = namespace.minimum(to, to - height)
    row <<= grid.column_bits
    row += column
    return row


def _inserted(indices: Any, n: int, key: Key, namespace: Any) -> Any:
    """Where insertion takes the indices: i takes any place up to i, who was there moves to i."""
    places, keys = _lifted(indices.astype(np.uint32)), _keys(key, _NARROW)
    moved = namespace.broadcast_to(places, np.broadcast_shapes(places.shape, keys[0].shape))
    shape = (-1, *(1,) * keys[0].ndim)
    sizes = np.arange(2, n + 1, dtype=np.uint32)
    hashed = _hashed(_NARROW.tweaks[: len(sizes)].reshape(shape), *keys, _NARROW)
    chosen = _below(sizes.reshape(shape), np.uint32(_INSERTED.bit_length()), hashed, _NARROW)
    for last, place in zip(sizes - np.uint32(1), chosen, strict=True):
        moved = namespace.where(moved == place, last, namespace.where(moved == last, place, moved))
    return moved


def _hashed(side: Any, chosen: Any, other: Any, words: _Words) -> Any:
    """A word for each number, good in its upper bits. Both added, the keys would act as one."""
    hashed = side + chosen
    hashed *= words.first
    hashed ^= hashed >> words.shift
    hashed ^= other
    hashed *= words.second
    return hashed


def _below(size: Any, size_bits: Any, hashed: Any, words: _Words) -> Any:
    """A number below the size (of at most 2**size_bits) from the upper bits of a hash."""
    hashed >>= size_bits
    hashed *= size
    hashed >>= words.bits - size_bits
    return hashed


def _keys(key: Key, words: _Words) -> tuple[Any, Any]:
    """The two words of a key; wide words are the two halves, in both orders."""
    low, high = (_lifted(half.astype(words.word)) for half in key)
    if words is _NARROW:
        return low, high
    return low | high << np.uint64(32), high | low << np.uint64(32)


@lru_cache(4096)
def _absorbed(numbers: tuple[int, ...]) -> Key:
    """The state after a seed and a path of ints, read-only since it is shared."""
    *before, last = numbers
    if before:
        state = _folded(_absorbed(tuple(before)), last)
    else:
        shifts = range(0, max(1, last.bit_length()), 64)
        state = _OPENED._replace(high=np.array([len(shifts)], np.uint32))
        for shift in shifts:
            state = _folded(state, (last >> shift) % _PATH_END)
    for word in state:
        word.flags.writeable = False
    return state


def _folded(state: Key, number: Any) -> Key:
    """The state after one more number: xored in, then a fixed mix, invertible, of all 64 bits."""
    number_low, number_high = _halves(number)
    low, high = state.low ^ number_low, state.high ^ number_high
    for tweak in _NARROW.tweaks[:4]:
        mixed = low + tweak
        mixed ^= mixed >> np.uint32(16)
        mixed *= _NARROW.first
        mixed ^= mixed >> np.uint32(15)
        mixed *= _NARROW.second
        mixed ^= mixed >> np.uint32(16)
        mixed ^= high
        low, high = mixed, low
    return Key(low, high)


def _halves(number: Any) -> tuple[Any, Any]:
    """The two uint32 words of a number, never 0-d: NumPy scalars warn when they wrap."""
    if isinstance(number, int):
        number = np.array([number], np.uint64)
    number = _lifted(number)
    wide = number.dtype.itemsize > np.uint32(0).itemsize
    return number.astype(np.uint32), (number >> 32).astype(np.uint32) if wide else np.uint32(0)


def _lifted(array: Any) -> Any:
    return array if array.ndim else array.reshape(1)


def _number(value: Any, name: str, end: int = 0) -> Any:
    """A number of a key: an int (below the end, if there is one), or an array of integers."""
    if isinstance(value, np.generic | np.ndarray) and not value.ndim:
        value = value.item()
    if hasattr(value, "__array_namespace__"):
        return _integers(value, name)
    needed = f"{name} is {value!r}, but a key needs whole numbers >= 0 and, after the seed, < 2**64"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{needed}: type an int, or an array of integers.")
    number = operator.index(value)
    if number < 0 or 0 < end <= number:
        raise ValueError(f"{needed}: type {number % _PATH_END}, which is {number} % 2**64.")
    return number


def _integers(array: Any, name: str, wrong: type[Exception] = ValueError) -> Any:
    """The array, if it is one of integers >= 0; only on the host are its elements looked at."""
    if not hasattr(array, "__array_namespace__"):
        raise TypeError(f"{name} is {array!r}, but an array is needed: type np.asarray({name}).")
    kind = getattr(array.dtype, "kind", "")
    if kind not in ("i", "u"):
        raise TypeError(f"{name} holds {array.dtype}, not integers: type {name}.astype(np.int64).")
    if kind == "i" and isinstance(array, np.ndarray) and array.size and (least := array.min()) < 0:
        raise wrong(f"{name} holds {least}, but numbers >= 0 are needed: type {name} % n.")
    return array


def _check_key(key: object) -> None:
    if not isinstance(key, Key):
        raise TypeError(f"key is {key!r}, but a Key is needed: type key(seed, epoch).")


def _given(indices: Any, n: int, key: Key) -> tuple[Any, Any]:
    """The indices, checked as far as they can be, and the namespace to compute in."""
    if isinstance(indices, np.generic):
        indices = np.asarray(indices)
    _integers(indices, "indices", IndexError)
    host = isinstance(indices, np.ndarray)
    namespace = (key.low if host else indices).__array_namespace__()
    if n > (_WIDE_END if namespace is np else _NARROW_END):
        raise ValueError(
            f"n is {n}, but an order ends at 2**31 indices under jax and at 2**48 on the host: "
            f"type np.asarray(indices), with a key of ints, or shard before you shuffle."
        )
    if n - 1 > np.iinfo(indices.dtype).max:
        raise ValueError(f"n is {n}, beyond {indices.dtype}: type indices.astype(np.int64).")
    if host and indices.size and (most := indices.max()) >= n:
        raise IndexError(f"indices holds {most}, but n is {n}: type indices % n.")
    return (indices if namespace is np else namespace.asarray(indices)), namespace
