"""The index plane changes nothing: naive == gathered == traced, on random plans over arrays."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import functions_called
from graphs import Recipe
from hypothesis import given
from hypothesis import strategies as st
from movers import fast, moving, naive, seeded
from seen import canonical, see
from widths import examples

import jreader
from jreader import (
    Columns,
    NotResumable,
    arrays,
    at_epoch,
    batch,
    chain,
    compose,
    epochs,
    firstn,
    shard,
    shuffle,
    skip,
)
from jreader.datasets import SequenceSampler
from jreader.readers import indexed, start
from jreader.readers.trees import leaves


@given(seeded)
def test_a_plan_over_arrays_gives_the_samples_of_the_same_plan_over_functions(recipe):
    assert see(fast(recipe)).samples == see(naive(recipe)).samples


def as_streams_are_read(recipe):
    """The plan in which readers of mixtures are epochs inside that of the mixture.

    So they are where a mixture is a stream that ends with its readers, and not where it is indexed.
    To give both one order takes a new `stream_version`.
    """
    below = tuple(map(as_streams_are_read, recipe.below))
    if recipe.op is jreader.mix and recipe.given["stop"] in ("first", "once"):
        below = tuple(Recipe(epochs, {"n": 1}, (each,)) for each in below)
    return replace(recipe, below=below)


@given(moving, st.integers(0, 3))
def test_an_indexed_plan_is_the_naive_one_in_every_epoch(recipe, epoch):
    streamed = as_streams_are_read(recipe) if epoch else recipe
    plan, plain = at_epoch(fast(streamed), epoch), at_epoch(naive(recipe), epoch)
    assert see(plan).samples == see(plain).samples


@given(moving, st.integers(1, 7), st.booleans())
def test_gathered_batches_are_the_naive_ones_from_every_position_on(recipe, size, drop_last):
    naively = [list(samples) for samples in batch(naive(recipe), size, drop_last)()][:12]
    plan = batch(fast(recipe), size, drop_last)
    gathered = see(plan, limit=12)
    assert gathered.samples == list(map(canonical, naively))
    for place, position in enumerate(gathered.positions[:-1]):
        assert see(plan, position, 12 - place).samples == gathered.samples[place:]


@given(moving, st.integers(0, 3))
@examples(60)
def test_a_traced_route_is_the_route(recipe, epoch):
    plan = fast(recipe)
    plane = indexed(plan)
    many = min(plane.length, 40)
    if not many:
        return
    places = np.arange(many)

    @jax.jit
    def traced(places, epoch):
        return indexed(at_epoch(plan, epoch)).route(places)

    expected = indexed(at_epoch(plan, epoch)).route(places)
    for rows, other in zip(traced(jnp.asarray(places), epoch), expected, strict=True):
        np.testing.assert_array_equal(rows, other)


@given(moving)
def test_take_gives_any_samples_in_any_order(recipe):
    plane = indexed(fast(recipe))
    whole = see(naive(recipe)).samples
    drawn = np.random.default_rng(len(whole))
    for places in (drawn.permutation(len(whole)), drawn.integers(0, max(len(whole), 1), 3)):
        known = places[places < len(whole)]
        assert list(map(canonical, plane.take(known))) == [whole[place] for place in known]


def test_every_op_that_only_moves_samples_is_indexed():
    rows = arrays(np.arange(10))
    plan = jreader.Pipeline(rows).shuffle(4, seed=1).skip(1).firstn(8).shard(2, 1)
    plan = plan.chain(rows).cache().prefetch(3).epochs(2)
    assert indexed(plan).length == 28
    assert indexed(compose(plan, plan)).length == 28
    assert indexed(epochs(rows)) is not None


@pytest.mark.parametrize("drop_last", [False, True])
def test_no_sample_is_touched_where_batches_are_gathered(drop_last):
    plan = batch(shuffle(arrays(np.arange(10), np.arange(10.0)), seed=0), 4, drop_last)
    batches = list(plan())
    assert all(isinstance(samples, Columns) for samples in batches)
    assert [len(samples) for samples in batches] == [4, 4, 2][: 2 if drop_last else 3]
    assert sorted(
        np.concatenate([samples.columns[0] for samples in list(batch(plan.reader, 4)())])
    ) == list(range(10))


def test_a_batch_of_arrays_takes_two_calls_of_python_and_three_for_a_large_column():
    digits = arrays(image=np.zeros((2000, 784), np.float32), label=np.zeros(2000, np.int32))
    batches = indexed(shuffle(digits, seed=0)).batches(100, None).items
    next(batches)
    assert len(functions_called(batches.__next__)) <= 2 + 3


TREES = {
    "bare": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "dict": lambda a, b: {"b": b, "a": a},
    "a tuple of one beside an array": lambda a, b: ((a,), b),
    "a tuple in a dict": lambda a, b: {"both": (a, b), "a": a},
}


@pytest.mark.parametrize("tree", TREES)
def test_a_batch_has_the_tree_of_the_samples_and_knows_its_leaves(tree):
    given = TREES[tree](np.arange(6), np.arange(12.0).reshape(6, 2))
    (gathered,) = indexed(arrays(given)).batches(6, None).items
    assert str(gathered.columns) == str(given)
    for known, leaf in zip(gathered.arrays, leaves(gathered.columns), strict=True):
        assert known is leaf


@pytest.mark.parametrize("shape", [(40, 3, 5), (40, 60, 50)])
def test_columns_of_any_layout_are_gathered_in_that_layout(shape):
    stored = np.arange(np.prod(shape)).reshape(shape[::-1]).T
    (gathered,) = indexed(shuffle(arrays(stored), seed=0)).batches(40, None).items
    (rows,) = indexed(shuffle(arrays(np.arange(40)), seed=0)).batches(40, None).items
    np.testing.assert_array_equal(gathered.columns, stored[rows.columns])
    assert np.argsort(gathered.columns.strides[1:]).tolist() == [0, 1]


def test_a_global_shuffle_holds_no_samples_and_begins_at_once():
    whole = shuffle(jreader.source(Squares(10**12), batched=True), seed=3)
    first = next(iter(batch(whole, 4)()))
    again = start(batch(whole, 4), 10**11)
    assert np.sqrt(first.columns).astype(int).max() < 10**12
    assert len(next(again.items)) == 4
    assert again.position() == 10**11 + 4


class Squares:
    """A synthetic data set: nothing of it is in memory."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, rows):
        return rows.astype(np.float64) ** 2


