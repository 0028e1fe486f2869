"""Rows that differ in length: `ragged`, alone and beside other columns, under the ops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jreader
from jreader import FeedMismatch, Pipeline, arrays, batch, chain, compose, ragged, shuffle, skip
from jreader.readers import fingerprint, indexed, start
from jreader.readers.ragged import lengths_of

LENGTHS = [3, 0, 1, 4, 2]
OFFSETS = np.cumsum([0, *LENGTHS])
VALUES = np.arange(10)
ROWS = [list(range(low, high)) for low, high in pairwise(OFFSETS)]
documents = ragged(VALUES, OFFSETS)


def listed(samples):
    return [sample.tolist() for sample in samples]


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 3))
def test_rows_are_the_slices_between_the_offsets(lengths, width):
    rows = [np.full((length, width), number) for number, length in enumerate(lengths)]
    values = np.concatenate([*rows, np.zeros((0, width), int)])
    reader = ragged(values, np.cumsum([0, *lengths]))
    assert len(reader) == len(lengths)
    for row, sample in zip(rows, reader(), strict=True):
        np.testing.assert_array_equal(sample, row)


def test_rows_are_views():
    assert all(np.shares_memory(row, VALUES) for row in documents() if len(row))


def test_values_outside_of_the_offsets_are_no_rows():
    assert listed(ragged(VALUES, [2, 4, 5])()) == [[2, 3], [4]]


def test_a_pass_goes_on_after_any_row():
    for done in range(len(LENGTHS) + 1):
        assert listed(start(documents, done).items) == ROWS[done:]


def test_shuffle_keeps_rows_whole():
    assert sorted(listed(shuffle(documents, seed=3)())) == sorted(ROWS)
    assert indexed(shuffle(documents, seed=3)).length == len(LENGTHS)


def test_chain_of_ragged_readers_is_ragged():
    both = chain(skip(documents, 1), ragged(VALUES * 10, OFFSETS[1:]))
    assert listed(both()) == [*ROWS[1:], *([10 * value for value in row] for row in ROWS[1:])]
    assert lengths_of(indexed(both)).tolist() == LENGTHS[1:] * 2
    plane = indexed(both)
    assert listed(plane.take(np.arange(plane.length)[::-1])) == listed(both())[::-1]


def test_chain_with_other_dtypes_and_shapes_hands_all_rows_over():
    pairs = ragged(np.arange(6.0).reshape(3, 2), [0, 1, 3])
    both = chain(documents, pairs)
    assert listed(both()) == [*ROWS, [[0, 1]], [[2, 3], [4, 5]]]


def test_compose_keeps_each_row_beside_its_label():
    pairs = compose(documents, arrays(np.arange(5)))
    assert [(row.tolist(), int(label)) for row, label in pairs()] == list(
        zip(ROWS, range(5), strict=True)
    )
    assert [
        (row.tolist(), int(label)) for samples in batch(pairs, 2)() for row, label in samples
    ] == list(zip(ROWS, range(5), strict=True))


def test_a_batch_is_a_list_of_samples():
    (samples, *_) = batch(arrays(text=documents, label=np.arange(5)), 2)()
    assert isinstance(samples, list)
    assert [(sample["text"].tolist(), int(sample["label"])) for sample in samples] == [
        ([0, 1, 2], 0),
        ([], 1),
    ]


def test_a_batch_that_reaches_a_loader_says_what_makes_arrays():
    for reader in (documents, arrays(text=documents, label=np.arange(5))):
        with pytest.raises(
            FeedMismatch, match=r"\.padded_batch\(n\), \.bucket\(bounds, n\) or \.pack\(n\)"
        ):
            next(iter(Pipeline(reader).batch(5).load()))


def test_lengths_follow_the_order_of_the_plan():
    turned = shuffle(documents, seed=1)
    assert lengths_of(indexed(turned)).tolist() == [len(sample) for sample in turned()]
    assert lengths_of(indexed(arrays([1, 2]))) is None


def test_lengths_of_fields_that_differ_need_a_name():
    halves = arrays(source=documents, target=ragged(VALUES, [0, 1, 2, 3, 4, 5]))
    with pytest.raises(ValueError, match="by=name"):
        lengths_of(indexed(halves))
    assert lengths_of(indexed(halves), "target").tolist() == [1] * 5
    with pytest.raises(ValueError, match="by='label' names no ragged field"):
        lengths_of(indexed(halves), "label")


def test_the_fingerprint_knows_values_and_offsets():
    def printed(values, offsets):
        return fingerprint(arrays(text=ragged(values, offsets)))

    assert printed(VALUES, OFFSETS) == printed(VALUES.copy(), OFFSETS.copy())
    assert printed(VALUES, OFFSETS) != printed(VALUES + 1, OFFSETS)
    assert printed(VALUES, [0, 1, 2]) != printed(VALUES, [0, 2, 2])
    assert fingerprint(ragged(VALUES, [0, 1, 2])) != fingerprint(ragged(VALUES, [0, 2, 2]))


@pytest.mark.parametrize(
    ("values", "offsets", "error", "says"),
    [
        (VALUES, [0, 3, 2], ValueError, "row 1 begins at 3 and ends at 2"),
        (VALUES, [-1, 3], ValueError, "at least 0, not -1"),
        (VALUES, [0, 11], ValueError, "offsets up to 11, and only 10 values"),
        (VALUES, [], TypeError, r"np\.cumsum"),
        (VALUES, [0.0, 1.0], TypeError, r"np\.cumsum"),
        (VALUES, [[0, 1]], TypeError, r"np\.cumsum"),
        (5, [0, 1], TypeError, "end to end in one array"),
        (np.array([[1], [2, 3]], object), [0, 1], TypeError, r"np\.concatenate"),
    ],
)
def test_bad_offsets_and_values_are_refused(values, offsets, error, says):
    with pytest.raises(error, match=says):
        jreader.ragged(values, offsets)


def test_lists_of_rows_are_refused_with_what_to_type():
    with pytest.raises(TypeError, match=r"np\.concatenate"):
        ragged([[1], [2, 3]], [0, 1, 3])
