"""Functions of feeds that run jitted on the devices, with their own random keys.

A jitted function takes NumPy arrays at a quarter of the cost of a `device_put` before it (50
against 200 us of Python per batch). So feeds for the default device go straight into the stage.
Feeds for other devices are placed first: jit would put them elsewhere.

Keys depend on the seed, the epoch, and the number of the sample in its epoch, never on devices,
batches or workers: an augmented run is the same on any number of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jreader import errors, orders
from jreader.batches.stacked import checked_result
from jreader.devices import Placement, placeable
from jreader.feeds.classes import made_into
from jreader.orders import as_seed
from jreader.readers import described, first_column, itself, leaves, set_fields
from jreader.readers.hashing import hashed

if TYPE_CHECKING:  # `TypeVar(default=...)` came with Python 3.13
    from typing_extensions import TypeVar

    Feed = TypeVar("Feed", default=dict[str, jax.Array])
else:
    from typing import TypeVar

    Feed = TypeVar("Feed")

Randomness: TypeAlias = Literal["batch", "sample"] | None

_CALL = "loader.on_device(fn, rng, seed)"
_ZERO = np.zeros(2, np.uint32)
_NO_TREE = (
    "on_device(fn) returns arrays, or a tree of them that jax knows: decorate the class with "
    "flax.struct.dataclass, register it with jax.tree_util.register_dataclass, or use a NamedTuple"
)


@dataclass(frozen=True)
class Stage:
    """One function of feeds, with its randomness."""

    fn: Callable[..., Any]
    rng: Randomness = None
    seed: Any = 0

    def __post_init__(self) -> None:
        """Raise an error if `fn` cannot be called, or `rng` or `seed` has a wrong value."""
        errors.check_function(_CALL, self.fn, "a feed", takes=2 - (self.rng is None))
        if self.rng not in (None, "batch", "sample"):
            raise ValueError(
                f"rng of {_CALL} needs 'batch' (one key for a feed), 'sample' (one key for each "
                f"sample) or None, not {self.rng!r}."
            )
        set_fields(self, seed=as_seed(self.seed, _CALL))

    def __str__(self) -> str:
        """Return the stage's line in a cursor."""
        return f"on_device({hashed(self.fn)}, rng={self.rng!r}, seed={self.seed})"

    def traced(self, feed: Any, shape: tuple[int, ...], epoch: Any, first: Any) -> Any:
        """Return the result for a feed that begins with sample `first` of its epoch.

        Args:
            feed: The feed, traced.
            shape: The sizes of its axes that count samples.
            epoch: The epoch, as `words`.
            first: The number of its first sample in the epoch, as `words`.
        """
        with errors.noting(f"raised by {described(self.fn)}, given to on_device, while traced"):
            if self.rng is None:
                return checked_result(self.fn, self.fn(feed))
            words = np.array(orders.key(self.seed))
            key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
            key = _folded(key, epoch)
            if self.rng == "batch":
                return checked_result(self.fn, self.fn(feed, _folded(key, first)))
            numbers = _words_after(
                first, jnp.arange(np.prod(shape), dtype=jnp.uint32).reshape(shape)
            )
            fold = _folded
            for _ in shape:
                fold = jax.vmap(fold, (None, 0))
            return checked_result(self.fn, self.fn(feed, fold(key, numbers)))


def words(number: Any) -> Any:
    """Return a number as two uint32 words: in one word, epoch 2**32 would be epoch 0.

    >>> words(2**32 + 7)
    array([1, 7], dtype=uint32)

    Args:
        number: An int; or a jax array of one number below 2**32, traced or not.
    """
    if isinstance(number, int):
        return np.array([number >> 32, number % 2**32], np.uint32)
    return jnp.stack([jnp.uint32(0), number.astype(jnp.uint32)])


def _folded(key: Any, number: Any) -> Any:
    return jax.random.fold_in(jax.random.fold_in(key, number[0]), number[1])


def _words_after(first: Any, counts: Any) -> Any:
    """Return the numbers `first + counts`, as words along a last axis."""
    low = first[1] + counts
    return jnp.stack([first[0] + (low < counts), low], axis=-1)


