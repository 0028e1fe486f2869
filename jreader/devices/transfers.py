"""Put feed after feed on devices, without the Python part of `jax.device_put` where possible.

`device_put` takes 40 us per feed, in some 140 Python functions; on eight devices 120. The C++ call
at its end takes 5, and 40. The rest of its work (the abstract value, whether the array is
committed, which rows go to which device) has the same result for every feed of one kind, so it is
read off the first one, which `device_put` itself places.

That call is not public in jax. If it is missing, or takes other arguments than in jax 0.10 and
0.12, `device_put` places every feed; also under a transfer guard, in other modes than the
placement's, and for arrays that it treats specially: cast ones, other memories, subclasses of
`np.ndarray`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from jreader.devices.context_parallel import SLICES, Dealer
from jreader.profiling import annotated, profiler
from jreader.readers import branches, leaves, rebuilt

if TYPE_CHECKING:
    from jreader.devices.placements import Placement

_MAX_KINDS = 256  # kinds of feeds remembered at once: a loader has a few
_OPEN = (None, "allow")
_ARRAYS = frozenset({np.ndarray})
_ARGUMENTS = "aval sharding xs devices committed force_copy host_buffer_semantics enable_x64"

# jax's context managers store a thread's setting in `value`: reading it calls no Python
_x64: Any = jax.enable_x64
_default_device: Any = jax.default_device
_guard: Any = jax.transfer_guard_host_to_device


class _Transfer(NamedTuple):
    """How arrays of one shape and dtype go to their devices.

    Attributes:
        send: Makes the array on its devices, from the list of its parts.
        indices: The part of each device; None for one device, which gets the whole.
        dealer: Makes, for an array, the function that finds such a part.
    """

    send: Callable[[list[Any]], jax.Array]
    indices: list[Any] | None
    dealer: Dealer = SLICES


def putter(  # noqa: C901  # each function is one more call a feed
    placement: Placement, then: Callable[..., Any] | None
) -> Callable[..., Any]:
    """Return the function behind `Placement.putter`, which is called once per feed."""
    target, learned = placement.target, dict[Hashable, list[_Transfer]]()
    several = target is not None and jax.process_count() > 1
    quick = _batched_device_put is not None and target != "host" and not several
    known_modes = set(product([placement.x64], _OPEN if quick else (), [placement.default]))
    device = _default_device if target is None else SimpleNamespace(value=placement.default)
    label = ("transfer", "on_device")[then is not None]

    def put(feed: Any, *numbers: Any, annotates: bool = True) -> Any:
        if profiler.active and annotates:
            return annotated(label, put, feed, *numbers, annotates=False)
        if (_x64.value, _guard.value, device.value) not in known_modes:
            return _put_in_modes(placement, then, feed, numbers)
        if then is not None and target is None:
            return then(feed, *numbers)  # jit takes NumPy arrays itself, at half the cost
        form: Any = type(feed)
        values, named = _FORMS.get(form, _TREE)
        arrays = values(feed)
        if not _ARRAYS.issuperset(map(type, arrays)):
            form, named, arrays = None, _structure, leaves(feed)
            if not _ARRAYS.issuperset(map(type, arrays)):
                return _put_in_modes(placement, then, feed, numbers)
        kind = [form, named(feed)]
        for array in arrays:
            kind += array.dtype, array.shape
        ways = learned.get(tuple(kind))
        if ways is None:
            placed = placement.put(feed)
            way = partial(_transfer, placement)
            _learn(learned, tuple(kind), list(map(way, arrays, leaves(placed))))
        else:
            made = []
            for array, (send, indices, dealer) in zip(arrays, ways, strict=True):
                parts = [array] if indices is None else list(map(dealer(array), indices))
                made.append(send(parts))
            if form is dict:
                placed = dict(zip(feed, made, strict=True))
            else:
                placed = form(made) if form in _FORMS else rebuilt(feed, iter(made))
        return placed if then is None else then(placed, *numbers)

    return put


def _put_in_modes(
    placement: Placement, then: Callable[..., Any] | None, feed: Any, numbers: Sequence[Any]
) -> Any:
    """Put any feed, in any modes."""
    if then is None:
        return placement.put(feed)
    with placement.modes():
        return then(placement.put(feed), *placement.replicated(numbers))


def _structure(tree: Any) -> Hashable:
    """Return a key that trees share if, and only if, they differ only in their leaves."""
    parts = branches(tree)
    if parts is None:
        return None
    return type(tree), *((key, _structure(part)) for key, part in parts.items())


_TREE: Any = leaves, _structure
_FORMS: dict[Any, Any] = {dict: (dict.values, tuple), tuple: (tuple, len), list: (list, len)}
"""Return the leaves of feeds without nested trees, and the rest of their kind; in C."""


def _learn(
    learned: dict[Hashable, list[_Transfer]], kind: Hashable, ways: Sequence[_Transfer | None]
) -> None:
    """Record how feeds of a kind go to devices, after one was placed."""
    if len(learned) >= _MAX_KINDS:
        learned.clear()
    known = [way for way in ways if way is not None]
    if len(known) == len(ways):
        learned[kind] = known


def _transfer(placement: Placement, array: Any, placed: Any) -> _Transfer | None:
    """Return how arrays like this one go; None if `device_put` did more than split and send it."""
    if placed is array:  # strings stay on the host
        return _Transfer(itemgetter(0), None)
    if isinstance(placed, jax.core.Tracer) or placed.dtype != array.dtype:
        return None
    sharding = placed.sharding
    memory = next(iter(sharding.device_set)).default_memory().kind
    unreduced = isinstance(sharding, NamedSharding) and sharding.spec.unreduced
    if unreduced or sharding.memory_kind not in (None, memory):
        return None
    indices = sharding.addressable_devices_indices_map(array.shape)
    send: Any = partial(
        _batched_device_put,
        placed.aval,
        sharding,
        devices=list(indices),
        committed=placed.committed,
    )
    parts = list(indices.values()) if len(indices) > 1 else None
    return _Transfer(send, parts, placement.dealer(sharding, array))


def _batched_call() -> Callable[..., Any] | None:
    """Return the call below `device_put`; None if this jax has none like it."""
    try:
        call: Any = import_module("jax._src.lib").xla_client.batched_device_put
        ((signature, *_),) = call.__nb_signature__  # nanobind's
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    known: Callable[..., Any] = call
    states = all(hasattr(state, "value") for state in (_x64, _default_device, _guard))
    same = re.findall(r"(\w+): ", signature) == _ARGUMENTS.split()
    return known if same and states else None


_batched_device_put: Any = _batched_call()
