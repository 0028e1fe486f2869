"""`sharding={"x": mesh, "id": "host"}`: fields that stay NumPy arrays beside others on devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader import FeedMismatch, Pipeline, arrays, as_function, data

DEVICES = jax.devices()
LINE = Mesh(np.array(DEVICES), ("data",))
PLACES = {"one device": DEVICES[1], "a mesh": LINE}
on_each = pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)


def rows(many=48):
    names = np.array([f"n{each}" for each in range(many)])
    return Pipeline(arrays(x=np.arange(many), id=np.arange(many) + 2**40, name=names))


def placed(where):
    return {"x": where, "id": "host", "name": "host"}


def check(feed, axes=1):
    """Fields lie where they belong, and are of the same samples."""
    assert isinstance(feed["x"], jax.Array)
    assert type(feed["id"]) is type(feed["name"]) is np.ndarray
    assert feed["id"].dtype == np.int64  # as it is, whatever devices can hold
    assert feed["id"].ndim == axes
    numbers = np.asarray(feed["x"]).astype(np.int64)
    assert (feed["id"] == numbers + 2**40).all()
    assert (feed["name"] == np.char.add("n", numbers.astype(str))).all()
    return numbers.ravel().tolist()


@on_each
@pytest.mark.parametrize("capacity", [0, 2])
@pytest.mark.parametrize("streamed", [False, True])
def test_named_fields_stay_and_the_others_are_placed(where, capacity, streamed):
    plan = rows().shuffle(seed=1).epochs(2)
    plan = (plan.map(dict) if streamed else plan).batch(8)
    loader = plan.load(sharding=placed(where), capacity=capacity)
    plain = rows().shuffle(seed=1).epochs(2).batch(8).load({"x": "x"})
    found = [check(feed) for feed in loader]
    assert found == [feed["x"].tolist() for feed in plain]
    assert next(iter(loader))["x"].sharding.device_set == (
        {where} if where in DEVICES else set(DEVICES)
    )


@on_each
def test_a_run_resumes_at_any_feed(where):
    plan = rows().shuffle(seed=1).batch(8)
    feeds = iter(plan.load(sharding=placed(where)))
    next(feeds)
    rest = plan.load(sharding="host").epoch(0, at=feeds.cursor)
    assert list(map(check, feeds)) == [feed["x"].tolist() for feed in rest]


@on_each
def test_chunks_stack_them(where):
    loader = rows().batch(8).load(sharding=placed(where)).chunk(2)
    assert [n for feed in loader for n in check(feed, axes=2)] == list(range(48))


@on_each
def test_a_short_last_batch_is_padded_under_a_mask_on_the_devices(where):
    *_, last = rows(12).batch(8).load(sharding=placed(where), last="pad")
    assert isinstance(last["mask"], jax.Array)
    assert last["mask"].tolist() == [True] * 4 + [False] * 4
    assert last["name"].tolist() == ["n8", "n9", "n10", "n11", "", "", "", ""]


def test_declared_fields_stay_too_and_keep_their_dtypes():
    fields = [data("x", [None], "float32"), data("id", [None, 1], "int64"), "name"]
    (feed,) = rows(8).batch(8).load(fields, sharding=placed(LINE))
    assert (feed["x"].dtype, feed["id"].dtype, feed["id"].shape) == ("float32", "int64", (8, 1))
    assert type(feed["id"]) is np.ndarray
    assert feed["name"][1] == "n1"


def test_a_part_of_the_tree_may_stay():
    plan = Pipeline(lambda: [{"x": n, "of": {"name": str(n), "file": (n, b"a")}} for n in range(8)])
    (feed,) = plan.batch(8).load(sharding={"x": LINE, "of": "host"})
    assert isinstance(feed["x"], jax.Array)
    assert feed["of"]["name"].tolist() == [str(n) for n in range(8)]
    assert feed["of"]["file"][1].dtype.kind == "S"


def test_tuples_have_them_by_position():
    plan = Pipeline(lambda: [(n, str(n)) for n in range(8)]).batch(8)
    ((x, name),) = plan.load(sharding=(NamedSharding(LINE, PartitionSpec("data")), "host"))
    assert isinstance(x, jax.Array)
    assert name.tolist() == [str(n) for n in range(8)]


def test_a_tree_of_host_alone_is_the_host():
    (feed,) = rows(3).batch(3).load(sharding=dict.fromkeys(["x", "id", "name"], "host"))
    assert {type(array) for array in feed.values()} == {np.ndarray}


def test_the_users_arrays_and_caches_are_out_of_reach():
    plan = rows(8).cache().batch(8)
    for _ in range(2):
        (feed,) = plan.load(sharding=placed(LINE))
        check(feed)
        feed["id"][:] = 0


def test_shapes_have_them_as_a_step_takes_them():
    loader = rows().batch(8).load({"x": "x", "id": "id"}, sharding={"x": LINE, "id": "host"})
    (spec,) = loader.shapes()
    assert (spec["id"].shape, spec["id"].dtype, spec["id"].sharding) == ((8,), np.int64, None)
    assert spec["x"].sharding.device_set == set(DEVICES)


class TestRefused:
    def test_a_text_in_a_field_that_is_placed(self):
        with pytest.raises(FeedMismatch, match=r"'name' .* keep the field on the host, as in"):
            list(rows().batch(8).load(sharding={**placed(LINE), "name": LINE}))

    def test_a_tree_that_does_not_fit_the_feeds(self):
        with pytest.raises(FeedMismatch, match="the tree of shardings does not fit"):
            list(rows().batch(8).load(sharding={"x": LINE, "id": "host"}))
        with pytest.raises(FeedMismatch, match="the tree of shardings does not fit"):
            list(rows().batch(8).load({"x": "x"}, sharding=placed(LINE)))

    def test_data_that_are_on_the_devices_as_a_whole(self):
        plan = rows()[:40].batch(8)
        with pytest.raises(TypeError, match="needs one sharding for all fields"):
            list(plan.load(sharding=placed(LINE), resident=True))
        with pytest.raises(ValueError, match="leaves some on the host"):
            as_function(plan, sharding=placed(LINE))

    def test_stages_on_the_devices(self):
        with pytest.raises(ValueError, match="some of their fields, stay on the host"):
            rows().batch(8).load(sharding=placed(LINE)).on_device(lambda feed: feed)

    def test_pmap(self):
        with pytest.raises(TypeError, match="sharding or pmap, not both"):
            rows().batch(8).load(sharding=placed(LINE), pmap=True)
