"""Texts in batches: with workers as without, and never made of numbers."""

import numpy as np
import pytest

from jreader import DataLoader, Pipeline, source, stack
from jreader.batches.stacked import collate
from jreader.errors import FeedMismatch

TEXT, LONG, NUMBER = np.array("a"), np.array("a" * 2000), np.array(7)


@pytest.mark.parametrize("one", ["a", TEXT, LONG, np.str_("a"), np.array(["a", "b"]), b"a"])
@pytest.mark.parametrize("other", [7, NUMBER, np.float32(7), np.array([7, 8])])
@pytest.mark.parametrize("make", [stack, collate])
def test_no_number_becomes_a_text(one, other, make):
    for pair in ([one, other], [other, one]):
        for samples in (pair, [{"x": each} for each in pair]):
            with pytest.raises(FeedMismatch):
                make(samples)


@pytest.mark.parametrize("make", [stack, collate])
def test_strings_and_bytes_do_not_become_one(make):
    for pair in (["a", b"a"], [TEXT, np.array(b"a")]):
        with pytest.raises(FeedMismatch, match="map all to strings"):
            make(pair)


def test_texts_of_several_widths_are_one_array():
    assert stack(["a", np.array("bcd"), np.str_("")]).tolist() == ["a", "bcd", ""]


class Rows:
    """A data set of the samples of a list."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


ROWS = {
    "texts": [TEXT, np.array("bc")] * 2,
    "long texts": [LONG] * 4,
    "beside large arrays": [{"x": np.zeros(999), "s": TEXT}] * 4,
    "long ones beside large arrays": [{"x": np.zeros(999), "s": LONG}] * 4,
    "bytes": [np.array(b"a" * 5000)] * 4,
    "times": [np.array("2020-01-01", "M8[D]")] * 4,
    "numbers and texts": [{"x": np.zeros(999), "s": each} for each in (TEXT, NUMBER) * 2],
}


def shown(values):
    try:
        return [_shown(value) for value in values]
    except FeedMismatch as error:
        return str(error)


def _shown(value):
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.tolist()
    return repr(value)


@pytest.mark.parametrize("name", ROWS)
def test_texts_without_an_axis_come_from_workers_as_they_are(name):
    plan = Pipeline(source(list(range(4))))
    rows = ROWS[name]
    here, there = (plan.map(lambda n: rows[n], processes=many).batch(2) for many in (0, 1))
    assert shown(sample for batch in there for sample in batch) == shown(
        sample for batch in here for sample in batch
    )


@pytest.mark.parametrize("name", ROWS)
def test_data_sets_give_texts_without_an_axis_with_and_without_workers(name):
    here, there = (
        shown(DataLoader(Rows(ROWS[name]), batch_size=2, num_workers=many, places="host"))
        for many in (0, 1)
    )
    assert here == there
