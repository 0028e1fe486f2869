"""A run without some samples is, bit for bit, that with all, but for the rows that held one."""

import jax
import numpy as np
import pytest
from block_sources import Blocks
from held_rows import cut_of_documents
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from movers import fast, moving, source_rows
from played_hosts import even, feeds_of_loader, joined
from seen import through_json

import jreader
from jreader import DataLoader, FeedMismatch, Pipeline, Processes, arrays
from jreader.readers.columns import column_of
from jreader.readers.trees import named_leaves

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

sizes = st.one_of(st.integers(1, 5), st.just({0: 2, 3: 5, 4: 1}))
EPOCHS = range(2)


def parts(feed, *, masked):
    """The arrays of a feed, and its mask; of one without a mask, all rows are there."""
    if not masked:
        every = jax.tree.leaves(feed)
        return every, np.ones(len(every[0]), bool)
    if isinstance(feed, dict):
        return jax.tree.leaves({**feed, "mask": None}), feed["mask"]
    return jax.tree.leaves(feed[:-1]), feed[-1]


def hidden_rows(loader, number, removed):
    """For each step of some epochs, the rows that hold a removed sample: all are looked at."""
    found = {}
    for epoch in EPOCHS:
        for step in range(len(loader)):
            held = source_rows(loader.samples(step, epoch=epoch), number)
            found[epoch, step] = [row for row, each in enumerate(held) if removed & set(each)]
    return found


def same_but(whole, part, rows, *, masked):
    """Asserts that a feed is another one with zeros, and a mask, in some rows."""
    (arrays, there), (others, shown) = parts(whole, masked=masked), parts(part, masked=True)
    expected = there.copy()
    expected[rows] = False
    assert shown.tolist() == expected.tolist()
    assert len(arrays) == len(others)
    for array, other in zip(arrays, others, strict=True):
        emptied = array.copy()
        emptied[rows] = 0
        assert (other.dtype, other.shape) == (emptied.dtype, emptied.shape)
        assert other.tobytes() == emptied.tobytes()


@given(moving, sizes, st.sampled_from(["drop", "pad", "keep"]), st.data())
@settings(deadline=None)
def test_a_step_that_held_none_of_them_is_what_it_was(recipe, size, last, data):
    loader = Pipeline(fast(recipe)).firstn(60).batch(size).load(sharding="host", last=last)
    assume(len(loader))
    columns = list(named_leaves(loader.samples(0).columns))
    number = data.draw(st.integers(0, len(columns) - 1))
    field, column = columns[number]
    assume(not cut_of_documents(column))
    removed = data.draw(st.sets(st.integers(0, len(column_of(column).source) - 1), max_size=9))
    less = loader.without([*removed], field=field)
    hidden = hidden_rows(loader, number, removed)
    assert less.affected(EPOCHS) == [place for place, rows in hidden.items() if rows]
    assert len(less) == len(loader)
    for epoch in EPOCHS:
        try:
            feeds = list(loader.epoch(epoch))
        except FeedMismatch:  # of samples that differ in shape
            return
        there = less.epoch(epoch)
        for step, (whole, part) in enumerate(zip(feeds, there, strict=True)):
            same_but(whole, part, hidden[epoch, step], masked=last == "pad")


COUNT = 50


def documents(count=COUNT):
    """Rows that a damaged one is among: whoever maps it sees an error."""
    return Pipeline(arrays(n=np.arange(count))).shuffle(seed=3)


def careful(row):
    assert row["n"] not in DAMAGED, "a damaged sample was read"
    return {"n": row["n"], "twice": row["n"] * 2}


DAMAGED = {7, 8, 21, 30, 33}


def noisy(row, rng):
    return {"n": row["n"], "noise": rng.normal()}


def summed(columns):
    return {**columns, "more": columns["n"] + 1}


