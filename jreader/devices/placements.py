"""`Placement`: where a loader's arguments send feeds, and the call that puts one there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from math import lcm, prod
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from jreader.devices.context_parallel import SLICES, ContextParallel, Dealer
from jreader.devices.targets import over, own, target_of
from jreader.devices.transfers import putter
from jreader.errors import BatchNotDivisible, FeedMismatch
from jreader.feeds.casts import narrowed, placeable
from jreader.feeds.fields import Canonical
from jreader.feeds.shares import Share
from jreader.readers import described, itself, leaves, rebuilt
from jreader.readers.columns import Array

_AS_THEY_ARE = nullcontext()


@dataclass(frozen=True)
class Placement:
    """Where feeds go: the shardings, and the modes of jax that were on when it was made.

    Attributes:
        target: None (the default device, uncommitted), a Sharding, "host" (feeds stay NumPy
            arrays), or a tree of these two that a feed's tree begins with.
        parts: The number of devices on the first axis of the pmap layout; None for flat feeds.
        x64: Whether 64-bit dtypes are kept.
        default: The device that `jax.default_device` named, if any.
        mask: The sharding of the last leaf, if feeds carry a mask.
        share: The rows that host feeds have; None for all.
        steps: Whether feeds begin with an axis of steps.
        context: The order of sequences over devices; None to keep the batch's.
    """

    target: Any = None
    parts: int | None = None
    x64: bool = False
    default: Any = None
    mask: Sharding | None = field(default=None, repr=False)
    share: Share | None = field(default=None, repr=False)
    steps: bool = field(default=False, repr=False)
    context: ContextParallel | None = field(default=None, repr=False)

    @property
    def canonical(self) -> Canonical:
        """Return the dtype that represents another one on the device: 64 bits only in x64 mode."""
        return itself if self.x64 or self.target == "host" else narrowed

    def chunked(self) -> Placement:
        """Return the placement of feeds that begin with an axis of steps, which no device splits.

        The pmap layout keeps its devices in front: [D, k, n, ...].
        """
        if self.parts or not self._targets:
            return self
        shardings = iter([_behind(sharding) for sharding in leaves(self.target)])
        return replace(
            self,
            target=rebuilt(self.target, shardings),
            mask=_behind(self.mask) if self.mask else None,
            steps=True,
        )

    def putter(self, then: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a function that puts feed after feed as `put` does, in one Python call each.

        >>> put = sharding_placement().putter()
        >>> put({"x": np.arange(3, dtype=np.int32)})["x"].tolist()
        [0, 1, 2]
        >>> scaled = sharding_placement().putter(jax.jit(lambda feed, by: feed["x"] * by))
        >>> scaled({"x": np.arange(3, dtype=np.int32)}, np.array(2, np.int32)).tolist()
        [0, 2, 4]

        Args:
            then: A jitted function of feeds, whose result is returned; it runs in the modes of
                this placement. Other arrays that it takes follow the feed in the call. Feeds for
                the default device go straight into it.
        """
        return putter(self, then)

    def put(self, feed: Any) -> Any:
        """Put a feed on its devices, in one call for the whole tree, whose order is kept.

        Leaves that no device holds (`placeable`), or that stay on the host, are unchanged.
        """
        if self.target == "host":
            return feed
        every, wanted = leaves(feed), self.shardings(feed)
        there = [placeable(leaf) and to != "host" for leaf, to in zip(every, wanted, strict=True)]
        arrays = list(compress(every, there))
        with self.modes():
            targets = compress(wanted, there)
            placed = iter(self._put_each(arrays, list(targets)))
        kept = zip(every, there, strict=True)
        return rebuilt(feed, iter([next(placed) if moved else leaf for leaf, moved in kept]))

    def _put_each(self, arrays: list[Any], targets: list[Any]) -> list[Any]:
        several = self.target is not None and jax.process_count() > 1
        if several or self.context is not None:
            return list(map(self._own_part, arrays, targets))
        return list(jax.device_put(arrays, targets))

    def _own_part(self, rows: np.ndarray[Any, Any], sharding: Sharding) -> jax.Array:
        """Make this process's part of a global array, with the shape of the global one.

        It does not use `device_put`, which runs a hidden collective for devices of other processes.
        """
        axis, share = int(self.steps), self.share
        found = self.dealer(sharding, rows)(rows)

        def part(index: tuple[slice, ...] | None) -> Array:
            if share is None or index is None:
                return found(index)
            return found((*index[:axis], share.found(index[axis]), *index[axis + 1 :]))

        return jax.make_array_from_callback(self.shape(rows.shape), sharding, part)

    def dealer(self, sharding: Sharding, like: Array) -> Dealer:
        """Return, for arrays like this one, the function that finds the part of a device."""
        return self.context.dealer(sharding, int(self.steps), like) if self.context else SLICES

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a feed's array over all processes."""
        if self.share is None:
            return shape
        axis = int(self.steps)
        return (*shape[:axis], self.share.size, *shape[axis + 1 :])

    @property
    def hosts(self) -> bool:
        """True if feeds, or some of their fields, stay on the host."""
        return "host" in leaves(self.target)

    def on_host(self, feed: Any) -> list[bool]:
        """Return whether each leaf of a feed stays on the host.

        >>> sharding_placement({"x": jax.devices()[0], "id": "host"}).on_host({"x": 1, "id": "a"})
        [False, True]
        """
        if self.hosts and self.target != "host":
            return [sharding == "host" for sharding in self.shardings(feed)]
        return [self.hosts] * len(leaves(feed))

    @property
    def spans(self) -> bool:
        """True if some of the devices belong to other processes."""
        return not all(sharding.is_fully_addressable for sharding in self._targets)

    @property
    def processes(self) -> set[int]:
        """The processes that own these devices."""
        devices: set[Any] = set().union(*(sharding.device_set for sharding in self._targets))
        return {device.process_index for device in devices}

    def here(self, size: int) -> Share | None:
        """Return the rows of a batch of `size` for devices of this process; None for all."""
        if self.parts or not self.spans:
            return None
        spans = {
            index[0].indices(size)[:2]
            for sharding in self._targets
            for index in _along_rows(sharding).addressable_devices_indices_map((size,)).values()
            if index
        }
        share = Share.over(size, spans)
        return None if len(share) == size else share

    def under_modes(self) -> Placement:
        """Return the same, under the present modes of jax on this thread."""
        x64, default = _x64(), _default()
        if x64 == self.x64 and default is self.default:
            return self
        return replace(self, x64=x64, default=default)

    def modes(self) -> ExitStack | nullcontext[None]:
        """Return a context with the modes of jax that were on when this was made."""
        if _x64() == self.x64 and (self.target is not None or _default() is self.default):
            return _AS_THEY_ARE
        modes = ExitStack()
        if _x64() != self.x64:
            modes.enter_context(jax.enable_x64(self.x64))
        if self.target is None and _default() is not self.default:
            modes.enter_context(jax.default_device(self.default))
        return modes

    def shardings(self, feed: Any) -> list[Any]:
        """Return the sharding of each leaf of a feed (None: the default device), or "host"."""
        if self.target is None or self.target == "host":
            return [None] * len(leaves(feed))
        if self.mask and isinstance(self.target, Sharding):
            return [self.target] * (len(leaves(feed)) - 1) + [self.mask]
        return list(_shardings(self.target, feed))

    def check(self, rows: int) -> None:
        """Raise an error if the devices cannot divide so many rows evenly.

        Raises:
            BatchNotDivisible: They cannot; the error names the two nearest numbers that they can.
        """
        if self.divides(rows):
            return
        most = self.most
        near = [n for n in range(max(rows - most, 1), rows + most + 1) if self.divides(n)]
        below = [n for n in near if n < rows][-1:]
        above = [n for n in near if n > rows][:1]
        raise BatchNotDivisible(
            f"a batch of {rows} samples cannot be split evenly over {most} devices. Use a batch "
            f"size of {' or '.join(map(str, below + above))}."
        )

    @property
    def most(self) -> int:
        """The number of parts that the rows of a feed are cut into."""
        return self.parts or lcm(*map(_split, self._targets))

    @property
    def splits(self) -> bool:
        """True if a feed is split over several devices."""
        return not self.divides(1)

    def divides(self, rows: int) -> bool:
        """Return whether `rows` rows can be divided evenly over the devices."""
        if self.parts:
            return rows % self.parts == 0
        return all(rows % _split(sharding) == 0 for sharding in self._targets)

    @cached_property
    def _targets(self) -> list[Sharding]:
        return [leaf for leaf in leaves(self.target) if isinstance(leaf, Sharding)]

    def with_mask(self) -> Placement:
        """Return the placement of feeds with a mask, split like the rows of the first field."""
        targets = self._targets
        if not targets:
            return self
        mask, target = _along_rows(targets[0]), self.target
        if isinstance(target, dict):
            target = {**target, "mask": mask}
        elif isinstance(target, tuple):
            target = (*target, mask)
        return replace(self, target=target, mask=mask)

    def replicated(self, tree: Any, axis_name: str = "data") -> Any:
        """Copy a tree, such as parameters, to every device of the feeds.

        Args:
            tree: A tree of arrays.
            axis_name: The name of the axis of devices in the pmap layout.
        """
        targets = self._targets
        if not targets:
            return tree if self.target == "host" else jax.device_put(tree)
        if not isinstance(targets[0], NamedSharding):
            return jax.device_put(tree, targets[0])
        mesh = targets[0].mesh
        if self.parts and axis_name != mesh.axis_names[0]:
            mesh = Mesh(mesh.devices, (axis_name,))
        everywhere = NamedSharding(mesh, PartitionSpec())
        if everywhere.is_fully_addressable:
            return jax.device_put(tree, everywhere)
        return jax.tree.map(partial(_on_all_hosts, everywhere), tree)


