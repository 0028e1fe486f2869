"""`pipeline[index]` and `pipeline[first:last]`: samples found by their index, without a pass."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

from jreader.batches import batch, map_batches
from jreader.pipelines.wrapped import Wrapped
from jreader.readers import Reader, described, indexed, itself, length, lookup_of, origin
from jreader.readers.seeds import waits
from jreader.transforms import firstn, map_readers, shard, skip
from jreader.workers import buffered, map_samples

T = TypeVar("T")


def found(reader: Reader[T], index: SupportsIndex) -> T:
    """The sample (or batch) of an index, which may count from the end.

    >>> from jreader import arrays, shuffle
    >>> int(found(shuffle(arrays([10, 20, 30]), seed=0), -1))
    10
    """
    find = _lookup(reader)
    try:
        number, known = operator.index(index), length(reader)
    except TypeError:
        raise TypeError(
            f"{reader!r}[...] needs an int or a slice, not {described(index)}: for several "
            f"samples type [pipeline[index] for index in indices]."
        ) from None
    if number < 0 and known is not None:
        number += known
    if number < 0 or (known is not None and number >= known):
        unit = getattr(origin(reader, "all", "some"), "unit", "samples")
        seen = "has no end to count from" if known is None else f"has {known:,} {unit}"
        raise IndexError(f"{reader!r}[{index}]: the pipeline {seen}.")
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
    if known is None:
        first, last = (
            None if at is None else operator.index(at) for at in (index.start, index.stop)
        )
        if min(first or 0, last or 0) < 0:
            raise ValueError(
                f"{described(reader)} has no end to count from: type .skip(n) and .firstn(n)."
            )
        return _part(reader, first or 0, last, step)
    first, last, _ = slice(index.start, index.stop).indices(known)
    return _part(reader, first, None if last == known else max(first, last), step)


def _lookup(reader: Reader[T]) -> Callable[[int], T]:
    find = lookup_of(reader)
    if find is not None:
        return find
    if waits(reader):
        raise TypeError(
            f"{reader!r}[...] is another sample in every pass, because a seed is missing: type "
            f"shuffle(seed=0), or map(fn, rng=True, seed=0)."
        )
    raise TypeError(
        f"{reader!r}[...] has to be read to find its samples: type .skip(n).peek() for one, "
        ".skip(n).firstn(m) for some; or begin with arrays(...), npy or source, and leave out what "
        "makes a stream, as filter, flat_map and read do."
    )


def _part(reader: Reader[Any], first: int, last: int | None, step: int) -> Reader[Any]:
    """From `first` on, up to `last`, pushed below what is one for one, so that it is not done."""
    if first == 0 and last is None and step == 1:
        return reader
    if type(reader) is batch and step == 1:
        size = reader.batch_size
        samples = _part(reader.reader, first * size, None if last is None else last * size, 1)
        return batch(samples, size, reader.drop_last)
    handed_on = isinstance(reader, Wrapped) or type(reader) in {map_batches, map_samples, buffered}
    if indexed(reader) is None and handed_on:
        op = copy.copy(reader)
        below = _part(reader.reader, first, last, step)  # type: ignore[attr-defined]  # these have one
        object.__setattr__(op, "reader", below)
        return op
    if type(reader) is map_readers and len(reader.readers) == 1:
        return map_readers(reader.func, _part(reader.readers[0], first, last, step))
    kind: Any = type(reader) if isinstance(reader, Wrapped) else itself  # as it is spelled
    part: Reader[Any] = kind(skip(reader, first)) if first else reader
    part = part if last is None else kind(firstn(part, last - first))
    return part if step == 1 else kind(shard(part, step, 0))
