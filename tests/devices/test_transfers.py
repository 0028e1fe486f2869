"""The short way to devices gives what `jax.device_put` gives, in all that can be seen of it."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from calls import functions_called
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jreader.devices import transfers

DEVICES = jax.devices()
FLAT = Mesh(np.array(DEVICES), ("data",))
GRID = Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))
TARGETS = {
    "default": None,
    "one device": SingleDeviceSharding(DEVICES[3]),
    "split": NamedSharding(FLAT, PartitionSpec("data")),
    "whole": NamedSharding(FLAT, PartitionSpec()),
    "grid": NamedSharding(GRID, PartitionSpec("data", "model")),
    "second axis": NamedSharding(GRID, PartitionSpec(None, "model")),
    "explicit axes": NamedSharding(jax.make_mesh((8,), ("data",)), PartitionSpec("data")),
    "pinned": NamedSharding(FLAT, PartitionSpec("data"), memory_kind="pinned_host"),
}
ARRAYS = {
    "float32": np.arange(32, dtype=np.float32).reshape(8, 4),
    "uint8": np.arange(64, dtype=np.uint8).reshape(8, 4, 2),
    "bool": np.arange(32).reshape(8, 4) % 2 == 0,
    "bfloat16": np.arange(32).reshape(8, 4).astype(ml_dtypes.bfloat16),
    "complex64": np.arange(32).reshape(8, 4).astype(np.complex64),
    "int64": np.arange(32, dtype=np.int64).reshape(8, 4),
    "not contiguous": np.asfortranarray(np.arange(32, dtype=np.float32).reshape(8, 4)),
    "no rows": np.zeros((0, 4), np.float32),
    "another byte order": np.arange(32, dtype=">f4").reshape(8, 4),
    "a subclass": np.arange(32, dtype=np.float32).reshape(8, 4).view(np.memmap),
}


def seen(array):
    shards = [
        (shard.device, shard.index, shard.data.tolist()) for shard in array.addressable_shards
    ]
    return array.aval, array.sharding, array.committed, array.weak_type, array.tolist(), shards


def outcome(put, array, target):
    try:
        return seen(*put([array], [target]))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_is_placed_as_device_put_places_it_each_time(array, target):
    wanted = outcome(jax.device_put, ARRAYS[array], TARGETS[target])
    for _ in range(3):
        assert outcome(transfers.put, ARRAYS[array], TARGETS[target]) == wanted


@pytest.mark.parametrize("target", ["default", "split"])
def test_from_the_second_array_on_there_is_hardly_any_python(target):
    array = np.arange(24, dtype=np.float32).reshape(8, 3)
    assert "device_put" in functions_called(lambda: transfers.put([array], [TARGETS[target]]))
    assert len(functions_called(lambda: transfers.put([array + 1], [TARGETS[target]]))) < 15


@pytest.mark.parametrize("target", ["default", "split"])
def test_a_step_is_compiled_once_for_both_ways(target):
    step = jax.jit(lambda x: x + 1)
    array = np.arange(40, dtype=np.float32).reshape(8, 5)
    for _ in range(3):
        step(*transfers.put([array], [TARGETS[target]]))
    assert step._cache_size() == 1


def test_x64_and_the_default_device_are_those_of_the_call():
    array = np.arange(8)
    for _ in range(2):
        assert transfers.put([array], [None])[0].dtype == np.int32
        with jax.enable_x64(True):  # noqa: FBT003  # jax's argument
            assert transfers.put([array], [None])[0].dtype == np.int64
        with jax.default_device(DEVICES[5]):
            assert transfers.put([array.astype(np.int32)], [None])[0].devices() == {DEVICES[5]}
        assert transfers.put([array.astype(np.int32)], [None])[0].devices() == {DEVICES[0]}


def test_a_transfer_guard_is_heeded():
    array = np.arange(8, dtype=np.float32)
    transfers.put([array], [None])
    with jax.transfer_guard("disallow"):  # which lets what is asked for pass
        assert transfers.put([array], [None])[0].tolist() == array.tolist()
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match=r"[Dd]isallowed"):
        transfers.put([array], [None])


def test_a_jax_without_that_call_places_all_the_same(monkeypatch):
    monkeypatch.setattr(transfers, "_batched_device_put", None)
    for name, target in TARGETS.items():
        wanted = outcome(jax.device_put, ARRAYS["float32"], target)
        assert outcome(transfers.put, ARRAYS["float32"], target) == wanted, name


def test_what_is_remembered_is_bounded():
    for rows in range(2 * transfers._MOST):
        transfers.put([np.zeros(rows, np.float32)], [None])
    assert len(transfers._routes) <= transfers._MOST + 1
