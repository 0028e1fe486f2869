"""`pipeline[i]` and `pipeline[i:j]`: what a pass would give there, found without one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movers import fast, moving
from seen import canonical, see
from widths import examples

import jreader
from jreader import DataLoader, Pipeline, arrays, at_epoch, firstn, source

pytestmark = pytest.mark.filterwarnings("ignore:.* and an earlier part of the same plan split")

COUNT = 11
rows = Pipeline(arrays(n=np.arange(COUNT), x=np.arange(2.0 * COUNT).reshape(COUNT, 2)))


def total(sample):
    return sample["n"] + sample["x"].sum()


def noisy(sample, rng):
    return sample["n"] + rng.integers(100)


PIPELINES = {
    "arrays": rows,
    "shuffled": rows.shuffle(seed=1),
    "epochs": rows.shuffle(seed=1).epochs(2),
    "mapped": rows.shuffle(seed=1).map(total),
    "on threads": rows.map(total, threads=2),
    "random": rows.shuffle(seed=1).map(noisy, rng=True, seed=2),
    "random, in part": rows.map(noisy, rng=True, seed=2).skip(2).firstn(7).shard(2, 1),
    "buffered": rows.map(total).prefetch(2),
    "batches": rows.shuffle(seed=1).batch(4),
    "full batches": rows.batch(4, drop_last=True),
    "batches of mapped samples": rows.map(total).batch(4),
    "mapped batches": rows.shuffle(seed=1).batch(4).map_batches(lambda columns: columns["n"] * 2),
    "data sets": Pipeline(source(list(range(COUNT)))).chain(source("abc")).shuffle(seed=0),
    "beside": rows.compose(rows.shuffle(seed=3)),
}
SLICES = [
    slice(None), slice(2, 7), slice(-3, None), slice(None, -2), slice(1, 100), slice(5, 2),
    slice(-100, 3), slice(None, None, 3), slice(1, 8, 2), slice(0, 0), slice(3, 4),
]  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_an_item_is_that_of_a_pass(name):
    pipeline = PIPELINES[name]
    samples = [canonical(sample) for sample in pipeline]
    assert len(pipeline) == len(samples)
    places = range(-len(samples), len(samples))
    assert [canonical(pipeline[place]) for place in places] == samples * 2
    assert canonical(pipeline[np.int64(1)]) == samples[1]
    assert [canonical(sample) for sample in reversed(pipeline)] == samples[::-1]
    for place in (len(samples), -len(samples) - 1):
        with pytest.raises(IndexError, match=f"has {len(samples)} (samples|batches)"):
            pipeline[place]


@pytest.mark.filterwarnings("ignore:.* and an earlier part of the same plan split")
@pytest.mark.parametrize("index", SLICES, ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_slice_is_a_pipeline_of_that_part_of_a_pass(name, index):
    pipeline = PIPELINES[name]
    samples = [canonical(sample) for sample in pipeline]
    part = pipeline[index]
    assert isinstance(part, Pipeline)
    assert [canonical(sample) for sample in part] == samples[index]
    assert len(part) == len(samples[index])
    assert [canonical(part[place]) for place in range(len(part))] == samples[index]


@pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of")
@given(moving, st.integers(0, 2), st.slices(25))
@examples(100)
def test_items_and_slices_of_any_indexed_plan_are_those_of_a_pass(recipe, epoch, index):
    pipeline = Pipeline(firstn(at_epoch(fast(recipe), epoch), 25))
    samples = [canonical(sample) for sample in pipeline]
    assert [canonical(pipeline[place]) for place in range(len(samples))] == samples
    if index.step is None or index.step > 0:
        assert [canonical(sample) for sample in pipeline[index]] == samples[index]


def test_a_slice_of_batches_reads_no_samples_of_others_and_can_be_loaded():
    asked = []

    class Noted:
        def __len__(self):
            return 100

        def __getitem__(self, rows):
            asked.extend(rows.tolist())
            return rows

    batches = Pipeline(source(Noted(), batched=True)).batch(10).map_batches(lambda rows: rows * 2)
    feeds = [feed.tolist() for feed in batches[3:5].load(sharding="host")]
    assert asked == list(range(30, 50))
    assert feeds == [list(range(60, 80, 2)), list(range(80, 100, 2))]
    asked.clear()
    assert [int(row) for row in batches[7]] == list(range(140, 160, 2))
    assert asked == list(range(70, 80))


def test_a_part_is_not_mapped_before_it_begins():
    seen = []

    def noted(sample):
        seen.append(int(sample["n"]))
        return sample["n"]

    mapped = rows.map(noted)
    assert [int(n) for n in mapped[8:]] == [8, 9, 10]
    assert seen == [8, 9, 10]


@pytest.mark.parametrize(
    "how", [{"threads": 2}, {"rng": True, "seed": 1}, {"rng": True, "seed": 1, "threads": 2}]
)
def test_nor_is_it_on_workers_or_with_randomness(how):
    seen = []

    def noted(sample, rng=None):
        seen.append(int(sample["n"]))
        return int(sample["n"]), rng and int(rng.integers(1000))

    mapped = rows.map(noted, **how)
    whole = list(mapped)
    for pipeline in (mapped, mapped.prefetch(2)):
        for index in (slice(8, None), slice(6, 9), slice(1, None, 4)):
            seen.clear()
            assert list(pipeline[index]) == whole[index]
            assert sorted(seen) == [n for n, _ in whole[index]]
    seen.clear()
    assert list(mapped.batch(2)[4:]) == [whole[8:10], whole[10:]]
    assert sorted(seen) == [8, 9, 10]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_part_resumes_from_every_position(name):
    part = PIPELINES[name][1:6]
    whole = see(part)
    for place, position in enumerate(whole.positions[:-1]):
        assert see(part, position).samples == whole.samples[place:]
    assert "Pipeline(" in repr(part)


def test_a_pipeline_without_an_end_is_found_from_its_beginning():
    endless = rows.epochs()
    assert endless[10**9]["n"] == 10**9 % COUNT
    assert [int(sample["n"]) for sample in endless[20:24]] == [9, 10, 0, 1]
    assert endless[5:][0]["n"] == 5
    with pytest.raises(IndexError, match="has no end"):
        endless[-1]
    with pytest.raises(ValueError, match="has no end"):
        endless[-3:]


@pytest.mark.parametrize(
    ("pipeline", "advice"),
    [
        (Pipeline(lambda: iter(range(9))), r"\.skip\(n\)"),
        (rows.filter(bool), r"\.skip\(n\)"),
        (rows.filter(bool).batch(2).map_batches(len), r"\.skip\(n\)"),
        (rows.map(total, on_error="skip"), r"\.skip\(n\)"),
        (rows.shuffle(), "seed=0"),
        (rows.shuffle().batch(2), "seed=0"),
        (rows.map(noisy, rng=True), "seed=0"),
    ],
)
@pytest.mark.parametrize("index", [0, slice(2)])
def test_what_has_to_be_read_is_refused_with_what_to_type(pipeline, advice, index):
    with pytest.raises(TypeError, match=advice):
        pipeline[index]


@pytest.mark.parametrize("index", ["n", 1.0, np.ones((2, 2), int), None, (1, 2)])
def test_what_is_no_place_is_refused(index):
    with pytest.raises(TypeError, match="an int, a slice or a list of ints"):
        rows[index]


def test_a_slice_does_not_go_backwards():
    for step in (-1, 0):
        with pytest.raises(ValueError, match="reversed"):
            rows[::step]


def test_a_pipeline_is_still_a_reader_and_no_data_set():
    with pytest.raises(TypeError, match=r"Pipeline\(reader\)\.batch"):
        DataLoader(rows)
    with pytest.raises(TypeError, match="is a reader already"):
        source(rows)
    with pytest.raises(TypeError, match="is a reader already"):
        source(rows.batch(2), batched=True)
    assert bool(rows[:0])
    assert len(rows[:0]) == 0


def test_a_function_that_fails_is_explained_at_a_place_too():
    def fails(sample):
        raise ValueError("no")

    for pipeline in (rows.map(fails), rows.map(fails, threads=2), rows.batch(2).map_batches(fails)):
        with pytest.raises(ValueError, match="no") as caught:
            pipeline[0]
        assert any("fails" in note for note in caught.value.__notes__)


def test_a_subclass_that_gives_other_samples_is_read():
    class Doubled(jreader.map_readers):
        def __call__(self):
            return (2 * sample for sample in super().__call__())

    with pytest.raises(TypeError, match=r"\.skip\(n\)"):
        Pipeline(Doubled(total, rows))[0]
