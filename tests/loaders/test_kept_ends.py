"""`last="keep"`: a short last batch from one device; and texts in feeds that stay on the host."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jreader import DataLoader, FeedMismatch, Pipeline, arrays, as_function

WHERE = [None, "host"]


def rows(many=5):
    return Pipeline(arrays(x=np.arange(float(many)))).batch(2)


def values(feeds):
    return [feed["x"].tolist() for feed in feeds]


@pytest.mark.parametrize("where", WHERE)
def test_a_short_last_batch_is_kept_where_it_is_asked_for(where):
    loader = rows().load(sharding=where, last="keep")
    assert len(loader) == 3
    assert values(loader) == values(loader) == [[0, 1], [2, 3], [4]]
    assert all("mask" not in feed for feed in loader)


def test_a_short_last_batch_of_a_stream_is_kept():
    stream = Pipeline(lambda: ({"x": n} for n in range(5))).batch(2)
    assert values(stream.load(sharding="host", last="keep")) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_run_with_a_kept_end_resumes(done):
    loader = rows().load(sharding="host", last="keep")
    feeds = iter(loader)
    for _ in range(done):
        next(feeds)
    cursor = loader.state_dict()
    feeds.close()
    again = rows().load(sharding="host", last="keep")
    again.load_state_dict(cursor)
    assert values(again) == [[0, 1], [2, 3], [4]][done:]


def test_a_loader_of_a_generator_keeps_it_too():
    loader = DataLoader.from_generator({"x": "x"}, last="keep")
    loader.set_sample_generator(lambda: ({"x": n} for n in range(5)), 2)
    assert values(loader) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: rows().load(last="keep", resident=True),
        lambda: rows().load(last="keep").chunk(2),
        lambda: as_function(rows(), last="keep"),
        lambda: rows().load(last="keep", pmap=jax.local_devices()[:2]),
    ],
    ids=["resident", "chunk", "as_function", "pmap"],
)
def test_a_kept_end_is_refused_where_steps_need_one_shape(made):
    with pytest.raises(ValueError, match="give last='pad'"):
        made()


def test_a_kept_end_and_drop_last_contradict_each_other():
    with pytest.raises(ValueError, match="leave one out"):
        rows().load(last="keep", drop_last=True)


@pytest.mark.parametrize(
    "source",
    [
        lambda: Pipeline(lambda: ({"x": n, "id": f"a{n}"} for n in range(3))),
        lambda: Pipeline(arrays(x=np.arange(3), id=np.array(["a0", "a1", "a2"]))),
        lambda: Pipeline(arrays(x=np.arange(3), id=np.array(["a0", "a1", "a2"], object))),
    ],
    ids=["samples", "an array", "objects"],
)
def test_texts_are_fed_where_feeds_stay_on_the_host(source):
    loader = source().batch(2).load(sharding="host", last="keep")
    assert [feed["id"].tolist() for feed in loader] == [["a0", "a1"], ["a2"]]
    with pytest.raises(FeedMismatch, match="cannot live on a device"):
        list(source().batch(2).load(last="keep"))


def test_a_padded_end_of_texts_has_empty_ones_under_the_mask():
    texts = Pipeline(arrays(id=np.array(["a", "b", "c"]))).batch(2)
    *_, last = texts.load(sharding="host", last="pad")
    assert (last["id"].tolist(), last["mask"].tolist()) == (["c", ""], [True, False])
