"""Feeds in the checkpoints of orbax: `jreader.checkpoint`."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest
from together import processes

from jreader import NotResumable, Pipeline, arrays

ocp = pytest.importorskip("orbax.checkpoint")
v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
checkpoint = pytest.importorskip("jreader.checkpoint")

Composite = ocp.args.Composite
STATE = {"weights": np.arange(3.0)}


def loader_of(size=4, seed=1):
    return Pipeline(arrays(n=np.arange(40))).shuffle(seed=seed).batch(size).load()


def numbers(feeds, count):
    return [next(feeds)["n"].tolist() for _ in range(count)]


def both(feeds):
    return Composite(state=ocp.args.StandardSave(STATE), data=checkpoint.Save(feeds))


@pytest.fixture(params=["async", "sync"])
def manager(request, tmp_path):
    there = request.param == "async"
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=there)
    with ocp.CheckpointManager(tmp_path / "kept", options=options) as made:
        yield made


@pytest.fixture
def feeds():
    with loader_of().steps() as made:
        yield made


def saved(manager, step, feeds):
    manager.save(step, args=both(feeds))
    manager.wait_until_finished()  # an error comes here, where orbax writes later


def through_json(cursor):
    return json.loads(json.dumps(cursor))


class Held:
    """A folder in which nothing is written until it is told to let go."""

    def __init__(self, path):
        self.path, self.lets = path, threading.Event()

    def __truediv__(self, name):
        assert self.lets.wait(60)
        return self.path / name


def restored(manager, step, given=None):
    manager.wait_until_finished()
    found = manager.restore(step, args=Composite(data=checkpoint.Restore(given)))
    return found["data"]


class TestSaved:
    def test_a_cursor_resumes_with_the_next_feed(self, manager, feeds):
        numbers(feeds, 13)
        assert manager.save(13, args=both(feeds))
        expected = numbers(feeds, 9)
        cursor = restored(manager, 13)
        assert (cursor["epoch"], cursor["step"]) == (1, 13)
        with loader_of().steps(at=cursor) as rest:
            assert numbers(rest, 9) == expected

    def test_feeds_go_on_in_place(self, manager, feeds):
        numbers(feeds, 13)
        manager.save(13, args=both(feeds))
        expected = numbers(feeds, 9)
        assert restored(manager, 13, feeds) is feeds
        assert numbers(feeds, 9) == expected

    def test_other_feeds_go_on_there(self, manager, feeds):
        numbers(feeds, 13)
        manager.save(13, args=both(feeds))
        with loader_of().steps() as others:
            restored(manager, 13, others)
            assert numbers(others, 9) == numbers(feeds, 9)

    def test_a_loader_resumes_with_the_rest_of_its_epoch(self, manager):
        loader = loader_of()
        feeds = iter(loader)
        numbers(feeds, 3)
        manager.save(3, args=both(loader))
        expected = [feed["n"].tolist() for feed in feeds]
        other = loader_of()
        assert restored(manager, 3, other) is other
        assert [feed["n"].tolist() for feed in other] == expected
        assert other.next_epoch == 1

    def test_the_cursor_is_that_of_the_call_whenever_it_is_written(self, tmp_path):
        feeds, folder = loader_of().epoch(0), Held(tmp_path)
        numbers(feeds, 2)
        save = checkpoint.CursorHandler().async_save(folder, args=checkpoint.Save(feeds))
        (later,) = asyncio.run(save)
        taken = feeds.cursor
        assert len(list(feeds)) == 8
        folder.lets.set()
        later.result()
        assert json.loads((tmp_path / "metadata").read_text()) == through_json(taken)

    def test_arguments_may_be_made_once(self, manager, feeds):
        given = both(feeds)
        for step in range(1, 5):
            numbers(feeds, 1)
            manager.save(step, args=given)
        manager.wait_until_finished()
        assert manager.all_steps() == [3, 4]  # max_to_keep
        assert [restored(manager, step)["step"] for step in (3, 4)] == [3, 4]

    def test_a_checkpoint_may_hold_nothing_else(self, manager, feeds):
        numbers(feeds, 3)
        manager.save(3, args=checkpoint.Save(feeds))
        expected = numbers(feeds, 3)
        manager.wait_until_finished()
        manager.restore(3, args=checkpoint.Restore(feeds))
        assert numbers(feeds, 3) == expected

    def test_orbax_restores_it_without_arguments(self, manager, feeds, tmp_path):
        numbers(feeds, 3)
        manager.save(3, args=both(feeds))
        manager.wait_until_finished()
        with ocp.CheckpointManager(tmp_path / "kept") as another:
            assert another.restore(3)["data"] == through_json(feeds.cursor)

    def test_the_checkpointer_alone_saves_it_too(self, tmp_path, feeds):
        numbers(feeds, 3)
        with ocp.Checkpointer(checkpoint.CursorHandler()) as checkpointer:
            checkpointer.save(tmp_path / "one", args=checkpoint.Save(feeds))
            assert checkpointer.restore(tmp_path / "one", args=checkpoint.Restore())["step"] == 3

    def test_it_reads_what_json_save_wrote_and_is_read_by_json_restore(self, tmp_path, feeds):
        numbers(feeds, 3)
        by_json = Composite(data=ocp.args.JsonSave(feeds.cursor))
        with ocp.CheckpointManager(tmp_path / "json") as manager:
            manager.save(3, args=by_json)
        with ocp.CheckpointManager(tmp_path / "ours") as manager:
            manager.save(3, args=both(feeds))
        with ocp.CheckpointManager(tmp_path / "json") as manager:
            assert restored(manager, 3) == through_json(feeds.cursor)
        with ocp.CheckpointManager(tmp_path / "ours") as manager:
            kept = manager.restore(3, args=Composite(data=ocp.args.JsonRestore()))
        assert kept["data"] == through_json(feeds.cursor)


class TestRefused:
    def test_a_checkpoint_of_another_plan(self, manager, feeds):
        numbers(feeds, 3)
        manager.save(3, args=both(feeds))
        others = loader_of(seed=2)
        with pytest.raises(NotResumable, match=r"seed=1\); here it is shuffle\(.*seed=2"):
            restored(manager, 3, others)
        with others.steps() as started:
            first = numbers(started, 1)
            with pytest.raises(NotResumable, match="of another plan"):
                restored(manager, 3, started)
            assert first + numbers(started, 1) == numbers(others.steps(), 2)

    def test_an_older_checkpoint_without_the_item(self, manager):
        manager.save(3, args=Composite(state=ocp.args.StandardSave(STATE)))
        with pytest.raises(KeyError, match='"data" was not found'):
            restored(manager, 3)

    @pytest.mark.parametrize(
        ("item", "error", "says"),
        [
            (ocp.args.StandardSave(STATE), NotResumable, "'data' .* has 0 cursors, and no process"),
            (ocp.args.JsonSave({"step": 3}), ValueError, "this is not a cursor: {'step': 3}"),
        ],
    )
    def test_an_item_that_is_no_cursor(self, tmp_path, item, error, says):
        with ocp.CheckpointManager(tmp_path) as manager:
            manager.save(3, args=Composite(data=item))
        with ocp.CheckpointManager(tmp_path) as manager, pytest.raises(error, match=says):
            restored(manager, 3)

    def test_a_save_that_fails_leaves_no_step_and_the_next_one_is_whole(self, manager, feeds):
        plan = Pipeline(arrays(n=np.arange(40))).xmap(dict, 2, 4)
        with plan.batch(4).load().steps() as unordered:
            numbers(unordered, 3)
            with pytest.raises(NotResumable, match="order=True"):
                saved(manager, 3, unordered)
            assert len(numbers(unordered, 7)) == 7  # the pass goes on
        assert manager.latest_step() is None
        numbers(feeds, 4)
        assert manager.save(4, args=both(feeds))
        assert restored(manager, 4)["step"] == 4

    @pytest.mark.parametrize("given", [len, None, {"step": 3}])
    def test_what_is_neither_feeds_nor_a_loader(self, given):
        with pytest.raises(TypeError, match=r"give feeds or a loader, as in checkpoint.Save\(feed"):
            checkpoint.Save(given)

    def test_what_cannot_be_moved(self, feeds):
        with pytest.raises(TypeError, match=r"give feeds or a loader, .* not {'epoch': 0, "):
            checkpoint.Restore(feeds.cursor)


def test_the_next_interface_of_orbax_keeps_a_cursor_as_it_is(tmp_path, feeds):
    numbers(feeds, 13)
    with v1.training.Checkpointer(tmp_path) as checkpointer:
        kept = {"state": STATE, "data": feeds.cursor}
        saved = checkpointer.save_checkpointables_async(13, kept)
        expected = numbers(feeds, 9)
        saved.result()
        cursor = checkpointer.load_checkpointables(13)["data"]
    with loader_of().steps(at=cursor) as rest:
        assert numbers(rest, 9) == expected


ON_TWO = """
import orbax.checkpoint as ocp
from jreader import NotResumable, Pipeline, arrays, checkpoint