def _on_all_hosts(everywhere: Sharding, leaf: Any) -> Any:
    """Copy an array to the devices of all processes, each from its own copy.

    `device_put` would check that the copies are equal, in a program of its own: on a prefetching
    thread, that would wait for a step of the others that waits for it.
    """
    local = jax.numpy.asarray(leaf)
    if not local.is_fully_addressable or jax.numpy.issubdtype(local.dtype, jax.dtypes.prng_key):
        return jax.device_put(leaf, everywhere)
    host = np.asarray(local)
    return jax.make_array_from_callback(host.shape, everywhere, host.__getitem__)


def _shardings(target: Any, feed: Any) -> Iterator[Any]:
    """Yield the sharding of each leaf; a tree of shardings may end above the leaves."""
    if isinstance(target, (Sharding, str)):
        yield from [target] * len(leaves(feed))
    elif isinstance(target, dict) and isinstance(feed, dict) and target.keys() == feed.keys():
        for name, part in feed.items():
            yield from _shardings(target[name], part)
    elif isinstance(target, tuple) and isinstance(feed, (tuple, list)) and len(target) == len(feed):
        for sharding, part in zip(target, feed, strict=True):
            yield from _shardings(sharding, part)
    else:
        raise FeedMismatch(
            f"the tree of shardings does not fit the feeds: it is {described(target)}, a feed is "
            f"{described(feed)}. Give one sharding for all, or one for each field."
        )


