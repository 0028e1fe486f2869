"""One bit a sample in a folder of columns: which samples are kept, and where the n-th of them is.

Column 0 is the bits, the first one lowest in its byte; those that make no byte yet are in the
table. Once all are there, they fill blocks of 512, and column 1 says how many are set before each
block, and in all. So the n-th kept sample is found by a search in column 1, and by counting in one
block: 1.13 bits a sample lie on the disk, mapped, and nothing is in memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jreader.readers.columns import Array, Indices
from jreader.sources.appending import Appending
from jreader.sources.stored_columns import Stored, StoredColumn
from jreader.sources.stored_rows import Kind

_WORD = np.dtype("<u4")  # a trace of jax has no wider one
_BITS = 32
_BLOCK = 512  # bits
_CHUNK = 1 << 14  # blocks that are counted in one go
_BYTES_PER_BIT = 64  # bytes that a bit takes with its position, until it is written


class AppendedBits(Appending):
    """Appends a bit for each sample to a folder."""

    def add(self, sample: Any, at: Any) -> None:
        """Takes the bit of one more sample, True or False, and the position after it."""
        self._state.added.append((sample, at))
        self.bytes += _BYTES_PER_BIT

    def written(self, held: Stored) -> Stored:
        """What is held, with the bits that were added, and how many are set if these are all."""
        behind = [False] * (-held.rows % _BLOCK if held.whole else 0)
        bits = np.array([*_left(held), *(kept for kept, _ in self._state.added), *behind], bool)
        left = len(bits) % 8
        columns = [_appended(held, 0, np.packbits(bits[: len(bits) - left], bitorder="little"))]
        if held.whole:
            columns.append(_appended(held, 1, _counts(columns[0])))
        said = {"left": bits[len(bits) - left :].tolist()}
        return replace(held, columns=tuple(columns), said=said)


def _left(held: Stored) -> list[bool]:
    """The last bits, which make no byte."""
    left: list[bool] = held.said["left"] if held.said else []
    return left


def _appended(held: Stored, number: int, values: Array) -> StoredColumn:
    known = held.columns[number : number + 1]
    kind = Kind("array", values.dtype)
    (column,) = known or [StoredColumn.created(held.folder, str(number), kind)]
    return replace(column, values=column.values.appended(values))


def _words_of_blocks(bits: StoredColumn) -> Array:
    """The words of each block."""
    words: Array = bits.mapped().view(_WORD).reshape(-1, _BLOCK // _BITS)
    return words


def _counts(bits: StoredColumn) -> Array:
    """How many bits are set before each block, and in all."""
    words = _words_of_blocks(bits)
    counts = np.zeros(len(words) + 1, np.int64)
    for low in range(0, len(words), _CHUNK):
        some = np.bitwise_count(words[low : low + _CHUNK])
        counts[1 + low : 1 + low + len(some)] = some.sum(1)
    return counts.cumsum()


def bits_of(held: Stored, begin: int, end: int) -> list[int]:
    """These bits, as far as they are written."""
    end = min(end, held.rows)
    if begin >= end:
        return []
    first, packed = begin // 8, held.columns[0].mapped()
    bits = np.unpackbits(packed[first : -(-end // 8)], bitorder="little").tolist()
    return [*bits, *_left(held)][begin - 8 * first : end - 8 * first]


class Ranks:
    """The samples whose bit is set, in their order, in a folder that has the bits of all.

    Args:
        held: What the folder holds.
    """

    def __init__(self, held: Stored) -> None:
        bits, counts = held.columns
        self._words, self._counts = _words_of_blocks(bits), counts.mapped()
        self.total = int(self._counts[-1])

    def sample(self, places: Indices) -> Any:
        """The numbers of the set bits at these places: of NumPy or jax, traced or not."""
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
        """The inverse of `sample`; -1 for numbers of bits that are not set."""
        places = self.before(samples)
        known = np.minimum(places, self.total - 1)
        return np.where(self.sample(known) == samples, places, -1)

    def before(self, samples: Array) -> Array:
        """How many bits are set before these samples."""
        block, bit = np.divmod(samples, _BLOCK)
        masks = np.clip(bit[:, None] - np.arange(0, _BLOCK, _BITS), 0, _BITS).astype(np.uint64)
        masks = (np.uint64(1) << masks) - np.uint64(1)
        inside = np.bitwise_count(self._words[block] & masks).sum(1, dtype=np.int64)
        before: Array = self._counts[block] + inside
        return before


def _place_of(word: Any, rest: Any, namespace: Any) -> Any:
    """The place in each word of its set bit that has `rest` set bits before it, by halves."""
    place = namespace.zeros_like(rest)
    for half in (16, 8, 4, 2, 1):
        ones = namespace.bitwise_count(word & np.uint32((1 << half) - 1)).astype(np.int16)
        beyond = rest >= ones
        rest = namespace.where(beyond, rest - ones, rest)
        word = namespace.where(beyond, word >> np.uint32(half), word)
        place = namespace.where(beyond, place + half, place)
    return place
