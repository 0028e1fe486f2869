"""Host arrays to devices, without the Python of `jax.device_put` where that can be spared.

`device_put` spends 40 us a feed in some 140 Python functions, on eight devices 120; the C++ call
that it ends in takes 5, and 40. What it finds out on the way (the abstract value, whether the array
is committed, which rows go to which device) is the same for every batch of one shape, so it is read
off the first one, which `device_put` itself places.

That call is none of jax's public names. Where it is missing, or takes other arguments than in jax
0.10 and 0.12, `device_put` places every feed; also under a transfer guard, and for what it treats
in a way of its own: 64-bit numbers, other memories, arrays that are no plain `np.ndarray`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

_MOST = 256  # kinds of arrays that are remembered at once: a loader has a few
_WIDE = {"int64", "uint64", "float64", "complex128"}
_ARGUMENTS = (
    *("aval", "sharding", "xs", "devices"),
    *("committed", "force_copy", "host_buffer_semantics", "enable_x64"),
)

_routes: dict[Any, Callable[[Any], jax.Array]] = {}


def put(arrays: Sequence[Any], targets: Sequence[Any]) -> list[jax.Array]:
    """The arrays on their devices, as `jax.device_put(arrays, targets)` gives them.

    >>> [array.tolist() for array in put([np.arange(3, dtype=np.int32)], [None])]
    [[0, 1, 2]]

    Args:
        arrays: Arrays of NumPy.
        targets: For each a Sharding, or None for the default device.
    """
    if _batched_device_put is None or guarded():
        return list(jax.device_put(arrays, targets))
    default = jax.config.jax_default_device  # type: ignore[attr-defined]  # set at run time
    kinds = [
        (type(array), array.shape, array.dtype, target, default)
        for array, target in zip(arrays, targets, strict=True)
    ]
    routes = list(map(_routes.get, kinds))
    if all(routes):
        return [route(array) for route, array in zip(routes, arrays, strict=True)]  # type: ignore[misc]  # none is None
    placed = list(jax.device_put(arrays, targets))
    if len(_routes) > _MOST:
        _routes.clear()
    _routes.update(zip(kinds, map(_route, arrays, targets, placed), strict=True))
    return placed


def guarded() -> bool:
    """Whether jax was told to look at what goes to devices."""
    guard = jax.config.jax_transfer_guard_host_to_device  # type: ignore[attr-defined]  # at run time
    return guard not in (None, "allow")


def _route(array: Any, target: Any, placed: jax.Array) -> Callable[[Any], jax.Array]:
    """How arrays like this one go to their devices, now that `device_put` has placed it."""
    if _batched_device_put is None or not _is_plain(array, placed):
        return partial(jax.device_put, device=target)
    sharding = placed.sharding
    indices = sharding.addressable_devices_indices_map(array.shape)
    send = partial(
        _batched_device_put,
        placed.aval,
        sharding,
        devices=list(indices),
        committed=placed.committed,
    )
    if len(indices) == 1:
        return lambda array: send([array])
    return lambda array: send([array[index] for index in indices.values()])


def _is_plain(array: Any, placed: Any) -> bool:
    """Whether `device_put` did nothing but split and send: no cast, nothing that modes change."""
    if type(array) is not np.ndarray or isinstance(placed, jax.core.Tracer):
        return False
    wide = array.dtype.name in _WIDE
    sharding = placed.sharding
    memory = next(iter(sharding.device_set)).default_memory().kind
    reduced = not (isinstance(sharding, NamedSharding) and sharding.spec.unreduced)
    return not wide and reduced and sharding.memory_kind in (None, memory)


def _found() -> Callable[..., Any] | None:
    """The call below `device_put`; None where this jax has none like it."""
    try:
        call: Any = import_module("jax._src.lib").xla_client.batched_device_put
        ((signature, *_),) = call.__nb_signature__  # nanobind's
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    known: Callable[..., Any] = call
    return known if tuple(re.findall(r"(\w+): ", signature)) == _ARGUMENTS else None


_batched_device_put = _found()
