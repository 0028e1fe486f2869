"""Samples of many lengths: one function makes a batch of a list of them, in every door."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from seen import see

import jreader
from jreader import (
    DataLoader,
    FeedMismatch,
    Pipeline,
    arrays,
    as_function,
    batch,
    map_batches,
    source,
)

FIELDS = "words", "length"
WORDS = [list(range(1, 1 + length)) for length in (3, 1, 4, 1, 5, 2, 2, 5, 3, 5, 1)]


def pad(samples):
    rows = np.zeros((len(samples), 5), np.int32)
    for row, sample in zip(rows, samples, strict=True):
        row[: len(sample)] = sample
    return {"words": rows, "length": np.array(list(map(len, samples)), np.int32)}


def words(sample):
    return np.array(sample)


def streamed():
    yield from WORDS


READERS = {
    "a stream": Pipeline(streamed),
    "a data set": Pipeline(source(WORDS)),
    "mapped": Pipeline(source(WORDS)).map(words),
    "on threads": Pipeline(source(WORDS)).map(words, threads=2),
    "on processes": Pipeline(source(WORDS)).map(words, processes=2),
}


def expected(order, size=4, last="pad"):
    for low in range(0, len(order), size):
        made = pad([WORDS[place] for place in order[low : low + size]])
        short = size - len(made["length"])
        if short and last == "drop":
            return
        rows = {
            name: np.concatenate([x, np.zeros_like(x[:1]).repeat(short, 0)])
            for name, x in made.items()
        }
        yield {name: x.tolist() for name, x in rows.items()}


def seen(feeds):
    return [{name: np.asarray(feed[name]).tolist() for name in FIELDS} for feed in feeds]


@pytest.mark.parametrize("name", READERS)
def test_a_function_of_the_list_of_samples_makes_the_batch(name):
    padded = READERS[name].batch(4).map_batches(pad, stacked=False)
    assert seen(samples.columns for samples in padded) == seen(
        pad(WORDS[low : low + 4]) for low in (0, 4, 8)
    )
    assert seen(padded.load(sharding="host", last="drop")) == list(expected(range(11), last="drop"))
    assert seen(padded.load(last="pad")) == list(expected(range(11)))


@pytest.mark.parametrize("name", READERS)
def test_positions_and_cursors_go_on_behind_it(name):
    padded = READERS[name].batch(4).map_batches(pad, stacked=False)
    whole = see(padded)
    for place, position in enumerate(whole.positions[:-1]):
        assert see(padded, position).samples == whole.samples[place:]
    loader = padded.load(sharding="host", last="drop")
    feeds = loader.steps(5)
    first = seen([next(feeds), next(feeds)])
    rest = padded.load(sharding="host", last="drop").steps(5, at=feeds.cursor)
    assert first + seen(rest) == seen(padded.load(sharding="host", last="drop").steps(5))


def test_every_door_feeds_it():
    padded = Pipeline(streamed).batch(4).map_batches(pad, stacked=False)
    device = jax.local_devices()[:2]
    loader = DataLoader.from_generator({name: name for name in FIELDS}, capacity=2)
    loader.set_batch_generator(lambda: (samples.columns for samples in padded), device[0])
    assert seen(loader)[:2] == list(expected(range(11), last="drop"))
    split = padded.load(pmap=device, last="drop")
    assert [feed["words"].shape for feed in split] == [(2, 2, 5)] * 2


def test_it_is_printed_as_it_was_written():
    padded = Pipeline(streamed).batch(4).map_batches(pad, stacked=False)
    assert repr(padded) == "Pipeline(streamed).batch(batch_size=4).map_batches(pad, stacked=False)"


def test_samples_that_do_not_stack_tell_of_it():
    with pytest.raises(FeedMismatch, match="give all of them one shape") as caught:
        list(map_batches(pad, batch(lambda: map(words, WORDS), 4))())
    assert any("stacked=False" in note for note in caught.value.__notes__)


def test_a_flag_is_true_or_false():
    with pytest.raises(TypeError, match="stacked of map_batches"):
        map_batches(pad, batch(streamed, 4), stacked="no")


def test_a_traced_function_of_columns_is_asked_for_instead():
    with pytest.raises(TypeError, match="stacked=False"):
        as_function(Pipeline(arrays(np.arange(8))).batch(4).map_batches(pad, stacked=False))


def test_errors_of_it_are_explained():
    def fails(samples):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        list(jreader.map_batches(fails, batch(streamed, 4), stacked=False)())
    assert any("fails" in note for note in caught.value.__notes__)


def test_a_batch_of_batches_is_printed_too():
    (outer,) = (
        Pipeline(arrays(np.arange(4))).batch(2).pipe(batch, 2).map_batches(list, stacked=False)
    )
    assert repr(outer) == "Columns(Columns[2], Columns[2])"
    assert repr(Pipeline(arrays(np.arange(4))).batch(2).peek()) == "Columns(int64[2])"
