"""`interleave`: readers take turns, also by arithmetic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import see, through_json
from widths import examples

import jreader
from jreader import NotResumable, Pipeline, arrays, epochs, firstn, interleave, shuffle, start
from jreader.batches import gives_batches
from jreader.readers import indexed, length
from jreader.readers.joined_columns import ENDLESS

lengths = st.lists(st.integers(0, 9), max_size=6)


def by_hand(readers):
    """A turn is a sample of each reader that still has one."""
    passes = [iter(reader()) for reader in readers]
    while passes:
        for each in list(passes):
            sample = next(each, None)
            if sample is None:
                passes.remove(each)
            else:
                yield sample


def numbered(counts):
    return [100 * number + np.arange(count) for number, count in enumerate(counts)]


@given(lengths)
def test_readers_take_turns_until_all_have_ended(counts):
    streams = [(lambda rows=rows: iter(rows.tolist())) for rows in numbered(counts)]
    assert list(interleave(*streams)()) == list(by_hand(streams))


@given(lengths)
@examples(200)
def test_indexed_readers_of_any_lengths_take_turns_by_arithmetic(counts):
    rows = list(map(arrays, numbered(counts)))
    plan, expected = interleave(*rows), list(by_hand(rows))
    assert list(plan()) == expected
    assert length(plan) == len(expected) == sum(counts)
    if counts:
        assert list(indexed(plan).take(np.arange(len(expected)))) == expected
        assert list(plan.start(None).items) == expected


@given(lengths, st.integers(0, 3))
@examples(30)  # each compiles
def test_a_trace_finds_the_same_samples(counts, seed):
    rows = [shuffle(arrays(each), seed=seed) for each in numbered(counts) if len(each)]
    if rows:
        plane = indexed(interleave(*rows))
        indices = np.arange(plane.length)
        (expected,), (traced,) = plane.route(indices), jax.jit(plane.route)(jnp.asarray(indices))
        np.testing.assert_array_equal(traced, expected)


def test_a_sample_of_readers_without_end_is_found_at_once():
    one, endless = arrays([10]), jreader.epochs(arrays(np.arange(20, 30)))
    plane = indexed(interleave(one, endless))
    assert plane.length == ENDLESS
    assert list(plane.take(np.array([0, 1, 2, 10**12]))) == [10, 20, 21, 29]


def test_streams_are_pulled_in_turn_and_no_further():
    drawn = []

    def told(name):
        return lambda: (drawn.append(name) or name for _ in range(2))

    items = interleave(told("a"), told("b"))()
    assert drawn == []
    assert [next(items), next(items), next(items), drawn] == ["a", "b", "a", ["a", "b", "a"]]


def test_a_pass_resumes_with_the_reader_whose_turn_it_is_also_after_some_have_ended():
    def plan():
        return interleave(lambda: "abc", list, lambda: "x", lambda: range(5))

    whole = see(plan())
    assert whole.samples == ["a", "x", 0, "b", 1, "c", 2, 3, 4]
    for done, position in enumerate(whole.positions):
        assert see(plan(), position).samples == whole.samples[done:]


def test_samples_of_other_dtypes_or_trees_take_turns_as_a_stream():
    plan = interleave(arrays([1, 2]), arrays(["a"]))
    assert indexed(plan) is None
    assert list(plan()) == [1, "a", 2]


def test_no_readers_and_empty_ones_give_nothing():
    for plan in (interleave(), interleave(list), interleave(arrays(np.zeros(0)), arrays([]))):
        assert list(plan()) == []
        assert see(plan).after == see(plan, see(plan).after).after
    assert len(indexed(interleave(arrays([]), arrays([]))).take(np.arange(0))) == 0


def test_batches_take_turns_and_stay_batches():
    rows = Pipeline(arrays(np.arange(6)))
    assert gives_batches(rows.batch(2).interleave(rows.batch(2)))
    with pytest.raises(TypeError, match=r"\.map_batches"):
        rows.batch(2).interleave(rows.batch(2)).map(abs)


def test_a_position_of_other_readers_is_refused():
    position = through_json(start(interleave(lambda: "ab", lambda: "c", lambda: "d")).position())
    with pytest.raises(NotResumable, match="not a position of this pipeline"):
        start(interleave(lambda: "ab"), position)
    with pytest.raises(NotResumable, match="not a position of this pipeline"):
        start(interleave(lambda: "ab"), [1, [None]])


def test_tf_data_differs():
    with pytest.raises(TypeError, match="takes no cycle_length=: leave it out"):
        Pipeline(lambda: "ab").interleave(lambda: "c", cycle_length=4)
    with pytest.raises(TypeError, match=r"^interleave\(\*readers\) needs a reader"):
        interleave(lambda: "ab", "cd")


ORDERS = [None, [0, 1], [1, 0, 0], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("stop", ["once", "first"])
@pytest.mark.parametrize("many", [(7, 4), (2, 9), (0, 3), (6, 6)], ids=str)
@pytest.mark.parametrize("kind", ["arrays", "streams"])
def test_turns_follow_the_order_to_the_first_end_or_to_the_last(kind, many, stop, order):
    numbers = [np.arange(n) + 100 * which for which, n in enumerate(many)]
    readers = [arrays(each) if kind == "arrays" else each.__iter__ for each in numbers]
    plan = interleave(*readers, stop=stop, order=order)
    left, expected, turns = [list(each) for each in numbers], [], 0
    while any(left):
        which = (order or [0, 1])[turns % len(order or [0, 1])]
        turns += 1
        if left[which]:
            expected.append(left[which].pop(0))
        elif stop == "first":
            break
    assert [int(n) for n in plan()] == expected
    assert length(plan) in (None, len(expected))
    assert (indexed(plan) is not None) == (kind == "arrays" and (stop == "first" or not order))
    for cut in range(len(expected) + 1):
        up = start(plan)
        head = [next(up.items) for _ in range(cut)]
        assert head + list(start(plan, up.position()).items) == expected


def test_readers_that_begin_again_go_round_for_ever():
    plan = interleave(epochs(arrays([1, 2, 3])), epochs(arrays([7])))
    assert [int(n) for n in firstn(plan, 8)()] == [1, 7, 2, 7, 3, 7, 1, 7]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"stop": "all"}, ValueError, "'once' or 'first', not 'all'"),
        ({"order": [0]}, ValueError, r"each of the 2 readers, from 0 to 1"),
        ({"order": [0, 1, 2]}, ValueError, r"and no other"),
        ({"order": ["a"]}, TypeError, "a list of ints"),
    ],
)
def test_an_order_that_cannot_be_is_refused(given, error, says):
    with pytest.raises(error, match=says):
        interleave(lambda: "a", lambda: "b", **given)