def checked(whole, less, removed=DAMAGED, *, masked=False, name="n"):
    """Asserts that feeds are those of the run before, but for the rows that held removed ones."""
    seen = 0
    for before, after in zip(whole, less, strict=True):
        rows = np.isin(before[name], list(removed))
        seen += rows.sum()
        same_but(before, after, rows, masked=masked)
    assert seen


PLANS = {
    "mapped": lambda: documents().map(dict).batch(6),
    "threads": lambda: documents().map(dict, threads=2).batch(6),
    "drawn": lambda: documents().map(noisy, rng=True, seed=4).batch(6),
    "blocks": lambda: in_blocks().shuffle(blocks=3, seed=1).batch(6),
    "in batches": lambda: documents().batch(6).map_batches(summed),
    "growing": lambda: documents().batch({0: 2, 5: 8}),
    "epochs": lambda: documents().epochs(2).batch(6),
    "parts": lambda: documents().shard(2, 0).skip(3).batch(6),
    "chained": lambda: documents(30).chain(Pipeline(arrays(n=np.arange(30, 70)))).batch(6),
}


def in_blocks():
    return Pipeline(Blocks([5] * 10).reader())


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_feeds_are_the_same_but_for_removed_rows_and_resume_at_every_step(plan):
    for last in ("drop", "pad"):
        loader = plan().load(sharding="host", last=last)
        less = loader.without([*DAMAGED])
        checked(loader.epoch(1), less.epoch(1), masked=last == "pad")
        whole, feeds = loader.epoch(1), less.epoch(1)
        expected = [jax.tree.leaves(feed) for feed in less.epoch(1)]
        for step in range(len(expected)):
            next(whole), next(feeds)
            for cursor in (whole.cursor, feeds.cursor):  # of the run before, and of this one
                rest = [*less.epoch(1, at=through_json(cursor))]
                for feed, wanted in zip(rest, expected[step + 1 :], strict=True):
                    for array, other in zip(jax.tree.leaves(feed), wanted, strict=True):
                        assert array.tobytes() == other.tobytes()


def test_removed_samples_are_not_read():
    loader = documents().map(careful).batch(6).load(sharding="host")
    with pytest.raises(AssertionError, match="damaged"):
        list(loader)
    less = loader.without([*DAMAGED])
    numbers = [n for feed in less.epoch(0) for n in feed["n"][feed["mask"]].tolist()]
    order = [row["n"] for row in documents()()][:48]
    assert numbers == [n for n in order if n not in DAMAGED]


def test_a_step_of_nothing_but_removed_samples_is_empty():
    loader = documents().batch(5).load(sharding="host")
    held = loader.samples(3, epoch=0).rows["n"].tolist()
    feeds = list(loader.without(held).epoch(0))
    assert not feeds[3]["mask"].any()
    assert not feeds[3]["n"].any()
    checked(loader.epoch(0), feeds, {*held})


def lanes():
    return in_blocks().shuffle(blocks=3, lanes=3, seed=1).batch(6)


@pytest.mark.parametrize("last", ["drop", "pad"])
@pytest.mark.parametrize("plan", [PLANS["mapped"], PLANS["blocks"], lanes])
def test_hosts_empty_their_own_rows(plan, last):
    loader = plan().load(sharding="host", last=last)
    removed = range(0, COUNT, 3)
    less, shares = loader.without(removed), even(6, 3)
    alone = [jax.tree.map(np.ndarray.tolist, feed) for feed in less.epoch(0)]
    hosts = [feeds_of_loader(less, share) for share in shares]
    made = list(joined(hosts, shares))
    assert [feed for feed, _ in made] == alone
    checked(loader.epoch(0), less.epoch(0), removed, masked=last == "pad")
    for step, (_, cursor) in enumerate(made):
        rest = [feeds_of_loader(less, share, cursor) for share in shares]
        assert [feed for feed, _ in joined(rest, shares)] == alone[step + 1 :]


