"""Keyed orders of many small ranges at once, in words of 32 bits: the same under NumPy and jax.

`orders.permutation` has one n for all indices; here each element has a range of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jreader.orders.arithmetic import NARROW, mixed

_ROUNDS, _HALF = 8, np.uint32(1 << 31)
MOST = 1 << 16  # of what `shuffled` orders


def dealt(rank: Any, n: Any, variant: Any, number: Any) -> Any:
    """Where each rank comes in the order of its range.

    A "swap or not" shuffle: in each round, a rank and its mirror image around a keyed centre change
    places, or do not, as a keyed bit of the two says (Hoang, Morris and Rogaway 2012, "An
    Enciphering Scheme Based on a Card Shuffle"). After eight rounds, one pair of ranks in 256 has
    the distance that it had.

    >>> words = [np.array([word], np.uint32) for word in (0, 7)]
    >>> dealt(np.arange(5, dtype=np.uint32), np.uint32(5), *words)
    array([2, 0, 3, 1, 4], dtype=uint32)

    Args:
        rank: From 0 to n - 1.
        n: The length of its range, at most 2**31.
        variant: Chooses the order, together with the number of the range.
        number: The number of the range.
    """
    namespace = rank.__array_namespace__()
    chosen = _keyed(variant, number)
    keys = mixed(chosen + NARROW.tweaks[:_ROUNDS].reshape(-1, *[1] * chosen.ndim))
    centres = keys % n
    for turn in range(_ROUNDS):
        mirrored = centres[turn] - rank  # below 0 it wraps around, and n brings it back
        mirrored = namespace.minimum(mirrored, mirrored + n)
        bits = (namespace.maximum(rank, mirrored) + keys[turn]) * NARROW.first
        bits = (bits ^ bits >> NARROW.shift) * NARROW.second
        rank = namespace.where(bits < _HALF, mirrored, rank)
    return rank


def shuffled(n: int, variant: Any, number: Any) -> Any:
    """The numbers below n in random order, for each variant and number: one axis more.

    >>> shuffled(5, *(np.array([word], np.uint32) for word in (0, 7)))
    array([[3, 4, 2, 1, 0]], dtype=uint32)

    Args:
        n: At most 2**16.
        variant: Chooses the order, together with the number.
        number: A number, of the same shape.
    """
    namespace = number.__array_namespace__()
    indices, low = np.arange(n, dtype=np.uint32), np.uint32(MOST - 1)
    words = mixed(_keyed(variant, number)[..., None] + indices * NARROW.tweaks[0])
    # an index in the lower half of each word: no two are equal, and sorting takes it along
    return namespace.sort(words & ~low | indices, axis=-1) & low


def _keyed(variant: Any, number: Any) -> Any:
    return mixed(mixed(variant + NARROW.tweaks[0]) + number)
