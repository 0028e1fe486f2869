"""Streams in lanes in real processes: each opens its own files, and knows where all lanes are."""

import pytest
from together import ended, processes

from jreader import Pipeline, source

LANED = """
from jreader import Pipeline, source

opened = []
def samples(file):
    opened.append(int(file))
    for place in range(int(file) % 7):
        yield {"file": int(file), "place": place}

def stream():
    files = Pipeline(source(list(given["files"]))).shuffle(seed=1)
    plan = files.read(samples, lanes=8).filter(lambda sample: sample["place"] % 3 != 2)
    return plan.shuffle(3, seed=2).batch(8)

mesh = jax.make_mesh((8,), ("data",))
loader = stream().load(sharding=mesh, last=given["last"], steps_per_epoch=given.get("steps"))
whole = jax.jit(lambda feed: feed, out_shardings=jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec()))
seen, cursors = [], []
with loader.epoch(given.get("epoch", 0), at=given.get("at")) as feeds:
    for feed in feeds:
        feed = whole(feed)
        seen.append({name: np.asarray(column.addressable_data(0)).tolist()
                     for name, column in feed.items()})
        cursors.append(feeds.cursor)
        if len(seen) == given.get("until"):
            break
say({"seen": seen, "cursors": cursors, "opened": sorted(set(opened))})
"""
FILES = [6, 3, 13, 5, 2, 4, 6, 6, 3, 5, 13, 4, 20, 5, 6, 12, 11]


def samples(file):
    for place in range(int(file) % 7):
        yield {"file": int(file), "place": place}


def alone(last):
    files = Pipeline(source(FILES)).shuffle(seed=1)
    plan = files.read(samples, lanes=8).filter(lambda sample: sample["place"] % 3 != 2)
    with plan.shuffle(3, seed=2).batch(8).load(sharding="host", last=last).epoch(0) as feeds:
        return [{name: column.tolist() for name, column in feed.items()} for feed in feeds]


def on(count, last, **told):
    return processes(LANED, count, devices=8 // count, given={"files": FILES, "last": last, **told})


@pytest.mark.parametrize("last", ["pad"])
def test_two_processes_read_their_lanes_and_know_the_places_of_all(last):
    check(2, last)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["drop", "pad", "wrap"])
def test_four_processes_read_their_lanes_and_know_the_places_of_all(last):
    check(4, last)


def check(count, last):
    expected = alone(last)
    every = on(count, last)
    for seen in every:
        assert seen["seen"] == expected
        assert seen["cursors"] == every[0]["cursors"]
    files = [set(seen["opened"]) for seen in every]
    assert len(set.union(*files)) > max(map(len, files))
    return every


@pytest.mark.slow
@pytest.mark.parametrize("last", ["drop", "pad", "wrap"])
def test_a_run_goes_on_on_fewer_and_on_more_processes(last):
    expected = alone(last)
    (one, *_) = on(4, last, until=2)
    assert one["seen"] == expected[:2]
    (two, *_) = on(1, last, until=1, at=one["cursors"][-1])
    assert two["seen"] == expected[2:3]
    for three in on(2, last, at=two["cursors"][-1]):
        assert three["seen"] == expected[3:]


@pytest.mark.slow
def test_lanes_of_other_lengths_are_an_error_where_that_was_asked_for():
    told = {"files": FILES, "last": "error"}
    every = ended(LANED, 2, devices=4, given=told, patience=20)
    assert all(each.code for each in every)
    assert all("ShortEpoch" in each.err for each in every)


@pytest.mark.slow
@pytest.mark.parametrize(("last", "steps"), [("wrap", 20), ("pad", 3), ("drop", 2)])
def test_an_epoch_of_so_many_steps_ends_everywhere(last, steps):
    for seen in on(2, last, steps=steps):
        assert len(seen["seen"]) == steps
