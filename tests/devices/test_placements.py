"""Placement is faithful: every row is where the sharding says, with the value it had."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from steps import compiled

from jreader import DataLoader, Pipeline, arrays, as_function
from jreader.devices import over, places_placement, sharding_placement
from jreader.errors import BatchNotDivisible, FeedMismatch

DEVICES = jax.devices()
LINE = Mesh(np.array(DEVICES), ("data",))
SQUARE = Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))
ROWS, BLOCKS = NamedSharding(LINE, PartitionSpec("data")), PartitionSpec("data", "model")
ONE = SingleDeviceSharding(DEVICES[5])

SHARDINGS = {
    "default": None,
    "device": DEVICES[5],
    "rows": ROWS,
    "mesh": LINE,
    "2-d mesh": SQUARE,
    "blocks": NamedSharding(SQUARE, BLOCKS),
    "both axes": NamedSharding(SQUARE, PartitionSpec(("data", "model"))),
    "replicated": NamedSharding(LINE, PartitionSpec()),
    "host": "host",
}
everywhere = pytest.mark.parametrize("sharding", SHARDINGS.values(), ids=SHARDINGS)


def batch_of(rows=16):
    return {
        "image": np.arange(rows * 4, dtype="float32").reshape(rows, 4),
        "label": np.arange(rows, dtype="int32").reshape(rows, 1) * np.ones(2, "int32"),
    }


def check_equal(feed, host):
    assert list(feed) == list(host)
    for name, array in host.items():
        assert np.asarray(feed[name]).dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(feed[name]), array)


@everywhere
def test_feeds_equal_the_host_batch(sharding):
    check_equal(sharding_placement(sharding).put(batch_of()), batch_of())


@everywhere
def test_every_shard_is_the_part_that_the_sharding_names(sharding):
    host, feed = batch_of(), sharding_placement(sharding).put(batch_of())
    if sharding == "host":
        assert all(feed[name] is not None and type(feed[name]) is np.ndarray for name in host)
        return
    for name, array in feed.items():
        for shard in array.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), host[name][shard.index])


@everywhere
def test_the_shardings_told_are_the_shardings_given(sharding):
    placement = sharding_placement(sharding)
    told = placement.shardings(batch_of())
    for array, expected in zip(placement.put(batch_of()).values(), told, strict=True):
        assert expected is None or array.sharding == expected


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shard_i_of_a_list_of_places_is_batch_i_on_device_i(count):
    host = {"x": np.arange(count * 6.0, dtype="float32").reshape(count, 2, 3)}
    placement = places_placement(DEVICES[:count])
    shards = placement.put(host)["x"].addressable_shards
    assert [shard.device for shard in shards] == DEVICES[:count]
    for place, shard in enumerate(shards):
        np.testing.assert_array_equal(np.asarray(shard.data)[0], host["x"][place])


def test_places_keep_the_order_in_which_they_are_listed():
    backwards = DEVICES[::-1]
    feed = places_placement(backwards).put({"x": np.arange(8)})
    where = {shard.device: int(shard.data[0]) for shard in feed["x"].addressable_shards}
    assert where == {device: place for place, device in enumerate(backwards)}


def test_the_default_device_takes_uncommitted_arrays():
    assert not sharding_placement(None).put({"x": np.zeros(2)})["x"].committed
    assert sharding_placement(DEVICES[0]).put({"x": np.zeros(2)})["x"].committed


def test_equal_devices_have_one_sharding_object():
    assert over(tuple(DEVICES)) is over(tuple(jax.devices()))
    assert places_placement(DEVICES).target is places_placement(jax.devices()).target


@pytest.mark.parametrize("make", [dict, lambda d: tuple(d.values()), lambda d: list(d.values())])
def test_a_tree_of_shardings_places_each_field_by_its_own(make):
    target = make({"image": NamedSharding(SQUARE, BLOCKS), "label": DEVICES[1]})
    image, label = jax.tree.leaves(sharding_placement(target).put(make(batch_of())))
    assert image.sharding == NamedSharding(SQUARE, BLOCKS)
    assert label.devices() == {DEVICES[1]}


def test_a_tree_of_shardings_may_end_above_the_leaves():
    target = {"pictures": ROWS, "label": DEVICES[0]}
    feed = sharding_placement(target).put({"pictures": batch_of(), "label": np.arange(8)})
    assert {array.sharding for array in feed["pictures"].values()} == {ROWS}
    assert feed["label"].devices() == {DEVICES[0]}


@pytest.mark.parametrize("target", [{"image": ROWS}, (ROWS, ROWS), {"image": ROWS, "labels": ROWS}])
def test_a_tree_of_shardings_that_does_not_fit_is_refused(target):
    with pytest.raises(FeedMismatch, match="one for each field"):
        sharding_placement(target).put(batch_of())


@pytest.mark.parametrize(
    ("sharding", "rows", "near"),
    [
        (ROWS, 250, "248 or 256"),
        (ROWS, 3, "8"),
        (SQUARE, 10, "8 or 12"),
        (NamedSharding(SQUARE, BLOCKS), 7, "4 or 8"),
        (NamedSharding(SQUARE, PartitionSpec(("data", "model"))), 12, "8 or 16"),
        ({"a": SQUARE, "b": NamedSharding(Mesh(np.array(DEVICES[:3]), "x"), PartitionSpec("x"))},
         25, "24 or 36"),
    ],
)  # fmt: skip
def test_rows_that_devices_cannot_divide_are_refused_with_the_nearest_that_they_can(
    sharding, rows, near
):
    with pytest.raises(BatchNotDivisible, match=f"a batch of {rows} .* size of {near}."):
        sharding_placement(sharding).check(rows)


@pytest.mark.parametrize(
    ("sharding", "rows"),
    [
        (ROWS, 16),
        (SQUARE, 4),
        (None, 7),
        ("host", 7),
        (DEVICES[0], 7),
        (SHARDINGS["replicated"], 7),
    ],
)
def test_rows_that_devices_can_divide_are_taken(sharding, rows):
    sharding_placement(sharding).check(rows)


@pytest.mark.parametrize(
    ("names", "axis"),
    [
        (("model", "data"), "data"),
        (("batch", "model"), "batch"),
        (("model", "batch"), "batch"),
        (("data", "model"), "data"),
    ],
)
def test_a_mesh_of_several_axes_is_split_over_the_one_that_is_called_data_or_batch(names, axis):
    mesh = Mesh(np.array(DEVICES).reshape(4, 2), names)
    assert sharding_placement(mesh).target == NamedSharding(mesh, PartitionSpec(axis))


def test_a_mesh_of_one_axis_is_split_over_it():
    mesh = Mesh(np.array(DEVICES), ("model",))
    assert sharding_placement(mesh).target == NamedSharding(mesh, PartitionSpec("model"))


@pytest.mark.parametrize("names", [("model", "fsdp"), ("data", "batch"), ("Data", "x")])
def test_a_mesh_of_several_axes_that_does_not_say_which_one_is_refused(names):
    mesh = Mesh(np.array(DEVICES).reshape(4, 2), names)
    with pytest.raises(ValueError, match=r'"data" or "batch".*NamedSharding\(mesh, Part') as raised:
        sharding_placement({"x": mesh})
    assert str(raised.value).startswith(f"sharding['x'] is a Mesh of the axes {names}, ")


class TestAPartitionSpec:
    @pytest.mark.parametrize("mesh", [SQUARE, jax.make_mesh((4, 2), ("data", "model"))])
    def test_is_a_sharding_over_the_mesh_that_is_set(self, mesh):
        with jax.set_mesh(mesh):
            placement = sharding_placement({"image": BLOCKS, "label": PartitionSpec("data")})
        assert placement.target == {
            "image": NamedSharding(mesh, BLOCKS),
            "label": NamedSharding(mesh, PartitionSpec("data")),
        }

    def test_of_an_axis_that_the_mesh_lacks_is_refused(self):
        with jax.set_mesh(SQUARE), pytest.raises(ValueError, match="rows") as raised:
            sharding_placement(PartitionSpec("rows"))
        assert raised.value.__notes__ == [f"raised for sharding={PartitionSpec('rows')}"]

    def test_of_a_loader_is_over_the_mesh_that_was_set_where_it_was_written(self):
        pipeline = Pipeline(arrays(x=np.arange(16.0))).batch(8)
        with jax.set_mesh(SQUARE):
            loader = pipeline.load(sharding=PartitionSpec("data"))
            places = DataLoader.from_generator().set_sample_list_generator(
                Pipeline(arrays(np.arange(16.0))).batch(8), places=PartitionSpec("data")
            )
            mapped = DataLoader(range(16), batch_size=8, places=PartitionSpec("data"))
        for made in (loader, places, mapped):
            for feed in made:
                array, *_ = jax.tree.leaves(feed)
                assert array.sharding == NamedSharding(SQUARE, PartitionSpec("data"))

    def test_is_a_sharding_of_as_function_too(self):
        with jax.set_mesh(LINE):
            data, _ = as_function(
                Pipeline(arrays(x=np.arange(16.0))).batch(8), sharding=PartitionSpec("data")
            )
        assert data["x"].sharding == ROWS


@pytest.mark.parametrize(
    ("give", "error", "words"),
    [
        (lambda: sharding_placement("cpu"), TypeError, "sharding needs"),
        (lambda: sharding_placement(PartitionSpec("data")), ValueError, "under `with jax"),
        (lambda: places_placement({"x": PartitionSpec()}), ValueError, "places\\['x'\\] is"),
        (lambda: sharding_placement(DEVICES), TypeError, "give Mesh\\(np.array"),
        (lambda: sharding_placement(DEVICES[:1]), TypeError, "pmap=devices"),
        (lambda: sharding_placement({"x": DEVICES}), TypeError, r"sharding\['x'\] is a list of"),
        (lambda: sharding_placement({"x": 3}), TypeError, "sharding\\['x'\\] needs"),
        (lambda: sharding_placement([ROWS, None]), TypeError, "sharding\\[1\\] needs"),
        (lambda: sharding_placement({}), TypeError, "sharding needs"),
        (lambda: sharding_placement(ROWS, pmap=True), TypeError, "not both"),
        (lambda: sharding_placement(pmap=3), TypeError, "True or a list"),
        (lambda: sharding_placement(pmap=[]), TypeError, "at least one"),
        (lambda: sharding_placement(pmap=["cpu"]), TypeError, "jax devices"),
        (lambda: sharding_placement(pmap=DEVICES[:1] * 2), ValueError, "listed once"),
        (lambda: places_placement(DEVICES[:1] * 2), ValueError, "listed once"),
        (lambda: places_placement([]), TypeError, "at least one"),
        (lambda: places_placement([DEVICES[0], "cpu"]), TypeError, "places\\[1\\] needs"),
        (lambda: places_placement(8), TypeError, "places needs"),
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(give, error, words):
    with pytest.raises(error, match=words):
        give()


class TestModes:
    """A placement keeps the modes of the thread that made it."""

    def test_x64_is_kept_where_it_was_on(self):
        with jax.enable_x64(new_val=True):
            placement = sharding_placement()
        assert placement.canonical(np.dtype("int64")) == np.int64
        assert placement.put({"x": np.array([2**40])})["x"].tolist() == [2**40]

    def test_x64_is_off_where_it_was_off(self):
        placement = sharding_placement()
        with jax.enable_x64(new_val=True):
            assert placement.put({"x": np.array([7])})["x"].dtype == np.int32
        assert placement.canonical(np.dtype("float64")) == np.float32

    def test_the_default_device_is_the_one_that_was_the_default(self):
        with jax.default_device(DEVICES[3]):
            placement = sharding_placement()
        assert placement.put({"x": np.zeros(2)})["x"].devices() == {DEVICES[3]}

    def test_a_default_device_of_later_is_none_of_its_business(self):
        placement = sharding_placement()
        with jax.default_device(DEVICES[3]):
            assert placement.put({"x": np.zeros(2)})["x"].devices() == {DEVICES[0]}

    def test_both_modes_are_kept_at_once(self):
        with jax.default_device(DEVICES[3]), jax.enable_x64(new_val=True):
            placement = sharding_placement()
        array = placement.put({"x": np.array([2**40])})["x"]
        assert (array.devices(), array.tolist()) == ({DEVICES[3]}, [2**40])

    def test_a_host_feed_is_not_narrowed(self):
        assert sharding_placement("host").canonical(np.dtype("int64")) == np.int64


class TestMask:
    def test_it_is_split_like_the_rows_of_the_first_field(self):
        placement = sharding_placement(NamedSharding(SQUARE, BLOCKS)).with_mask()
        feed = placement.put({**batch_of(), "mask": np.ones(16, bool)})
        assert feed["image"].sharding.spec == BLOCKS
        assert feed["mask"].sharding == NamedSharding(SQUARE, PartitionSpec("data"))

    @pytest.mark.parametrize("make", [dict, lambda d: tuple(d.values())])
    def test_a_tree_of_shardings_gets_one_more(self, make):
        placement = sharding_placement(make({"image": ROWS, "label": DEVICES[0]})).with_mask()
        feed = placement.put(make({**batch_of(), "mask": np.ones(16, bool)}))
        assert jax.tree.leaves(feed)[-1].sharding == ROWS

    @pytest.mark.parametrize("sharding", [None, "host"])
    def test_the_mask_is_sharded_as_the_fields_are(self, sharding):
        placement = sharding_placement(sharding)
        assert placement.with_mask() == placement


class TestReplicated:
    @everywhere
    def test_parameters_are_whole_wherever_feeds_are(self, sharding):
        placement = sharding_placement(sharding)
        weights = placement.replicated({"w": np.arange(3.0, dtype="float32")})["w"]
        np.testing.assert_array_equal(np.asarray(weights), np.arange(3.0))
        if sharding != "host":
            (first, *_) = placement.put(batch_of()).values()
            assert weights.sharding.device_set == first.sharding.device_set
            assert weights.sharding.is_fully_replicated

    def test_on_the_default_device_they_are_as_free_as_the_feeds(self):
        assert not sharding_placement().replicated(np.zeros(2)).committed

    @pytest.mark.parametrize("axis", ["data", "batch"])
    def test_a_pmap_step_compiles_once_whatever_its_axis_is_called(self, axis):
        placement = sharding_placement(pmap=True)

        def pstep(weights, feed):
            return jax.lax.pmean(weights * feed["x"].mean(), axis)

        step = jax.pmap(pstep, axis, in_axes=(None, 0), out_axes=None)
        weights = placement.replicated(jnp.ones(3), axis)
        with compiled() as programs:
            for _ in range(3):
                weights = step(weights, placement.put({"x": np.ones((8, 2), "float32")}))
        assert len(programs) == 1
