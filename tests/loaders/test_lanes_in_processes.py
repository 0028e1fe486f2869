"""Streams in lanes in real processes: each opens its own files, and knows where all lanes are."""

from pathlib import Path

import pytest
from together import ended, processes

from jreader import Pipeline, source

LANED = """
from jreader import Pipeline, source

mesh = jax.make_mesh((8,), ("data",))
whole = jax.jit(lambda feed: feed, out_shardings=jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec()))

def laned(last, steps=None, at=None, until=None):
    opened = []
    def samples(file):
        opened.append(int(file))
        for place in range(int(file) % 7):
            yield {"file": int(file), "place": place}

    files = Pipeline(source(list(given["files"]))).shuffle(seed=1)
    plan = files.read(samples, lanes=8).filter(lambda sample: sample["place"] % 3 != 2)
    plan = plan.shuffle(3, seed=2).batch(8)
    loader = plan.load(sharding=mesh, last=last, steps_per_epoch=steps)
    seen, cursors = [], []
    with loader.epoch(0, at=at) as feeds:
        for feed in feeds:
            feed = whole(feed)
            seen.append({name: np.asarray(column.addressable_data(0)).tolist()
                         for name, column in feed.items()})
            cursors.append(feeds.cursor)
            if len(seen) == until:
                break
    return {"seen": seen, "cursors": cursors, "opened": sorted(set(opened))}

say([laned(**case) for case in given["cases"]])
"""
FILES = [6, 3, 13, 5, 2, 4, 6, 6, 3, 5, 13, 4, 20, 5, 6, 12, 11]
ENDS = ["drop", "pad", "wrap"]


def samples(file):
    for place in range(int(file) % 7):
        yield {"file": int(file), "place": place}


def alone(last):
    files = Pipeline(source(FILES)).shuffle(seed=1)
    plan = files.read(samples, lanes=8).filter(lambda sample: sample["place"] % 3 != 2)
    with plan.shuffle(3, seed=2).batch(8).load(sharding="host", last=last).epoch(0) as feeds:
        return [{name: column.tolist() for name, column in feed.items()} for feed in feeds]


def on(count, cases):
    """What each process has of each case, one after another."""
    told = {"files": FILES, "cases": cases}
    return list(zip(*processes(LANED, count, devices=8 // count, given=told), strict=True))


@pytest.fixture(scope="module")
def on_four():
    """What four processes have of whole epochs, and of their first two steps."""
    found = on(4, [{"last": last, "until": until} for until in (None, 2) for last in ENDS])
    return found[:3], found[3:]


@pytest.mark.slow
def test_processes_read_their_lanes_and_know_the_places_of_all(on_four):
    for last, every in zip(ENDS, on_four[0], strict=True):
        expected = alone(last)
        for each in every:
            assert each["seen"] == expected
            assert each["cursors"] == every[0]["cursors"]
        files = [set(each["opened"]) for each in every]
        assert len(set.union(*files)) > max(map(len, files))


@pytest.mark.slow
def test_a_run_goes_on_on_fewer_and_on_more_processes(on_four):
    expected = [alone(last) for last in ENDS]
    at = [every[0]["cursors"][-1] for every in on_four[1]]
    assert [every[0]["seen"] for every in on_four[1]] == [whole[:2] for whole in expected]
    ends_at = list(zip(ENDS, at, strict=True))
    two = on(1, [{"last": last, "at": at, "until": 1} for last, at in ends_at])
    assert [every[0]["seen"] for every in two] == [whole[2:3] for whole in expected]
    ends_at = [(last, every[0]["cursors"][-1]) for last, every in zip(ENDS, two, strict=True)]
    three = on(2, [{"last": last, "at": at} for last, at in ends_at])
    for every, whole in zip(three, expected, strict=True):
        assert [each["seen"] for each in every] == [whole[3:]] * 2


@pytest.mark.slow
def test_lanes_of_other_lengths_are_an_error_where_that_was_asked_for():
    told = {"files": FILES, "cases": [{"last": "error"}]}
    every = ended(LANED, 2, devices=4, given=told, patience=20)
    assert all(each.code for each in every)
    assert all("ShortEpoch" in each.err for each in every)


@pytest.mark.slow
def test_an_epoch_of_so_many_steps_ends_everywhere():
    cases = [("wrap", 20), ("pad", 3), ("drop", 2)]
    found = on(2, [{"last": last, "steps": steps} for last, steps in cases])
    assert [[len(each["seen"]) for each in every] for every in found] == [
        [20] * 2,
        [3] * 2,
        [2] * 2,
    ]


COUNTED = """
import io
from jreader import Pipeline, source

BLOCK = 1024

class Counted(io.FileIO):
    def readinto(self, buffer):
        many = super().readinto(buffer)
        fetched[self.name] = fetched.get(self.name, 0) + many
        return many

def samples(path):
    with io.BufferedReader(Counted(path), BLOCK) as lines:
        for line in lines:
            yield {"number": int(line)}

mesh = jax.make_mesh((8,), ("data",))
every = []
for paths, until in given:
    fetched = {}
    plan = Pipeline(source(paths)).shuffle(seed=1).read(samples, lanes=8).batch(8)
    with plan.load(sharding=mesh, last="pad").epoch(0) as feeds:
        for feed in feeds:
            if feeds.step == until:
                break
    every.append(fetched)
say(every)
"""
BLOCK = 1024


def written(folder, least):
    """Sixteen files of lines of 16 bytes: `least` lines, twice as many, three times ..."""
    paths = []
    folder.mkdir()
    for number in range(16):
        paths.append(str(folder / f"{number}.txt"))
        lines = [f"{line:015}\n" for line in range(least * (number + 1))]
        (folder / f"{number}.txt").write_text("".join(lines))
    return paths


@pytest.mark.slow
def test_each_byte_is_read_by_one_process_and_none_before_its_time(tmp_path):
    paths, long = written(tmp_path / "short", 8), written(tmp_path / "long", 100)
    every = processes(COUNTED, 4, devices=2, given=[(paths, None), (long, 90)])
    wholes, begun = zip(*every, strict=True)
    assert sorted(path for fetched in wholes for path in fetched) == sorted(paths)
    for fetched in wholes:
        assert fetched == {path: Path(path).stat().st_size for path in fetched}
    for fetched in begun:
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

def trained(folder, until):
    manager = ocp.CheckpointManager(folder)
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
        if feeds.step == until:
            manager.save(feeds.step, args=ocp.args.Composite(
                weight=ocp.args.StandardSave({"weight": weight}),
                cursor=ocp.args.JsonSave(feeds.cursor)))
            break
    feeds.close()
    manager.close()
    return losses

say([trained(*each) for each in given["runs"]])
"""


@pytest.mark.slow
def test_a_run_with_orbax_goes_on_on_other_processes(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    stopped = str(tmp_path / "stopped")

    def trained(count, *runs):
        told = {"files": FILES, "runs": runs}
        every = processes(TRAINED, count, devices=8 // count, given=told)
        assert every == every[:1] * count
        return every[0]

    (begun,) = trained(2, (stopped, 2))
    expected, rest = trained(1, (str(tmp_path / "undisturbed"), None), (stopped, None))
    assert len(expected) > 4
    assert begun + rest == pytest.approx(expected, rel=1e-6)
