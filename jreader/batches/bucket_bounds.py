"""Choose the bucket bounds that waste the least padding, from the lengths of all samples.

A sample in a bucket of bound b takes b places. The best k buckets split the sorted distinct lengths
so that the places of all samples sum to the least; the best split into k buckets is the best split
of some prefix into k - 1, plus one more bucket. This is an exact dynamic programme over the
histogram of lengths. The cost of a bucket from one length to another is a Monge array, so the best
last cut never moves back as the end moves on (Yao 1980), and divide and conquer finds it: k n log n
steps for n lengths, in NumPy, level by level.
"""

from __future__ import annotations

import numpy as np

from jreader.readers.columns import Array, offsets_of

_FINEST = 1 << 16  # distinct lengths; the table of cuts takes 4 bytes per length and bound


def chosen_bounds(lengths: Array, number: int, multiple_of: int = 1) -> tuple[int, ...]:
    """Choose the bounds that pad samples of these lengths least.

    >>> chosen_bounds(np.array([3, 3, 3, 4, 50, 60]), 2), chosen_bounds(np.array([3, 4, 50]), 9)
    ((4, 60), (3, 4, 50))
    >>> chosen_bounds(np.array([3, 9, 50]), 2, multiple_of=8)
    (16, 56)

    The bounds are optimal if there are at most 65,536 candidates; otherwise each is too high by
    less than a 65,536th of the longest length. The same lengths give the same bounds.

    Args:
        lengths: The lengths of all samples, at least one.
        number: The number of bounds; fewer are returned if there are fewer lengths.
        multiple_of: Round all bounds up to multiples of this.

    Returns:
        Increasing bounds, each at least 1; the last fits the longest sample.
    """
    longest = max(int(lengths.max()), 1)
    step = multiple_of * -(-longest // (_FINEST * multiple_of))
    steps = np.maximum(-(-lengths // step), 1)
    ends, counts = np.unique(steps, return_counts=True)
    if len(ends) <= number:
        return tuple((ends * step).tolist())
    given = offsets_of(counts)  # samples before each end
    places = np.concatenate([[np.iinfo(np.int64).max], ends * given[1:]])  # with one bucket
    places[0] = 0
    cuts = []
    for _ in range(number - 1):
        places, last = _with_another_bucket(places, ends, given)
        cuts.append(last)
    end, found = len(ends), [len(ends)]
    for last in reversed(cuts):
        end = int(last[end])
        found.append(end)
    return tuple(int(ends[end - 1]) * step for end in reversed(found) if end)


def _with_another_bucket(places: Array, ends: Array, given: Array) -> tuple[Array, Array]:
    """Compute the fewest places for the samples up to each end, with one more bucket.

    Args:
        places: The fewest places with one bucket less.
        ends: The distinct lengths, in order.
        given: The number of samples before each of them, and of all.

    Returns:
        The places, and where the last bucket begins (the first optimum on ties).
    """
    many = len(ends)
    least, cut = places.copy(), np.zeros(many + 1, np.int32)
    # each level solves the ends halfway between solved ones, whose cuts bound the search
    width = 1 << many.bit_length()
    while width > 1:
        half = width // 2
        ahead = np.arange(half, many + 1, width)
        low = cut[ahead - half]
        beyond = ahead + half
        high = np.where(beyond <= many, cut[np.minimum(beyond, many)], many)
        high = np.minimum(high, ahead - 1)
        sizes = high - low + 1
        first = np.cumsum(sizes) - sizes
        begin = np.arange(sizes.sum()) + (low - first).repeat(sizes)
        end = ahead.repeat(sizes)
        taken = places[begin] + ends[end - 1] * (given[end] - given[begin])
        best = np.minimum.reduceat(taken, first)
        at = np.flatnonzero(taken == best.repeat(sizes))
        at = at[np.searchsorted(at, first)]
        least[ahead], cut[ahead] = best, begin[at]
        width = half
    return least, cut
