"""`pipeline[index]`, `pipeline[first:last]`, `pipeline[[3, 1]]`: samples found by their index."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

from jreader.batches import batch, map_batches
from jreader.pipelines.wrapped import Wrapped
from jreader.readers import (
    Reader,
    described,
    epochs,
    indexed,
    itself,
    length,
    lookup_of,
    origin,
    set_fields,
)
from jreader.readers.nodes import ops_of
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
        return _slice_of(reader, first or 0, last, step)
    first, last, _ = slice(index.start, index.stop).indices(known)
    return _slice_of(reader, first, None if last == known else max(first, last), step)


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
    if (op := _handed_on(reader, lambda below: chosen(below, indices, under))) is not None:
        return op
    kind: Any = type(reader) if isinstance(reader, Wrapped) else itself
    below = under(reader)
    part: Reader[Any] = kind(select(below if below is reader else kind(below), indices))
    return part


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
    """From `first` on, up to `last`, pushed below what is one for one, so that it is not done."""
    if first == 0 and last is None and step == 1:
        return reader
    if type(reader) is batch and step == 1:
        size = reader.batch_size
        samples = _slice_of(reader.reader, first * size, None if last is None else last * size, 1)
        return batch(samples, size, reader.drop_last)
    if (op := _handed_on(reader, lambda below: _slice_of(below, first, last, step))) is not None:
        return op
    kind: Any = type(reader) if isinstance(reader, Wrapped) else itself  # as it is spelled
    part: Reader[Any] = kind(skip(reader, first)) if first else reader
    part = part if last is None else kind(firstn(part, last - first))
    return part if step == 1 else kind(shard(part, step, 0))


def _handed_on(
    reader: Reader[Any], part: Callable[[Reader[Any]], Reader[Any]]
) -> Reader[Any] | None:
    """An op that is one for one, over a part of its reader; None for another op."""
    handed_on = isinstance(reader, Wrapped) or type(reader) in {map_batches, map_samples, buffered}
    if indexed(reader) is None and handed_on:
        op = copy.copy(reader)
        set_fields(op, reader=part(reader.reader))  # type: ignore[attr-defined]  # these have one
        return op
    if type(reader) is map_readers and len(reader.readers) == 1:
        return map_readers(reader.func, part(reader.readers[0]))
    return None