class Counted:
    """A data set of a million rows, that writes down which it was asked for."""

    def __init__(self, make=lambda rows: rows):
        self.make, self.asked = make, []

    def __len__(self):
        return 10**6

    def __getitem__(self, rows):
        self.asked.extend(rows.tolist())
        return self.make(rows)


def test_data_sets_end_to_end_are_asked_for_the_rows_of_a_batch_alone():
    first, second = Counted(), Counted(lambda rows: -rows)
    both = chain(jreader.source(first, batched=True), jreader.source(second, batched=True))
    whole = shuffle(both, seed=0)
    (samples,) = islice(batch(whole, 64)(), 1)
    assert isinstance(samples, Columns)
    assert len(first.asked) + len(second.asked) == 64
    assert sorted(samples.columns.tolist()) == sorted(
        [*first.asked, *(-row for row in second.asked)]
    )
    assert min(len(first.asked), len(second.asked)) > 8
    assert len(whole) == 2 * 10**6


def test_data_sets_side_by_side_are_asked_for_the_rows_of_a_batch_alone():
    pairs = Counted(lambda rows: (rows, rows * 2))
    names = Counted(lambda rows: {"name": rows.astype(str)})
    whole = shuffle(
        compose(jreader.source(pairs, batched=True), jreader.source(names, batched=True)), seed=0
    )
    (samples,) = islice(batch(whole, 64)(), 1)
    row, double, name = samples.columns
    assert (double == row * 2).all()
    assert (name["name"] == row.astype(str)).all()
    assert pairs.asked == names.asked == row.tolist()


def test_a_data_set_beside_arrays_and_behind_them_is_asked_too():
    asked = jreader.source(Counted(lambda rows: rows), batched=True)
    rows = arrays(np.arange(10**6))
    (samples,) = islice(batch(shuffle(compose(rows, asked), seed=1), 8)(), 1)
    assert (samples.columns[0] == samples.columns[1]).all()
    (samples,) = islice(batch(shuffle(chain(rows, asked), seed=1), 8)(), 1)
    assert isinstance(samples, Columns)
    assert asked.data.asked


