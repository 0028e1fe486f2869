"""Which samples hold a row is found by arithmetic: a search through all samples is the judge."""

from __future__ import annotations

import numpy as np
import pytest
from held_rows import cut_of_documents, rows_in_source
from hypothesis import assume, given
from hypothesis import strategies as st
from movers import fast, moving
from widths import examples

from jreader import (
    at_epoch,
    chain,
    epochs,
    firstn,
    pack,
    ragged,
    shuffle,
    skip,
    windows,
)
from jreader.readers import indexed, leaves, length
from jreader.readers.columns import column_of
from jreader.transforms import fixed_order, select

pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of")


def rows_held(column, rows):
    """For each row of the source of a column, the indices of the samples that hold it."""
    held = [set() for _ in range(len(column_of(column).source))]
    for index, some in enumerate(rows_in_source(column, rows)):
        for row in some:
            held[row].add(index)
    return held


@given(moving, st.integers(0, 3), st.integers(1, 60))
def test_the_samples_that_hold_a_row_are_those_that_a_search_finds(recipe, epoch, end):
    plane = indexed(at_epoch(fast(recipe), epoch))
    end = min(end, plane.length)
    for number, column in enumerate(leaves(plane.columns)):
        assume(not cut_of_documents(column))
        expected = rows_held(column, plane.rows(np.arange(end))[number])
        found = plane.holding(np.arange(len(expected)), end, number)
        pairs = {*zip(found.asked.tolist(), found.index.tolist(), strict=True)}
        assert pairs == {(row, index) for row, some in enumerate(expected) for index in some}


@st.composite
def documents(draw):
    """A plan over documents, each token of which is another number."""
    ends = np.cumsum([0, *draw(st.lists(st.integers(0, 9), min_size=1, max_size=14))])
    begin = draw(st.integers(0, 5)) * 1000
    plan = ragged(np.arange(ends[-1]) + begin, ends)
    for op in draw(st.lists(st.sampled_from(MOVES), max_size=2)):
        plan = op(plan)
    return plan


MOVES = [
    lambda plan: chain(plan, ragged(np.arange(9) + 9000, [0, 4, 4, 9])),
    lambda plan: fixed_order(plan, 1),
    lambda plan: skip(plan, 1),
    lambda plan: firstn(plan, 9),
    lambda plan: epochs(plan, 2),
    lambda plan: select(plan, [*range(0, len(plan), 2), *range(len(plan))]),
]
CUTS = [
    lambda plan, size: windows(plan, size, stride=max(size // 2, 1)),
    windows,
    lambda plan, size: windows(plan, size, stride=size + 1),
    lambda plan, size: windows(plan, size, stride=2, across=False),
    lambda plan, size: pack(plan, size, longer="split", seed=0),
    lambda plan, size: pack(plan, size, longer="truncate", seed=7),
    lambda plan, size: pack(plan, size, longer="drop", seed=7),
    lambda plan, size: pack(plan, size, split="always", seed=0),
]


@given(documents(), st.sampled_from(CUTS), st.integers(1, 8), st.integers(0, 3), st.booleans())
@examples(400)
def test_documents_are_found_in_windows_and_packs_token_by_token(plan, cut, size, epoch, moved):
    made = cut(plan, size)
    if moved and length(made):
        made = chain(shuffle(made, seed=3), cut(ragged(np.arange(9) - 9, [0, 4, 9]), size))
    plane = indexed(at_epoch(made, epoch))
    if plane is None or not plane.length:
        return
    column = leaves(plane.columns)[0].source
    found = plane.holding(np.arange(len(column)))
    held = [[] for _ in range(plane.length)]
    for row, index, begin, end in zip(*(part.tolist() for part in found), strict=True):
        held[index].append((begin, end, set(column[row].tolist())))
    for sample, spans in zip(plane.samples(0).items, held, strict=True):
        tokens = sample["tokens"] if isinstance(sample, dict) else sample
        many = (sample["segment_ids"] > 0).sum() if isinstance(sample, dict) else len(tokens)
        assert sum(end - begin for begin, end, _ in spans) == many
        assert all({*tokens[begin:end].tolist()} <= document for begin, end, document in spans)
        assert all(begin < end for begin, end, _ in spans)
