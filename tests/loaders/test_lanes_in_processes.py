"""Streams in lanes in real processes: each opens its own files, and knows where all lanes are."""

from pathlib import Path

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


@pytest.mark.slow
@pytest.mark.parametrize("last", ["pad"])
def test_two_processes_read_their_lanes_and_know_the_places_of_all(last):
    check(2, last)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["drop", "wrap"])
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


COUNTED = """
import io
from jreader import Pipeline, source

BLOCK = 1024
fetched = {}

class Counted(io.FileIO):
    def readinto(self, buffer):
        many = super().readinto(buffer)
        fetched[self.name] = fetched.get(self.name, 0) + many
        return many

def samples(path):
    with io.BufferedReader(Counted(path), BLOCK) as lines:
        for line in lines:
            yield {"number": int(line)}

plan = Pipeline(source(given["paths"])).shuffle(seed=1).read(samples, lanes=8).batch(8)
mesh = jax.make_mesh((8,), ("data",))
with plan.load(sharding=mesh, last="pad").epoch(0) as feeds:
    for feed in feeds:
        if feeds.step == given.get("until"):
            break
say(fetched)
"""
BLOCK = 1024


def written(folder, least):
    """Sixteen files of lines of 16 bytes: `least` lines, twice as many, three times ..."""
    paths = []
    for number in range(16):
        paths.append(str(folder / f"{number}.txt"))
        lines = [f"{line:015}\n" for line in range(least * (number + 1))]
        (folder / f"{number}.txt").write_text("".join(lines))
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_each_byte_is_read_by_one_process(tmp_path, count):
    paths = written(tmp_path, 20)
    every = processes(COUNTED, count, devices=8 // count, given={"paths": paths})
    assert sorted(path for fetched in every for path in fetched) == sorted(paths)
    for fetched in every:
        assert fetched == {path: Path(path).stat().st_size for path in fetched}


@pytest.mark.slow
def test_a_process_reads_its_share_of_the_bytes_to_within_a_block(tmp_path):
    every = processes(COUNTED, 4, devices=2, given={"paths": written(tmp_path, 100), "until": 90})
    for fetched in every:
        assert len(fetched) == 2  # its lanes' first files
        # 90 lines, and those of the batches that were prefetched
        assert all(0 <= many - 90 * 16 <= BLOCK for many in fetched.values())


TRAINED = """
import orbax.checkpoint as ocp
from jreader import Pipeline, source

def samples(file):
    for place in range(int(file) % 7):
        yield {"x": np.float32(int(file) + place / 8)}

files = Pipeline(source(list(given["files"]))).shuffle(seed=1)
plan = files.read(samples, lanes=8).filter(lambda sample: sample["x"] % 1 != 0.25)
loader = plan.shuffle(3, seed=2).batch(8).load(sharding=(mesh := jax.make_mesh((8,), ("data",))))
everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

@jax.jit
def step(weight, feed):
    loss = ((feed["x"] * weight - 1) ** 2).mean()
    return weight - 1e-3 * loss, loss

manager = ocp.CheckpointManager(given["folder"])
weight = jax.device_put(np.float32(0.25), everywhere)
losses, cursor = [], None
if manager.latest_step() is not None:
    kept = manager.restore(manager.latest_step(), args=ocp.args.Composite(
        weight=ocp.args.StandardRestore({"weight": weight}), cursor=ocp.args.JsonRestore()))
    weight, cursor = kept.weight["weight"], kept.cursor
feeds = loader.epoch(0, at=cursor)
for feed in feeds:
    weight, loss = step(weight, feed)
    losses.append(float(loss.addressable_data(0)))
    if feeds.step == given.get("until"):
        manager.save(feeds.step, args=ocp.args.Composite(
            weight=ocp.args.StandardSave({"weight": weight}),
            cursor=ocp.args.JsonSave(feeds.cursor)))
        break
feeds.close()
manager.close()
say(losses)
"""


@pytest.mark.slow
def test_a_run_with_orbax_goes_on_on_other_processes(tmp_path):
    pytest.importorskip("orbax.checkpoint")

    def trained(count, name, **told):
        told |= {"files": FILES, "folder": str(tmp_path / name)}
        every = processes(TRAINED, count, devices=8 // count, given=told)
        assert every == every[:1] * count
        return every[0]

    expected = trained(1, "undisturbed")
    assert len(expected) > 4
    begun = trained(4, "stopped", until=2)
    assert begun + trained(2, "stopped") == pytest.approx(expected, rel=1e-6)
