"""`loader.shapes()`: every shape of an epoch, known in advance.

If lengths are known, shapes follow from them, and no sample is read. An example of each shape is
made from zeros; or from the first sample, if only functions of batches or the samples themselves
show what a feed is. It takes the same path as every feed, so that dtypes, masks and shardings are
those of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import jax
import numpy as np

from jreader.batches import Batching, batch, bucket, stack
from jreader.batches.batch_sizes import NO_END
from jreader.batches.padded_batches import padded_batch
from jreader.batches.padding import Shape, blank, example, ragged_fields
from jreader.feeds.shards import part_of
from jreader.loaders.assembling import Assembler
from jreader.loaders.loading import Loading
from jreader.loaders.prefetching import first_item, spec_of
from jreader.readers import Columns, Cursor, at_epoch, branches, described, indexed, start
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.planes import Plane
from jreader.readers.ragged import lengths_of
from jreader.readers.seeds import lacks_seed


def shapes_of(loading: Loading, cursor: Cursor) -> list[Any]:
    """Return the distinct trees of `jax.ShapeDtypeStruct` of the feeds of a cursor's epoch.

    Raises:
        TypeError: Lengths are not known, and any may come.
        ValueError: The source gives no batch.
    """
    specs = [spec_of(loading, item) for item in _items(loading, cursor)]
    every = {str(jax.tree.map(shape_and_dtype, spec)): spec for spec in specs}
    return list(map(loading.options.stages.as_instance, every.values()))


def shape_and_dtype(leaf: Any) -> tuple[Any, ...]:
    """Return the shape and the dtype of a leaf; none for what stays on the host, such as texts."""
    return getattr(leaf, "shape", ()), getattr(leaf, "dtype", None)


def _items(loading: Loading, cursor: Cursor) -> Iterator[Any]:
    """Yield an example of a host feed of each shape, as `finisher` takes it."""
    found, here = loading.of_epoch().batching, loading.here
    examples = _examples(loading, found, cursor["epoch"])
    if examples is None:
        yield from _of_one_shape(loading, found, cursor)
        return
    for example_of_shape in examples:
        made = example_of_shape
        for op in found.functions:
            made = next(start(op.changed({"reader": [made].__iter__})).items)
        share = next((share for share in here.shares if share.size == len(made)), None)
        part = part_of(made, share) if share else made
        feed = Assembler(here).feed([part] * loading.per_feed if loading.per_feed > 1 else part)
        yield (feed, 0, 0) if loading.numbered else feed


def _examples(loading: Loading, found: Batching, epoch: int) -> Iterator[Any] | None:
    """Return a batch of each shape; None if all have the same one."""
    if found.buckets is not None:
        keeps = loading.remainder.last == "keep"
        return _of_buckets(found.buckets, read=bool(found.functions), keeps=keeps)
    if isinstance(found.op, padded_batch):
        return _of_lengths(loading, found, found.op, epoch)
    return _of_sizes(loading, found, found.op) if found.op and found.sizes else None


def _of_one_shape(loading: Loading, found: Batching, cursor: Cursor) -> Iterator[Any]:
    """Yield the first feed, and the last one if it may be smaller."""
    first = first_item(loading, cursor)
    yield first
    samples, op = found.samples, found.op
    if samples is None or op is None or loading.remainder.last != "keep" or found.functions:
        return
    fed = loading.here.fed(samples, op)
    full, end = op.sizes.full(0, fed)
    if full and (rest := fed - end):
        feed = first[0] if loading.numbered else first
        cut = jax.tree.map(lambda array: array[:rest], feed)
        yield (cut, 0, 0) if loading.numbered else cut


def _of_sizes(loading: Loading, found: Batching, op: batch[Any]) -> Iterator[Any]:
    """Yield a batch of each size in an epoch, made from its first sample, and a short one."""
    keeps, samples, sample = loading.remainder.last == "keep", found.samples, _sample(op, read=True)
    fed = NO_END if samples is None else loading.here.fed(samples, op)
    sizes = zip(op.sizes.sizes, op.sizes.begins, strict=True)
    wanted = [size for size, begin in sizes if begin + (size if keeps else 1) <= fed]
    wanted += [fed - op.sizes.full(0, fed)[1]] * (keeps and samples is not None)
    for size in filter(None, wanted if sample is not None else ()):
        yield Columns(stack([sample] * size), full=size)


def _of_buckets(op: bucket[Any], *, read: bool, keeps: bool) -> Iterator[Any]:
    """Yield a full batch of each bucket that has one, and a short one if those are handed on."""
    known = op.known()
    padding, sample = op.padding, _sample(op, read=read)
    if sample is None:
        return
    every = range(len(op.bounds)) if known is None else known.buckets()
    wanted = [(number, op.rows[number]) for number in every]
    if keeps and known is not None:
        wanted = [each for each in wanted if each[0] not in known.never()] + known.short_batches()
    for number, rows in wanted:
        fitting = example(sample, dict.fromkeys(padding.chosen(sample), (op.bounds[number],)))
        yield op.made(padding, [fitting] * rows, number)


def _of_lengths(
    loading: Loading, found: Batching, op: padded_batch[Any], epoch: int
) -> Iterator[Any]:
    """Yield a batch of each length, or lengths, that an epoch has."""
    padding = op.padding
    sample = _sample(op, read=bool(found.functions))
    if sample is None:
        return
    names = padding.chosen(sample)
    for lengths, rows in sorted(_lengths(loading, op, names, epoch)):
        fitting = example(sample, dict(zip(names, lengths, strict=True)))
        yield Columns(padding.columns([fitting] * rows, lambda _, longest: longest))


def _lengths(
    loading: Loading, op: padded_batch[Any], names: Sequence[Any], epoch: int
) -> set[tuple[tuple[Shape, ...], int]]:
    """Return the lengths of the fields of each batch, and its rows.

    Raises:
        TypeError: They are not known, and any may come.
    """
    plane = None if lacks_seed(op.reader) else indexed(at_epoch(op.reader, epoch))
    known = ragged_fields(op.reader, op.names) and all(op.axes_of(name) == 1 for name in names)
    if plane is None or plane.length >= ENDLESS or not known:
        every = [op.shapes_of(name) for name in names]
        if None in every:
            raise TypeError(
                "loader.shapes() needs to know the lengths of all samples in their order, and "
                f"{described(loading.source.batches)} shows them only when it is read: give the "
                "lengths that batches may have, as .padded_batch(n, to=[128, 256, 512]), or "
                ".bucket([128, 256, 512], batch_size=n)."
            )
        return set(product(product(*filter(None, every)), op.sizes.sizes))
    return _known_lengths(plane, op, names, loading)


def _known_lengths(
    plane: Plane, op: padded_batch[Any], names: Sequence[Any], loading: Loading
) -> set[tuple[tuple[Shape, ...], int]]:
    """Return the same for a plane whose columns store the lengths."""
    fed = loading.here.fed(plane.length, op)
    if not fed:
        return set()
    bare = branches(plane.columns) is None
    ends = np.array([*op.sizes.ends(0, fed)])
    begins = np.append(0, ends[:-1])
    lengths = []
    for name in names:
        found: Any = lengths_of(plane, None if bare else name)
        longest = np.maximum.reduceat(found[:fed], begins).tolist()
        lengths.append([op.length_for(name, (each,)) for each in longest])
    rows = (
        op.sizes.at(low) if loading.pads else high - low
        for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
    )
    return set(zip(zip(*lengths, strict=True), rows, strict=True))


def _sample(op: Any, *, read: bool) -> Any | None:
    """Return a sample below an op: zeros if its columns suffice; None if there is none."""
    plane = indexed(op.reader)
    made = None if plane is None or read else blank(plane.columns)
    if made is not None:
        return made
    up = start(op.reader)
    try:
        return next(up.items, None)
    finally:
        up.close()
