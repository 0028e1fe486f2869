"""`ContextParallel`: sequences split over devices so that causal attention gives all equal work.

A token attends to those before it. If device i of n had the i-th part of each sequence, the last
one would do nearly twice the mean work, and the others would wait. Two orders balance that:

- "zigzag": of 2n chunks, device i has chunk i and chunk 2n-1-i. (Llama 3, section 3.3.2; the zigzag
  of ring-flash-attention; `DualChunkSwap` in Transformer Engine, which MaxText's
  `context_parallel_load_balance` uses.)
- "striped": device i has the tokens i, i+n, i+2n, ... (Brandon et al., "Striped Attention", 2023.)

Indexing the feeds in a loop would copy them once more, token by token. Here slices are copied,
once, each to where its device finds its part contiguous: the copy that a slice of rows would take
anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from jreader.devices.targets import target_of
from jreader.errors import FeedMismatch
from jreader.feeds.casts import Array
from jreader.readers import described, leaves, set_fields
from jreader.staging import Staging

Dealer: TypeAlias = Callable[[Array], Callable[[Any], Array]]
SLICES: Dealer = attrgetter("__getitem__")
Order: TypeAlias = Literal["zigzag", "striped"]

_CALL = "ContextParallel(sharding, order, axis)"


@dataclass(frozen=True)
class ContextParallel:
    """Split sequences over an axis of a mesh, in an order that balances causal attention.

    Give it as `load(sharding=...)`. It reorders every
    field whose sharding names `axis` behind the axis of rows: tokens, segment ids, positions and
    masks alike. Other fields stay as they are.

    >>> from jreader import Pipeline, arrays
    >>> from jreader.devices import ContextParallel
    >>> mesh = Mesh(np.array(jax.devices()[:2]), ("context",))
    >>> parts = ContextParallel(mesh, "zigzag")
    >>> parts.positions(8)
    array([0, 1, 6, 7, 2, 3, 4, 5], dtype=int32)
    >>> rows = Pipeline(arrays(tokens=np.arange(8)[None] * 10)).batch(1)
    >>> feed = next(iter(rows.load(sharding=parts)))
    >>> feed["tokens"].tolist(), parts.restored(feed["tokens"]).tolist()
    ([[0, 10, 60, 70, 20, 30, 40, 50]], [[0, 10, 20, 30, 40, 50, 60, 70]])

    Args:
        sharding: A Mesh, whose axis "data" or "batch", if there is one, splits rows, and `axis`
            sequences; or a NamedSharding, a PartitionSpec under `jax.set_mesh`, or a tree of them
            for the fields, as `load` takes them.
        order: "zigzag" gives device i of n the chunks i and 2n-1-i of 2n; "striped" the tokens i,
            i+n, i+2n, and so on.
        axis: The axis of the mesh that sequences are split along.

    Attributes:
        shards: The number of parts that `axis` splits a sequence into.

    Raises:
        TypeError: `sharding` is none of these.
        ValueError: `order` is another word, or no field is split along `axis` alone.
    """

    sharding: Any
    order: Order = "zigzag"
    axis: str = "context"
    shards: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise an error if no field is split along the axis, or the order is another word."""
        if self.order not in ("zigzag", "striped"):
            raise ValueError(
                f"order of {_CALL} needs 'zigzag' or 'striped', not {self.order!r}: leave "
                "ContextParallel out where sequences keep their order."
            )
        given = (
            _over(self.sharding, self.axis) if isinstance(self.sharding, Mesh) else self.sharding
        )
        target = target_of(given, "sharding of ContextParallel")
        split = [(each, names) for each in leaves(target) for names in _behind_rows(each, 0)]
        along = {names: each.mesh for each, names in split if self.axis in names}
        if [*along] != [(self.axis,)]:
            raise ValueError(
                f"{_CALL} needs fields that the axis {self.axis!r} of the mesh splits by itself, "
                f"behind their rows, not {described(target)}: give "
                f"NamedSharding(mesh, PartitionSpec('data', {self.axis!r})), or another axis=."
            )
        set_fields(self, sharding=target, shards=along[self.axis,].shape[self.axis])

    def positions(self, length: int) -> Array:
        """Return the position in the sequence of each token of a feed: int32[length].

        They are the positions of RoPE where a row holds one sequence. Rows of several carry
        `positions` of their own (`pack`), which are moved with the tokens.

        Raises:
            FeedMismatch: The devices cannot share so many tokens evenly.
        """
        own = np.arange(length, dtype=np.int32)
        return np.concatenate([own[cut] for cuts in self._cuts(length) for cut in cuts])

    def restored(self, array: Any, axis: int = 1) -> Any:
        """Return the array with the tokens in sequence order, traced or not.

        Args:
            array: An array computed from a feed, such as logits.
            axis: Its axis of tokens.
        """
        places = np.argsort(self.positions(array.shape[axis]))
        known = jax.typeof(array).sharding if isinstance(array, jax.Array) else None
        if known is None or AxisType.Explicit not in known.mesh.axis_types:
            return array.take(places, axis)
        before = (slice(None),) * (axis % array.ndim)
        return array.at[*before, places].get(out_sharding=known)  # jax cannot infer it

    def dealer(self, sharding: Sharding, rows: int, like: Array) -> Dealer:
        """Return, for arrays of one shape and dtype, the function that finds a part by its index.

        Args:
            sharding: The sharding of the arrays.
            rows: The axis that counts rows.
            like: One of the arrays.
        """
        behind = _behind_rows(sharding, rows)
        if (self.axis,) not in behind:
            return SLICES
        axis = rows + 1 + behind.index((self.axis,))
        if axis >= like.ndim:
            raise FeedMismatch(
                f"{_CALL} splits axis {axis} of {described(like)} along {self.axis!r}, and such a "
                "field has none: give a tree of shardings, in which its own names other axes."
            )
        shape, before = like.shape, (slice(None),) * axis
        every = [[(*before, cut) for cut in cuts] for cuts in self._cuts(shape[axis])]
        each = shape[axis] // self.shards
        wide = max(each, 1)  # sequences may have no tokens
        staged = Staging(self.shards, (*shape[:axis], each, *shape[axis + 1 :]), like.dtype)

        def dealt(array: Array) -> Callable[[tuple[slice, ...]], Array]:
            made = staged(self.shards)
            for part, cuts in zip(made, every, strict=True):
                np.concatenate([array[cut] for cut in cuts], axis, out=part)
            return lambda at: made[(at[axis].start or 0) // wide, *at[:axis], :, *at[axis + 1 :]]

        return dealt

    def _cuts(self, length: int) -> list[Sequence[slice]]:
        """Return where the tokens of each shard are in a sequence."""
        shards = self.shards
        many = shards if self.order == "striped" else 2 * shards
        if length % many:
            raise FeedMismatch(
                f"a sequence of {length} tokens cannot be dealt to {shards} devices in the "
                f"{self.order} order, which needs a multiple of {many}: make rows of "
                f"{length + -length % many}, with .pack(size), .windows(size) or "
                ".padded_batch(n, to=[size])."
            )
        if self.order == "striped":
            return [[slice(shard, None, shards)] for shard in range(shards)]
        size = length // many
        chunks = [slice(size * chunk, size * (chunk + 1)) for chunk in range(many)]
        return list(zip(chunks[:shards], reversed(chunks[shards:]), strict=True))


def _over(mesh: Mesh, axis: str) -> NamedSharding:
    """Return the sharding that splits rows along the mesh's axis for them, if there is one."""
    rows = next((name for name in mesh.axis_names if name in ("data", "batch")), None)
    return NamedSharding(mesh, PartitionSpec(rows, *{axis}.intersection(mesh.axis_names)))


def _behind_rows(sharding: Any, rows: int) -> list[tuple[Any, ...]]:
    """Return the mesh axes that split each array axis behind the axis of rows."""
    spec = sharding.spec[rows + 1 :] if isinstance(sharding, NamedSharding) else ()
    return [names if isinstance(names, tuple) else (names,) for names in spec]
