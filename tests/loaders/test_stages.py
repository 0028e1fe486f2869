"""Feeds on the device: stages, chunks, and data that are there already."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader import DataLoader, FeedMismatch, Pipeline, arrays, batch
from jreader.loaders.device_programs.stages import Layout, Stage, Stages, words

ROWS = 70
PIXELS = np.arange(ROWS * 4, dtype=np.uint8).reshape(ROWS, 4)


def pipeline(size=8):
    return Pipeline(arrays(image=PIXELS, number=np.arange(ROWS))).shuffle(seed=1).batch(size)


def scaled(feed):
    return {**feed, "image": feed["image"].astype(jnp.float32) / 255}


def noisy(feed, keys):
    noise = jax.vmap(lambda key: jax.random.uniform(key, (4,)))(keys.reshape(-1))
    return {**feed, "noise": noise.reshape(*keys.shape, 4)}


def equal(feed, other):
    jax.tree.map(np.testing.assert_array_equal, feed, other)


def flat(feeds):
    return np.concatenate([np.asarray(feed["noise"]).reshape(-1, 4) for feed in feeds])


@pytest.mark.parametrize("capacity", [0, 2])
@pytest.mark.parametrize("where", ["default", "device", "mesh", "explicit", "pmap", "guarded"])
def test_a_stage_runs_where_the_feed_is(capacity, where):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    given = {
        "device": {"sharding": jax.devices()[1]},
        "mesh": {"sharding": mesh},
        "explicit": {"sharding": jax.make_mesh((len(jax.devices()),), ("data",))},
        "pmap": {"pmap": True},
    }.get(where, {})
    loader = pipeline().load(capacity=capacity, **given)
    staged = loader.on_device(scaled)
    if where == "guarded":
        with jax.transfer_guard("disallow"):
            feeds = list(staged.epoch(0))
    else:
        feeds = list(staged.epoch(0))
    for feed, plain in zip(feeds, loader.epoch(0), strict=True):
        assert feed["image"].dtype == jnp.float32
        assert feed["image"].sharding.is_equivalent_to(plain["image"].sharding, plain["image"].ndim)
        equal(feed, jax.jit(scaled)(plain))


@pytest.mark.parametrize("resident", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("chunk", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_explicit_axes_of_a_mesh_make_no_difference(resident, chunk):
    """`jax.make_mesh` gives such axes, where jax keeps shardings in the types."""
    made = []
    for mesh in (
        Mesh(np.array(jax.devices()), ("data",)),
        jax.make_mesh((len(jax.devices()),), ("data",)),
    ):
        loader = pipeline().load(sharding=mesh, resident=resident)
        loader = loader.on_device(noisy, rng="sample").on_device(scaled)
        made.append(list(loader.chunk(chunk) if chunk and not resident else loader))
    for auto, explicit in zip(*made, strict=True):
        equal(auto, explicit)
        assert auto["image"].sharding.shard_shape(auto["image"].shape) == (
            explicit["image"].sharding.shard_shape(auto["image"].shape)
        )


def test_a_stage_is_compiled_once_for_all_epochs():
    traced = []

    def counted(feed):
        traced.append(1)
        return feed

    loader = pipeline().load().on_device(counted)
    for _ in range(3):
        assert len(list(loader)) == 8
    assert len(traced) == 1


def test_stages_follow_one_another_and_leave_the_loader_as_it_was():
    loader = pipeline().load()
    twice = loader.on_device(scaled).on_device(lambda feed: feed["image"] * 2)
    assert isinstance(next(iter(loader)), dict)
    np.testing.assert_allclose(
        next(iter(twice)), np.asarray(next(iter(loader.epoch(0)))["image"]) / 255 * 2, rtol=1e-6
    )
    assert twice.element_spec.shape == (8, 4)
    assert twice.peek().shape == (8, 4)


MESH = Mesh(np.array(jax.devices()), ("data",))


@pytest.mark.parametrize(
    "loaders",
    [
        {"split and in chunks": lambda: pipeline().load(sharding=MESH).chunk(2)},
        pytest.param(
            {
                "not ahead": lambda: pipeline().load(capacity=0),
                "split": lambda: pipeline().load(sharding=MESH),
                "pmap": lambda: pipeline().load(pmap=True),
                "resident": lambda: pipeline().load(resident=True),
                "in chunks": lambda: pipeline().load().chunk(2),
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["both", "each"],
)
def test_the_noise_of_a_sample_does_not_depend_on_devices_chunks_or_capacity(loaders):
    reference = flat(pipeline().load().on_device(noisy, "sample").epoch(1))
    assert len(np.unique(reference, axis=0)) == len(reference)
    for make in loaders.values():
        loader = make()
        np.testing.assert_array_equal(flat(loader.on_device(noisy, "sample").epoch(1)), reference)


def test_the_noise_moves_with_the_epoch_and_the_seed_and_goes_on_at_a_cursor():
    loader = pipeline().load().on_device(noisy, "sample", seed=4)
    first, second = flat(loader.epoch(0)), flat(loader.epoch(1))
    other = flat(pipeline().load().on_device(noisy, "sample", seed=5).epoch(0))
    assert not np.isin(first, second).any()
    assert not np.isin(first, other).any()
    feeds = loader.epoch(0)
    next(feeds)
    np.testing.assert_array_equal(flat(loader.epoch(0, feeds.cursor)), first[8:])


@pytest.mark.parametrize("rng", ["batch", "sample"])
@pytest.mark.parametrize("chunk", [None, 2])
def test_epoch_and_sample_2_to_the_32_are_not_number_0_again(rng, chunk):
    def keys(feed, key):
        return jax.random.key_data(key)

    stages = Stages(Stage(keys, rng))
    feed = np.zeros((2, 8) if chunk else 8)
    layout = Layout(2, 0) if chunk else Layout(1)

    traced = jax.jit(lambda *at: stages.traced(feed, layout, *at))

    def drawn(epoch, first):
        made = traced(words(epoch), words(first))
        return {tuple(key) for key in np.asarray(made).reshape(-1, 2).tolist()}

    once = len(drawn(0, 0))
    numbers = [(0, 0), (2**32, 0), (2**32 + 1, 0), (0, 2**32), (0, 2**32 - 16)]
    together = set.union(*(drawn(*number) for number in numbers))
    assert len(together) == len(numbers) * once
    if rng == "sample":  # the numbers of one feed go on beyond
        across = drawn(3, 2**32 - 4)
        assert len(across & drawn(3, 2**32)) == once - 4
        assert not across & drawn(3, 0)


def test_epochs_beyond_32_bits_are_fed_or_refused():
    loader = pipeline().load().on_device(noisy, "sample")
    assert not np.isin(flat(loader.epoch(2**32)), flat(loader.epoch(0))).any()
    with pytest.raises(ValueError, match=r"epochs in 32 bits.*leave resident=True out"):
        pipeline().load(resident=True).epoch(2**32)


def test_one_key_for_a_batch_is_another_one_for_each_batch():
    loader = pipeline().load().on_device(lambda feed, key: jax.random.bits(key, (2,)), "batch")
    drawn = {tuple(np.asarray(bits)) for epoch in range(2) for bits in loader.epoch(epoch)}
    assert len(drawn) == 16


def test_a_chunk_is_so_many_steps():
    feeds = list(pipeline().load().epoch(0))
    chunks = list(pipeline().load().chunk(3).epoch(0))
    assert len(chunks) == len(pipeline().load().chunk(3)) == 2
    for number, chunk in enumerate(chunks):
        equal(
            chunk, jax.tree.map(lambda *leaf: np.stack(leaf), *feeds[3 * number : 3 * number + 3])
        )


def test_a_chunk_that_is_not_full_is_padded_under_the_mask():
    chunks = list(pipeline().load(drop_last=False).chunk(4))
    assert len(chunks) == 3
    assert [int(chunk["mask"].sum()) for chunk in chunks] == [32, 32, 6]
    assert all(chunk["image"].shape == (4, 8, 4) for chunk in chunks)


def test_chunks_for_devices_keep_the_split_behind_the_steps():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    chunk = next(iter(pipeline().load(sharding=mesh).chunk(2)))
    wanted = NamedSharding(mesh, PartitionSpec(None, "data"))
    assert chunk["image"].sharding.is_equivalent_to(wanted, 3)
    parts = next(iter(pipeline().load(pmap=True).chunk(2)))
    assert parts["image"].shape == (8, 2, 1, 4)
    reader = batch(arrays(image=PIXELS), 2)
    places = DataLoader.from_generator().set_sample_list_generator(reader, jax.devices()[:4])
    np.testing.assert_array_equal(
        np.swapaxes(next(iter(places.chunk(2)))["image"], 0, 1).reshape(-1, 4), PIXELS[:16]
    )


def test_chunks_are_what_scan_takes():
    loader = pipeline().load().chunk(4)

    @jax.jit
    def steps(total, chunk):
        return jax.lax.scan(lambda t, feed: (t + feed["number"].sum(), None), total, chunk)[0]

    total = jnp.int32(0)
    for chunk in loader.epoch(0):
        total = steps(total, chunk)
    assert total == sum(int(feed["number"].sum()) for feed in pipeline().load().epoch(0))


@pytest.mark.parametrize("where", [None, "mesh", "pmap"])
def test_a_resident_loader_gives_the_stream_of_one_that_is_not(where):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    given = {"mesh": {"sharding": mesh}, "pmap": {"pmap": True}}.get(where, {})
    streamed, resident = pipeline().load(**given), pipeline().load(**given, resident=True)
    for epoch in range(2):
        for feed, other in zip(streamed.epoch(epoch), resident.epoch(epoch), strict=True):
            equal(feed, other)
            shape = feed["image"].ndim
            assert feed["image"].sharding.is_equivalent_to(other["image"].sharding, shape)


def test_cursors_of_streamed_and_resident_loaders_are_the_same_places():
    streamed, resident = pipeline().load(), pipeline().load(resident=True)
    feeds = streamed.epoch(0)
    next(feeds)
    rest = list(streamed.epoch(0, feeds.cursor))
    for feed, other in zip(rest, resident.epoch(0, feeds.cursor), strict=True):
        equal(feed, other)
    there = resident.epoch(0)
    next(there)
    assert there.cursor == feeds.cursor


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda: pipeline().load(sharding="host").on_device(scaled), ValueError, "map_batches"),
        (lambda: pipeline().load().on_device(scaled, "samples"), ValueError, "'sample'"),
        (lambda: pipeline().load().on_device(3), TypeError, "on_device"),
        (lambda: pipeline().load().chunk(0), ValueError, "chunk"),
        (lambda: pipeline().load(resident=True).chunk(2), ValueError, "as_function"),
        (lambda: pipeline().load(resident=True, sharding="host"), ValueError, "host"),
    ],
)
def test_what_cannot_be_done_is_said_where_it_is_written(made, error, message):
    with pytest.raises(error, match=message):
        made()


def test_strings_are_named_where_a_stage_cannot_take_them():
    loader = DataLoader([(1.0, "a"), (2.0, "b")], batch_size=2).on_device(lambda feed: feed)
    with pytest.raises(FeedMismatch, match="stays on the host"):
        list(loader)


def test_an_error_of_a_stage_names_the_stage():
    def broken(feed):
        raise KeyError(feed["image"].shape)

    with pytest.raises(KeyError) as error:
        list(pipeline().load().on_device(broken))
    assert "broken" in error.value.__notes__[0]
