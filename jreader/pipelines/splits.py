"""`split` and `folds`: parts of the samples of a plan that no epoch mixes.

A part is chosen by index and seed, below whatever the plan maps, and above no shuffle: so it has
the same samples in every epoch and every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.batches import gives_batches
from jreader.orders.parts import Array, dealt_groups, dealt_parts, part_sizes
from jreader.pipelines.indexing import chosen
from jreader.readers import (
    Columns,
    Plane,
    Reader,
    branches,
    described,
    indexed,
    leaves,
    length,
    lookup_of,
)
from jreader.readers.nodes import below_keys
from jreader.readers.seeds import random_ops, seeded
from jreader.transforms.selections import fixed_order, split_key

if TYPE_CHECKING:
    from jreader.pipelines.pipeline import Pipeline

T = TypeVar("T")


def split(
    reader: Reader[T],
    parts: Sequence[float],
    seed: Any = 0,
    *,
    groups: Any = None,
    stratify: Any = None,
) -> tuple[Pipeline[T], ...]:
    """Splits the samples at random into parts that share none, the same ones in every epoch.

    Split before you shuffle: `train.shuffle(seed=0)` then shuffles each epoch of `train` anew, and
    no sample of another part comes in. The same seed gives the same parts, in every run and
    process.

    >>> from jreader import Pipeline, arrays
    >>> rows = Pipeline(arrays(x=np.arange(10), user=np.arange(10) // 2))
    >>> train, test = rows.split([0.8, 0.2], seed=0)
    >>> len(train), len(test), {int(s["x"]) for s in train} & {int(s["x"]) for s in test}
    (8, 2, set())
    >>> train, test = rows.split([0.8, 0.2], seed=0, groups="user")
    >>> [int(sample["user"]) for sample in test]
    [4, 4]

    Parts are in random order; in that of the pipeline with `groups` or `stratify`, or where samples
    lie in blocks (Parquet).

    Args:
        reader: A pipeline.
        parts: The fraction of each part, as floats that sum to 1; or its number of samples, as
            ints. With `groups`, parts are as near to that as whole groups allow.
        seed: An int, or a jax key, fixes the parts.
        groups: Samples of one group stay in one part: a label for each sample, or the name of a
            field, where samples are rows of arrays.
        stratify: Each part has its share of every class: a label for each sample, or the name of a
            field.

    Raises:
        TypeError: Samples have to be read to be found, these are batches, or a shuffle comes
            before.
        ValueError: The parts do not sum to all samples, a part would have none, or labels are not
            as many as samples.
    """
    call = "split(parts, seed)"
    made = _Parts(call, reader, lambda n: part_sizes(call, parts, n), seed, groups, stratify)
    for number, size in enumerate(made.counts):
        if not size:
            raise ValueError(
                f"{call} leaves no samples for part {number}, {parts[number]} of {made.of}: give "
                f"it more, or leave it out."
            )
    return tuple(made.part(number) for number in range(len(made.counts)))


def folds(
    reader: Reader[T], n: int, seed: Any = 0, *, groups: Any = None, stratify: Any = None
) -> list[tuple[Pipeline[T], Pipeline[T]]]:
    """Splits the samples for cross-validation: `n` pairs of train and test.

    Each sample is in exactly one test part.

    >>> from jreader import Pipeline, arrays
    >>> pairs = Pipeline(arrays(np.arange(6))).folds(3, seed=0)
    >>> [len(train) for train, test in pairs]
    [4, 4, 4]
    >>> sorted(int(sample) for train, test in pairs for sample in test)
    [0, 1, 2, 3, 4, 5]

    Args:
        reader: A pipeline.
        n: How many pairs, at least 2.
        seed: An int, or a jax key, fixes the parts.
        groups: Samples of one group stay in one part: a label for each sample, or the name of a
            field, where samples are rows of arrays.
        stratify: Each part has its share of every class: a label for each sample, or the name of a
            field.

    Raises:
        TypeError: As in `split`.
        ValueError: There are fewer samples or groups than folds, or labels are not as many as
            samples.
    """
    call = "folds(n, seed)"
    many = errors.check_number(call, n, 2)

    def sizes(samples: int) -> list[int]:
        return [len(range(fold, samples, many)) for fold in range(many)]

    made = _Parts(call, reader, sizes, seed, groups, stratify)
    if 0 in made.counts:
        raise ValueError(
            f"{call} needs at least {many} samples or groups, and {described(reader)} has "
            f"{made.of}: give fewer folds."
        )
    return [(made.part(fold, but=True), made.part(fold)) for fold in range(many)]


class _Parts:
    """The indices of the parts of a split: ranges of one random order, or lists.

    Attributes:
        counts: How many samples each part has.
        of: How many there are, for an error.
    """

    def __init__(
        self,
        call: str,
        reader: Reader[Any],
        sizes_of: Callable[[int], list[int]],
        seed: Any,
        groups: Any,
        stratify: Any,
    ) -> None:
        n = _splittable_length(call, reader)
        sizes = sizes_of(n)
        self.reader, self.key = reader, orders.as_seed(seed, call)
        labels = _labels(call, reader, n, "groups", groups)
        classes = _labels(call, reader, n, "stratify", stratify)
        plane = indexed(seeded(reader, 0))
        self.ends, self.counts, self.of = [0, *accumulate(sizes)], sizes, f"{n:,} samples"
        self.part_of: Array | None = None
        if labels is not None:
            self.part_of = dealt_groups(sizes, split_key(self.key), labels, classes)
            self.counts = np.bincount(self.part_of, minlength=len(sizes)).tolist()
            self.of += f" in {len(np.unique(labels)):,} groups"
        elif classes is not None or (plane is not None and plane.blocks is not None):
            self.part_of = dealt_parts(sizes, split_key(self.key), classes)

    def part(self, number: int, *, but: bool = False) -> Any:
        """The samples of a part, or all but these."""
        if self.part_of is not None:
            mine = self.part_of == number
            return chosen(self.reader, np.flatnonzero(~mine if but else mine), _still)
        first, end = self.ends[number : number + 2]
        indices = range(end - self.ends[-1], first) if but else range(first, end)
        return chosen(self.reader, indices, lambda below: fixed_order(_still(below), self.key))


def _still(below: Reader[Any]) -> Reader[Any]:
    """The reader, if its order is the same in all epochs.

    Raises:
        TypeError: It is not.
    """
    if random_ops(below_keys(below)):
        raise TypeError(
            f"a split of {described(below)} would give each part other samples in each epoch, "
            f"those of the other parts too: split before what orders samples at random, as in "
            f"train, test = rows.split([0.8, 0.2]), and then train.shuffle(seed=0)."
        )
    return below


def _splittable_length(call: str, reader: Reader[Any]) -> int:
    """The number of samples of a plan that can be split.

    Raises:
        TypeError: It cannot.
    """
    if gives_batches(reader):
        raise TypeError(
            f"{call} splits samples, and {described(reader)} gives batches: split first, and then "
            f"type .batch(n) for each part."
        )
    known = length(reader)
    if known is None or lookup_of(seeded(reader, 0)) is None:
        raise TypeError(
            f"{call} needs samples that are found by their index, and {described(reader)} has to "
            f"be read. Split it by what names a sample: .filter(lambda s: zlib.crc32(s['id']"
            f".encode()) % 10 > 0) keeps nine of ten, and == 0 the others."
        )
    return known


def _labels(call: str, reader: Reader[Any], n: int, name: str, value: Any) -> Array | None:
    """The groups, or the classes, of all samples: a label for each; None where none are given.

    Raises:
        TypeError: They are not labels.
        ValueError: They are not as many as samples.
    """
    if value is None:
        return None
    is_name = isinstance(value, (str, int))
    labels = np.asarray(_field_values(call, reader, n, name, value) if is_name else value)
    if labels.ndim != 1 or labels.dtype.hasobject:
        raise TypeError(
            f"{name} of {call} needs a label for each sample, numbers or texts, not "
            f"{described(value)}: give a list or an array of one axis."
        )
    if len(labels) != n:
        raise ValueError(
            f"{name} of {call} has {len(labels):,} labels, and {described(reader)} has {n:,} "
            f"samples: give a label for each, in their order."
        )
    return labels


def _field_values(call: str, reader: Reader[Any], n: int, name: str, key: Any) -> Any:
    """The values of a field of all samples, without the others."""
    plane = indexed(reader)
    columns: Any = plane.columns if plane is not None else None
    keys = [*(branches(columns) or ())] if type(columns) in (dict, tuple) else []
    if plane is None or key not in keys:
        raise TypeError(
            f"{name}={key!r} of {call} names a field of samples that are rows of arrays, and "
            f"{described(reader)} has {keys or 'none'}: give the labels, as in "
            f"{name}=[sample[{key!r}] for sample in pipeline]."
        )
    before = sum(len(leaves(columns[each])) for each in keys[: keys.index(key)])
    many, route = len(leaves(columns[key])), plane.route
    part = Plane(columns[key], n, lambda indices: route(indices)[before : before + many])
    values = part.take(np.arange(n))
    return values.columns if isinstance(values, Columns) else list(values)