def _split(sharding: Sharding) -> int:
    """Return the number of parts that a sharding cuts the first axis into."""
    if isinstance(sharding, NamedSharding):
        first = (*sharding.spec, None)[0]
        names = (first,) if isinstance(first, str) else tuple(first or ())
        return prod(sharding.mesh.shape[name] for name in names)
    rows = len(sharding.device_set)  # one row per device divides, if any number does
    try:
        return rows // sharding.shard_shape((rows,))[0]
    except ValueError:
        return 1


def _along_rows(sharding: Sharding) -> Sharding:
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > 1:
        return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))
    return sharding


def _behind(sharding: Any) -> Any:
    """Return the sharding of arrays with one more axis in front."""
    if sharding == "host":
        return sharding
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
    if len(sharding.device_set) == 1:
        return sharding
    raise TypeError(
        "chunk(k) adds an axis of steps in front, which only a NamedSharding can describe, not "
        f"{sharding!r}: load with a Mesh, or with NamedSharding(mesh, spec)."
    )


def places_placement(places: Any) -> Placement:
    """Return the placement for Paddle's argument `places`.

    >>> places_placement(None)
    Placement(target=None, parts=None, x64=False, default=None)
    >>> places_placement(jax.devices()[:2]).parts
    2

    Args:
        places: None; a `jax.Device`; a list of devices, which get one batch each; a Sharding.

    Raises:
        TypeError: It is none of these.
        ValueError: A device is listed twice, or belongs to another process.
    """
    if isinstance(places, (list, tuple)) and all(isinstance(part, jax.Device) for part in places):
        return _modes(over(own(places)), len(places))
    return sharding_placement(places, call="places")


def sharding_placement(sharding: Any = None, pmap: Any = None, call: str = "sharding") -> Placement:
    """Return the placement for `load(sharding=..., pmap=...)`.

    >>> sharding_placement(pmap=jax.devices()[:2]).parts
    2

    Raises:
        TypeError: One of them has another type, or both are given.
    """
    if pmap is not None and pmap is not False:
        if sharding is not None:
            raise TypeError("load(...) takes sharding or pmap, not both: leave one of them out.")
        devices = jax.local_devices() if pmap is True else pmap
        if not isinstance(devices, (list, tuple)):
            raise TypeError(f"load(pmap=...) needs True or a list of devices, not {pmap!r}.")
        return _modes(over(own(devices)), len(devices))
    if sharding is None or (isinstance(sharding, str) and sharding == "host"):
        return _modes(sharding, None)
    if isinstance(sharding, ContextParallel):
        return replace(_modes(sharding.sharding, None), context=sharding)
    return _modes(_one_or_each(target_of(sharding, call)), None)


def _one_or_each(target: Any) -> Any:
    return "host" if {"host"}.issuperset(leaves(target)) else target


def _modes(target: Any, parts: int | None) -> Placement:
    """Return the placement, with this thread's settings from jax's context managers."""
    return Placement(target, parts, _x64(), _default())


def _default() -> Any:
    return jax.config.jax_default_device  # type: ignore[attr-defined]  # set at run time


def _x64() -> bool:
    return jax.dtypes.canonicalize_dtype(np.int64).itemsize == 8
