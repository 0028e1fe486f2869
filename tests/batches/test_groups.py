"""`group_by`: consecutive samples of one key as one."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jreader import FeedMismatch, Pipeline, arrays, group_by, start


@given(st.lists(st.integers(0, 3), max_size=20))
def test_groups_are_those_of_itertools_and_each_is_a_place(keys):
    samples = [*enumerate(keys)]
    plan = group_by(lambda sample: sample[1], lambda: samples)
    expected = [[n for n, _ in group] for _, group in groupby(samples, lambda sample: sample[1])]
    assert [numbers.tolist() for numbers, _ in plan()] == expected
    for cut in range(len(expected) + 1):
        up = start(plan)
        for _ in range(cut):
            next(up.items)
        assert [numbers.tolist() for numbers, _ in start(plan, up.position()).items] == expected[
            cut:
        ]


def test_groups_of_rows_are_padded_in_batches():
    rows = Pipeline(arrays(user=np.array([1, 1, 1, 2, 3, 3]), x=np.arange(6.0)))
    (feed,) = (
        rows.group_by(lambda row: int(row["user"])).padded_batch(3, fields=["user", "x"]).load()
    )
    assert feed["x"].tolist() == [[0, 1, 2], [3, 0, 0], [4, 5, 0]]


def test_a_group_that_cannot_be_stacked_says_where():
    plan = Pipeline(lambda: [np.zeros(1), np.zeros(2)]).group_by(lambda sample: 0)
    with pytest.raises(FeedMismatch) as caught:
        list(plan)
    assert any("in a group of 2 samples" in note for note in caught.value.__notes__)


def test_an_error_of_the_key_names_op_and_sample():
    with pytest.raises(ZeroDivisionError) as caught:
        list(Pipeline(lambda: [1, 0]).group_by(lambda n: 1 // n))
    assert any("(0) in group_by, made at" in note for note in caught.value.__notes__)


def test_batches_are_refused():
    with pytest.raises(TypeError, match=r"type \.group_by\(fn\) before \.batch"):
        Pipeline(lambda: "abc").batch(2).group_by(str)