def test_loaders_of_every_layout_hide_them():
    plan = documents().batch(6)
    mesh = jax.make_mesh((2,), ("data",))
    for options in ({}, {"sharding": mesh}, {"pmap": jax.devices()[:2]}):
        loader = plan.load(**options)
        for before, after in zip(loader, loader.without([*DAMAGED]), strict=True):
            there = ~np.isin(before["n"], [*DAMAGED])
            assert np.array_equal(after["mask"], there)
            assert np.array_equal(after["n"], np.where(there, before["n"], 0))
    chunks = plan.load().chunk(2)
    for before, after in zip(chunks, chunks.without([*DAMAGED]), strict=True):
        assert np.array_equal(after["mask"], ~np.isin(before["n"], [*DAMAGED]))
    with Processes(2) as workers:
        loader = plan.load(sharding="host", workers=workers)
        checked(loader.epoch(0), loader.without([*DAMAGED]).epoch(0))


def test_rows_of_many_lengths_are_hidden_whole():
    lengths = np.arange(1, 41) % 7 + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ragged = Pipeline(jreader.ragged(np.arange(1, offsets[-1] + 1), offsets))
    loader = ragged.shuffle(seed=1).padded_batch(4, to=[8]).load(sharding="host")
    for (epoch, step), rows in hidden_rows(loader, 0, DAMAGED).items():
        before, after = (
            list(each.epoch(epoch))[step] for each in (loader, loader.without([*DAMAGED]))
        )
        same_but(before, after, rows, masked=False)


def numbered_documents(lengths, first=1):
    """Documents whose tokens have the number of their document beside them, from `first` on."""
    numbers = np.repeat(np.arange(len(lengths)) + first, lengths)
    offsets = np.cumsum([0, *lengths])
    return Pipeline(
        arrays(
            tokens=jreader.ragged(np.arange(len(numbers)) + 100, offsets),
            document=jreader.ragged(numbers, offsets),
        )
    )


PADS = {"tokens": -5, "document": 0}
PACKS = {
    "whole": lambda docs: docs(0).pack(16, longer="split", pad=PADS, seed=1),
    "cut, and shuffled": lambda docs: docs(0).pack(16, "always", pad=PADS, seed=1).shuffle(seed=2),
    "truncated": lambda docs: docs(0).pack(9, longer="truncate", pad=PADS, seed=1),
    "in several epochs": lambda docs: docs(0).pack(16, "always", pad=PADS, seed=1).epochs(2),
    "of some documents": lambda docs: docs(0).skip(2).pack(30, pad=PADS, seed=1),
    "chained": lambda docs: (
        docs(0).pack(30, pad=PADS, seed=1).chain(docs(1).pack(30, "always", pad=PADS, seed=2))
    ),
    "mixed": lambda docs: Pipeline(
        jreader.mix(
            [
                docs(0).pack(16, "always", pad=PADS, seed=1),
                docs(1).pack(16, longer="drop", pad=PADS, seed=1),
            ],
            [1, 2],
            source="of",
            seed=1,
        )
    ),
}


@pytest.mark.parametrize("plan", PACKS.values(), ids=PACKS)
@given(st.lists(st.integers(1, 30), min_size=12, max_size=40), sizes, st.data())
@settings(deadline=None, max_examples=10)
def test_packed_rows_lose_the_tokens_of_removed_documents_and_no_others(plan, lengths, size, data):
    count = len(lengths)
    packed = plan(lambda nth: numbered_documents(lengths, 1 + nth * count))
    loader = packed.batch(size).load(sharding="host", last="pad")
    every = len(column_of(loader.samples(0).columns).source)
    removed = data.draw(st.lists(st.integers(0, every - 1), max_size=9))
    less, differ = loader.without(removed), set()
    for epoch in EPOCHS:
        pairs = zip(loader.epoch(epoch), less.epoch(epoch), strict=True)
        for step, (before, after) in enumerate(pairs):
            gone = np.isin(before["document"], np.array(removed, int) + 1)
            for name, values in before.items():
                per_token = values.shape == gone.shape
                empty = np.array(PADS.get(name, 0), values.dtype)
                expected = np.where(gone, empty, values) if per_token else values
                assert after[name].tobytes() == expected.tobytes(), name
            differ |= {(epoch, step)} if gone.any() else set()
    assert less.affected(EPOCHS) == sorted(differ)


