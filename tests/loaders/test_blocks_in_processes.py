"""Blocks that lanes own, in real processes: all of them together decode each block once."""

import pytest
from block_sources import Blocks
from together import processes

from jreader import Pipeline

OWNED = """
from block_sources import Blocks
from jreader import Pipeline

data = Blocks(given["sizes"])
plan = Pipeline(data.reader()).shuffle(seed=1, blocks=16, lanes=given["lanes"])
mesh = jax.make_mesh((8,), ("data",))
loader = plan.batch(64).load(sharding=mesh, last="pad")
whole = jax.jit(lambda feed: feed, out_shardings=jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec()))
seen, cursors = [], []
with loader.epoch(0, at=given.get("at")) as feeds:
    for feed in feeds:
        feed = whole(feed)
        seen.append({name: np.asarray(column.addressable_data(0)).tolist()
                     for name, column in feed.items()})
        cursors.append(feeds.cursor)
        if len(seen) == given.get("until"):
            break
say({"seen": seen, "cursor": cursors[-1], "decoded": data.decoded})
"""
SIZES = [40, 41, 0, 25, 39, 1, 47] * 40


def on(count, lanes=8, **told):
    given = {"sizes": SIZES, "lanes": lanes, **told}
    return processes(OWNED, count, devices=8 // count, given=given)


def alone():
    plan = Pipeline(Blocks(SIZES).reader()).shuffle(seed=1, blocks=16, lanes=8).batch(64)
    with plan.load(sharding="host", last="pad").epoch(0) as feeds:
        return [{name: column.tolist() for name, column in feed.items()} for feed in feeds]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_have_the_feeds_of_one_and_decode_each_block_once_together(count):
    every, expected = on(count), alone()
    assert all(each["seen"] == expected for each in every)
    blocks = set(Blocks(SIZES).filled)
    assert set().union(*(each["decoded"] for each in every)) == blocks
    assert sum(len(each["decoded"]) for each in every) <= 1.1 * len(blocks)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [(4, 1, 2), (1, 8, 1)], ids=str)
def test_a_run_goes_on_on_another_number_of_processes(hosts):
    expected, done, told = alone(), 0, {}
    for count, until in zip(hosts, (31, 30, None), strict=True):
        every = on(count, until=until, **told)
        made = every[0]["seen"]
        assert all(each["seen"] == made for each in every)
        assert made == expected[done : done + len(made)]
        done, told = done + len(made), {"at": every[0]["cursor"]}
    assert done == len(expected)
