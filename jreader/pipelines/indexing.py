"""`pipeline[index]`, `pipeline[first:last]`, `pipeline[[3, 1]]`: samples found by their index."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

from jreader.batches import batch, map_batches
from jreader.pipelines.pipeline import Pipeline
from jreader.readers import Node, Reader, described, epochs, indexed, itself, length, lookup_of
from jreader.readers.nodes import ops_of, unit_of, with_reader
from jreader.readers.seeds import waits
from jreader.transforms import firstn, map_readers, select, shard, skip
from jreader.workers import buffered, map_samples

T = TypeVar("T")


def sample_at(reader: Reader[T], index: SupportsIndex) -> T:
    """The sample (or batch) of an index, which may count from the end.

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
    """The samples of a slice, found where those of `reader` are.

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
    """The samples of a list of indices, found where those of `reader` are.

    >>> from jreader import Pipeline, arrays
    >>> list(listed(Pipeline(arrays(range(9))).map(float), [8, 0]))
    [8.0, 0.0]
    """
    _lookup(reader)
    return chosen(reader, indices)


def chosen(
    reader: Reader[Any], indices: Any, under: Callable[[Reader[Any]], Reader[Any]] = itself
) -> Reader[Any]:
    """The samples at some indices, below whatever a plan maps one for one.

    Args:
        reader: The plan.
        indices: Ints.
        under: What is done first to what the plan maps one for one.
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
    if waits(reader):
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
    """Every `step`-th sample from `first` on, up to `last`, below whatever a plan maps."""
    if first == 0 and last is None and step == 1:
        return reader

    def part(mapped: Reader[Any]) -> Reader[Any]:
        if type(mapped) is batch and step == 1:
            size = mapped.batch_size
            ends = first * size, None if last is None else last * size
            return with_reader(mapped, _slice_of(mapped.reader, *ends, 1))
        spelled = _spelling(mapped)
        cut = spelled(skip(mapped, first)) if first else mapped
        cut = cut if last is None else spelled(firstn(cut, last - first))
        return cut if step == 1 else spelled(shard(cut, step, 0))

    return _below_maps(reader, part)


def _below_maps(reader: Reader[Any], part: Callable[[Reader[Any]], Reader[Any]]) -> Reader[Any]:
    """A plan over a part of what it maps one for one, so that nothing else is mapped."""
    if isinstance(reader, Node) and _is_one_for_one(reader):
        (up,) = reader.input_readers
        return with_reader(reader, _below_maps(up, part))
    return part(reader)


def _is_one_for_one(op: Node[Any]) -> bool:
    """Whether an op makes one item of each of its reader, and has to be asked for each."""
    if type(op) is map_readers:
        return len(op.readers) == 1
    maps = isinstance(op, Pipeline) or type(op) in {map_batches, map_samples, buffered}
    return maps and indexed(op) is None


def _spelling(reader: Reader[Any]) -> Callable[[Reader[Any]], Reader[Any]]:
    """What makes a pipeline of an op, where the reader is one."""
    return type(reader) if isinstance(reader, Pipeline) else itself