def test_functions_of_packed_rows_get_them_without_removed_documents():
    def shifted(row):
        assert not np.isin(row["document"], [*DAMAGED]).any(), "a removed document was handed over"
        return {**row, "next": np.roll(row["tokens"], -1)}

    packed = numbered_documents([5, 3] * 20, 0).pack(16, pad={"document": -1}, seed=1)
    less = packed.map(shifted).batch(2).load(sharding="host", last="pad").without([*DAMAGED])
    kept = np.concatenate([feed["document"][feed["segment_ids"] > 0] for feed in less.epoch(0)])
    counted = np.bincount(kept)
    assert set(np.flatnonzero(counted)) == {*range(40)} - DAMAGED
    assert sum(map(int, counted)) == sum([5, 3] * 20) - 3 * 3 - 2 * 5


def test_windows_are_hidden_whole():
    docs = numbered_documents([5, 3] * 20, 0)
    loader = docs.windows(8).shuffle(seed=1).batch(2).load(sharding="host")
    for before, after in zip(loader.epoch(0), loader.without([*DAMAGED]).epoch(0), strict=True):
        gone = np.isin(before["document"], [*DAMAGED]).any(1)
        same_but(before, after, gone, masked=False)


def of_places(places, **options):
    loader = DataLoader.from_generator(**options)
    return loader.set_sample_generator(documents(), 4, places=places)


