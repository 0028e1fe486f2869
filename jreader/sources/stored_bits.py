"""Store one bit per sample in a folder of columns, and find the n-th sample whose bit is set.

Column 0 holds the bits, lowest bit of a byte first; the table holds the bits of an incomplete last
byte. Once all bits are there, they are padded to blocks of 512, and column 1 holds how many are set
before each block, and in total. So the n-th kept sample is found by a search in column 1 and a
count within one block: this takes 1.13 bits per sample on disk, mapped, and no memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Indices
from jreader.sources.appending import Appending
from jreader.sources.stored_columns import Stored, StoredColumn
from jreader.sources.stored_rows import Kind

_WORD = np.dtype("<u4")  # jax traces have no wider words
_BITS = 32
_BLOCK = 512  # bits
_CHUNK = 1 << 14  # blocks to count at a time
_BYTES_PER_BIT = 64  # memory of an unwritten bit with its position


class AppendedBits(Appending):
    """Appends a bit per sample to a folder."""

    def add(self, sample: Any, at: Any) -> None:
        """Add the bit of a sample, True or False, and the position after it."""
        self._state.added.append((sample, at))
        self.bytes += _BYTES_PER_BIT

    def written(self, held: Stored) -> Stored:
        """Return the contents with the added bits; with the counts too, if these are all."""
        behind = [False] * (-held.rows % _BLOCK if held.whole else 0)
        bits = np.array([*_left(held), *(kept for kept, _ in self._state.added), *behind], bool)
        left = len(bits) % 8
        columns = [_appended(held, 0, np.packbits(bits[: len(bits) - left], bitorder="little"))]
        if held.whole:
            columns.append(_appended(held, 1, _counts(columns[0])))
        said = {"left": bits[len(bits) - left :].tolist()}
        return replace(held, columns=tuple(columns), said=said)


def _left(held: Stored) -> list[bool]:
    """Return the last bits, which do not fill a byte."""
    left: list[bool] = held.said["left"] if held.said else []
    return left


def _appended(held: Stored, number: int, values: Array) -> StoredColumn:
    known = held.columns[number : number + 1]
    kind = Kind("array", values.dtype)
    (column,) = known or [StoredColumn.created(held.folder, str(number), kind)]
    return replace(column, values=column.values.appended(values))


def _words_of_blocks(bits: StoredColumn) -> Array:
    """Return the words of each block."""
    words: Array = bits.mapped().view(_WORD).reshape(-1, _BLOCK // _BITS)
    return words


def _counts(bits: StoredColumn) -> Array:
    """Return the number of bits set before each block, and in total."""
    words = _words_of_blocks(bits)
    counts = np.zeros(len(words) + 1, np.int64)
    for low in range(0, len(words), _CHUNK):
        some = np.bitwise_count(words[low : low + _CHUNK])
        counts[1 + low : 1 + low + len(some)] = some.sum(1)
    return counts.cumsum()


def bits_of(held: Stored, begin: int, end: int) -> list[int]:
    """Return these bits, as far as they are written."""
    end = min(end, held.rows)
    if begin >= end:
        return []
    first, packed = begin // 8, held.columns[0].mapped()
    bits = np.unpackbits(packed[first : -(-end // 8)], bitorder="little").tolist()
    return [*bits, *_left(held)][begin - 8 * first : end - 8 * first]


class Ranks:
    """The samples whose bit is set, in order, in a folder with the bits of all samples.

    Args:
        held: The contents of the folder.
    """

    def __init__(self, held: Stored) -> None:
        bits, counts = held.columns
        self._words, self._counts = _words_of_blocks(bits), counts.mapped()
        self.total = int(self._counts[-1])

    def sample(self, places: Indices) -> Any:
        """Return the sample numbers at these ranks; for NumPy and jax, traced or not."""
        namespace = places.__array_namespace__()
        counts, words = map(namespace.asarray, (self._counts, self._words))
        block = namespace.searchsorted(counts[:-1], places, side="right") - 1
        rest = (places - counts[block]).astype(np.int16)
        some = words[block]
        ends = namespace.cumsum(namespace.bitwise_count(some), axis=-1, dtype=np.int16)
        which = (ends <= rest[..., None]).sum(-1)[..., None]
        word, end = (
            namespace.take_along_axis(each, which, axis=-1)[..., 0] for each in (some, ends)
        )
        inside = _place_of(word, rest - end + namespace.bitwise_count(word), namespace)
        return block * _BLOCK + (which[..., 0] * _BITS + inside).astype(block.dtype)

    def places(self, samples: Array) -> Array:
        """Invert `sample`: return the rank of each sample, -1 if its bit is not set."""
        places = self.before(samples)
        known = np.minimum(places, self.total - 1)
        return np.where(self.sample(known) == samples, places, -1)

    def before(self, samples: Array) -> Array:
        """Return the number of bits set before each sample."""
        block, bit = np.divmod(samples, _BLOCK)
        masks = np.clip(bit[:, None] - np.arange(0, _BLOCK, _BITS), 0, _BITS).astype(np.uint64)
        masks = (np.uint64(1) << masks) - np.uint64(1)
        inside = np.bitwise_count(self._words[block] & masks).sum(1, dtype=np.int64)
        before: Array = self._counts[block] + inside
        return before


def _place_of(word: Any, rest: Any, namespace: Any) -> Any:
    """Find the set bit in each word that has `rest` set bits before it, by bisection."""
    place = namespace.zeros_like(rest)
    for half in (16, 8, 4, 2, 1):
        ones = namespace.bitwise_count(word & np.uint32((1 << half) - 1)).astype(np.int16)
        beyond = rest >= ones
        rest = namespace.where(beyond, rest - ones, rest)
        word = namespace.where(beyond, word >> np.uint32(half), word)
        place = namespace.where(beyond, place + half, place)
    return place
