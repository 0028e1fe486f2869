"""Batches of a stream in lanes: each lane gives its rows of every batch."""

import warnings
from itertools import chain

import numpy as np
import pytest
from graphs import kept, several
from hypothesis import given
from hypothesis import strategies as st
from laned import in_lanes, lanes_of
from seen import LIMIT, canonical, see, through_json
from widths import examples

from jreader import BatchNotDivisible, Columns, Pipeline, at_epoch, batch, source, start
from jreader.readers.lanes import of_lane

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]


def numbers(file):
    yield from range(file * 100, file * 100 + file)


def by_lane(plan):
    """The samples of each lane, read alone."""
    return [see(of_lane(plan, lane)) for lane in range(lanes_of(plan))]


def laid_out(batches, lanes, each):
    """The samples of each lane, as they stand in batches."""
    found = [[] for _ in range(lanes)]
    for samples in batches:
        rows = samples.valid if isinstance(samples, Columns) else range(lanes * each)
        for row, sample in zip(rows, samples, strict=True):
            found[row // each].append(canonical(sample))
    return found


@examples(150)
@given(in_lanes, st.integers(1, 3))
def test_each_lane_gives_its_rows_of_every_batch(recipe, each):
    plan = recipe.build()
    lanes, alone = lanes_of(plan), by_lane(plan)
    if any(seen.error or len(seen.samples) == LIMIT for seen in alone):
        return
    batches = list(batch(plan, lanes * each)())
    assert laid_out(batches, lanes, each) == [seen.samples for seen in alone]
    dropped = list(batch(plan, lanes * each, drop_last=True)())
    assert len(dropped) == min(len(seen.samples) // each for seen in alone)
    assert list(map(canonical, dropped)) == list(map(canonical, batches[: len(dropped)]))


@examples(100)
@given(in_lanes, st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, True]))
def test_batches_go_on_at_every_place_also_with_another_size(recipe, each, other, drop_last):
    plan = recipe.build()
    lanes = lanes_of(plan)
    alone = by_lane(plan)
    if any(seen.error or len(seen.samples) == LIMIT for seen in alone):
        return
    whole = see(batch(plan, lanes * each, drop_last))
    for place, position in enumerate(whole.positions):
        rest = see(batch(recipe.build(), lanes * each, drop_last), position)
        assert rest.samples == whole.samples[place:]
        if not drop_last:
            resized = batch(recipe.build(), lanes * other)
            given_ = start(resized, through_json(position)).items
            assert laid_out(given_, lanes, other) == [
                seen.samples[place * each :] for seen in alone
            ]
    assert see(batch(plan, lanes * each, drop_last), whole.after).samples == []


@examples(50)
@given(st.integers(1, 4), st.integers(4, 9))
def test_a_lane_is_a_part_of_the_files(lanes, many):
    plan = Pipeline(source(range(many))).read(several, lanes=lanes).filter(kept)
    for lane in range(lanes):
        alone = Pipeline(lambda lane=lane: range(lane, many, lanes)).flat_map(several).filter(kept)
        assert see(of_lane(plan, lane)).samples == see(alone).samples


@examples(50)
@given(in_lanes)
def test_without_a_batch_lanes_give_one_sample_in_turn(recipe):
    plan = recipe.build()
    alone = by_lane(plan)
    if any(seen.error or len(seen.samples) == LIMIT for seen in alone):
        return
    longest = max(len(seen.samples) for seen in alone)
    turns = [seen.samples[turn : turn + 1] for turn in range(longest) for seen in alone]
    assert see(plan).samples == [*chain.from_iterable(turns)][:LIMIT]


class TestRandomOps:
    plan = Pipeline(source([9] * 4)).read(lambda _: iter(range(9)), lanes=4)

    def test_each_lane_shuffles_in_an_order_of_its_own(self):
        shuffled = self.plan.shuffle(9, seed=0)
        orders = {tuple(of_lane(shuffled, lane)()) for lane in range(4)}
        assert len(orders) == 4

    def test_each_lane_draws_numbers_of_its_own(self):
        drawn = self.plan.map(lambda _, rng: float(rng.random()), rng=True, seed=0)
        assert len({*drawn}) == 36

    def test_every_epoch_has_other_orders(self):
        def orders(epoch):
            shuffled = at_epoch(self.plan.shuffle(9, seed=0), epoch)
            return {tuple(of_lane(shuffled, lane)()) for lane in range(4)}

        assert len(orders(0) | orders(1) | orders(2) | orders(3)) == 16

    def test_the_order_of_files_is_one_for_all_lanes(self):
        files = Pipeline(source(range(12))).shuffle(seed=3)
        plan = files.read(lambda file: iter([file]), lanes=3)
        for epoch in range(3):
            assert list(at_epoch(plan, epoch)) == list(at_epoch(files, epoch))


class TestEpochsInLanes:
    def test_a_lane_begins_its_next_epoch_by_itself_and_nothing_is_left_out_between(self):
        plan = Pipeline(source([1, 3])).read(numbers, lanes=2).epochs(2).batch(2)
        assert list(map(list, plan)) == [[100, 300], [100, 301], [302], [300], [301], [302]]

    def test_epochs_of_batches_wait_for_all_lanes(self):
        plan = Pipeline(source([1, 3])).read(numbers, lanes=2).batch(2).epochs(2)
        assert list(map(list, plan)) == [[100, 300], [301], [302]] * 2


class TestWhatJoinsLanes:
    @pytest.mark.parametrize(
        "joined",
        [
            lambda plan: plan.firstn(4),
            lambda plan: plan.cache().firstn(4),
            lambda plan: plan.chain().firstn(4),
            lambda plan: plan.skip(0).firstn(4),
        ],
    )
    def test_what_counts_or_keeps_samples_sees_those_of_all_lanes(self, joined):
        plan = Pipeline(source([3, 3])).read(numbers, lanes=2)
        assert list(joined(plan)) == [300, 300, 301, 301]
        assert list(joined(plan).batch(3)) == [[300, 300, 301], [301]]


class TestSizes:
    @pytest.mark.parametrize(
        ("size", "says"),
        [(100, r"64 or 128, or lanes=50"), (3, r"64, or lanes=3"), (65, "lanes=13")],
    )
    def test_one_that_lanes_do_not_divide_is_refused_with_those_that_do(self, size, says):
        plan = Pipeline(source(range(64))).read(numbers, lanes=64).map(str)
        with pytest.raises(BatchNotDivisible, match=rf"of 64 lanes.*batch_size=.*{says}"):
            plan.batch(size)

    def test_two_lanes_and_an_odd_size_have_an_answer_too(self):
        with pytest.raises(BatchNotDivisible, match="batch_size=4 or 6, or lanes=1"):
            Pipeline(source([1, 2])).read(numbers, lanes=2).batch(5)


def test_an_error_comes_after_the_batches_before_it():
    def failing(file):
        yield from range(3)
        if file:
            raise OSError("gone")

    plan = Pipeline(source([0, 1])).read(failing, lanes=2).batch(2)
    given_ = []
    with pytest.raises(OSError, match="gone") as caught:
        given_.extend(iter(plan))
    assert given_ == [[0, 0], [1, 1], [2, 2]]
    assert any("in read, made at" in note for note in caught.value.__notes__)


def test_a_source_that_refills_one_array_warns():
    row = np.zeros(2)

    def refilled(file):
        for row[:] in range(4):
            yield row

    with warnings.catch_warnings(record=True, action="always") as told:
        list(Pipeline(source([0, 1])).read(refilled, lanes=2).batch(4))
    assert any("holds several samples at once" in str(each.message) for each in told)
