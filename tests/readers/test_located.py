"""Errors of a pass: a note, or the message, names the op and the line that made it."""

from pathlib import Path

import numpy as np
import pytest

from jreader import (
    DataLoader,
    Pipeline,
    arrays,
    compose,
    data,
    jsonl,
    map_readers,
    parquet,
    source,
)
from jreader.batches.stacked import collate
from jreader.errors import FeedMismatch

HERE = Path(__file__).name


def broken():
    yield {"x": np.zeros(3)}
    yield {"x": np.zeros(3)}
    raise OSError("the disk is gone")


def numbers():
    yield from range(6)


def of_two_shapes():
    for n in (2, 2, 3):
        yield {"x": np.zeros(n)}


def boom(_sample):
    raise OSError("boom")


class Rows:
    """A data set that lacks a row."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise KeyError("no such row")
        return {"x": np.zeros(3)}


def told(*rows):
    return Pipeline(lambda: iter(rows))


WRONG = {
    "map over a source": lambda: Pipeline(broken).map(len),
    "map of several over a source": lambda: Pipeline(
        map_readers(lambda *row: row, broken, numbers)
    ),
    "filter over a source": lambda: Pipeline(broken).filter(bool),
    "flat_map over a source": lambda: Pipeline(broken).flat_map(list),
    "shuffle over a source": lambda: Pipeline(broken).shuffle(9, seed=0),
    "cache over a source": lambda: Pipeline(broken).cache(),
    "batch over a source": lambda: Pipeline(broken).batch(2),
    "prefetch over a source": lambda: Pipeline(broken).prefetch(2),
    "threads over a source": lambda: Pipeline(broken).map(len, threads=2),
    "map with a generator over a source": lambda: Pipeline(broken).map(
        lambda sample, _: sample, rng=True
    ),
    "load over a source": lambda: Pipeline(broken).batch(1).load(),
    "a data set": lambda: Pipeline(source(Rows())),
    "batches of a data set": lambda: Pipeline(source(Rows())).batch(2),
    "a loader of a data set": lambda: DataLoader(Rows(), batch_size=2),
    "a damaged file, when a pass begins": lambda: Pipeline(parquet("damaged.parquet")),
    "a damaged file, in a loader": lambda: Pipeline(jsonl("damaged.jsonl")).batch(2).load(),
    "a damaged file, in batches": lambda: Pipeline(jsonl("damaged.jsonl")).batch(2),
    "map": lambda: Pipeline(numbers).map(boom),
    "map on threads": lambda: Pipeline(numbers).map(boom, threads=2),
    "filter": lambda: Pipeline(numbers).filter(boom),
    "flat_map": lambda: Pipeline(numbers).flat_map(boom),
    "map_batches": lambda: Pipeline(numbers).batch(2).map_batches(boom),
    "map_batches that returns no rows": lambda: Pipeline(numbers).batch(2).map_batches(lambda _: 5),
    "map_batches of several shapes": lambda: Pipeline(of_two_shapes).batch(3).map_batches(dict),
    "several shapes": lambda: Pipeline(of_two_shapes).batch(3).load(),
    "several structures": lambda: told({"x": 1}, {"y": 2}).batch(2).load(),
    "None": lambda: told(1, 2).map(lambda _: None).batch(2).load(),
    "objects": lambda: told(object(), object()).batch(2).load(),
    "texts": lambda: told("a", "b").batch(2).load(),
    "a number that is too large": lambda: told(2**40, 1).batch(2).load(),
    "another shape than is declared": lambda: (
        Pipeline(arrays(x=np.zeros((4, 3)))).batch(2).load([data("x", [None, 4], "float32")])
    ),
    "a field that is missing": lambda: Pipeline(arrays(x=np.zeros((4, 3)))).batch(2).load(["q"]),
    "no batches": lambda: Pipeline(numbers).load(),
    "compose": lambda: Pipeline(compose(numbers, lambda: [1, 2])),
    "unbatch": lambda: Pipeline(numbers).unbatch(),
    "rebatch": lambda: Pipeline(numbers).rebatch(2),
    "padded_batch": lambda: told(np.zeros((2, 3)), np.zeros((2, 4))).padded_batch(2),
    "bucket": lambda: told(np.zeros(3), np.zeros(9)).bucket([4], batch_size=2),
    "pack": lambda: told(np.arange(3), np.arange(9)).pack(4),
    "pack of texts": lambda: told("a", "b").pack(4),
    "windows": lambda: Pipeline(numbers).windows(4),
    "window": lambda: Pipeline(of_two_shapes).sliding_window(3),
    "a mixture": lambda: Pipeline(numbers).mix(lambda: iter([]), seed=0, stop="all"),
    "no iterable": lambda: Pipeline(lambda: 5),
    "a step that is short": lambda: Pipeline(arrays(np.arange(5))).batch(3).load(last="error"),
    "an empty epoch": lambda: told().epochs(),
    "no full batch": lambda: Pipeline(arrays(np.arange(2))).batch(4).load().steps(3),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.filterwarnings("ignore")
def test_an_error_of_a_pass_names_an_op_and_its_line(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("damaged.jsonl", "damaged.parquet"):
        Path(name).write_text('{"a": 1}\n{bad\n')
    plan = WRONG[wrong]()
    with pytest.raises(Exception, match=r".") as raised:
        list(plan)
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert "made at " in said
    assert HERE in said.partition("made at ")[2]


@pytest.mark.parametrize("how", [{}, {"threads": 2}, {"processes": 1}])
def test_a_note_is_given_once(how):
    plan = Pipeline(numbers).map(boom, **how).filter(bool).shuffle(4, seed=0).batch(2)
    with pytest.raises(OSError, match="boom") as raised:
        list(plan.load())
    assert sum("made at" in note for note in raised.value.__notes__) == 1


def test_samples_that_make_no_batch_name_the_map_that_made_them():
    def lost(sample):
        sample = {"x": sample}

    with pytest.raises(FeedMismatch, match="sample 0 of a batch is None") as raised:
        list(Pipeline(numbers).map(lost).firstn(4).batch(2).load())
    assert "samples are made by map_readers(lost, Pipeline(numbers)), made at" in "".join(
        raised.value.__notes__
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([None, None], "sample 0 of a batch is None"),
        ([1, None], "sample 1 of a batch is None"),
        ([{"x": 1}, {"x": 2}, None], "sample 2 of a batch is None"),
        ([np.zeros(2), None], "sample 1 of a batch is None"),
        (["a", None], "sample 1 of a batch is None"),
    ],
)
@pytest.mark.parametrize("door", ["load", "map_batches", "collate"])
def test_a_sample_that_is_none_makes_no_batch(rows, says, door):
    batches = told(*rows).batch(len(rows))
    doors = {
        "load": batches.load(),
        "map_batches": batches.map_batches(lambda columns: columns),
        "collate": map(collate, [rows]),
    }
    with pytest.raises(FeedMismatch, match=says):
        list(doors[door])


@pytest.mark.parametrize("door", ["load", "map_batches"])
def test_shapes_that_differ_are_named_with_their_samples(door):
    batches = Pipeline(of_two_shapes).batch(3)
    with pytest.raises(FeedMismatch) as raised:
        list(batches.load() if door == "load" else batches.map_batches(lambda columns: columns))
    said = str(raised.value)
    assert "['x'] is ragged: sample 0 has shape (2,), sample 2 of its batch has shape (3,)" in said
    assert ".padded_batch(n), .bucket(bounds, n) or .pack(n)" in said