class Layout(NamedTuple):
    """The layout of a feed.

    Attributes:
        axes: The number of leading axes that count samples.
        steps: The one of them that counts steps; None if none does.
        target: The sharding of the feed.
    """

    axes: int = 1
    steps: int | None = None
    target: Any = None


class Stages:
    """Functions of feeds, one after another in one jitted program for each placement.

    The first function gets `into(**feed)`, built inside the program. Without functions,
    `as_instance` builds it from a feed on the devices.
    """

    def __init__(self, *stages: Stage, into: Callable[..., Any] | None = None) -> None:
        if into is not None:
            errors.check_function("load(into=cls)", into, "the fields of a feed, by keyword")
        self.stages, self.into = stages, into
        self._named = itself if into is None else partial(made_into, into)
        self.as_instance = itself if stages else self._named
        self.random = any(stage.rng for stage in stages)
        self._jitted: dict[Layout, Callable[..., Any]] = {}

    def traced(self, feed: Any, layout: Layout, epoch: Any, first: Any) -> Any:
        """Apply all functions to the feed, on the same devices; `epoch` and `first` are `words`."""
        shape = first_column(feed).shape[: layout.axes]
        if layout.steps is None:
            made = self._step(feed, shape, epoch, first)
        else:
            made = self._each_step(feed, shape, layout.steps, epoch, first)
        if not isinstance(layout.target, NamedSharding):
            return made
        return jax.tree.map(partial(_kept, layout.target, shape), made)

    def _step(self, feed: Any, shape: tuple[int, ...], epoch: Any, first: Any) -> Any:
        feed = self._named(feed) if self.stages else feed
        for stage in self.stages:
            feed = stage.traced(feed, shape, epoch, first)
        with errors.noting(_NO_TREE, TypeError):
            jax.tree.map(jax.typeof, feed)  # raises a clearer error than jit and vmap
        return feed

    def _each_step(
        self, feed: Any, shape: tuple[int, ...], axis: int, epoch: Any, first: Any
    ) -> Any:
        """Call the functions on each step of a chunk, so that they see feeds of one step."""
        inner = (*shape[:axis], *shape[axis + 1 :])
        each = np.uint32(np.prod(inner))
        firsts = _words_after(first, each * jnp.arange(shape[axis], dtype=jnp.uint32))

        def step(feed: Any, first: Any) -> Any:
            return self._step(feed, inner, epoch, first)

        made = jax.vmap(step, (axis, 0))(feed, firsts)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, min(axis, leaf.ndim - 1)), made)

    def on(self, placement: Placement, layout: Layout) -> Callable[..., Any]:
        """Return a function that puts a host feed on the devices and calls the stages there.

        It takes the feed and, to draw keys, the number of its first row and its epoch.
        """
        if layout not in self._jitted:
            self._jitted[layout] = jax.jit(
                lambda feed, epoch=_ZERO, first=_ZERO: self.traced(feed, layout, epoch, first)
            )
        put, random = placement.putter(self._jitted[layout]), self.random

        def staged(feed: Any, first: int = 0, epoch: int = 0) -> Any:
            try:
                return put(feed, words(epoch), words(first)) if random else put(feed)
            except TypeError as error:
                if odd := [leaf for leaf in leaves(feed) if not (leaf is None or placeable(leaf))]:
                    raise errors.FeedMismatch(
                        f"on_device(fn) needs feeds of numbers, and one of the fields is "
                        f"{described(odd[0])}, which stays on the host: leave it out with a "
                        f"mapping, as in feed_list={{'image': 0}}."
                    ) from error
                raise

        return staged


def _kept(target: NamedSharding, shape: tuple[int, ...], leaf: jax.Array) -> jax.Array:
    """Return the leaf, kept on the devices of its samples if it still has their axes."""
    if leaf.shape[: len(shape)] != shape:
        return leaf
    sharding = NamedSharding(target.mesh, PartitionSpec(*target.spec[: leaf.ndim]))
    explicit = AxisType.Explicit in target.mesh.axis_types  # those of jax.make_mesh
    keep: Any = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint
    kept: jax.Array = keep(leaf, sharding)
    return kept