def lane(number):
    for row in range(100):
        yield {"n": 1000 * number + row}
rows = Pipeline(arrays(n=np.arange(40)))
mesh = jax.make_mesh((many,), ("data",))
lanes = Pipeline(range(8).__iter__).read(lane, lanes=4).batch(4).load(sharding=mesh).steps()
shared = rows.shuffle(seed=1).batch(4).load(sharding=mesh).steps()
own = rows.shard(many, me).shuffle(seed=me).batch(2).load().steps()
state = jax.device_put(np.float32(7), jax.sharding.NamedSharding(mesh, jax.P()))

def numbers(feeds, count):
    return [next(feeds)["n"].addressable_data(0).tolist() for _ in range(count)]

numbers(shared, 13)
numbers(own, 3)
numbers(lanes, 5)
with ocp.CheckpointManager(given) as manager:
    manager.save(13, args=ocp.args.Composite(
        state=ocp.args.StandardSave({"state": state}),
        shared=checkpoint.Save(shared), own=checkpoint.Save(own), lanes=checkpoint.Save(lanes)))
    after = numbers(shared, 4), numbers(own, 4), numbers(lanes, 4)
    manager.wait_until_finished()
    manager.restore(13, args=ocp.args.Composite(
        shared=checkpoint.Restore(shared), own=checkpoint.Restore(own),
        lanes=checkpoint.Restore(lanes)))
    again = numbers(shared, 4), numbers(own, 4), numbers(lanes, 4)
