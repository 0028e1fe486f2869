"""Fields that are None: in every sample they stay None, and in some they are an error."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jreader import Columns, DataLoader, Pipeline, source, stack
from jreader.errors import FeedMismatch

ROWS = 8


def sample(number, note=None):
    return {
        "x": np.full(2000, number, np.float32),  # large enough for a worker to stack in place
        "note": note,
        "inner": {"none": None, "y": number},
    }


SAMPLES = [sample(number) for number in range(ROWS)]
PAIRS = [(np.full(2, number, np.float32), None) for number in range(ROWS)]


class OneByOne:
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def as_they_are(made):
    return made


def checked(feeds, size=4):
    """Checks that each feed has the two None, and that every sample came once."""
    feeds = list(feeds)
    assert all(feed["note"] is None and feed["inner"]["none"] is None for feed in feeds)
    numbers = np.concatenate([np.ravel(feed["inner"]["y"]) for feed in feeds])
    assert numbers.tolist() == list(range(ROWS))
    assert np.concatenate([np.asarray(f["x"]).reshape(-1, 2000)[:, 0] for f in feeds]).tolist() == (
        numbers.tolist()
    )
    return feeds


def one_epoch():
    return Pipeline(source(SAMPLES)).epochs(1)


LOADED = {
    "batch": lambda: one_epoch().batch(4).load(),
    "host": lambda: one_epoch().batch(4).load(sharding="host"),
    "mesh": lambda: one_epoch().batch(4).load(sharding=Mesh(jax.devices()[:4], ("data",))),
    "pmap": lambda: one_epoch().batch(4).load(pmap=jax.devices()[:2]),
    "stacked": lambda: one_epoch().batch(4).map_batches(as_they_are).load(),
    "rebatched": lambda: one_epoch().batch(3).rebatch(4).load(),
    "map": lambda: one_epoch().map(as_they_are, processes=2).batch(4).load(),
    "threads": lambda: one_epoch().map(as_they_are, threads=2).batch(4).load(),
    "cache": lambda: one_epoch().cache().batch(4).load(),
    "on_device": lambda: one_epoch().batch(4).load().on_device(as_they_are),
    "DataLoader": lambda: DataLoader(OneByOne(SAMPLES), batch_size=4),
    "workers": lambda: DataLoader(OneByOne(SAMPLES), batch_size=4, num_workers=2),
    "collate": lambda: DataLoader(OneByOne(SAMPLES), batch_size=4, collate_fn=stack),
    "places": lambda: DataLoader(OneByOne(SAMPLES), batch_size=4, places=jax.devices()[:2]),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_field_that_is_none_in_all_samples_is_none_in_each_feed(name):
    with LOADED[name]() as loader:
        checked(loader)


def test_tuples_keep_a_none():
    feeds = [*Pipeline(source(PAIRS)).epochs(1).batch(4).load(), *DataLoader(PAIRS, batch_size=4)]
    assert [(feed[0][:, 0].tolist(), feed[1]) for feed in feeds] == 2 * [
        ([0, 1, 2, 3], None),
        ([4, 5, 6, 7], None),
    ]


def test_a_padded_last_feed_keeps_a_none_and_its_mask():
    feeds = list(one_epoch().batch(5).load(last="pad"))
    assert [feed["note"] for feed in feeds] == [None, None]
    assert np.concatenate([feed["mask"] for feed in feeds]).sum() == ROWS


def test_chunks_of_steps_keep_a_none():
    (chunk,) = one_epoch().batch(4).load().chunk(2)
    assert chunk["note"] is None
    assert chunk["x"].shape == (2, 4, 2000)


def test_padded_batches_keep_a_none():
    rows = [{"x": np.arange(number + 1), "note": None} for number in range(4)]
    feeds = list(Pipeline(source(rows)).epochs(1).padded_batch(2, fields=["x"]).load())
    assert [(feed["note"], feed["x"].shape) for feed in feeds] == [(None, (2, 2)), (None, (2, 4))]


def test_a_batch_of_columns_gives_its_none_to_each_sample():
    columns = Columns(stack(SAMPLES))
    assert len(columns) == ROWS
    assert [each["note"] for each in columns] == [None] * ROWS
    assert columns[2]["inner"] == {"none": None, "y": 2}
    assert columns[2:4].columns["note"] is None
    assert len(columns[2:4]) == 2


def test_specs_and_shapes_have_a_none_where_feeds_have_it():
    batches = one_epoch().batch(4)
    assert batches.element_spec["note"] is None
    assert one_epoch().element_spec["inner"]["none"] is None
    assert one_epoch().peek()["note"] is None
    (shapes,) = batches.load().shapes()
    (feed, _) = batches.load()
    assert shapes["note"] is None
    assert batches.load().element_spec["note"] is None
    assert jax.tree.structure(shapes) == jax.tree.structure(feed)


def test_a_mapping_leaves_a_none_out_and_a_name_asks_for_values():
    feeds = list(one_epoch().batch(4).load({"image": "x"}))
    assert [feed["image"].shape for feed in feeds] == [(4, 2000)] * 2
    with pytest.raises(FeedMismatch, match=r"'why'.* holds None in sample 0.*leave it out"):
        list(one_epoch().batch(4).load({"why": "note"}))


LATER = [sample(number, None if number < 4 else number) for number in range(ROWS)]
ENGINES = {
    "load": lambda rows: Pipeline(source(rows)).epochs(1).batch(4).load(),
    "columns": lambda rows: (
        Pipeline(source(rows)).epochs(1).batch(4).map_batches(as_they_are).load()
    ),
    "processes": lambda rows: (
        Pipeline(source(rows)).epochs(1).map(as_they_are, processes=2).batch(4).load()
    ),
    "DataLoader": lambda rows: DataLoader(OneByOne(rows), batch_size=4),
    "workers": lambda rows: DataLoader(OneByOne(rows), batch_size=4, num_workers=2),
}


VALUES = [2.5, "text", np.zeros(3), [1, 2]]  # in one process: to begin others takes time
CASES = [(engine, 3) for engine in ENGINES]
CASES += [(engine, value) for engine in ("load", "columns", "DataLoader") for value in VALUES]


@pytest.mark.parametrize(("engine", "value"), CASES)
def test_a_none_in_some_samples_names_the_field_and_the_sample(engine, value):
    rows = [sample(number, None if number == 2 else value) for number in range(ROWS)]
    with ENGINES[engine](rows) as loader, pytest.raises(FeedMismatch) as raised:
        list(loader)
    for word in ("'note'", "None in sample 2 of a batch", "in sample 0", ".map(fn)", ".filter(fn)"):
        assert word in str(raised.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ends", ["None first", "None last"])
def test_a_field_that_is_none_in_some_batches_only_is_an_error_that_names_it(engine, ends):
    rows = LATER if ends == "None first" else LATER[::-1]
    with ENGINES[engine](rows) as loader, pytest.raises(FeedMismatch, match=r"'note'.*one tree"):
        list(loader)


def test_batches_of_columns_keep_what_a_function_made_none():
    plan = one_epoch().batch(4).map_batches(lambda batch: {**batch, "made": None})
    assert [feed["made"] for feed in plan.load()] == [None, None]
    assert next(iter(plan.unbatch()))["made"] is None


def test_samples_that_have_nothing_but_none_are_an_error():
    with pytest.raises(ValueError, match="columns need an array"):
        list(Pipeline(source([{"note": None}] * 4)).epochs(1).batch(2).load())


@pytest.mark.parametrize("last", [None, np.arange(2)])
def test_a_field_to_pad_has_no_none(last):
    rows = [{"x": None, "y": 1}, {"x": last, "y": 2}]
    with pytest.raises(FeedMismatch, match=r"'x'.* is None"):
        list(Pipeline(source(rows)).epochs(1).padded_batch(2, fields=["x"]).load())


@pytest.mark.parametrize("make", [stack, lambda rows: list(DataLoader(rows, batch_size=2))])
def test_samples_that_are_none_are_no_batch(make):
    with pytest.raises(FeedMismatch, match="is None"):
        make([None, None])
