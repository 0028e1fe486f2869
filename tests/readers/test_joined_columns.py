"""Columns end to end: rows of any parts come as they were."""

from __future__ import annotations

import gc
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import arrays, batch, chain, mix, shuffle
from jreader.readers.joined_columns import ConcatArray
from jreader.readers.planes import BatchGatherer, Plane

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=20).filter(any)


def wide(rows):
    return np.arange(rows * 6).reshape(rows, 2, 3)


def _field(rows):
    table = np.zeros(rows, [("label", np.uint8), ("values", np.float32, 3)])
    table["values"] = np.arange(rows)[:, None]
    return table["values"]


KINDS = {
    "numbers": np.arange,
    "rows in memory's other order": lambda rows: np.asfortranarray(wide(rows)),
    "every other row": lambda rows: wide(2 * rows)[::2],
    "transposed rows": lambda rows: wide(rows).transpose(0, 2, 1),
    "rows from the last to the first": lambda rows: wide(rows)[::-1],
    "rows among other fields": _field,
    "rows with gaps": lambda rows: np.arange(rows * 6).reshape(rows, 6)[:, ::2],
    "no bytes": lambda rows: np.zeros((rows, 0)),
    "foreign bytes": lambda rows: np.arange(rows).astype(">i4"),
    "objects": lambda rows: np.array([str(row) for row in range(rows)] + [None], object)[:rows],
    "large rows": lambda rows: np.zeros((rows, 9000)) + np.arange(rows)[:, None],
}


@given(
    st.sampled_from(sorted(KINDS)), lengths, st.integers(1, 90), st.integers(1, 200), st.integers(0)
)
@examples(60)
def test_batches_of_any_rows_are_those_of_the_concatenated_columns(kind, parts, size, many, seed):
    total = sum(parts)
    column = KINDS[kind](total)
    cuts = np.cumsum(parts)[:-1]
    several = np.split(column, cuts)
    joined, labels = ConcatArray(several), ConcatArray(np.split(np.arange(total), cuts))
    labels.starts = joined.starts
    rows = np.random.default_rng(seed).integers(0, total, many)
    plane = Plane((joined, labels, np.arange(total)), many, lambda indices: [rows[indices]] * 3)
    dealt = [each.columns for each in plane.batches(size, None).items]
    assert [len(labels) for _, labels, _ in dealt] == [
        min(size, many - low) for low in range(0, many, size)
    ]
    for low, (values, labels, numbers) in zip(range(0, many, size), dealt, strict=True):
        expected = rows[low : low + size]
        assert labels.tolist() == numbers.tolist() == expected.tolist()
        assert values.dtype == column.dtype
        np.testing.assert_array_equal(values, column[expected])


@given(lengths, st.integers(1, 90), st.integers(0))
@examples(30)
def test_rows_asked_for_alone_are_those_of_batches(parts, many, seed):
    total = sum(parts)
    joined = ConcatArray(np.split(wide(total), np.cumsum(parts)[:-1]))
    rows = np.random.default_rng(seed).integers(0, total, many)
    np.testing.assert_array_equal(BatchGatherer(joined, many)([rows]).columns, wide(total)[rows])


def test_a_copy_gathers_from_its_own_memory():
    parts = np.split(wide(30), 3)
    copied = pickle.loads(pickle.dumps(ConcatArray(parts)))
    for part in parts:
        part[:] = -1
    rows = np.array([29, 0, 11])
    np.testing.assert_array_equal(BatchGatherer(copied, 3)([rows]).columns, wide(30)[rows])


def test_the_memory_of_parts_outlives_them():
    joined = ConcatArray([np.full(1000, part) for part in range(4)])
    gather, _ = joined.gatherer(4)
    rows = joined.addresses(*joined.found(np.array([0, 1000, 2000, 3000])))
    del joined
    gc.collect()
    others = [np.full(1000, 9) for _ in range(50)]
    assert gather(rows).tolist() == [0, 1, 2, 3]
    assert len(others) == 50


def test_a_batch_does_not_change_when_the_next_ones_are_made():
    several = [arrays(np.arange(at, at + 500)) for at in range(0, 2000, 500)]
    plan = batch(shuffle(chain(*several), seed=0), 32)
    kept = [each.columns for each in plan()]
    assert sorted(np.concatenate(kept)) == list(range(2000))
    assert not any(np.shares_memory(kept[0], other) for other in kept[1:])


def test_two_passes_over_one_mixture_do_not_disturb_each_other():
    several = [arrays(np.arange(at, at + 500)) for at in range(0, 2000, 500)]
    plan = batch(mix(several, [4, 3, 2, 1], seed=0), 64)
    alone = [each.columns.tolist() for each in plan()]
    together = [
        (first.columns.tolist(), second.columns.tolist())
        for first, second in zip(plan(), plan(), strict=True)
    ]
    assert together == [(each, each) for each in alone]
