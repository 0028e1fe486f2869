"""Which cursors go on: those of the same plan, whatever else changed; all others are refused."""

import warnings

import jax
import numpy as np
import pytest
from plans import COUNT, cursor_of, numbers, plan, streamed
from seen import through_json
from steps import stream

from jreader import (
    DataLoader,
    NotResumable,
    Pipeline,
    arrays,
    npy,
    text,
)
from jreader.datasets import DistributedBatchSampler

DEVICES = jax.devices()


def changed(**changes):
    return lambda cursor: {**cursor, **changes}


def without(name):
    return lambda cursor: {key: value for key, value in cursor.items() if key != name}


CHANGED = "was changed after it was written"
DAMAGED = {
    "not a dict": (lambda cursor: [cursor], ValueError, "this is not a cursor"),
    "a key is missing": (without("digest"), ValueError, r"lacks \['digest'\]"),
    "no check": (without("check"), ValueError, r"lacks \['check'\]"),
    "a number is a text": (changed(epoch="0"), ValueError, "the epoch of this cursor is damaged"),
    "a number is a bool": (changed(samples=True), ValueError, "the samples of this cursor"),
    "a number is a float": (changed(samples=8.0), ValueError, "the samples of this cursor"),
    "a number is negative": (changed(step=-1), ValueError, "the step of this cursor is damaged"),
    "a newer format": (changed(format=3), NotResumable, "Update jreader"),
    "no format": (changed(format="2"), ValueError, "the format of this cursor is damaged"),
    "another stream": (changed(stream_version=99), NotResumable, "release that wrote it"),
    "the plan is damaged": (changed(plan={}), ValueError, "the plan of this cursor is damaged"),
    "the digest is damaged": (changed(digest="abc"), ValueError, "the digest of this cursor"),
    "the skipped are damaged": (changed(skipped=[3]), ValueError, "the skipped of this cursor"),
    "half a step skipped": (changed(skipped=[[1, 2.5]]), ValueError, "the skipped of this cursor"),
    "skipped before 0": (changed(skipped=[[-1, 2]]), ValueError, "the skipped of this cursor"),
    "a place below zero": (changed(position=[4, 4, -8]), ValueError, CHANGED),
    "a place between samples": (changed(position=[4, 4, 8.5]), ValueError, CHANGED),
    "a position of another shape": (changed(position=[4, 4, [8, 0]]), ValueError, CHANGED),
    "half a position": (changed(position=[4]), ValueError, CHANGED),
    "no JSON": (changed(position={1, 2}), ValueError, CHANGED),
    "the moments differ": (changed(step=0), ValueError, CHANGED),
    "another place": (changed(position=[4, 4, 12]), ValueError, CHANGED),
    "other samples": (changed(samples=12), ValueError, CHANGED),
    "no place, but samples": (changed(position=None), ValueError, CHANGED),
    "beyond the end": (changed(position=[4, 4, 99]), ValueError, CHANGED),
    "another epoch": (changed(epoch=1), ValueError, CHANGED),
    "another seed in the plan": (
        lambda cursor: through_json(cursor) | {"plan": {**cursor["plan"], "ops": ["shuffle"]}},
        ValueError,
        CHANGED,
    ),
    "another check": (changed(check="0123456789abcdef"), ValueError, CHANGED),
}


