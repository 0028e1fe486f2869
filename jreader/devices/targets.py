"""Targets: the shardings for arguments, resolved on the user's thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jreader.errors import noting
from jreader.readers import leaves, rebuilt


@lru_cache(64)
def over(devices: tuple[jax.Device, ...]) -> NamedSharding:
    """Split the first axis over devices; equal devices share one object, so jit's cache hits."""
    return NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))


def target_of(sharding: Any, call: str) -> Any:
    """Return the Sharding for an argument, or a tree of them; "host" for what stays there.

    Raises:
        TypeError: It is not one, for example a list of devices.
        ValueError: It depends on a mesh that is not set, or does not name the axis of the mesh.
    """
    if (alone := _target_of_one(sharding, call)) is not None:
        return alone
    if isinstance(sharding, dict) and sharding:
        return {name: target_of(part, f"{call}[{name!r}]") for name, part in sharding.items()}
    if isinstance(sharding, (tuple, list)) and sharding:
        if isinstance(sharding, list) and all(map(_is_device, sharding)):
            raise TypeError(
                f"{call} is a list of {len(sharding)} devices, "
                "which does not say how a batch is split over them: "
                'give Mesh(np.array(devices), ("data",)) for one array along them, '
                "or pmap=devices for feeds of [devices, n / devices, ...]."
            )
        parts = [target_of(part, f"{call}[{place}]") for place, part in enumerate(sharding)]
        return tuple(parts)
    raise TypeError(
        f"{call} needs a jax Sharding, PartitionSpec, Mesh or Device, a tree of them, 'host', or "
        f"None, not {sharding!r}. For pmap over a list of devices give places=devices, or "
        f"load(pmap=devices)."
    )


def _target_of_one(sharding: Any, call: str) -> Any | None:
    """Return the target of an argument that is no tree; None for others."""
    if isinstance(sharding, Sharding) or (isinstance(sharding, str) and sharding == "host"):
        return sharding
    if isinstance(sharding, Mesh):
        return NamedSharding(sharding, PartitionSpec(_axis_of_rows(sharding, call)))
    if isinstance(sharding, PartitionSpec):
        return _over_the_mesh(sharding, call)
    return SingleDeviceSharding(own([sharding])[0]) if _is_device(sharding) else None


def _is_device(part: Any) -> bool:
    return isinstance(part, jax.Device)


def _axis_of_rows(mesh: Mesh, call: str) -> str:
    """Return the axis of a mesh that batches are split along."""
    names = mesh.axis_names
    meant = names if len(names) == 1 else [name for name in names if name in ("data", "batch")]
    if len(meant) != 1:
        raise ValueError(
            f"{call} is a Mesh of the axes {names}, and batches are split along the one that is "
            f'called "data" or "batch": give NamedSharding(mesh, PartitionSpec({names[0]!r})) for '
            f"another one."
        )
    return str(meant[0])


def _over_the_mesh(spec: PartitionSpec, call: str) -> NamedSharding:
    """Return the sharding of a bare PartitionSpec on this thread."""
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise ValueError(
            f"{call} is {spec}, and no mesh is set here: write that line under `with "
            f"jax.set_mesh(mesh):`, or give NamedSharding(mesh, {spec})."
        )
    with noting(f"raised for {call}={spec}", ValueError):
        return NamedSharding(mesh, spec)


def where_written(sharding: Any) -> Any:
    """Resolve bare PartitionSpecs in an argument, as another line may have another mesh.

    >>> where_written("host")
    'host'
    """
    if isinstance(sharding, PartitionSpec):
        return _over_the_mesh(sharding, "sharding")
    if type(sharding) in (dict, tuple, list):
        return rebuilt(sharding, iter([where_written(part) for part in leaves(sharding)]))
    return sharding


def own(devices: Sequence[Any]) -> tuple[jax.Device, ...]:
    """Return the devices as a tuple, if all belong to this process and each is listed once.

    Raises:
        TypeError: They are not devices.
        ValueError: One is listed twice, or belongs to another process.
    """
    if not devices or not all(isinstance(device, jax.Device) for device in devices):
        raise TypeError(f"a list of jax devices is needed, at least one, not {devices!r}.")
    if len(set(devices)) < len(devices):
        raise ValueError(f"each device may be listed once, but here: {devices!r}.")
    others = [device for device in devices if device.process_index != jax.process_index()]
    if others:
        raise ValueError(
            f"{others} belong to another process, and only that process can feed them: use "
            "jax.local_devices(), or a sharding over all of them."
        )
    return tuple(devices)
