"""`unbatch` and `rebatch`: what batches were made of, and batches of another size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import canonical, see

import jreader
from jreader import Columns, FeedMismatch, NotResumable, Pipeline, arrays, rebatch, start, unbatch
from jreader.batches import batching
from jreader.readers import indexed, length

sizes = st.lists(st.integers(0, 5), max_size=8)


@dataclass
class Both:
    left: object
    right: object


def cut(samples, sizes):
    """Lists of those sizes."""
    at = np.cumsum([0, *sizes])
    return [samples[low:high] for low, high in pairwise(at)]


class TestUnbatch:
    @given(sizes)
    def test_it_gives_the_samples_of_lists_of_any_sizes_and_resumes_at_each(self, sizes):
        samples = list(range(sum(sizes)))

        def plan():
            return unbatch(lambda: iter(cut(samples, sizes)))

        whole = see(plan())
        assert whole.samples == samples
        for done, position in enumerate(whole.positions):
            assert see(plan(), position).samples == samples[done:]

    @pytest.mark.parametrize(
        ("made", "samples"),
        [
            (np.arange(2), [0, 1]),
            ((np.arange(2), np.arange(2) + 5), [(0, 5), (1, 6)]),
            (
                {"id": np.arange(2), "row": np.eye(2)},
                [{"id": 0, "row": [1, 0]}, {"id": 1, "row": [0, 1]}],
            ),
            (Both(np.arange(1), np.arange(1)), [Both(0, 0)]),
            (Columns((np.arange(2),)), [(0,), (1,)]),
            (jnp.arange(2), [0, 1]),
            (range(3), [0, 1, 2]),
            ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
            ([], []),
            (np.zeros((0, 3)), []),
        ],
    )
    def test_a_batch_is_a_sequence_of_samples_or_a_tree_of_arrays(self, made, samples):
        given = list(unbatch(lambda: [made])())
        told = jreader.readers.map_tree(lambda leaf: np.asarray(leaf).tolist(), given)
        assert told == samples

    @pytest.mark.parametrize(
        "made",
        [
            3,
            None,
            "ab",
            b"ab",
            (1, 2),
            (),
            {},
            {"id": [1, 2]},
            (np.zeros(2), np.zeros(3)),
            np.float32(1),
        ],
    )
    def test_what_is_no_batch_is_refused_with_advice(self, made):
        items = unbatch(lambda: [[1], made])()
        assert next(items) == 1
        with pytest.raises(FeedMismatch, match=r"made at .*:\d+, needs batches.*\.flat_map\(fn\)"):
            next(items)

    def test_batches_of_batches_are_taken_apart_one_level_at_a_time(self):
        nested = Pipeline(arrays(np.arange(7))).batch(2).pipe(jreader.batch, 2)
        assert [len(part) for part in nested.unbatch()] == [2, 2, 2, 1]
        assert list(nested.unbatch().unbatch()) == [*range(7)]
        assert indexed(nested.unbatch().unbatch()) is None

    def test_over_batch_of_an_indexed_reader_it_is_indexed_and_makes_no_batch(self):
        rows = Pipeline(arrays(np.arange(10))).shuffle(seed=0)
        for plan in (rows.batch(4), rows.batch(4).prefetch(2), Pipeline(rows.batch(4))):
            assert indexed(plan.unbatch()).length == len(plan.unbatch()) == 10
            assert list(plan.unbatch()) == list(rows)
        short = rows.batch(4, drop_last=True).unbatch()
        assert indexed(short).length == len(short) == 8
        assert list(short) == list(rows)[:8] == list(short.reader.start(None).items)
        assert length(rows.epochs().batch(4, drop_last=True).unbatch()) is None
        assert indexed(rows.epochs().batch(4, drop_last=True).unbatch()) is not None

    def test_it_finds_mapped_samples_by_their_index(self):
        squares = Pipeline(arrays(np.arange(10))).map(lambda n: int(n) ** 2)
        assert squares.batch(4).unbatch()[7] == 49
        with pytest.raises(IndexError):
            _ = squares.batch(4, drop_last=True).unbatch()[8]

    @pytest.mark.parametrize(
        "changed",
        [
            lambda batches: batches.skip(1),
            lambda batches: batches.shuffle(2, seed=0),
            lambda batches: batches.map_batches(lambda rows: rows[:1]),
            lambda batches: batches.filter(len),
            lambda batches: batches.cache(),
        ],
    )
    def test_where_batches_were_chosen_or_changed_they_are_read(self, changed):
        plan = changed(Pipeline(arrays(np.arange(10))).batch(4)).unbatch()
        assert (indexed(plan), length(plan)) == (None, None)
        flat = plan.reader.reader.flat_map(list)
        assert list(plan) == list(flat)

    def test_a_batch_that_became_shorter_is_refused(self):
        data = [[1, 2, 3], [4]]
        under_way = start(unbatch(lambda: data))
        next(under_way.items), next(under_way.items)
        data[0] = [1]
        rest = start(unbatch(lambda: data), under_way.position())
        with pytest.raises(NotResumable, match="after sample 2 of a batch that has 1"):
            next(rest.items)


class TestRebatch:
    @given(sizes, st.integers(1, 6), st.sampled_from([None, True, False]), st.booleans())
    def test_no_sample_is_lost_and_every_position_is_a_place(self, sizes, size, drop_last, stacked):
        rows = [(number, float(number)) for number in range(sum(sizes))]

        def batches():
            for part in cut(rows, sizes):
                empty = Columns((np.zeros(0, int), np.zeros(0)))
                yield (Columns(jreader.stack(part)) if part else empty) if stacked else part

        def plan():
            return rebatch(batches, size, drop_last)

        whole, expected = see(plan()), see(jreader.batch(lambda: rows, size, drop_last))
        assert [[*map(float, row)] for part in whole.samples for row in unpacked(part)] == [
            [*map(float, row)] for part in expected.samples for row in unpacked(part)
        ]
        assert list(map(len, whole.samples)) == list(map(len, expected.samples))
        for done, position in enumerate(whole.positions):
            assert see(plan(), position).samples == whole.samples[done:]

    def test_stacked_batches_are_cut_and_joined_without_touching_a_sample(self):
        made = [{"id": np.arange(3)}, {"id": np.arange(3, 8)}, {"id": np.arange(8, 9)}]
        batches = list(rebatch(lambda: made, 4)())
        assert [part.columns["id"].tolist() for part in batches] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8],
        ]
        assert np.shares_memory(batches[1].columns["id"], made[1]["id"])

    def test_batches_that_do_not_fit_together_become_lists_of_their_samples(self):
        made = [np.arange(2), np.arange(2.0), np.zeros((1, 2)), [(1, 2)]]
        (whole,) = rebatch(lambda: made, 9)()
        assert isinstance(whole, list)
        assert list(map(canonical, whole)) == [canonical(row) for part in made for row in part]

    def test_it_is_a_batch_to_everything_that_asks(self):
        rows = Pipeline(arrays(x=np.arange(20))).shuffle(seed=3)
        plan = rows.batch(5).rebatch(4)
        found = batching(plan)
        assert (found.size, found.rows, found.samples, found.by_sample) == (4, 4, 20, True)
        assert found.indexed
        with pytest.raises(TypeError, match=r"\.map_batches"):
            plan.map(abs)
        for part, same in zip(plan, rows.batch(4), strict=True):
            np.testing.assert_array_equal(part.columns["x"], same.columns["x"])

    def test_it_prints_as_what_it_is_and_can_be_typed(self):
        plan = Pipeline(list).rebatch(3)
        assert repr(plan) == "Pipeline(list).unbatch().batch(batch_size=3)"

    def test_a_loader_resumes_it_at_any_step(self):
        mapped = Pipeline(arrays(x=np.arange(24))).shuffle(seed=1).batch(5)
        loader = mapped.map_batches(lambda rows: {"x": rows["x"] * 2}).rebatch(4).load()
        whole = [feed["x"].tolist() for feed in loader.epoch(0)]
        assert len(whole) == 6
        for step in range(6):
            feeds = loader.epoch(0)
            for _ in range(step):
                next(feeds)
            rest = loader.steps(6, at=feeds.cursor)
            assert [feed["x"].tolist() for feed in rest] == whole[step:]

    @pytest.mark.parametrize("wrong", [0, -1])
    def test_batches_of_no_samples_are_refused(self, wrong):
        with pytest.raises(ValueError, match=r"^batch_size of rebatch\(.* at least 1"):
            rebatch(list, wrong)
        with pytest.raises(TypeError, match=r"takes no size=: type batch_size=n"):
            Pipeline(list).rebatch(size=3)
        with pytest.raises(TypeError, match=r"^rebatch\(.* needs a reader"):
            rebatch([[1, 2]], 3)


def unpacked(part):
    """The samples of what `canonical` makes of a batch, as numbers."""
    return [[value[2] if isinstance(value, tuple) else value for value in row] for row in part[1:]]