@pytest.mark.parametrize(
    "other",
    [
        jreader.source(["a", (1, 2), None]),
        jreader.source(Squares(3), batched=True),
        arrays(np.arange(3.0)),
        jreader.source(["a", "b", "c"]),
    ],
)
def test_batches_of_members_that_differ_are_lists_of_their_samples(other):
    rows = jreader.source(np.arange(3), batched=True)
    for plan in (chain(rows, other), compose(rows, other), compose(other, other, rows)):
        samples = list(plan())
        assert indexed(plan).length == len(samples)
        order = indexed(shuffle(plan, seed=0)).rows(np.arange(len(samples)))[0]
        (gathered,) = batch(shuffle(plan, seed=0), 10)()
        assert list(map(canonical, gathered)) == [canonical(samples[place]) for place in order]


def test_a_data_set_that_is_chained_with_itself_is_one_column():
    rows = jreader.source(Squares(9), batched=True)
    plan = chain(skip(rows, 7), shuffle(rows, seed=0), rows)
    assert indexed(plan).columns is rows.columns
    assert [int(root) for root in np.sqrt([*plan()])[:2]] == [7, 8]


def test_chains_of_a_thousand_parts_gather_the_right_rows():
    parts = [arrays(np.arange(begin, begin + 3)) for begin in range(0, 3000, 3)]
    assert sorted(int(row) for row in shuffle(chain(*parts), seed=0)()) == list(range(3000))
    gathered = batch(shuffle(chain(*parts), seed=0), 7)
    assert [int(row) for samples in gathered() for row in samples] == [
        int(row) for row in shuffle(chain(*parts), seed=0)()
    ]


def test_a_long_pass_is_routed_in_blocks_that_meet():
    columns = np.arange(40_000)
    order = shuffle(arrays(columns), seed=0)
    expected = indexed(order).rows(columns)[0].tolist()
    assert [int(row) for row in order()] == expected
    for size in (7, 20_000):
        batches = [samples.columns.tolist() for samples in batch(order, size)()]
        assert batches == [expected[low : low + size] for low in range(0, 40_000, size)]


@pytest.mark.parametrize("size", [1, 5, 50])
def test_chains_of_chains_are_one_column_of_all_their_parts(size):
    parts = [np.arange(begin, begin + 20) * 3 for begin in (0, 20, 40)]
    inner = skip(chain(*map(arrays, parts[:2])), 7)
    plan = chain(inner, arrays(parts[2]), inner)
    skipped = np.concatenate(parts[:2]).tolist()[7:]
    expected = [*skipped, *parts[2].tolist(), *skipped]
    assert [int(row) for row in plan()] == expected
    order = shuffle(plan, seed=2)
    gathered = [row for samples in batch(order, size)() for row in samples.columns.tolist()]
    assert gathered == [int(row) for row in order()]
    assert sorted(gathered) == sorted(expected)
    (column,) = leaves(indexed(plan).columns)
    assert (len(column), column.shape, column.dtype) == (100, (100,), parts[0].dtype)
    assert np.asarray(column).tolist() == np.concatenate([*parts, *parts[:2]]).tolist()


def test_what_gathers_from_one_column_is_chained_without_another():
    rows = arrays(np.arange(9) * 2)
    for plan in (chain(rows, rows), chain(shuffle(rows, seed=1), skip(rows, 4), rows)):
        plane = indexed(plan)
        assert plane.columns is indexed(rows).columns
        expected = [int(row) for row in plan()]
        assert plane.take(np.arange(plane.length)).columns.tolist() == expected
        assert max(expected) == 16


def test_what_follows_an_endless_reader_is_never_reached():
    first, second, last = (arrays(np.arange(begin, begin + 3)) for begin in (0, 3, 6))
    endless = chain(chain(first, epochs(second), last), epochs(last))
    plane = indexed(endless)
    assert plane.length == indexed(epochs(last)).length
    expected = [0, 1, 2, *[3, 4, 5] * 4]
    assert [int(row) for row in firstn(endless, 15)()] == expected
    assert plane.take(np.arange(15)).columns.tolist() == expected
    (routed,) = jax.jit(plane.route)(jnp.arange(15))
    assert np.asarray(leaves(plane.columns)[0])[routed].tolist() == expected


def test_a_member_without_samples_is_no_hindrance_to_a_trace():
    nothing = shuffle(arrays(np.arange(0)), seed=1)
    plan = chain(nothing, shuffle(arrays(np.arange(5)), seed=2), nothing)
    plane = indexed(plan)
    (routed,) = jax.jit(plane.route)(jnp.arange(5))
    assert np.asarray(routed).tolist() == plane.route(np.arange(5))[0].tolist()


