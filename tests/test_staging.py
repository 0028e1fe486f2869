"""Staged memory is handed out again when nothing lies over it any longer, and never before."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from widths import few

from jreader import Pipeline, arrays, data, staging
from jreader.staging import Staging, lease

BYTES = np.dtype(np.uint8)


def test_every_array_begins_at_a_multiple_of_64_bytes():
    staged = Staging(33, (1000,), BYTES)
    held = [staged(rows) for rows in range(20, 33)]
    assert {array.ctypes.data % 64 for array in held} == {0}


def test_arrays_that_live_share_nothing():
    staged = Staging(64, (1000,), BYTES)
    held = [staged(64) for _ in range(50)]
    for number, array in enumerate(held):
        array[:] = number
    assert [int(array.max()) for array in held] == list(range(50))


HOLDERS = {
    "view": lambda array: array[3:].reshape(-1, 10),
    "device": jax.device_put,
    "thread": lambda array: [array],
}


@pytest.mark.parametrize("holder", few(HOLDERS, ["device"]))
def test_memory_comes_back_with_the_last_reference_alone(holder):
    staged = Staging(64, (1000,), BYTES)
    array = staged(64)
    address = array.ctypes.data
    held = HOLDERS[holder](array)
    del array
    gc.collect()
    assert staged(64).ctypes.data != address
    if holder == "thread":
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    del held
    gc.collect()
    assert address in {each.ctypes.data for each in [staged(64) for _ in range(3)]}


def test_what_is_free_is_bounded_and_ends_with_who_uses_it():
    staged = Staging(64, (1000,), BYTES)
    held = [staged(64) for _ in range(100)]
    size = 64 * 1000
    held.clear()
    assert len(staging._POOLS[size]) == 32
    del staged
    gc.collect()
    assert size not in staging._POOLS


def test_small_arrays_and_foreign_dtypes_are_not_leased():
    assert not Staging(10, (10,), BYTES).leases
    assert lease((10000, 2), jnp.bfloat16.dtype).dtype == jnp.bfloat16


@pytest.mark.parametrize("devices", [1, 8])
def test_three_hundred_steps_that_nobody_awaits_see_the_rows_they_were_given(devices):
    rows = np.arange(300 * 32, dtype=np.float32)[:, None] * np.ones(300, np.float32)
    loader = Pipeline(arrays(x=rows)).shuffle(seed=1).batch(32)
    loader = loader.load(pmap=jax.devices()[:devices] if devices > 1 else None)
    busy = jax.jit(lambda x: (x[..., 0].ravel(), jnp.sin(x @ jnp.ones((300, 300))).sum()))
    seen = [busy(feed["x"])[0] for feed in loader]
    assert sorted(np.concatenate(seen).tolist()) == list(range(300 * 32))


def test_a_loader_holds_no_more_batches_than_it_prepares_while_steps_are_awaited():
    rows = np.zeros((4000, 20000), np.uint8)
    loader = Pipeline(arrays(x=rows)).shuffle(seed=1).batch(40).load(capacity=2)
    size = 40 * 20000
    made = set()
    for feed in loader:
        feed["x"].block_until_ready()
        made.add(feed["x"].unsafe_buffer_pointer())
    slack = 4  # being gathered, at the step, and two that jaxlib lets go of a transfer later
    assert len(made) <= 2 + slack
    assert len(staging._POOLS[size]) <= 2 + slack


def test_a_cast_is_staged_too():
    loader = Pipeline(arrays(np.zeros((100, 784), np.uint8))).batch(50)
    host = loader.load([data("image", [None, 784])], sharding="host")
    assert next(iter(host))["image"].ctypes.data % 64 == 0