LOADERS = {
    "filled up": lambda: documents().batch(8).load(sharding="host", last="wrap"),
    "filled up, growing": lambda: documents().batch({0: 4, 2: 8}).load(last="wrap"),
    "many steps": lambda: documents().batch(8).load(last="wrap", steps_per_epoch=9),
    "few steps": lambda: documents().batch(8).load(steps_per_epoch=3),
    "one place": lambda: of_places(None),
    "two places": lambda: of_places(jax.devices()[:2]),
    "two places, padded": lambda: of_places(jax.devices()[:2], drop_last=False),
    "chunks, padded": lambda: documents().batch(4).load(last="pad").chunk(3),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_rows_are_hidden_and_known_beforehand_however_an_epoch_ends(make):
    loader = make()
    less, hidden = loader.without([*DAMAGED]), set()
    for epoch in EPOCHS:
        pairs = zip(loader.epoch(epoch), less.epoch(epoch), strict=True)
        for step, (before, after) in enumerate(pairs):
            gone = np.isin(before["n"], [*DAMAGED]) & before.get("mask", True)
            assert np.array_equal(after["mask"], before.get("mask", True) & ~gone)
            assert np.array_equal(after["n"], np.where(gone, 0, before["n"]))
            hidden |= {(epoch, step)} if gone.any() else set()
    assert hidden
    assert less.affected(EPOCHS) == sorted(hidden)


class TestSteps:
    def test_of_an_endless_plan_are_hidden_however_far_they_are(self):
        loader = documents().epochs().batch(7).load(sharding="host")
        less = loader.without([*DAMAGED])
        for start in (0, 10_000):
            checked(loader.steps(start + 20, start=start), less.steps(start + 20, start=start))
        feeds = loader.steps(20)
        hidden = [step for step, feed in enumerate(feeds) if np.isin(feed["n"], [*DAMAGED]).any()]
        assert less.affected(until=feeds.cursor) == [(0, step) for step in hidden]

    def test_of_a_plan_without_a_seed_are_hidden_too(self):
        loader = Pipeline(arrays(n=np.arange(COUNT))).shuffle().batch(5).load(sharding="host")
        first = iter(loader)
        cursor = first.cursor
        checked(first, loader.without([*DAMAGED]).epoch(0, at=cursor))

    def test_have_known_shapes_and_are_found_by_their_number(self):
        loader = documents().batch(6).load(sharding="host")
        less = loader.without([*DAMAGED])
        assert {name: spec.shape for name, spec in less.element_spec.items()} == {
            "n": (6,),
            "mask": (6,),
        }
        assert len(less.shapes()) == 1
        checked(loader.epoch(0, start=2), less.epoch(0, start=2))
        skipped = {"skip_steps": range(2, 4)}
        checked(loader.epoch(0, **skipped), less.epoch(0, **skipped))
        feeds = less.epoch(0)
        feeds.seek(5)
        assert next(feeds)["mask"].tolist() == list(less.epoch(0))[5]["mask"].tolist()


class TestCursors:
    def test_of_the_run_before_go_on_and_those_of_this_one_name_what_was_removed(self, recwarn):
        loader = documents().batch(6).load(sharding="host")
        feeds = loader.epoch(0)
        next(feeds)
        less, before = loader.without([7, 8]).without(30), feeds.cursor
        checked(feeds, less.epoch(0, at=before), {7, 8, 30})
        assert not recwarn.list
        cursor = less.epoch(0, at=before).cursor
        assert cursor["plan"]["values"][-1] == "removed: 3 samples, [7, 8, 30]"
        assert cursor["digest"] != before["digest"]
        many = loader.without(range(20)).epoch(0).cursor["plan"]["values"][-1]
        assert many.startswith("removed: 20 samples, ")
        assert len(many) < 60

    def test_of_a_run_without_other_samples_go_on_with_a_warning(self):
        loader = documents().batch(6).load(sharding="host")
        cursor = through_json(loader.without([7, 8]).epoch(0).cursor)
        for other in (loader, loader.without([7])):
            with pytest.warns(UserWarning, match=r"removed: 2 samples, \[7, 8\]"):
                other.epoch(0, at=cursor)

    def test_of_a_run_without_the_same_samples_go_on_in_silence(self, recwarn):
        loader = documents().batch(6).load(sharding="host")
        cursor = through_json(loader.without([8, 7]).epoch(0).cursor)
        loader.without([7]).without([7, 8]).epoch(0, at=cursor)
        assert not recwarn.list

    def test_of_a_masked_run_without_anything_removed_are_those_of_the_run_before(self, recwarn):
        loader = documents().batch(6).load(sharding="host")
        masked, less = loader.without([]), loader.without([7])
        feeds = masked.epoch(0)
        assert next(feeds)["mask"].all()
        cursor = through_json(feeds.cursor)
        checked(loader.epoch(0, at=cursor), less.epoch(0, at=cursor), {7})
        checked(masked.epoch(0), less.epoch(0), {7}, masked=True)
        assert cursor["plan"] == loader.epoch(0).cursor["plan"]
        assert not recwarn.list


class TestErrors:
    def test_samples_are_found_by_their_index(self):
        stream = Pipeline(lambda: range(9)).batch(3).load()
        buckets = Pipeline(jreader.ragged(np.arange(9), [0, 4, 9])).bucket([8], batch_size=1).load()
        drawn = Pipeline(arrays(n=np.arange(9))).map(noisy, rng=True, seed=1).shuffle(seed=2)
        for loader in (stream, buckets, documents().load(), drawn.batch(3).load()):
            with pytest.raises(
                TypeError, match=r"loader.without\(indices\) needs samples that are"
            ):
                loader.without([1])
        with pytest.raises(TypeError, match="leave resident=True out"):
            documents().batch(2).load(resident=True).without([1])

    def test_an_index_beyond_the_samples_raises(self):
        loader = documents().batch(2).load()
        with pytest.raises(IndexError, match=r"loader.without\(indices\) has the number 50"):
            loader.without([3, 50])
        with pytest.raises(TypeError, match="needs the number of a sample"):
            loader.without([0.5])
        with pytest.raises(ValueError, match=r"without\(indices\) has field='m'"):
            loader.without([0], field="m")
        with pytest.raises(ValueError, match=r"without\(indices\) has source=3"):
            loader.without([0], source=3)
