"""Parts of a split: the part of each sample, by its number, its group and its class."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from jreader.orders.keys import Key
from jreader.orders.permutations import permutation

Array = np.ndarray[Any, Any]


def dealt_parts(sizes: Sequence[int], key: Key, classes: Array | None = None) -> Array:
    """Deal samples to parts at random; each part gets its share of every class, to within two.

    >>> from jreader.orders import key
    >>> parts = dealt_parts([6, 3], key(0), np.array(list("aabababab")))
    >>> parts.tolist()
    [0, 1, 0, 0, 1, 0, 0, 1, 0]

    Args:
        sizes: The number of samples of each part.
        key: Chooses the samples.
        classes: The class of each sample of all parts; None for one class.

    Returns:
        The number of the part of each sample.
    """
    n = sum(sizes)
    order = permutation(np.arange(n), n, key)
    turns = np.repeat(np.arange(len(sizes)), sizes)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
        # sample j of c in a part comes at (j + 1/2) / c of the row, which spreads all parts evenly
        places = np.concatenate([(np.arange(size) + 0.5) / max(size, 1) for size in sizes])
        turns = turns[np.argsort(places, kind="stable")]
    parts = np.empty(n, np.intp)
    parts[order] = turns
    return parts


def dealt_groups(
    sizes: Sequence[int], key: Key, groups: Array, classes: Array | None = None
) -> Array:
    """Deal whole groups to parts, the largest first, each to the part that lacks most.

    Groups of equal size come in random order. With classes, the lack of a part is counted class by
    class, as a fraction of that class.

    >>> from jreader.orders import key
    >>> dealt_groups([6, 3], key(0), np.array(list("aaabbbccc"))).tolist()
    [1, 1, 1, 0, 0, 0, 0, 0, 0]

    Args:
        sizes: The number of samples that each part should have.
        key: Chooses the order of the groups.
        groups: The group of each sample.
        classes: The class of each sample; None for one class.

    Returns:
        The number of the part of each sample.
    """
    names, group = np.unique(groups, return_inverse=True)
    kinds, kind = (
        (np.zeros(1), np.zeros(len(group), np.intp))
        if classes is None
        else np.unique(classes, return_inverse=True)
    )
    held, many = np.unique(group * len(kinds) + kind, return_counts=True)
    first = np.searchsorted(held // len(kinds), np.arange(len(names) + 1))
    order = permutation(np.arange(len(names)), len(names), key)
    order = order[np.argsort(-np.bincount(group)[order], kind="stable")]
    total = np.bincount(kind)
    lacks = np.outer(np.array(sizes) / len(group), total)
    part = np.empty(len(names), np.intp)
    empty = np.array(sizes) > 0
    for place, each in enumerate(order.tolist()):
        here = slice(first[each], first[each + 1])
        of, count = held[here] % len(kinds), many[here]
        wanted = lacks[:, of] @ (count / total[of])
        if len(order) - place <= np.count_nonzero(empty):  # each part gets one, while groups last
            wanted = np.where(empty, wanted, -np.inf)
        most = np.flatnonzero(wanted >= wanted.max() - 1e-9)
        part[each] = chosen = most[np.argmax(lacks[most].sum(1))]
        lacks[chosen, of] -= count
        empty[chosen] = False
    return part[group]


def part_sizes(call: str, lengths: Sequence[Any], n: int) -> list[int]:
    """Return the number of samples of each part, out of n.

    >>> part_sizes("random_split(dataset, lengths)", [0.55, 0.45], 10)
    [6, 4]

    Raises:
        TypeError: A length is not a number.
        ValueError: The lengths do not sum to n, or the fractions to 1.
    """
    if not isinstance(lengths, Iterable):
        raise TypeError(
            f"{call} needs a list of fractions, or of numbers of samples, not {lengths!r}: "
            "type [0.8, 0.2]."
        )
    if all(map(_is_whole, lengths)):
        return _whole_sizes(call, lengths, n)
    if not all(isinstance(each, (float, int, np.number)) for each in lengths):
        raise TypeError(f"{call} needs numbers, not {list(lengths)}.")
    if not math.isclose(sum(lengths), 1) or not all(0 <= each <= 1 for each in lengths):
        raise ValueError(
            f"{call} needs fractions from 0 to 1 that sum to 1, not "
            f"{list(lengths)}, which sum to {sum(lengths)}."
        )
    counts = [math.floor(n * each) for each in lengths]
    for part in range(n - sum(counts)):
        counts[part % len(counts)] += 1
    return counts


def _whole_sizes(call: str, lengths: Sequence[Any], n: int) -> list[int]:
    counts = list(map(operator.index, lengths))
    if sum(counts) != n or min(counts, default=0) < 0:
        raise ValueError(
            f"{call} needs lengths >= 0 that sum to the {n} samples of the data, not "
            f"{list(lengths)}, which sum to {sum(counts)}; fractions are floats that sum to 1.0."
        )
    return counts


def _is_whole(length: Any) -> bool:
    return isinstance(length, SupportsIndex) and not isinstance(length, (bool, np.bool_))