@pytest.mark.parametrize(("damage", "error", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_cursor_is_refused(damage, error, words):
    loader = plan().batch(4).load()
    with pytest.raises(error, match=words):
        list(loader.epoch(0, at=damage(cursor_of(loader))))


def test_a_cursor_of_format_1_is_refused_with_the_reason():
    loader = plan().batch(4).load()
    written = without("check")(cursor_of(loader)) | {"format": 1, "stream_version": 1}
    with pytest.raises(NotResumable, match=r"format 1.*other orders.*release that wrote it"):
        loader.epoch(0, at=written)


def test_a_cursor_with_notes_of_the_users_beside_is_that_cursor():
    loader = plan().batch(4).load()
    cursor = dict(sorted(cursor_of(loader).items(), reverse=True)) | {"loss": 0.5}
    assert stream(loader.epoch(0, at=cursor)) == stream(loader.epoch(0))[2:]


def test_a_cursor_is_of_its_epoch():
    loader = plan().batch(4).load()
    with pytest.raises(ValueError, match=r"of epoch 0, not 1: use loader.epoch\(0, at=cursor\)"):
        loader.epoch(1, at=cursor_of(loader))


@pytest.mark.parametrize(
    "cursor", [{}, [], 3, "abc", None, {"epoch": 0, "step": 0, "position": None}]
)
def test_what_is_no_cursor_is_refused_at_every_door(cursor):
    loader = plan().batch(4).load()
    with pytest.raises(ValueError, match="this is not a cursor"):
        loader.load_state_dict(cursor)
    if cursor is not None:
        with pytest.raises(ValueError, match="this is not a cursor"):
            loader.epoch(0, at=cursor)
        with pytest.raises(ValueError, match="this is not a cursor"):
            loader.steps(9, at=cursor)


FOREIGN = {
    "another seed": (plan(seed=2), "line 2 is shuffle.*seed=1.*here it is shuffle.*seed=2"),
    "a drawn seed": (plan(seed=None), "here it is shuffle.*seed=None"),
    "another window": (plan(size=8), "buf_size=None.*here it is .*buf_size=8"),
    "more data": (plan(count=52), r"line 1 is .*int64\[48\].*here it is .*int64\[52\]"),
    "another dtype": (
        Pipeline(arrays(n=np.arange(COUNT, dtype="int32"))).shuffle(seed=1),
        r"here it is .*int32\[48\]",
    ),
    "another order of ops": (
        Pipeline(arrays(n=np.arange(COUNT))).skip(0).shuffle(seed=1),
        "line 2 is shuffle.*here it is skip",
    ),
    "an op more": (plan().firstn(COUNT), "here it is firstn"),
    "an op less": (Pipeline(arrays(n=np.arange(COUNT))), "here it is found by place: 48"),
    "samples that are read": (
        Pipeline(arrays(n=np.arange(COUNT))).map(lambda row: row).shuffle(seed=1),
        "line 2 is shuffle.*here it is found by place",
    ),
    "another source": (
        Pipeline(numbers).map(lambda n: {"n": n}).shuffle(COUNT, 1),
        "here it is a function",
    ),
    "part of the data": (plan().shard(1, 0), "here it is shard"),
    "a filter": (plan().filter(lambda row: row["n"] > 3), "line 3 is .*here it is|here it is"),
}


@pytest.mark.parametrize(("other", "words"), FOREIGN.values(), ids=FOREIGN)
def test_a_cursor_of_another_plan_is_refused_with_the_first_difference(other, words):
    cursor = cursor_of(plan().batch(4).load())
    loader = other.batch(4).load()
    for give in (
        lambda: loader.epoch(0, at=cursor),
        lambda: loader.steps(at=cursor),
        lambda: loader.load_state_dict(cursor),
    ):
        with pytest.raises(NotResumable, match=f"of another plan, whose .*{words}"):
            give()


def test_the_size_of_batches_that_are_counted_is_part_of_the_plan():
    cursor = cursor_of(plan().batch(4).shuffle(3, seed=2).load())
    with pytest.raises(NotResumable, match=r"batch\(batch_size=4.*here it is batch\(batch_size=8"):
        plan().batch(8).shuffle(3, seed=2).load().epoch(0, at=cursor)


HARMLESS = {
    "capacity": lambda plan: plan.batch(4).load(capacity=64),
    "devices": lambda plan: plan.batch(4).load(sharding=jax.make_mesh((2,), ("data",))),
    "pmap": lambda plan: plan.batch(4).load(pmap=DEVICES[:4]),
    "look-ahead": lambda plan: plan.prefetch(5).batch(4).prefetch(2).load(),
    "padding": lambda plan: plan.batch(4, drop_last=True).load(drop_last=False),
    "a stage": lambda plan: plan.batch(4).load().on_device(lambda feed: feed),
    "another spelling": lambda plan: DataLoader.from_generator().set_sample_generator(plan, 4),
    "batch size": lambda plan: plan.batch(8).load(),
}


def values(loader, **at):
    """All numbers of the feeds, without padding."""
    found = []
    for feed in loader.epoch(0, **at):
        column = feed["n"] if isinstance(feed, dict) else jax.tree.leaves(feed)[0]
        found += np.ravel(column)[: COUNT - len(found)].tolist()
    return found


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("source", [plan, streamed], ids=["indexed", "streamed"])
def test_a_harmless_change_is_accepted(change, source):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(the data|the feeds) of this", UserWarning)
        loader = source().batch(4).load()
        whole = values(loader)
        assert values(change(source()), at=cursor_of(loader, 4)) == whole[16:]


def test_other_workers_are_accepted_without_a_word():
    def fn(n):
        return n + 1

    base = Pipeline(numbers).shuffle(9, 1)
    alone = base.map(fn).batch(4).load()
    whole = values(alone)
    for other in (base.xmap(fn, 3, 2, order=True), base.map(fn, threads=2), base.map(fn)):
        assert values(other.batch(4).load(), at=cursor_of(alone)) == whole[8:]


def test_a_changed_function_is_told_and_accepted():
    cursor = cursor_of(streamed(lambda n: n).batch(4).load())
    loader = streamed(lambda n: n + 100).batch(4).load()
    with pytest.warns(UserWarning, match="a function of this pipeline is not what it was") as told_:
        rest = values(loader, at=cursor)
    assert told_[0].filename == __file__
    assert min(rest) >= 100
    with pytest.warns(UserWarning, match="a function of this pipeline"):
        loader.load_state_dict(cursor)
    assert stream(loader) == stream(loader.epoch(0))[2:]


def test_what_a_function_closes_over_is_part_of_it():
    def added(k):
        return lambda n: n + k

    cursor = cursor_of(streamed(added(1)).batch(4).load())
    values(streamed(added(1)).batch(4).load(), at=cursor)
    with pytest.warns(UserWarning, match="a function of this pipeline"):
        values(streamed(added(2)).batch(4).load(), at=cursor)


def test_the_cursor_of_one_rank_is_that_of_all():
    loaders = [
        DataLoader(
            range(COUNT), batch_sampler=DistributedBatchSampler(range(COUNT), 4, 2, rank, seed=1)
        )
        for rank in range(2)
    ]
    cursor = cursor_of(loaders[0])
    assert stream(loaders[1].epoch(0, at=cursor)) == stream(loaders[1].epoch(0))[2:]


def test_what_a_function_falls_back_on_is_part_of_it():
    def scaled(by):
        return lambda n, by=by: n * by

    cursor = cursor_of(streamed(scaled(1)).batch(4).load())
    with pytest.warns(UserWarning, match="a function of this pipeline"):
        values(streamed(scaled(2)).batch(4).load(), at=cursor)


def test_a_plan_is_the_same_in_every_process(python):
    script = """
        import json
        from functools import partial
        from jreader import Pipeline, Reader
        from jreader.readers import fingerprint

        class Called:
            def __call__(self, n):
                return n in {"one", "two", "three", "four"}

        def letters(n):
            return n in names and table[n] is kept

        names, table = {"one", "two", "three", "four"}, {"one": {"a", "b", "c"}, "two": Called}
        kept = frozenset({("a", 1), ("b", 2), ("c", 3)})
        held = Called()
        held.names, held.other = names, [held, object(), open(json.__file__), print, json]

        plan = Pipeline(lambda: "abc").filter(lambda n: n in {"one", "two", "three", "four"})
        plan = plan.map(partial(max, "b")).map(Called()).map(str.upper).shuffle(3)
        plan = plan.map(letters).map(held).map(held.__call__).map(partial(letters, n=names))
        print(json.dumps(fingerprint(plan)))
    """
    found = {python(script, PYTHONHASHSEED=str(seed)).stdout for seed in range(3)}
    assert len(found) == 1
    assert "0x" not in found.pop()


def test_moved_files_are_the_same_plan_and_longer_ones_are_not(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in "ab":
        np.save(tmp_path / folder / "n.npy", np.arange(COUNT))
        (tmp_path / folder / "lines").write_text("\n".join(map(str, range(COUNT))))

    def mapped(folder):
        return Pipeline(npy(tmp_path / folder / "n.npy")).shuffle(seed=1).batch(4).load()

    def lines(folder):
        reader = text(tmp_path / folder / "lines")
        return Pipeline(reader).map(int).shuffle(9, seed=1).batch(4).load()

    for of in (mapped, lines):
        assert values(of("b"), at=cursor_of(of("a"))) == values(of("a"))[8:]
    cursors = [cursor_of(of("a")) for of in (mapped, lines)]
    np.save(tmp_path / "b" / "n.npy", np.arange(COUNT + 1))
    (tmp_path / "b" / "lines").write_text("1\n" * COUNT)
    for of, cursor, words in zip((mapped, lines), cursors, ("n.npy", "lines"), strict=True):
        with pytest.raises(NotResumable, match=f"{words}.*bytes.*here it is.*{words}"):
            of("b").epoch(0, at=cursor)
