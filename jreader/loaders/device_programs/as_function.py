"""A pipeline as a pure function of (epoch, step), for programs that never come back to the host.

An indexed plan is arithmetic on indices, and a gather of rows. The arithmetic works on arrays of
NumPy and of jax, so jax can trace it: a whole epoch of training can be one XLA program, on the same
feeds as the loader's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from jreader.batches import Batching, batch, batching, map_batches, padded_batch
from jreader.batches.stacked import checked_result
from jreader.devices import Placement, sharding_placement
from jreader.errors import ShortEpoch, noting, warn
from jreader.feeds import FeedList, Feeds, cast, with_mask
from jreader.loaders.device_programs.overlapping_rows import stored
from jreader.loaders.device_programs.stages import Feed
from jreader.loaders.device_programs.swept_weights import weighted, whole_numbers
from jreader.loaders.remainders import Last, Remainder
from jreader.readers import (
    Node,
    Reader,
    at_epoch,
    described,
    epochs,
    indexed,
    leaves,
    map_tree,
    rebuilt,
)
from jreader.readers.columns import Dense, column_of
from jreader.readers.joined_columns import ENDLESS, ConcatArray
from jreader.readers.lanes import by_lane, owners_of
from jreader.readers.nodes import ops_of
from jreader.readers.overlaps import bytes_below
from jreader.readers.planes import Plane
from jreader.readers.rewriting import rewritten
from jreader.readers.trees import leaves_in_order
from jreader.transforms import mix

_CALL = "as_function(pipeline)"
_LONGEST = 1 << 31
_LOOKED_AT = 1 << 26  # bytes whose values are checked per call


@dataclass(frozen=True, eq=False)
class BatchAt(Generic[Feed]):
    """The feed of any step of any epoch, traceable; `len` is the number of steps.

    Attributes:
        reader: The samples.
        batch_size: Samples per feed.
        functions: The functions of whole batches, in order.
        feeds: The names, shapes and dtypes of the fields.
        masked: Whether feeds carry a mask, and a short last one is padded.
        samples: The number of an epoch's samples that make feeds; `ENDLESS` for an endless mixture.
        gathers: For each column, a function of its device data, and of rows.
    """

    reader: Reader[Any]
    batch_size: int
    functions: tuple[Callable[[Any], Any], ...]
    feeds: Feeds
    masked: bool
    samples: int
    gathers: tuple[Callable[[Any, Any], Any], ...]

    def __call__(
        self, data: Any, epoch: Any, step: Any, seed: Any = None, weights: Any = None
    ) -> Feed:
        """Return the feed of a step.

        Args:
            data: The data that `as_function` returned with this.
            epoch: The number of the epoch, traced or not.
            step: The number of the step, from 0 to `len(batch_at) - 1`; it is not checked.
            seed: A seed for every shuffle and mixture of the plan; None for their own seeds.
            weights: Other weights for the mixture of the plan, which has `stop="repeat"`: as in
                `mix`; or a traced array of whole numbers, as `batch_at.weights(...)` makes them,
                with a sum from 1 to 2**30 - 1, which is not checked.
        """
        return self.beginning(data, epoch, jnp.asarray(step) * self.batch_size, seed, weights)

    def weights(self, given: Any) -> np.ndarray[Any, Any]:
        """Turn weights, as `mix` takes them, into the same whole numbers, to be traced.

        >>> from jreader import arrays, mix
        >>> both = mix({"web": arrays([1, 2]), "code": arrays([3])}, seed=0, stop="repeat")
        >>> as_function(batch(both, 2))[1].weights({"web": 0.7, "code": 0.3})
        array([7, 3], dtype=int32)

        Args:
            given: A dict by the names of the readers, or a list.

        Raises:
            TypeError: They have another form, or the plan has no mixture that takes weights.
            ValueError: A weight is missing, or below 0; or their sum is 2**30 or more.
        """
        return whole_numbers(self.reader, given)

    def __len__(self) -> int:
        """Return the number of steps of an epoch.

        Raises:
            TypeError: It is an endless mixture.
        """
        if self.samples >= ENDLESS:
            raise TypeError(f"{described(self.reader)} has no end: count steps yourself.")
        return (self.samples + self.batch_size - 1) // self.batch_size

    def beginning(
        self, data: Any, epoch: Any, first: Any, seed: Any = None, weights: Any = None
    ) -> Feed:
        """Return the feed that begins with sample `first` of its epoch."""
        plane = indexed(self._plan(epoch, seed, weights))
        if plane is None:
            raise ValueError(
                f"{described(self.reader)} draws new numbers in each pass: give its shuffles a "
                "seed, or type batch_at(data, epoch, step, seed=0)."
            )
        size, lanes, begin = self.batch_size, owners_of(self.reader), jnp.asarray(first)
        indices = begin + (by_lane(size, lanes, begin) if lanes > 1 else jnp.arange(size))
        there = indices < min(self.samples, _LONGEST - 1)
        rows = plane.route(jnp.where(there, indices, 0) if self.masked else indices)
        stored = zip(self.gathers, leaves_in_order(plane.columns, data), rows, strict=True)
        columns = rebuilt(plane.columns, (gather(tree, of) for gather, tree, of in stored))
        if self.masked:
            columns = map_tree(partial(_or_zeros, there), columns)
        for fn in self.functions:
            note = (
                f"map_batches({described(fn)}) calls NumPy, and jax traces it here: write it with "
                "operators and methods of its arrays, or with jax.numpy"
            )
            with noting(note, jax.errors.TracerArrayConversionError):
                columns = checked_result(fn, fn(columns))
        feed: Feed = self.feeds.traced(columns)
        if self.masked:
            feed = with_mask(map_tree(partial(_or_zeros, there), feed), there)
        return feed

    def _plan(self, epoch: Any, seed: Any, weights: Any) -> Reader[Any]:
        plan = self.reader if weights is None else weighted(self.reader, weights)
        if seed is not None:
            plan = rewritten(plan, lambda op: {"seed": seed} if hasattr(op, "seed") else {})
        return at_epoch(plan, epoch if isinstance(epoch, int) else jnp.asarray(epoch))


def as_function(
    pipeline: Reader[Any],
    feed_list: FeedList | None = None,
    *,
    sharding: Any = None,
    drop_last: bool | None = None,
    last: Last | None = None,
) -> tuple[Any, BatchAt[Feed]]:
    """Turn a pipeline into data on the devices and a function that jax can trace.

    `batch_at(data, epoch, step)` is the feed that the loader gives there. It runs under `jit`,
    `lax.scan`, `shard_map`, and `vmap` over seeds and over weights of a mixture, so a whole epoch,
    or a sweep, can be one program:

    >>> import jax
    >>> from jreader import Pipeline, arrays
    >>> pipeline = Pipeline(arrays(x=np.arange(6.0))).shuffle(seed=0).batch(2)
    >>> data, batch_at = as_function(pipeline)
    >>> def step(total, number):
    ...     return total + batch_at(data, 0, number)["x"].sum(), None
    >>> float(jax.lax.scan(step, 0.0, jax.numpy.arange(len(batch_at)))[0])
    15.0

    Args:
        pipeline: A batched pipeline over an indexed reader: arrays or array files, ops that only
            reorder or choose samples, and `map_batches` with functions that jax can trace.
        feed_list: The fields, as in `load`.
        sharding: Where the data go: a Sharding, Mesh or Device; None for the default device. A
            Mesh splits the rows, as in `load`; `NamedSharding(mesh, PartitionSpec())` puts a copy
            on every device.
        drop_last: Whether to drop a short last batch, as in `load`. False pads it with zeros, which
            functions of batches see too, and every feed carries a `mask`.
        last: What to do with a short last batch, instead of `drop_last`, as in `load`.

    Returns:
        The data, as a tree of arrays on the devices; and `batch_at`, whose `len` is the number of
        steps per epoch; a mixture with `stop="repeat"` has none.

    Raises:
        TypeError: The pipeline gives no batches, or is not indexed.
        ShortEpoch: The last batch is short, and `last="error"`.
        ValueError: The pipeline is endless, has 2**31 samples or more, or a column computes its
            rows when they are read.
        FeedMismatch: The columns do not fit the `feed_list`.
    """
    remainder = Remainder.checked(drop_last, last).of_batches(pipeline)
    found = batching(remainder.of(pipeline, 1))
    op = _batch(pipeline, found)
    functions = tuple(map(_function, found.functions))
    plane = _plane(op.reader)
    samples = _fed(plane.length, op, remainder.last)
    placement = sharding_placement(sharding)
    _check_placement(placement, sharding)
    feeds = Feeds(feed_list, placement.canonical)
    columns = [_on_devices(column, placement) for column in leaves(plane.columns)]
    if not functions and plane.length and all(each.values is not None for each in columns):
        _check_values(feeds, rebuilt(plane.columns, (each.values for each in columns)))
    gathers, masked = tuple(each.gather for each in columns), remainder.last == "pad"
    data = placement.put(rebuilt(plane.columns, (each.tree for each in columns)))
    size = op.sizes.sizes[0]
    return data, BatchAt(op.reader, size, functions, feeds, masked, samples, gathers)


def _check_placement(placement: Placement, sharding: Any) -> None:
    """Check that data placed once, unchanged, can make feeds."""
    if placement.hosts:
        raise ValueError(
            f"{_CALL} puts all data on devices, and {described(sharding)} leaves some on the host: "
            "give a Mesh, a Sharding or a Device, or use .load(sharding=...)."
        )
    if placement.context:
        raise ValueError(
            f"{_CALL} and load(resident=True) gather feeds on the devices, and ContextParallel "
            "reorders them on the way there: use .load(sharding=...), without resident=True."
        )


def _batch(pipeline: Reader[Any], found: Batching) -> batch[Any]:
    """Return the op that makes the batches of a pipeline.

    Raises:
        TypeError: They differ in shape, are not all there, or are in another order.
    """
    if found.op is not None and found.op.sizes.vary:
        raise TypeError(
            f"{_CALL} makes one program of one shape, and {described(pipeline)} gives batches of "
            f"several sizes: type .batch(n), or .load(), which is not compiled."
        )
    if found.buckets or isinstance(found.op, padded_batch):
        raise TypeError(
            f"{_CALL} makes one program of one shape, and {described(pipeline)} pads rows batch by "
            f"batch: type .pack(size).batch(n) for rows of one length; or .load(), whose "
            f"loader.warm(step, *state) compiles a program for each shape."
        )
    if found.op is None or not found.whole:
        raise TypeError(
            f"{_CALL} needs batches, and {described(pipeline)} is a loader, or gives samples, or "
            f"some of its batches: end it with .batch(n), and .map_batches(fn) behind it."
        )
    if not found.ordered:
        raise TypeError(
            f"{_CALL} finds each batch by its index, and {described(pipeline)} gives whole "
            f"batches in another order: shuffle samples, before .batch(n)."
        )
    return found.op


def _plane(reader: Reader[Any]) -> Plane:
    """Return the plane of a reader of samples, for any seeds.

    Raises:
        TypeError: It is not indexed.
        ValueError: It has 2**31 samples or more.
    """
    plane = indexed(
        rewritten(reader, lambda op: {"seed": 0} if getattr(op, "seed", 0) is None else {})
    )
    if plane is None:
        raise TypeError(
            f"{_CALL} needs an indexed reader below .batch(n), one that finds samples by their "
            f"index, and {described(reader)} has to be read in order: begin with "
            "jreader.arrays(...), and use .map_batches(fn) behind .batch(n) instead of .map(fn)."
        )
    above = takewhile(lambda op: not isinstance(op, mix), ops_of(reader))
    endless = plane.length >= ENDLESS and not any(isinstance(op, epochs) for op in above)
    if plane.length >= _LONGEST and not endless:
        raise ValueError(
            f"{_CALL} counts up to 2**31 samples, and {described(reader)} has more, or no end: "
            f"leave .epochs() out, since batch_at takes the epoch."
        )
    return plane


def _fed(samples: int, op: batch[Any], last: Last | None) -> int:
    """Return how many samples of an epoch make feeds.

    Raises:
        ShortEpoch: The last batch is short, and that is an error.
    """
    if samples >= ENDLESS:
        return samples
    rest, size = samples - op.sizes.full(0, samples)[1], op.sizes.sizes[0]
    if rest and last == "error":
        raise ShortEpoch(
            f"{_CALL}: the last step of an epoch would have {rest} samples, not {size}. "
            f"Give last='drop', 'pad' or 'wrap'."
        )
    return samples if last == "pad" and not op.drop_last else samples - rest


def _function(op: Node[Any]) -> Callable[[Any], Any]:
    """Return the function of an op of stacked columns.

    Raises:
        TypeError: The op is not `map_batches`, or takes lists of samples.
    """
    if not isinstance(op, map_batches):
        raise TypeError(
            f"{_CALL} knows no function of stacked columns for {described(op)}: use "
            f".map_batches(fn) behind .batch(n), or .load(...)."
        )
    if not op.stacked:
        raise TypeError(
            f"{_CALL} gathers stacked columns, and map_batches({described(op.fn)}, "
            f"stacked=False) takes a list of samples: give it columns, or use .load(...)."
        )
    return op.fn


def _or_zeros(there: Any, rows: Any) -> Any:
    return jnp.where(there.reshape(-1, *[1] * (rows.ndim - 1)), rows, jnp.zeros_like(rows))


def _check_values(feeds: Feeds, whole: Any) -> None:
    """Check all values once, as a trace cannot; columns may differ in length.

    Raises:
        FeedMismatch: A value does not fit its field.
    """
    lengths = list(map(len, leaves(whole)))
    few = [_LOOKED_AT * len(each) // each.nbytes + 1 for each in leaves(whole) if bytes_below(each)]
    each = min(lengths + few)
    for low in range(0, max(lengths), each):
        part = [column[min(low, len(column) - each) :][:each] for column in leaves(whole)]
        feeds.from_arrays(rebuilt(whole, iter(part)))


class _Stored(NamedTuple):
    """A column on a device.

    Attributes:
        tree: The data on the device: an array, or a tree of arrays.
        gather: A traceable function of the data and of rows.
        values: All rows, on the host; None if they are computed.
    """

    tree: Any
    gather: Callable[[Any, Any], Any]
    values: np.ndarray[Any, Any] | None = None


def _on_devices(column: Any, placement: Placement) -> _Stored:
    """Return a column as the devices store it; of overlapping rows, the flat array."""
    target = placement.target
    split = isinstance(target, Sharding) and not target.is_fully_replicated
    if isinstance(column, np.ndarray) and not split and (found := stored(column)):
        flat = _as_placed(placement, found[0])
        return _Stored(flat, found[1].rows, found[1].over(flat))
    rows = column_of(column)
    array, rows_of = rows.placed()
    if not isinstance(rows, (Dense, ConcatArray)):
        return _Stored(map_tree(partial(_as_placed, placement), array), rows_of)
    if array.nbytes >= _LOOKED_AT and any(map(bytes_below, rows.arrays)):
        warn(
            f"{_CALL} puts {described(array)} on the devices row by row, {array.nbytes:,} bytes, "
            f"although its rows overlap: use .load(...), or gather them from the array below, "
            f"with arrays of where they begin and .map_batches(fn)."
        )
    array = _as_placed(placement, array)
    return _Stored(array, rows_of, array)


def _as_placed(placement: Placement, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in the devices' dtype for it; raise if values do not fit."""
    return cast(array, placement.canonical(array.dtype.newbyteorder("=")), "a column")
