"""Errors of loaders: those of users arrive as they are, and what is no batch is told to be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import jreader
from jreader import DataLoader, Pipeline, arrays, as_function, source
from jreader.errors import FeedMismatch


@dataclass(frozen=True)
class Frozen(Exception):
    """An error that takes no notes."""

    code: int


class Failing:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise Frozen(index)


def fail(_):
    raise Frozen(0)


REFUSING = {
    "a data set": DataLoader(Failing()),
    "a data set of a source": Pipeline(source(Failing())).batch(1).load(),
    "a function of batches": Pipeline(arrays(np.arange(3))).batch(1).map_batches(fail).load(),
    "a function": Pipeline(arrays(np.arange(3))).map(fail).batch(1).load(),
    "a collate_fn": DataLoader(range(3), collate_fn=fail),
    "a reader": Pipeline(lambda: (fail(n) for n in range(3))).batch(1).load(),
}


@pytest.mark.parametrize("where", REFUSING)
def test_an_error_that_takes_no_notes_arrives_as_it_is(where):
    with pytest.raises(Frozen):
        list(REFUSING[where])


IMAGE = np.zeros(4, np.float32)


class Pair(NamedTuple):
    image: object
    label: int


SAMPLES = {
    "a tuple": (IMAGE, 3),
    "a tuple of one kind": (IMAGE, IMAGE),
    "a tuple of numbers": (1.0, 2),
    "a tuple of texts": ("a", "b"),
    "a tuple of one": (IMAGE,),
    "a tuple of lists": ([1, 2], [3]),
    "a nested tuple": ((IMAGE, IMAGE), 3),
    "a named tuple": Pair(IMAGE, 3),
    "a named tuple of numbers": Pair(1, 2),
    "a dict": {"image": IMAGE, "label": 3},
    "an array": IMAGE,
    "a number": 3,
    "a text": "ab",
    "bytes": b"ab",
    "none": None,
}


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {"image": 0, "label": 1},
        {"image": "image", "label": "label"},
        [jreader.data("image", [None, 4]), jreader.data("label", [None, 1], "int64")],
        [jreader.data("image", [None, 4])],
    ],
    ids=["none", "places", "keys", "data", "one"],
)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_loader_of_samples_is_told_to_batch(sample, fields):
    for door in (
        lambda reader: Pipeline(reader).load(fields),
        lambda reader: Pipeline(reader).load(fields, pmap=True, last="pad"),
        DataLoader.from_generator(fields).set_sample_list_generator,
    ):
        with pytest.raises(jreader.FeedMismatch, match=r"type \.batch\(n\) before \.load\(\)"):
            list(door(lambda: iter([sample] * 3)))


def test_a_list_that_lacks_fields_may_be_a_sample():
    for fields in ({"image": 0, "label": 1}, {"image": "image"}):
        with pytest.raises(jreader.FeedMismatch, match=r"If \[1, 2\] is one sample, type \.bat"):
            list(Pipeline(lambda: [[1, 2]]).load(fields))


def test_a_tuple_of_samples_is_a_batch():
    for batched in (((1, 2), (3, 4)), ({0: 1, 1: 2}, {0: 3, 1: 4})):
        (feed,) = Pipeline(lambda batched=batched: [batched]).load(sharding="host")
        assert (feed[0].tolist(), feed[1].tolist()) == ([1, 3], [2, 4])


def forgetful(feed, *_):
    feed["x"] = feed["x"] + 1


ROWS = Pipeline(arrays(x=np.arange(8)))
BATCHES = ROWS.batch(4)


def traced():
    held, batch_at = as_function(BATCHES.map_batches(forgetful))
    return batch_at(held, 0, 0)


FORGETFUL = {
    "map_batches": lambda: list(BATCHES.map_batches(forgetful)),
    "one batch": lambda: BATCHES.map_batches(forgetful)[1],
    "threads": lambda: list(BATCHES.map_batches(forgetful, threads=2)),
    "processes": lambda: list(BATCHES.map_batches(forgetful, processes=1)),
    "as_function": traced,
    "on_device": lambda: list(BATCHES.load().on_device(forgetful)),
    "on_device, a key": lambda: list(BATCHES.load().on_device(forgetful, "batch")),
    "on_device, keys": lambda: list(BATCHES.load().on_device(forgetful, "sample")),
}


@pytest.mark.parametrize("where", FORGETFUL)
def test_a_function_that_returns_no_batch_is_named_and_told_to_return(where):
    with pytest.raises(FeedMismatch, match=r"^forgetful returned None: .* Type return before"):
        FORGETFUL[where]()


@pytest.mark.parametrize("pad", [lambda r: r.padded_batch(4), lambda r: r.bucket([4], 2, seed=0)])
def test_a_map_that_returns_no_row_to_pad_is_asked_for_a_return(pad):
    with pytest.raises(FeedMismatch, match=r"is None: .* lack a return") as found:
        list(pad(ROWS.map(forgetful)))
    assert "map(forgetful)" in found.value.__notes__[0]
