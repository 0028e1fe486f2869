"""The integer arithmetic of orders: constants for words of 32 and 64 bits, and checks of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Words(NamedTuple):
    """The constants of one word size; they never change under one `STREAM_VERSION`.

    Attributes:
        word: The unsigned dtype.
        bits: Its number of bits.
        first: The first multiplier of the hash.
        shift: The number of bits that the hash shifts between the multiplications.
        second: The second multiplier.
        tweaks: A constant for each round, which makes rounds differ.
    """

    word: Any
    bits: Any
    first: Any
    shift: Any
    second: Any
    tweaks: NDArray[Any]


def _words(word: Any, golden: int, *numbers: int) -> Words:
    """Return the numbers as words; the tweaks are multiples of the golden ratio, far apart."""
    bits, first, shift, second = map(word, numbers)
    tweaks = [golden * turn % (1 << int(bits)) for turn in range(1, 17)]
    return Words(word, bits, first, shift, second, np.array(tweaks, word))


# The multipliers are those of Wellons' lowbias32 and of Stafford's Mix13, found by search.
NARROW = _words(np.uint32, 0x9E3779B9, 32, 0x7FEB352D, 15, 0x846CA68B)
WIDE = _words(np.uint64, 0x9E3779B97F4A7C15, 64, 0xBF58476D1CE4E5B9, 31, 0x94D049BB133111EB)


def mixed(words: Any) -> Any:
    """Return a hash of each uint32: a bijection with good upper and lower bits."""
    words = words ^ words >> np.uint32(16)
    words *= NARROW.first
    words ^= words >> NARROW.shift
    words *= NARROW.second
    words ^= words >> np.uint32(16)
    return words


def lifted(array: Any) -> Any:
    """Return the array with at least one axis."""
    return array if array.ndim else array.reshape(1)


def integers(array: Any, name: str, wrong: type[Exception] = ValueError) -> Any:
    """Return an array of integers >= 0; elements are checked only on the host."""
    if not hasattr(array, "__array_namespace__"):
        raise TypeError(f"{name} is {array!r}, but an array is needed: type np.asarray({name}).")
    kind = getattr(array.dtype, "kind", "")
    if kind not in ("i", "u"):
        raise TypeError(f"{name} holds {array.dtype}, not integers: type {name}.astype(np.int64).")
    if kind == "i" and isinstance(array, np.ndarray) and array.size and (least := array.min()) < 0:
        raise wrong(f"{name} holds {least}, but numbers >= 0 are needed: type {name} % n.")
    return array
