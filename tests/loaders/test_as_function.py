"""A pipeline as a function of (epoch, step): the loader's stream, under every transformation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from movers import fast, moving_arrays
from widths import examples, few

import jreader
from jreader import FeedMismatch, Pipeline, arrays, as_function, data, shuffle
from jreader.readers import indexed

ROWS = 50
IMAGES = np.random.default_rng(0).integers(0, 255, (ROWS, 6), np.uint8)
LABELS = np.arange(ROWS)
FIELDS = [data("image", [None, 2, 3]), data("label", [None], "int64")]


def digits(seed=3):
    return Pipeline(arrays(IMAGES, LABELS)).shuffle(seed=seed).batch(8)


def equal(feed, other):
    jax.tree.map(np.testing.assert_array_equal, feed, other)


@pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of")
@given(moving_arrays, st.integers(1, 6), st.integers(0, 3))
@examples(40, least=5)
def test_the_function_is_the_stream_of_the_loader_by_law(recipe, size, epoch):
    pipeline = Pipeline(fast(recipe)).batch(size)
    if not size <= indexed(pipeline.reader.reader).length < 10**6:
        return  # empty, or without an end
    held, batch_at = jreader.as_function(pipeline)
    loader = pipeline.load(capacity=0, last="drop")
    feeds = list(loader.epoch(epoch))
    assert len(batch_at) == len(feeds) == len(loader)
    for step, feed in enumerate(feeds[:4]):
        equal(batch_at(held, epoch, step), feed)


def test_it_runs_under_jit_and_scan_with_traced_epoch_and_step():
    held, batch_at = jreader.as_function(digits(), FIELDS)
    loader = digits().load(FIELDS)

    @jax.jit
    def epoch_of(held, epoch):
        return jax.lax.scan(
            lambda _, step: (None, batch_at(held, epoch, step)), None, jnp.arange(len(batch_at))
        )[1]

    for epoch in range(3):
        feeds = [*loader.epoch(epoch)]
        whole = epoch_of(held, epoch)
        equal(whole, jax.tree.map(lambda *leaves: jnp.stack(leaves), *feeds))
        assert whole["label"].dtype == jnp.int32
        assert whole["image"].shape == (6, 8, 2, 3)


def test_vmap_over_seeds_deals_each_run_in_an_order_of_its_own():
    held, batch_at = jreader.as_function(digits())
    runs = jax.vmap(lambda seed: batch_at(held, 1, 2, seed))(jnp.arange(8))
    for seed in range(8):
        feeds = list(digits(seed).load(capacity=0).epoch(1))
        equal(jax.tree.map(lambda leaf, seed=seed: leaf[seed], runs), feeds[2])
    assert len({tuple(np.asarray(labels)) for labels in runs[1]}) == 8


def test_it_runs_under_shard_map_over_replicated_data():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    held, batch_at = jreader.as_function(digits(), sharding=everywhere)

    def part(held):
        feed = batch_at(held, 0, 0)
        device = jax.lax.axis_index("data")
        return jax.lax.dynamic_slice_in_dim(feed[1], device, 1)

    mapped = jax.shard_map(
        part, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec("data")
    )
    expected = next(iter(digits().load()))[1]
    np.testing.assert_array_equal(jax.jit(mapped)(held), expected)


def test_rows_of_sharded_data_are_found_too():
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    held, batch_at = jreader.as_function(digits(), sharding=mesh)
    assert len(held[0].sharding.device_set) == 2
    equal(jax.jit(batch_at)(held, 0, 1), list(digits().load())[1])


def test_columns_keep_their_names_where_jax_sorts_them():
    shared, first, second = np.arange(5) * 10, np.arange(5), np.arange(5, 10)
    both = jreader.chain(arrays(z=shared, a=first), arrays(z=shared, a=second))
    pipeline = Pipeline(both).shuffle(seed=0).batch(5)
    held, batch_at = jreader.as_function(pipeline)
    for step, feed in enumerate(pipeline.load(last="drop")):
        equal(jax.jit(batch_at)(held, 0, step), feed)


def test_functions_of_batches_are_traced():
    pipeline = digits().map_batches(lambda columns: (columns[0] * 2.0, columns[1] + 1))
    held, batch_at = jreader.as_function(pipeline)
    equal(jax.jit(batch_at)(held, 0, 0), next(iter(pipeline.load())))


def test_functions_that_compute_with_numpy_are_told_apart():
    pipeline = digits().map_batches(lambda columns: (np.sort(columns[0]), columns[1]))
    held, batch_at = jreader.as_function(pipeline)
    with pytest.raises(jax.errors.TracerArrayConversionError) as error:
        jax.jit(batch_at)(held, 0, 0)
    assert "with jax.numpy" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("pipeline", "error", "message"),
    [
        (lambda: Pipeline(arrays(LABELS)), TypeError, r"needs batches"),
        (lambda: Pipeline(arrays(LABELS)).map(str).batch(2), TypeError, r"indexed reader"),
        (lambda: Pipeline(arrays(LABELS)).epochs().batch(2), ValueError, r"leave .epochs"),
        (lambda: Pipeline(jreader.source(LABELS)).batch(2), ValueError, r"when they are asked"),
    ],
)
def test_what_is_no_function_of_the_step_is_refused(pipeline, error, message):
    with pytest.raises(error, match=message):
        jreader.as_function(pipeline())


def test_values_that_do_not_fit_are_refused_before_anything_is_traced():
    wide = Pipeline(arrays(np.array([1, 2**40]))).batch(1)
    with pytest.raises(FeedMismatch, match="int32"):
        jreader.as_function(wide)
    with pytest.raises(FeedMismatch, match=r"\[8\]|shape"):
        jreader.as_function(digits(), [data("image", [None, 5]), data("label", [None])])


def test_an_unseeded_plan_needs_a_seed():
    held, batch_at = jreader.as_function(digits(seed=None))
    with pytest.raises(ValueError, match="seed=0"):
        batch_at(held, 0, 0)
    equal(batch_at(held, 0, 0, seed=3), next(iter(digits(3).load())))


@pytest.mark.parametrize("fluent", few([True, False], [True]))
def test_training_as_one_program_gives_the_parameters_of_the_loop(fluent):
    plan = shuffle(arrays(IMAGES, LABELS), seed=3)
    pipeline = digits() if fluent else jreader.batch(plan, 8)
    fields = [data("image", [None, 6]), data("label", [None], "int32")]
    held, batch_at = jreader.as_function(pipeline, fields)

    def step(weights, feed):
        def loss(weights):
            return jnp.mean((feed["image"] / 255 @ weights - feed["label"]) ** 2)

        return weights - 0.01 * jax.grad(loss)(weights)

    looped = weights = jnp.zeros(6)
    jitted = jax.jit(step)
    for epoch in range(2):
        for feed in Pipeline(pipeline).load(fields).epoch(epoch):
            looped = jitted(looped, feed)

    @jax.jit
    def train(weights, epoch):
        def body(weights, number):
            return step(weights, batch_at(held, epoch, number)), None

        return jax.lax.scan(body, weights, jnp.arange(len(batch_at)))[0]

    for epoch in range(2):
        weights = train(weights, epoch)
    np.testing.assert_array_equal(weights, looped)


@pytest.mark.filterwarnings("ignore:shuffle-after-batch")
@pytest.mark.parametrize("resident", [False, True])
def test_whole_batches_in_another_order_are_refused(resident):
    batches = Pipeline(arrays(x=np.arange(8))).batch(2).shuffle(seed=1)
    with pytest.raises(TypeError, match=r"gives whole batches in another order: shuffle samples"):
        batches.load(resident=True) if resident else as_function(batches)


def test_batches_that_are_kept_are_found_where_they_were():
    batches = Pipeline(arrays(x=np.arange(8))).shuffle(seed=1).batch(2).cache()
    data, batch_at = as_function(batches)
    feeds = [batch_at(data, 0, step)["x"].tolist() for step in range(len(batch_at))]
    assert feeds == [feed["x"].tolist() for feed in batches.load()]