lost = Pipeline(lambda: iter(range(99))).xmap(abs, 2, 4).batch(4).load(sharding=mesh).steps()
next(lost)
refused = ""
try:
    with ocp.CheckpointManager(given + "/refused") as manager:
        manager.save(1, args=ocp.args.Composite(data=checkpoint.Save(lost)))
        manager.wait_until_finished()
except NotResumable as error:
    refused = str(error)
say([after, again, refused])
"""


@pytest.mark.slow
def test_two_processes_save_one_cursor_of_shared_feeds_and_one_each_of_their_own(tmp_path):
    every = processes(ON_TWO, 2, given=str(tmp_path))
    assert all(later == again for later, again, _ in every)
    assert all("no place in that order can be found again" in refused for *_, refused in every)
    assert every[0][0][1] != every[1][0][1]
    files = {
        "shared": ["metadata"],
        "lanes": ["metadata"],
        "own": ["process_0-of-2.json", "process_1-of-2.json"],
    }
    for item, names in files.items():
        there = {each.name for each in (tmp_path / "13" / item).iterdir()}
        assert sorted(there - {"commit_success.txt"}) == names  # which newer releases add
    with ocp.CheckpointManager(tmp_path) as manager:
        kept = manager.restore(13, args=Composite(shared=checkpoint.Restore()))
        with loader_of().steps(at=kept["shared"]) as feeds:
            halves = zip(every[0][0][0], every[1][0][0], strict=True)
            assert numbers(feeds, 4) == [one + other for one, other in halves]
        with pytest.raises(NotResumable, match=r"'own' .* has 2 cursors, .* as many processes"):
            manager.restore(13, args=Composite(own=checkpoint.Restore()))
