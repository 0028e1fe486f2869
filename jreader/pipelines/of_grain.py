"""Grain's data and transforms, known by the names of their classes: Grain is not imported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from jreader.batches import gives_batches
from jreader.readers import Reader, described
from jreader.readers.streams_with_state import kinds_of_grain
from jreader.sources.random_access import source
from jreader.transforms import map_readers

if TYPE_CHECKING:
    from jreader.pipelines.pipeline import Pipeline


def as_reader(data: Any) -> Any:
    """Return a reader of Grain's data; anything else unchanged."""
    if not kinds_of_grain(data):
        return data
    return source(data) if hasattr(data, "__getitem__") else data.__iter__


def through(pipeline: Pipeline[Any], transform: Any, options: dict[str, Any]) -> Reader[Any]:
    """Apply a transform of Grain to a pipeline.

    Args:
        pipeline: The pipeline.
        transform: The transform.
        options: The options of the op that replaces it.

    Raises:
        TypeError: It is not a transform of Grain.
    """
    numbers = source(range(1 << 62))  # the numbers of an epoch's samples
    ops = {
        "Map": ("map", pipeline.map_batches if gives_batches(pipeline) else pipeline.map),
        "RandomMap": ("random_map", partial(pipeline.map, rng=True)),
        "MapWithIndex": ("map_with_index", lambda fn: map_readers(fn, numbers, pipeline)),
        "Filter": ("filter", pipeline.filter),
        "FlatMap": ("flat_map", pipeline.flat_map),
        "Batch": ("batch_fn", partial(_batched, pipeline, transform)),
    }
    for name, op in map(ops.__getitem__, kinds_of_grain(transform) & {*ops}):
        return op(getattr(transform, name), **options)
    raise TypeError(
        f"pipe(op, ...) needs an op, a function of a reader, or a transform of Grain, not "
        f"{described(transform)}."
    )


def _batched(pipeline: Pipeline[Any], transform: Any, fn: Any) -> Reader[Any]:
    """Batch the samples, and stack batches with `fn`, if given."""
    made = pipeline.batch(transform.batch_size, transform.drop_remainder)
    return made if fn is None else made.map_batches(fn, stacked=False)
