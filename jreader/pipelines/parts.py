"""Samples and parts of a pipeline, found by index: `pipeline[3]`, `pipeline[2:5]`, splits, folds.

A part is chosen below a plan's maps, so that no other samples are mapped. Parts of a split are
chosen by index and seed, and above no shuffle: they have the same samples in every epoch and run.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.batches import batch, gives_batches, map_batches
from jreader.orders.parts import Array, dealt_groups, dealt_parts, part_sizes
from jreader.pipelines.pipeline import Pipeline
from jreader.readers import (
    Columns,
    Node,
    Plane,
    Reader,
    branches,
    described,
    epochs,
    indexed,
    itself,
    leaves,
    length,
    lookup_of,
)
from jreader.readers.nodes import below_keys, ops_of, unit_of, with_reader
from jreader.readers.seeds import lacks_seed, random_ops, seeded
from jreader.transforms import firstn, map_readers, select, shard, skip
from jreader.transforms.selections import fixed_order, split_key
from jreader.workers import buffered, map_samples

T = TypeVar("T")


def sample_at(reader: Reader[T], index: SupportsIndex) -> T:
    """Return the sample (or batch) at an index, which may count from the end.

    >>> from jreader import arrays, shuffle
    >>> int(sample_at(shuffle(arrays([10, 20, 30]), seed=0), -1))
    10
    """
    find = _lookup(reader)
    try:
        number, known = operator.index(index), length(reader)
    except TypeError:
        raise TypeError(
            f"{reader!r}[...] needs an int, a slice or a list of ints, not {described(index)}."
        ) from None
    if number < 0 and known is not None:
        number += known
    if number < 0 or (known is not None and number >= known):
        has = "no end to count from" if known is None else f"{known:,} {unit_of(reader)}"
        raise IndexError(f"{reader!r}[{index}]: the pipeline has {has}.")
    return find(number)


def sliced(reader: Reader[Any], index: slice) -> Reader[Any]:
    """Return the samples of a slice, found by index as those of `reader` are.

    >>> from jreader import Pipeline, arrays
    >>> sliced(Pipeline(arrays(range(9))).batch(2), slice(1, 3))
    Pipeline(arrays(int64[9])).skip(n=2).firstn(n=4).batch(batch_size=2)
    """
    _lookup(reader)
    step, known = 1 if index.step is None else operator.index(index.step), length(reader)
    if step < 1:
        raise ValueError(
            f"a pipeline is not read backwards, as in [::{step}]: type reversed(pipeline), or sort "
            f"the arrays that it begins with."
        )
    if known is None and any(operator.index(at or 0) < 0 for at in (index.start, index.stop)):
        raise ValueError(
            f"{described(reader)} has no end to count from: type .skip(n) and .firstn(n)."
        )
    many = sys.maxsize if known is None else known
    first, last, _ = slice(index.start, index.stop).indices(many)
    return _slice_of(reader, first, None if last == many else max(first, last), step)


def listed(reader: Reader[Any], indices: Any) -> Reader[Any]:
    """Return the samples of a list of indices, found by index as those of `reader` are.

    >>> from jreader import Pipeline, arrays
    >>> list(listed(Pipeline(arrays(range(9))).map(float), [8, 0]))
    [8.0, 0.0]
    """
    _lookup(reader)
    return chosen(reader, indices)


def chosen(
    reader: Reader[Any], indices: Any, under: Callable[[Reader[Any]], Reader[Any]] = itself
) -> Reader[Any]:
    """Return the samples at some indices, chosen below all one-to-one maps of a plan.

    Args:
        reader: The plan.
        indices: Ints.
        under: Applied first to the reader below those maps.
    """

    def part(mapped: Reader[Any]) -> Reader[Any]:
        below = under(mapped)
        spelled = _spelling(mapped)
        return spelled(select(below if below is mapped else spelled(below), indices))

    return _below_maps(reader, part)


def _lookup(reader: Reader[T]) -> Callable[[int], T]:
    find = lookup_of(reader)
    if find is not None:
        return find
    if lacks_seed(reader):
        raise TypeError(
            f"{reader!r}[...] is another sample in every pass, because a seed is missing: type "
            f"shuffle(seed=0), or map(fn, rng=True, seed=0)."
        )
    below = next((op for op in ops_of(reader) if isinstance(op, epochs)), None)
    if below is not None and lookup_of(below.reader) is not None:
        raise TypeError(
            f"{reader!r}[...] finds no samples that a map makes below epochs: type .map(fn) after "
            ".epochs(n), or .skip(n).peek() for one sample."
        )
    raise TypeError(
        f"{reader!r}[...] has to be read to find its samples: type .skip(n).peek() for one, "
        ".skip(n).firstn(m) for some; or begin with arrays(...), npy or source, and leave out what "
        "makes a stream, as filter, flat_map and read do."
    )


def _slice_of(reader: Reader[Any], first: int, last: int | None, step: int) -> Reader[Any]:
    """Return every `step`-th sample from `first` on, up to `last`, chosen below one-to-one maps."""
    if first == 0 and last is None and step == 1:
        return reader

    def part(mapped: Reader[Any]) -> Reader[Any]:
        if type(mapped) is batch and step == 1 and isinstance(size := mapped.batch_size, int):
            ends = first * size, None if last is None else last * size
            return with_reader(mapped, _slice_of(mapped.reader, *ends, 1))
        spelled = _spelling(mapped)
        cut = spelled(skip(mapped, first)) if first else mapped
        cut = cut if last is None else spelled(firstn(cut, last - first))
        return cut if step == 1 else spelled(shard(cut, step, 0))

    return _below_maps(reader, part)


def _below_maps(reader: Reader[Any], part: Callable[[Reader[Any]], Reader[Any]]) -> Reader[Any]:
    """Return a plan whose one-to-one maps read only a part, so that nothing else is mapped."""
    if isinstance(reader, Node) and _is_one_for_one(reader):
        (up,) = reader.input_readers
        return with_reader(reader, _below_maps(up, part))
    return part(reader)


def _is_one_for_one(op: Node[Any]) -> bool:
    """Return whether an op makes one item from each of its reader, one by one."""
    if type(op) is map_readers:
        return len(op.readers) == 1
    maps = isinstance(op, Pipeline) or type(op) in {map_batches, map_samples, buffered}
    return maps and indexed(op) is None


def _spelling(reader: Reader[Any]) -> Callable[[Reader[Any]], Reader[Any]]:
    """Return a function that makes an op a pipeline, if the reader is one."""
    return type(reader) if isinstance(reader, Pipeline) else itself


def split(
    reader: Reader[T],
    parts: Sequence[float],
    seed: Any = 0,
    *,
    groups: Any = None,
    stratify: Any = None,
) -> tuple[Pipeline[T], ...]:
    """Split the samples at random into disjoint parts, the same ones in every epoch.

    Split before you shuffle: `train.shuffle(seed=0)` then reshuffles `train` in each epoch, and no
    sample of another part comes in. The same seed gives the same parts, in every run and process.

    >>> from jreader import Pipeline, arrays
    >>> rows = Pipeline(arrays(x=np.arange(10), user=np.arange(10) // 2))
    >>> train, test = rows.split([0.8, 0.2], seed=0)
    >>> len(train), len(test), {int(s["x"]) for s in train} & {int(s["x"]) for s in test}
    (8, 2, set())
    >>> train, test = rows.split([0.8, 0.2], seed=0, groups="user")
    >>> [int(sample["user"]) for sample in test]
    [4, 4]

    Parts are in random order; with `groups` or `stratify`, or if samples are in blocks (Parquet),
    they keep the order of the pipeline.

    Args:
        reader: A pipeline.
        parts: The fraction of each part, as floats that sum to 1; or its number of samples, as
            ints. With `groups`, parts are as close to that as whole groups allow.
        seed: An int, or a jax key, fixes the parts.
        groups: Samples of one group stay in one part: a label for each sample, or the name of a
            field, if samples are rows of arrays.
        stratify: Each part has its share of every class: a label for each sample, or the name of a
            field.

    Raises:
        TypeError: Samples must be read to be found, or are batches, or come after a shuffle.
        ValueError: The parts do not sum to all samples, a part would have none, or there are not as
            many labels as samples.
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
    """Split the samples for cross-validation: `n` pairs of train and test.

    Each sample is in exactly one test part.

    >>> from jreader import Pipeline, arrays
    >>> pairs = Pipeline(arrays(np.arange(6))).folds(3, seed=0)
    >>> [len(train) for train, test in pairs]
    [4, 4, 4]
    >>> sorted(int(sample) for train, test in pairs for sample in test)
    [0, 1, 2, 3, 4, 5]

    Args:
        reader: A pipeline.
        n: The number of pairs, at least 2.
        seed: An int, or a jax key, fixes the parts.
        groups: Samples of one group stay in one part: a label for each sample, or the name of a
            field, if samples are rows of arrays.
        stratify: Each part has its share of every class: a label for each sample, or the name of a
            field.

    Raises:
        TypeError: As in `split`.
        ValueError: There are fewer samples or groups than folds, or not as many labels as samples.
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
        counts: The number of samples of each part.
        of: The number of all samples, for an error.
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
        """Return the samples of a part, or all others."""
        if self.part_of is not None:
            mine = self.part_of == number
            return chosen(self.reader, np.flatnonzero(~mine if but else mine), _same_order)
        first, end = self.ends[number : number + 2]
        indices = range(end - self.ends[-1], first) if but else range(first, end)
        return chosen(self.reader, indices, lambda below: fixed_order(_same_order(below), self.key))


def _same_order(below: Reader[Any]) -> Reader[Any]:
    """Return the reader, if its order is the same in all epochs.

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
    """Return the number of samples of a plan that can be split.

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
    """Return a label for each sample, as groups or classes; None if no labels are given.

    Raises:
        TypeError: They are not labels.
        ValueError: There are not as many as samples.
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
    """Return the values of one field for all samples."""
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
