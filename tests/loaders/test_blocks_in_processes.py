"""Blocks that lanes own, in real processes: all of them together decode each block once."""

import pytest
from block_sources import Blocks
from together import processes

from jreader import Pipeline

OWNED = """
from block_sources import Blocks
from jreader import Pipeline

mesh = jax.make_mesh((8,), ("data",))
whole = jax.jit(lambda feed: feed, out_shardings=jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec()))

def owned(until=None, at=None):
    data = Blocks(given["sizes"])
    plan = Pipeline(data.reader()).shuffle(seed=1, blocks=16, lanes=8)
    seen, cursors = [], []
    with plan.batch(64).load(sharding=mesh, last="pad").epoch(0, at=at) as feeds:
        for feed in feeds:
            feed = whole(feed)
            seen.append({name: np.asarray(column.addressable_data(0)).tolist()
                         for name, column in feed.items()})
            cursors.append(feeds.cursor)
            if len(seen) == until:
                break
    return {"seen": seen, "cursor": cursors[-1], "decoded": data.decoded}

say([owned(**case) for case in given["cases"]])
"""
SIZES = [40, 41, 0, 25, 39, 1, 47] * 40


def on(count, *cases):
    """What each process has of each case, one after another."""
    told = {"sizes": SIZES, "cases": cases}
    return list(zip(*processes(OWNED, count, devices=8 // count, given=told), strict=True))


def alone():
    plan = Pipeline(Blocks(SIZES).reader()).shuffle(seed=1, blocks=16, lanes=8).batch(64)
    with plan.load(sharding="host", last="pad").epoch(0) as feeds:
        return [{name: column.tolist() for name, column in feed.items()} for feed in feeds]


@pytest.mark.slow
def test_processes_have_the_feeds_of_one_decode_each_block_once_and_go_on_on_other_processes():
    expected = alone()
    every, begun = on(4, {}, {"until": 31})
    assert all(each["seen"] == expected for each in every)
    blocks = set(Blocks(SIZES).filled)
    assert set().union(*(each["decoded"] for each in every)) == blocks
    assert sum(len(each["decoded"]) for each in every) <= 1.1 * len(blocks)
    run = [begun]
    for count, until in ((1, 30), (2, None)):  # fewer, and more
        run += on(count, {"until": until, "at": run[-1][0]["cursor"]})
    for part in run:
        assert all(each["seen"] == part[0]["seen"] for each in part)
    assert [feed for part in run for feed in part[0]["seen"]] == expected
