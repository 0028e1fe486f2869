"""The short way to devices gives what `jax.device_put` gives, in all that can be seen of it."""

from __future__ import annotations

import threading
from typing import NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest
from calls import functions_called
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jreader.devices import Placement, sharding_placement, transfers
from jreader.readers import leaves, map_tree

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


def seen(leaf):
    if not isinstance(leaf, jax.Array):
        return type(leaf), np.asarray(leaf).dtype, np.asarray(leaf).tolist()
    shards = [(shard.device, shard.index, shard.data.tolist()) for shard in leaf.addressable_shards]
    return leaf.aval, leaf.sharding, leaf.committed, leaf.weak_type, leaf.tolist(), shards


def outcome(put, feed):
    try:
        placed = put(feed)
    except Exception as error:
        return type(error)
    return str(map_tree(lambda _: None, placed)), list(map(seen, leaves(placed)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_is_placed_as_device_put_places_it_each_time(array, target):
    wanted = outcome(lambda feed: jax.device_put(feed, TARGETS[target]), ARRAYS[array])
    put = Placement(TARGETS[target]).putter()
    for _ in range(3):
        assert outcome(put, ARRAYS[array]) == wanted


class Pair(NamedTuple):
    a: object
    b: object


LEAVES = st.sampled_from([*ARRAYS.values(), np.array(["a"] * 8), "a text", None, 7])
TREES = st.recursive(
    LEAVES | st.sampled_from(list(ARRAYS.values())),
    lambda part: st.one_of(
        st.dictionaries(st.sampled_from("abc"), part, max_size=3),
        st.tuples(part, part),
        st.lists(part, max_size=3),
        st.builds(Pair, part, part),
    ),
    max_leaves=5,
)


def placement_for(target, feed, draw):
    """That of a target; or of a tree of shardings, one for each branch of the feed."""
    if target != "a tree":
        return Placement(TARGETS.get(target, target))
    kinds = st.sampled_from([TARGETS["one device"], TARGETS["split"], TARGETS["whole"]])
    if isinstance(feed, dict):
        return Placement({name: draw(kinds) for name in feed})
    return Placement(tuple(draw(kinds) for _ in feed) if isinstance(feed, (tuple, list)) else None)


@given(
    st.lists(TREES, min_size=1, max_size=3),
    st.sampled_from([*TARGETS, "host", "a tree"]),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_any_feeds_one_after_another_are_put_as_one_by_one(feeds, target, data):
    placement = placement_for(target, feeds[0], data.draw)
    wanted = [outcome(placement.put, feed) for feed in feeds]
    put = placement.putter()
    for _ in range(2):
        assert [outcome(put, feed) for feed in feeds] == wanted


@pytest.mark.parametrize("name", ["default", "one device", "split", "grid"])
def test_masks_and_axes_of_steps_are_put_by_the_putter_too(name):
    feed = {"x": ARRAYS["float32"], "y": ARRAYS["bool"], "mask": np.arange(8) < 5}
    masked = Placement(TARGETS[name]).with_mask()
    steps = map_tree(lambda array: np.stack([array, array]), feed)
    for placement, host in ((masked, feed), (masked.chunked(), steps)):
        put = placement.putter()
        for _ in range(2):
            assert outcome(put, host) == outcome(placement.put, host)


FEEDS = {
    "dict": lambda *arrays: dict(zip("ab", arrays, strict=True)),
    "tuple": lambda *arrays: arrays,
    "list": lambda *arrays: list(arrays),
}


@pytest.mark.parametrize("target", ["default", "one device", "split"])
@pytest.mark.parametrize("form", FEEDS)
def test_a_feed_like_one_before_takes_one_call_and_one_of_jax_for_each_array(form, target):
    feed = FEEDS[form](ARRAYS["float32"], np.arange(8, dtype=np.int32))
    put = Placement(TARGETS[target]).putter()
    assert "device_put" in functions_called(lambda: put(feed))
    calls = functions_called(lambda: put(feed))[1:]
    assert [name for name in calls if not name.endswith("._to_xla_hlo_sharding")] == [
        "putter.<locals>.put"
    ]


@pytest.mark.parametrize(
    "nested", [(ARRAYS["uint8"], {"a": (ARRAYS["bool"],)}), Pair(*[ARRAYS["uint8"]] * 2)]
)
def test_a_nested_feed_goes_without_device_put_from_the_second_on(nested):
    put = Placement().putter()
    assert "device_put" in functions_called(lambda: put(nested))
    assert "device_put" not in functions_called(lambda: put(nested))


def test_trees_of_other_structure_are_told_apart():
    array, other = ARRAYS["float32"], ARRAYS["float32"] + 1
    trees = [
        ((array,), other),
        (array, (other,)),
        (array, other),
        [array, other],
        Pair(array, other),
    ]
    trees += [{"a": array, "b": other}, {"b": array, "a": other}, {"a": {"b": array}, "c": other}]
    put = Placement().putter()
    for _ in range(2):
        for tree in trees:
            assert outcome(put, tree) == outcome(Placement().put, tree)


@pytest.mark.parametrize("target", ["default", "split"])
def test_a_step_is_compiled_once_for_both_ways(target):
    step = jax.jit(lambda x: x + 1)
    array = np.arange(40, dtype=np.float32).reshape(8, 5)
    put = Placement(TARGETS[target]).putter()
    for _ in range(3):
        step(put(array))
    assert step._cache_size() == 1


def modes():
    return {
        "none": jax.enable_x64(False),  # noqa: FBT003  # jax's argument
        "x64": jax.enable_x64(True),  # noqa: FBT003  # jax's argument
        "another default device": jax.default_device(DEVICES[5]),
        "a guard": jax.transfer_guard("disallow"),
    }


@pytest.mark.parametrize("made", modes())
def test_the_modes_are_those_of_the_placement_whatever_comes_later(made):
    with modes()[made]:
        placement = sharding_placement()
    put, feed = placement.putter(), (np.arange(8), ARRAYS["float32"])
    wanted = outcome(placement.put, feed)
    for mode in [*modes(), *modes()]:
        with modes()[mode]:
            assert outcome(put, feed) == wanted


def test_the_modes_of_another_thread_are_looked_at_on_that_thread():
    put, devices = Placement().putter(), []
    put(ARRAYS["float32"])

    def feed():
        with jax.default_device(DEVICES[5]):
            devices.append(put(ARRAYS["float32"]).devices())

    thread = threading.Thread(target=feed)
    thread.start()
    thread.join()
    assert devices == [{DEVICES[0]}]


def test_a_guard_against_what_is_asked_for_too_is_heeded():
    put = Placement().putter()
    put(ARRAYS["float32"])
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match=r"[Dd]isallowed"):
        put(ARRAYS["float32"])


def test_a_jax_without_that_call_places_all_the_same(monkeypatch):
    monkeypatch.setattr(transfers, "_batched_device_put", None)
    for name, target in TARGETS.items():
        put, wanted = Placement(target).putter(), outcome(Placement(target).put, (ARRAYS["bool"],))
        for _ in range(2):
            assert outcome(put, (ARRAYS["bool"],)) == wanted, name


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(transfers, "_MAX_KINDS", 4)
    put, first = Placement().putter(), np.zeros(1, np.float32)
    put(first)
    assert "device_put" not in functions_called(lambda: put(first))
    for rows in range(2, 6):
        put(np.zeros(rows, np.float32))
    assert "device_put" in functions_called(lambda: put(first))


class TestThen:
    """A putter may hand over what a jitted function makes of its feeds."""

    @pytest.mark.parametrize("target", [*TARGETS, "host"])
    def test_gets_the_placed_feed_and_the_numbers_behind_it(self, target):
        placement = Placement(TARGETS.get(target, target))
        then = jax.jit(lambda feed, number: {"x": feed["x"] + number})
        feed, number = {"x": ARRAYS["float32"]}, np.array(3, np.float32)
        put = placement.putter(then)
        wanted = outcome(lambda feed: then(placement.put(feed), number), feed)
        for _ in range(3):
            assert outcome(lambda feed: put(feed, number), feed) == wanted

    @pytest.mark.parametrize("target", ["default", "split"])
    @pytest.mark.parametrize("mode", modes())
    def test_runs_in_the_modes_of_the_placement(self, target, mode):
        put = Placement(TARGETS[target]).putter(jax.jit(lambda feed, n: feed + n))
        for _ in range(2):
            with modes()[mode]:
                summed = put(np.arange(8), np.array(1))
            assert (summed.dtype, summed.tolist()) == (np.int32, [*range(1, 9)])
            if target == "default":
                assert summed.devices() == {DEVICES[0]}

    def test_takes_feeds_for_the_default_device_as_they_are(self):
        put = Placement().putter(type)
        assert put(ARRAYS["float32"]) is np.ndarray
        assert issubclass(Placement(TARGETS["split"]).putter(type)(ARRAYS["float32"]), jax.Array)
