"""Permutations of many lengths at once, as `permutation` has them for each.

`permutation` takes one length, which a trace has to know. Here each index has a length of its own,
also a traced one: the numbers of its grid are computed in arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jreader.orders.arithmetic import NARROW
from jreader.orders.keys import LENGTHS, Key, key
from jreader.orders.permutations import INSERTED, TURNS, below, hash_of

Array = Any  # of NumPy or jax


class Lengths(NamedTuple):
    """Several lengths, and a key for each.

    Attributes:
        sizes: The lengths, each below 2**31: an array of integers.
        keys: The key of the permutation of each.
        least: No length is less.
        most: No length is more.
    """

    sizes: Array
    keys: Key
    least: int
    most: int


def permutation_of_each(indices: Array, which: Array, lengths: Lengths) -> Array:
    """Maps each index by the permutation of the length that `which` says, by the key of that one.

    >>> from jreader.orders import permutation
    >>> lengths = Lengths(np.array([3, 500]), key(7, 0, np.arange(2)), 3, 500)
    >>> permutation_of_each(np.array([0, 1, 2, 7]), np.array([0, 0, 0, 1]), lengths)
    array([  0,   1,   2, 340])
    >>> permutation(np.array([7]), 500, key(7, 0, 1))
    array([340])

    Args:
        indices: Each from 0 to one less than its length; that is not checked.
        which: For each index the number of its length.
        lengths: The lengths and keys.
    """
    namespace = indices.__array_namespace__()
    sizes = lengths.sizes.astype(np.uint32)
    hashed = key(LENGTHS, lengths.sizes)
    keys = [(own ^ of)[which] for own, of in zip(lengths.keys, hashed, strict=True)]
    given: Array = indices.astype(np.uint32)
    moved: Array = None
    if lengths.most > INSERTED:
        moved = _turned(given, which, sizes, keys, lengths, namespace)
    if lengths.least <= INSERTED:
        small = _inserted(given, sizes[which], keys, namespace)
        moved = small if moved is None else namespace.where(sizes[which] > INSERTED, moved, small)
    return moved.astype(indices.dtype)


def _turned(
    given: Array, which: Array, sizes: Array, keys: list[Array], lengths: Lengths, namespace: Any
) -> Array:
    """As `permutations` rotates the grid; how often depends on the length."""
    one, last = np.uint32(1), np.uint32(31)
    sizes = namespace.maximum(sizes, np.uint32(INSERTED + 1))  # others are not rotated
    column_bits = (_bit_length(sizes - one) + (sizes > (1 << 30))).astype(np.uint32) >> one
    last_column = (one << column_bits) - one
    rows, left = sizes >> column_bits, sizes & last_column
    row_bits = _bit_length(rows - (left == 0).astype(np.uint32))
    own = (column_bits, last_column, rows, left, row_bits)
    column_bits, last_column, rows, left, row_bits = (number[which] for number in own)
    row, column = given >> column_bits, given & last_column
    turns = {
        number: end
        for begin, end, number in zip((0, *_ENDS), _ENDS, _NUMBERS, strict=False)
        if lengths.most > begin and max(lengths.least, INSERTED + 1) <= end
    }
    moved = None
    for turn in range(max(turns)):
        tweak = NARROW.tweaks[turn]
        chosen, other = keys if turn % 2 else keys[::-1]
        if turn % 2:
            to = hash_of(row, chosen + tweak, other, NARROW)
            to = to >> (np.uint32(32) - column_bits)
            to = to * ((row - rows) >> last)  # the last row, which is not full, stays
            column = (to + column) & last_column
        else:
            height = ((column - left) >> last) + rows
            to = below(height, row_bits, hash_of(column, chosen + tweak, other, NARROW), NARROW)
            to = to + row
            row = namespace.minimum(to, to - height)
        if turn + 1 in turns:
            here = (row << column_bits) + column
            if moved is not None:  # shorter lengths take more turns
                here = namespace.where(sizes[which] <= turns[turn + 1], here, moved)
            moved = here
    return moved


_ENDS = tuple(end for end, _ in TURNS)
_NUMBERS = tuple(number for _, number in TURNS)


def _inserted(given: Array, sizes: Array, keys: list[Array], namespace: Any) -> Array:
    """As `permutations` inserts, up to the length of each."""
    numbers = np.arange(2, INSERTED + 1, dtype=np.uint32)[:, None]
    hashed = hash_of(NARROW.tweaks[: len(numbers)][:, None], keys[0], keys[1], NARROW)
    chosen = below(numbers, np.uint32(INSERTED.bit_length()), hashed, NARROW)
    moved = given
    for last, to in zip(numbers[:, 0] - np.uint32(1), chosen, strict=True):
        swapped = namespace.where(moved == to, last, namespace.where(moved == last, to, moved))
        moved = namespace.where(last < sizes, swapped, moved)
    return moved


def _bit_length(numbers: Array) -> Array:
    """The number of bits of each uint32."""
    powers = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (numbers[..., None] >= powers).sum(-1).astype(np.uint32)
