"""Puts NumPy batches on the devices of this process, as jax's tutorials do."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np


def placer(devices: int) -> Any:
    """A function that gives an array, split along its rows, over so many devices."""
    jax.config.update("jax_num_cpu_devices", devices)
    mesh = jax.make_mesh((devices,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    return lambda batch: jax.device_put(np.asarray(batch), rows)
