"""Which bounds waste least: the lengths of buckets, chosen from the lengths of all samples.

A sample in a bucket of bound b takes b places. With so many buckets, the sum over all samples is
least where some row of the lengths that occur is cut best, and the best cut into k buckets is the
best cut of some beginning into k - 1, and one more bucket: an exact dynamic programme over the
histogram of lengths. What a bucket from one length to another takes has Monge's property, so the
best last cut never moves back as the end moves on (Yao 1980), and is searched by halves: k n log n
steps for n lengths, in NumPy, level by level.
"""

from __future__ import annotations

import numpy as np

from jreader.readers.columns import Array, offsets_of

_FINEST = 1 << 16  # distinct lengths; the table of cuts has 4 bytes for each and bound


def chosen_bounds(lengths: Array, number: int, multiple_of: int = 1) -> tuple[int, ...]:
    """The bounds with the least padding, for samples of these lengths.

    >>> chosen_bounds(np.array([3, 3, 3, 4, 50, 60]), 2), chosen_bounds(np.array([3, 4, 50]), 9)
    ((4, 60), (3, 4, 50))
    >>> chosen_bounds(np.array([3, 9, 50]), 2, multiple_of=8)
    (16, 56)

    They are exact, if no more than 65,536 bounds come into question; otherwise each is less than a
    65,536th of the longest length too high. The same lengths give the same bounds.

    Args:
        lengths: Those of all samples, at least one.
        number: How many bounds to choose; fewer, if fewer lengths occur.
        multiple_of: What they are multiples of.

    Returns:
        Bounds that rise, each at least 1; the last one is that of the longest sample.
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
    """The least places that the samples up to each end take, with one more bucket.

    Args:
        places: The same with one bucket less.
        ends: The lengths that occur, in order.
        given: How many samples there are before each of them, and of all.

    Returns:
        The places, and where the last bucket begins, the first such cut if several are as good.
    """
    many = len(ends)
    least, cut = places.copy(), np.zeros(many + 1, np.int32)
    # the ends that are known, with nothing before them and nothing behind; new ones lie between
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
