"""Sequences in the orders of context parallelism: which token stands where, and what attends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from together import processes

from jreader import Pipeline, arrays, as_function
from jreader.devices import ContextParallel, sharding_placement
from jreader.errors import FeedMismatch

ORDERS = ["zigzag", "striped"]
in_each_order = pytest.mark.parametrize("order", ORDERS)
ROWS, LENGTH = 4, 32


def mesh_of(shards, rows=1):
    devices = np.array(jax.devices()[: shards * rows])
    return Mesh(devices.reshape(rows, shards), ("data", "context"))


def split(shards, order="zigzag", rows=1):
    return ContextParallel(mesh_of(shards, rows), order)


def tokens_of(shard, length, shards, order):
    """The published formulas: of two chunks of each, and of stripes."""
    if order == "striped":
        return list(range(shard, length, shards))
    chunks = np.split(np.arange(length), 2 * shards)
    return [*chunks[shard].tolist(), *chunks[2 * shards - 1 - shard].tolist()]


def documents(rows=ROWS):
    """Packed rows: tokens, the document of each, and its place in the document."""
    rng = np.random.default_rng(0)
    begins = rng.random((rows, LENGTH)) < 0.1
    begins[:, 0] = True
    places = np.arange(LENGTH, dtype=np.int32)
    return {
        "tokens": rng.integers(0, 1000, (rows, LENGTH), np.int32),
        "segment_ids": begins.cumsum(1, dtype=np.int32),
        "positions": places - np.maximum.accumulate(np.where(begins, places, 0), axis=1),
    }


def first_feed(host, parts):
    return next(iter(Pipeline(arrays(**host)).batch(ROWS).load(sharding=parts)))


@in_each_order
@pytest.mark.parametrize("shards", [1, 2, 3, 5, 8])
def test_each_device_has_the_tokens_of_the_published_formula(shards, order):
    length = 2 * shards * 6
    tokens = np.arange(3)[:, None] * 10_000 + np.arange(length)
    placed = sharding_placement(split(shards, order)).put({"x": tokens.astype(np.int32)})["x"]
    for part in placed.addressable_shards:
        own = tokens_of(part.device.id, length, shards, order)
        np.testing.assert_array_equal(part.data, tokens[:, own])


@given(shards=st.integers(1, 16), chunk=st.integers(1, 9), order=st.sampled_from(ORDERS))
def test_positions_are_those_of_the_published_formula(shards, chunk, order):
    length, mesh = 2 * shards * chunk, AbstractMesh((shards,), ("context",))
    parts = ContextParallel(NamedSharding(mesh, PartitionSpec(None, "context")), order)
    own = parts.positions(length).reshape(shards, -1)
    assert own.tolist() == [tokens_of(shard, length, shards, order) for shard in range(shards)]
    work = (own + 1).sum(axis=1)  # a token attends to those before it, and to itself
    assert np.ptp(work) <= length


@in_each_order
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_every_field_is_moved_alike_and_restored(order, kind):
    mesh = jax.make_mesh((2, 4), ("data", "context"), axis_types=(kind, kind))
    host, parts = documents(), ContextParallel(mesh, order)
    feed = first_feed(host, parts)
    for name, array in host.items():
        np.testing.assert_array_equal(feed[name], array[:, parts.positions(LENGTH)])
        for restored in (parts.restored, jax.jit(parts.restored, static_argnames="axis")):
            for axis in (1, -1):
                np.testing.assert_array_equal(restored(feed[name], axis=axis), array)


@in_each_order
@pytest.mark.parametrize("chunk", [None, 3])
def test_feed_after_feed_is_in_the_order(order, chunk):
    parts = split(4, order, rows=2)
    plan = Pipeline(arrays(**documents(6 * ROWS))).shuffle(seed=0).batch(ROWS)
    here, there = plan.load(sharding="host"), plan.load(sharding=parts)
    if chunk:
        here, there = here.chunk(chunk), there.chunk(chunk)
    for feed, host in zip(there, here, strict=True):
        for name, array in host.items():
            moved = array[..., parts.positions(LENGTH)]
            np.testing.assert_array_equal(feed[name], moved)


def test_a_run_goes_on_over_other_shards_in_another_order():
    plan = Pipeline(arrays(**documents(8 * ROWS))).shuffle(seed=0).batch(ROWS)
    first, then = split(4, "zigzag"), split(8, "striped")
    before = iter(plan.load(sharding=first))
    seen = [first.restored(next(before)["tokens"]) for _ in range(3)]
    rest = plan.load(sharding=then).steps(8, before.cursor)
    seen += [then.restored(feed["tokens"]) for feed in rest]
    expected = [feed["tokens"] for feed in plan.load(sharding="host")]
    np.testing.assert_array_equal(seen, expected)


def attended(tokens, segments, positions, every=None):
    """Causal attention inside documents: queries of these tokens, to the keys of `every` one."""
    keys, key_segments, key_positions = every or (tokens, segments, positions)

    def features(ids):
        return jnp.sin(ids[..., None] * jnp.arange(1, 9) / 8)

    scores = jnp.einsum("bqd,bkd->bqk", features(tokens), features(keys))
    same = segments[:, :, None] == key_segments[:, None]
    seen = same & (positions[:, :, None] >= key_positions[:, None])
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bqk,bkd->bqd", weights, features(keys + 1))


def gathered(*mine):
    """The same of one shard, which asks the others for their keys."""
    every = [jax.lax.all_gather(each, "context", axis=1, tiled=True) for each in mine]
    return attended(*mine, every)


@in_each_order
@pytest.mark.parametrize(("shards", "rows"), [(2, 1), (4, 2), (8, 1)])
def test_attention_over_shards_is_that_of_whole_sequences(shards, rows, order):
    host, parts = documents(), split(shards, order, rows)
    spec = PartitionSpec("data", "context")
    sharded = jax.shard_map(gathered, mesh=mesh_of(shards, rows), in_specs=spec, out_specs=spec)
    made = parts.restored(jax.jit(sharded)(*first_feed(host, parts).values()))
    np.testing.assert_allclose(made, attended(*host.values()), atol=1e-5)


def test_fields_that_the_axis_does_not_split_behind_their_rows_stay_as_they_are():
    mesh, tokens = mesh_of(4, rows=2), documents()["tokens"]
    host = {
        "heads": np.stack([tokens, tokens + 1, tokens + 2], axis=1),
        "whole": tokens,
        "label": np.arange(ROWS, dtype=np.int32),
        "name": np.array(["a", "b", "c", "d"]),
    }
    specs = [("data", None, "context"), ("data",), ("context",)]
    named = [NamedSharding(mesh, PartitionSpec(*names)) for names in specs]
    parts = ContextParallel(dict(zip(host, [*named, "host"], strict=True)))
    plan = Pipeline(arrays(**host)).batch(ROWS).epochs(3)
    for feed in plan.load(sharding=parts, last="pad"):
        heads = host["heads"][:, :, parts.positions(LENGTH)]
        np.testing.assert_array_equal(feed["heads"], heads)
        np.testing.assert_array_equal(parts.restored(feed["heads"], axis=2), host["heads"])
        assert feed["mask"].all()
        for name in ("whole", "label", "name"):
            np.testing.assert_array_equal(feed[name], host[name])


@in_each_order
def test_sequences_without_tokens_are_dealt_like_others(order):
    feed = first_feed({"x": np.zeros((ROWS, 0, 3), np.int32)}, split(2, order))
    assert feed["x"].shape == (ROWS, 0, 3)


def test_a_spec_means_the_mesh_of_the_line_that_it_is_written_on():
    with jax.set_mesh(mesh_of(4)):
        parts = ContextParallel(PartitionSpec(None, "context"), "striped")
    assert parts.shards == 4


OVER_HOSTS = """
from jax.sharding import Mesh
from jreader import Pipeline, arrays
from jreader.devices import ContextParallel