def test_places_of_one_member_may_lie_around_those_of_another():
    plan = chain(*[shuffle(arrays(np.arange(3) + 3 * part), seed=part) for part in range(2)])
    samples = [int(row) for row in plan()]
    for places in permutations(range(6)):
        rows = indexed(plan).take(np.array(places)).columns
        assert rows.tolist() == [samples[place] for place in places]


def test_unlike_columns_are_chained_without_a_plane():
    whole, halves, wide = np.arange(2), np.arange(2.0), np.arange(6).reshape(2, 3)
    for unlike in (halves, wide, (whole, whole), {"n": whole}):
        plan = chain(arrays(whole), arrays(unlike))
        assert indexed(plan) is None
        expected = [*arrays(whole)(), *arrays(unlike)()]
        assert list(map(canonical, plan())) == list(map(canonical, expected))


def test_readers_that_do_not_align_say_so_at_their_end_also_over_arrays():
    plan = batch(compose(arrays(np.arange(3)), arrays(np.arange(4))), 2)
    with pytest.raises(jreader.ComposeNotAligned):
        list(plan())
    shortest = compose(arrays(np.arange(3)), arrays(np.arange(4)), check_alignment=False)
    assert len(list(batch(shortest, 2)())) == 2


@pytest.mark.parametrize("width", [3, 3000])
def test_mapped_files_are_gathered_in_the_order_asked_for(tmp_path, width):
    rows = np.arange(50 * width, dtype=np.uint16).reshape(50, width)
    np.save(tmp_path / "rows.npy", rows)
    plan = batch(shuffle(jreader.npy(tmp_path / "rows.npy"), seed=5), 16)
    expected = batch(shuffle(arrays(rows), seed=5), 16)
    for mapped, held in zip(plan(), expected(), strict=True):
        np.testing.assert_array_equal(mapped.columns, held.columns)


@pytest.mark.parametrize("place", [3, -1])
def test_a_route_out_of_the_columns_is_refused_before_the_gather(place):
    plane = indexed(arrays(np.arange(3)))
    with pytest.raises(IndexError, match="there are 3"):
        plane.take(np.array([0, place]))


def test_leaves_of_a_plane_are_routed_in_their_order():
    tree = {"b": np.arange(4), "a": (np.arange(4) * 2,)}
    plane = indexed(shuffle(arrays(tree), seed=1))
    routed = plane.route(np.arange(4))
    assert len(routed) == len(leaves(plane.columns)) == 2


def test_readers_without_an_end_have_none_behind_skip_and_shard_either():
    rows = epochs(arrays(np.arange(3)))
    for reader in (skip(rows, 2), shard(rows, 3, 1)):
        assert indexed(reader).length == indexed(rows).length
        assert indexed(compose(reader, rows)) is not None
    assert list(map(int, islice(skip(rows, 2)(), 4))) == [2, 0, 1, 2]


@pytest.mark.parametrize("reader", [arrays(np.arange(4)), SequenceSampler(range(4))])
@pytest.mark.parametrize("place", [-1, -4, 5])
def test_a_place_before_the_beginning_is_none(reader, place):
    with pytest.raises(NotResumable, match="cannot resume after"):
        start(reader, place)


def test_no_samples_are_taken_of_epochs_over_a_mixture_of_objects():
    members = [jreader.source(list("abc")), jreader.source(list("de"))]
    plan = epochs(jreader.mix(members, seed=0), 2)
    assert list(indexed(plan).take(np.arange(0))) == []


def test_columns_of_texts_end_to_end_beside_arrays_make_batches_of_samples(tmp_path):
    plans = []
    for name in "ab":
        rows = [{"id": at, "text": name * at} for at in range(3)]
        plans.append(jreader.cache(lambda rows=rows: rows, str(tmp_path / name)))
        assert len(list(plans[-1]())) == 3
    both = chain(*(jreader.cache(plan.reader, plan.path) for plan in plans))
    assert indexed(both) is not None
    batches = list(batch(shuffle(both, seed=0), 4)())
    assert list(map(len, batches)) == [4, 2]
    samples = [(sample["text"], int(sample["id"])) for each in batches for sample in each]
    assert sorted(samples) == [("", 0), ("", 0), ("a", 1), ("aa", 2), ("b", 1), ("bb", 2)]
