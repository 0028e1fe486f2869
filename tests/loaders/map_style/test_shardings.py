"""`DataLoader(dataset, sharding=...)`: where feeds go, as `Pipeline.load` has it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader import BatchNotDivisible, DataLoader, Pipeline, source
from jreader.devices import ContextParallel

MESH = Mesh(np.array(jax.devices()[:8]), ("data",))
GRID = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "seq"))
ROWS = [{"x": np.arange(8, dtype=np.int32) + 10 * n, "id": n} for n in range(20)]
SEQUENCES = {"x": NamedSharding(GRID, PartitionSpec("data", "seq")), "id": GRID}


@pytest.mark.parametrize(
    "sharding",
    [
        MESH,
        NamedSharding(MESH, PartitionSpec("data")),
        jax.devices()[3],
        SEQUENCES,
        {"x": MESH, "id": "host"},
        "host",
    ],
    ids=["mesh", "sharding", "device", "tree", "some on the host", "host"],
)
def test_feeds_go_where_those_of_load_go(sharding):
    ours = DataLoader(ROWS, 8, shuffle=True, drop_last=True, seed=1, sharding=sharding)
    theirs = Pipeline(source(ROWS)).shuffle(seed=1).batch(8).load(sharding=sharding)
    for ours_feed, their_feed in zip(ours, theirs, strict=True):
        for name, array in their_feed.items():
            assert type(ours_feed[name]) is type(array)
            assert ours_feed[name].tolist() == array.tolist()
            if isinstance(array, jax.Array):
                assert ours_feed[name].sharding == array.sharding
    assert ours.sharding is sharding


def test_sequences_are_dealt_for_attention_as_load_deals_them():
    rows = [row["x"] for row in ROWS]
    dealt = ContextParallel(NamedSharding(GRID, PartitionSpec("data", "seq")), axis="seq")
    feed = next(iter(DataLoader(rows, 8, sharding=dealt)))
    expected = next(iter(Pipeline(source(rows)).batch(8).load(sharding=dealt)))
    assert feed.sharding == expected.sharding
    assert np.asarray(feed).tolist() == np.asarray(expected).tolist() != np.stack(rows[:8]).tolist()


def test_a_bare_partition_is_over_the_mesh_of_the_line_that_names_it():
    with jax.set_mesh(MESH):
        loader = DataLoader(ROWS, 8, sharding=PartitionSpec("data"))
    assert next(iter(loader))["id"].sharding == NamedSharding(MESH, PartitionSpec("data"))
    with pytest.raises(ValueError, match="no mesh is set here"):
        DataLoader(ROWS, 8, sharding=PartitionSpec("data"))


def test_a_short_last_batch_is_padded_under_a_mask_or_left_out_with_a_warning():
    padded = list(DataLoader(ROWS, 8, drop_last=False, sharding=MESH))
    assert [int(feed["mask"].sum()) for feed in padded] == [8, 8, 4]
    with pytest.warns(UserWarning, match="4"):
        assert len(list(DataLoader(ROWS, 8, sharding=MESH))) == 2


def test_workers_make_the_same_feeds(held):
    plain, worked = (DataLoader(ROWS[:16], 8, num_workers=n, sharding=MESH) for n in (0, 2))
    assert [feed["x"].tolist() for feed in plain] == [feed["x"].tolist() for feed in worked]


def test_what_says_no_place_is_refused_where_it_is_written():
    with pytest.raises(BatchNotDivisible, match="Use a batch size of 8 or 16"):
        DataLoader(ROWS, 12, sharding=MESH)
    with pytest.raises(TypeError, match=r"sharding is a list of 2 devices"):
        DataLoader(ROWS, 8, sharding=jax.devices()[:2])
    with pytest.raises(TypeError, match="sharding needs a jax Sharding"):
        DataLoader(ROWS, 8, sharding=8)
    with pytest.raises(ValueError, match="sharding is a Mesh of the axes"):
        DataLoader(ROWS, 8, sharding=Mesh(GRID.devices, ("a", "b")))
    with pytest.raises(TypeError, match="sharding or places, not both"):
        DataLoader(ROWS, 8, sharding=MESH, places=MESH)