def dealt(shape, order):
    mesh = Mesh(np.array(jax.devices()).reshape(shape), ("data", "context"))
    plan = Pipeline(arrays(x=np.array(given["rows"], np.int32))).shuffle(seed=0).batch(4)
    for feed in plan.load(sharding=ContextParallel(mesh, order)):
        for shard in feed["x"].addressable_shards:
            yield [shard.index[0].start or 0, shard.index[1].start or 0, shard.data.tolist()]

say([list(dealt(*case)) for case in given["cases"]])
"""


@pytest.mark.slow
def test_two_processes_deal_one_global_batch():
    tokens, cases = documents(2 * ROWS)["tokens"], [((1, 4), "zigzag"), ((2, 2), "striped")]
    both = processes(OVER_HOSTS, 2, devices=2, given={"rows": tokens.tolist(), "cases": cases})
    plain = [*Pipeline(arrays(tokens)).shuffle(seed=0).batch(ROWS).load(sharding="host")]
    for (shape, order), *told in zip(cases, *both, strict=True):
        made = np.zeros((2, ROWS, LENGTH), np.int32)
        for number, (row, token, part) in [each for mine in told for each in enumerate(mine)]:
            rows, length = np.shape(part)
            made[number // 2, row : row + rows, token : token + length] = part
        moved = split(shape[1], order).positions(LENGTH)
        np.testing.assert_array_equal(made, [feed[:, moved] for feed in plain])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: ContextParallel(mesh_of(2), "ring"), "needs 'zigzag' or 'striped', not 'ring'"),
        (lambda: ContextParallel(jax.devices()[0]), "needs fields that the axis 'context'"),
        (lambda: ContextParallel(NamedSharding(mesh_of(2), PartitionSpec("data"))), "or another"),
        (lambda: ContextParallel(mesh_of(2), axis="sequence"), "or another axis="),
        (
            lambda: first_feed({**documents(), "label": np.arange(ROWS)}, split(2)),
            "such a field has none",
        ),
        (
            lambda: ContextParallel(
                NamedSharding(mesh_of(2), PartitionSpec(None, ("context", "data")))
            ),
            "splits by itself",
        ),
        (lambda: first_feed(documents(), split(3)), "multiple of 6: make rows of 36"),
        (lambda: split(5, "striped").positions(32), "multiple of 5: make rows of 35"),
        (
            lambda: Pipeline(arrays(**documents())).batch(4).load(sharding=split(2), resident=True),
            "without resident=True",
        ),
        (
            lambda: as_function(Pipeline(arrays(**documents())).batch(4), sharding=split(2)),
            "use .load.sharding=...",
        ),
    ],
)
def test_what_cannot_be_dealt_says_what_to_type(wrong, says):
    with pytest.raises((ValueError, FeedMismatch), match=says):
        wrong()
