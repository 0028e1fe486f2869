"""`window`: consecutive samples as one, of streams and by arithmetic."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movers import Rows
from seen import canonical, see
from widths import few

from jreader import (
    FeedMismatch,
    Pipeline,
    arrays,
    as_function,
    at_epoch,
    chain,
    compose,
    epochs,
    interleave,
    mix,
    ragged,
    shuffle,
    skip,
    sliding_window,
    source,
)
from jreader.readers import indexed, length
from jreader.readers.joined_columns import ENDLESS

sizes, strides = st.integers(1, 5), st.one_of(st.none(), st.integers(1, 7))


def streamed(n):
    return lambda: iter(range(n))


def by_hand(n, size, stride, drop_last):
    """Windows begin `stride` apart; one that is not full is last, and has a sample of its own."""
    made, seen = [], set()
    for first in range(0, n, stride or size):
        rows = list(range(first, min(first + size, n)))
        if len(rows) < size and (drop_last or seen.issuperset(rows)):
            break
        made.append(rows)
        seen.update(rows)
    return made


class TestWindows:
    @given(st.integers(0, 20), sizes, strides, st.booleans())
    def test_they_are_consecutive_samples_of_streams_and_of_rows(self, n, size, stride, drop_last):
        expected = by_hand(n, size, stride, drop_last)
        for reader in (streamed(n), arrays(np.arange(n)), source(range(n))):
            plan = sliding_window(reader, size, stride, drop_last)
            assert [each.tolist() for each in plan()] == expected
            assert [each.tolist() for each in plan.start(None).items] == expected
            assert length(plan) in (None, len(expected))

    @given(st.integers(0, 20), sizes, strides, st.booleans())
    def test_a_pass_resumes_at_each(self, n, size, stride, drop_last):
        def plan():
            return sliding_window(shuffle(streamed(n), 4, seed=1), size, stride, drop_last)

        whole = see(plan())
        for done, position in enumerate(whole.positions):
            assert see(plan(), position).samples == whole.samples[done:]
        assert see(plan(), whole.after).samples == []

    def test_no_sample_is_drawn_before_its_window(self):
        drawn = []
        items = sliding_window(lambda: (drawn.append(n) or n for n in range(9)), 3, stride=2)()
        for last in (2, 4, 6):
            next(items)
            assert drawn == [*range(last + 1)]

    def test_samples_between_windows_that_lie_apart_are_left_out_as_declared(self):
        assert [each.tolist() for each in sliding_window(streamed(8), 2, stride=3)()] == [
            [0, 1],
            [3, 4],
            [6, 7],
        ]

    def test_each_field_is_stacked(self):
        rows = arrays(x=np.arange(4), image=np.zeros((4, 2, 3), np.uint8))
        for plan in (sliding_window(rows, 2), sliding_window(lambda: iter(list(rows())), 2)):
            first, second = plan()
            assert (first["x"].tolist(), second["x"].tolist()) == ([0, 1], [2, 3])
            assert (first["image"].shape, first["image"].dtype) == ((2, 2, 3), np.uint8)

    def test_windows_of_windows_have_two_axes(self):
        plan = sliding_window(sliding_window(arrays(np.arange(12)), 3), 2, stride=1)
        assert indexed(plan).length == 3
        expected = np.lib.stride_tricks.sliding_window_view(np.arange(12).reshape(4, 3), 2, axis=0)
        for made, same in zip(plan(), expected.transpose(0, 2, 1), strict=True):
            np.testing.assert_array_equal(made, same)

    @pytest.mark.parametrize("sample", [None, {"a": {1}}, object()])
    def test_samples_that_no_array_holds_are_refused_with_the_line(self, sample):
        plan = sliding_window(lambda: [sample] * 2, 2)
        with pytest.raises(FeedMismatch, match=r"Map it to numbers first|lack a return") as caught:
            list(plan())
        assert caught.value.__notes__ == [f"in a window of 2 samples, made at {plan.made_at}"]

    def test_samples_of_other_shapes_are_refused(self):
        rows = ragged(np.arange(6), [0, 3, 4, 6])
        for plan in (sliding_window(rows, 3), sliding_window(lambda: list(rows()), 3)):
            with pytest.raises(FeedMismatch, match="is ragged"):
                list(plan())
        (even,) = sliding_window(ragged(np.arange(6), [0, 3, 6]), 2)()
        assert even.tolist() == [[0, 1, 2], [3, 4, 5]]


ROWS = Rows(40, 0, "tree")

PLANS = {
    "rows": lambda rows: sliding_window(rows, 4, 3),
    "shuffled": lambda rows: shuffle(sliding_window(rows, 4, stride=1), seed=1),
    "of shuffled rows": lambda rows: sliding_window(shuffle(rows, seed=1), 5),
    "of a part": lambda rows: sliding_window(skip(rows, 7), 4, stride=2, drop_last=True),
    "of several readers": lambda rows: sliding_window(
        chain(rows, skip(rows, 3)), 7, drop_last=True
    ),
    "of several in turn": lambda rows: sliding_window(interleave(rows, skip(rows, 31)), 7),
    "several": lambda rows: chain(sliding_window(rows, 4), sliding_window(skip(rows, 2), 4, 2)),
    "several in turn": lambda rows: interleave(
        sliding_window(rows, 4), sliding_window(skip(rows, 20), 4, 2)
    ),
    "beside one another": lambda rows: compose(
        sliding_window(rows, 4), sliding_window(shuffle(rows, seed=0), 4)
    ),
    "in epochs": lambda rows: epochs(shuffle(sliding_window(rows, 4, 3), seed=2), 3),
    "of epochs": lambda rows: sliding_window(epochs(shuffle(rows, seed=2), 3), 8),
    "of windows in epochs": lambda rows: epochs(
        shuffle(sliding_window(sliding_window(shuffle(rows, 9, seed=2), 4), 2), seed=1), 2
    ),
}
FEW = ("rows", "shuffled", "of several in turn", "in epochs")  # and in CI of all


class TestPlaces:
    """Over indexed readers: any window at once, in batches, in epochs, in a trace."""

    @pytest.mark.parametrize("name", PLANS)
    def test_each_window_is_that_of_the_stream(self, name):
        plan, stream = PLANS[name](arrays(ROWS.columns)), PLANS[name](ROWS)
        expected = see(stream, limit=200).samples
        assert see(plan, limit=200).samples == expected
        plane = indexed(plan)
        assert (indexed(stream), plane.length) == (None, len(expected))
        backwards = np.arange(plane.length)[::-1]
        assert list(map(canonical, plane.take(backwards))) == expected[::-1]

    @pytest.mark.parametrize("name", few(PLANS, FEW))
    def test_a_trace_finds_the_same_rows_in_every_epoch(self, name):
        plan = PLANS[name](arrays(ROWS.columns))
        indices = np.arange(indexed(plan).length)

        @jax.jit
        def traced(indices, epoch):
            return indexed(at_epoch(plan, epoch)).route(indices)

        for epoch in (0, 3):
            expected = indexed(at_epoch(plan, epoch)).route(indices)
            for rows, same in zip(traced(jnp.asarray(indices), epoch), expected, strict=True):
                np.testing.assert_array_equal(rows, same)

    def test_a_trace_finds_the_rows_of_windows_of_a_mixture_of_objects(self):
        plan = sliding_window(mix([source([1, 2, 3]), source("ab")], seed=0), 2, drop_last=True)
        indices = np.arange(indexed(plan).length)
        (expected,) = indexed(plan).route(indices)
        (traced,) = jax.jit(indexed(plan).route)(jnp.asarray(indices))
        np.testing.assert_array_equal(traced, expected)

    @pytest.mark.parametrize("name", few(PLANS, FEW[:2]))
    def test_on_a_device_they_are_what_the_loader_gives(self, name):
        plan = Pipeline(PLANS[name](arrays(ROWS.columns))).batch(3)
        data, batch_at = as_function(plan)
        for epoch in (0, 1):
            for step, feed in enumerate(plan.load(drop_last=True).epoch(epoch)):
                jax.tree.map(np.testing.assert_array_equal, batch_at(data, epoch, step), feed)

    def test_a_device_holds_each_sample_once(self):
        data, _ = as_function(
            Pipeline(arrays(np.arange(1000))).sliding_window(100, stride=1).batch(10)
        )
        assert sum(leaf.size for leaf in jax.tree.leaves(data)) == 1000

    def test_of_readers_without_end_there_is_no_last_one(self):
        plane = indexed(sliding_window(epochs(arrays(np.arange(10))), 4))
        assert plane.length == ENDLESS
        assert plane.nth(10**9).tolist() == [0, 1, 2, 3]

    def test_data_sets_are_asked_for_the_samples_of_a_batch_at_once(self):
        asked = []

        class Squares:
            def __len__(self):
                return 100

            def __getitem__(self, rows):
                asked.append(len(rows))
                return rows**2

        plan = Pipeline(source(Squares(), batched=True)).sliding_window(5).shuffle(seed=0).batch(4)
        assert plan.peek().columns.shape == (4, 5)
        assert asked == [20]

    def test_samples_of_a_list_are_stacked_window_by_window(self):
        plan = Pipeline(source([(n, float(n)) for n in range(9)])).sliding_window(3).batch(2)
        first, last = plan
        assert [(a.tolist(), b.tolist()) for a, b in first] == [
            ([0, 1, 2], [0.0, 1.0, 2.0]),
            ([3, 4, 5], [3.0, 4.0, 5.0]),
        ]
        assert len(last) == 1

    def test_windows_of_mapped_rows_are_found_by_their_index(self):
        mapped = Pipeline(arrays(np.arange(10))).map(lambda n: int(n) ** 2)
        assert mapped.sliding_window(4, drop_last=False)[1].tolist() == [16, 25, 36, 49]
        assert mapped.sliding_window(4, drop_last=False)[-1].tolist() == [64, 81]
        assert indexed(mapped.sliding_window(4, drop_last=False)) is None

    def test_what_makes_its_rows_when_asked_does_not_go_to_a_device(self):
        plan = Pipeline(source(list(range(8)))).sliding_window(2).batch(2)
        with pytest.raises(ValueError, match=r"makes its rows when they are asked for.*\.load"):
            as_function(plan)

    def test_a_loader_finds_the_rows_of_each_window(self):
        loader = Pipeline(arrays(np.arange(13))).sliding_window(3, stride=2).batch(2).load()
        assert loader.samples(1).rows.tolist() == [[4, 5, 6], [6, 7, 8]]


class TestLeftOut:
    """The samples that fill no window."""

    @pytest.mark.parametrize("reader", [streamed(10), arrays(np.arange(10))])
    def test_left_out_samples_warn_with_both_ways_out(self, reader):
        plan = sliding_window(reader, 4)
        with pytest.warns(UserWarning, match="leaves out 2 of its last samples") as told:
            assert [each.tolist() for each in plan()] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert "drop_last=True" in str(told[0].message)
        assert "drop_last=False" in str(told[0].message)
        assert f"{told[0].filename}:{told[0].lineno}" == plan.made_at

    @pytest.mark.parametrize(
        ("size", "stride", "drop_last"),
        [
            (4, None, True),
            (4, None, False),
            (5, None, None),
            (4, 1, None),
            (4, 2, None),
            (2, 4, None),
        ],
    )
    def test_it_does_not_warn_where_it_was_asked_for_or_none_is_left(self, size, stride, drop_last):
        for reader in (streamed(10), arrays(np.arange(10))):
            with warnings.catch_warnings(action="error"):
                list(sliding_window(reader, size, stride, drop_last)())

    def test_a_last_window_of_fewer_samples_is_read(self):
        plan = sliding_window(arrays(np.arange(10)), 4, drop_last=False)
        assert (indexed(plan), length(plan)) == (None, 3)
        assert [each.tolist() for each in plan()][-1] == [8, 9]
        assert indexed(sliding_window(arrays(np.arange(8)), 4, drop_last=False)).length == 2

    def test_readers_with_fewer_samples_than_a_window_have_none(self):
        for reader in (streamed(3), arrays(np.arange(3)), list, arrays([])):
            assert list(sliding_window(reader, 4, drop_last=True)()) == []
        assert [each.tolist() for each in sliding_window(streamed(3), 4, drop_last=False)()] == [
            [0, 1, 2]
        ]


class TestMistakes:
    def test_batches_are_no_samples(self):
        rows = Pipeline(arrays(np.arange(10)))
        with pytest.raises(
            TypeError, match=r"type \.sliding_window\(n\) before \.batch.*chunk\(n\)"
        ):
            rows.batch(2).sliding_window(3)
        assert len(rows.batch(2).unbatch().sliding_window(5)) == 2

    @pytest.mark.parametrize(
        ("keyword", "instead"), [("shift", "stride=shift"), ("drop_remainder", "drop_last=True")]
    )
    def test_the_words_of_tf_data_are_translated(self, keyword, instead):
        with pytest.raises(TypeError, match=f"takes no {keyword}=: type {instead}"):
            Pipeline(list).sliding_window(2, **{keyword: 1})

    def test_a_generator_that_reuses_one_array_warns(self):
        def refilled():
            row = np.zeros(4)
            for number in range(8):
                row[:] = number
                yield row

        with pytest.warns(UserWarning, match="holds several samples at once"):
            list(sliding_window(refilled, 2)())

    def test_drop_last_is_a_flag(self):
        with pytest.raises(
            TypeError, match=r"^drop_last of sliding_window\(.* needs True or False, not 2"
        ):
            sliding_window(list, 2, 1, 2)
