"""What is printed of a plan can be typed, where its functions and readers have names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from graphs import number, several, tagged
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

import jreader
from jreader import (
    Node,
    Pipeline,
    batch,
    firstn,
    shuffle,
    start,
)

OTHERWISE = {jreader.map_readers, jreader.mix}  # their methods take other arguments: of one reader


def ten():
    return range(10)


def half(sample):
    return sample / 2


def odd(sample):
    return number(sample) % 2


def rolled(sample, rng):
    return sample, int(rng.integers(100))


def again(reader, times, *, kind=list):
    return lambda: (sample for sample in kind(reader()) for _ in range(times))


@dataclass(frozen=True, eq=False, repr=False)
class every(Node):
    reader: object
    n: int = 1

    def start(self, at):
        return start(self.reader, at)


small = st.integers(2, 4)
STEPS = [
    st.tuples(st.just("batch"), small, st.sampled_from([None, True, False])),
    st.tuples(st.just("chain"), st.sampled_from([ten, firstn(ten, 2), Pipeline(ten).skip(8)])),
    st.tuples(st.just("compose"), st.just(ten), st.just({"check_alignment": False})),
    st.tuples(st.just("epochs"), small),
    st.tuples(st.just("interleave"), st.sampled_from([ten, Pipeline(ten).skip(8)])),
    st.tuples(st.sampled_from(["firstn", "skip", "prefetch", "batch"]), small),
    st.tuples(st.just("shard"), small, st.just(1)),
    st.tuples(st.just("shuffle"), small, st.sampled_from([0, 7, 2**70])),
    st.tuples(st.sampled_from(["cache"])),
    st.tuples(st.just("filter"), st.just(odd)),
    st.tuples(st.just("flat_map"), st.just(several)),
    st.tuples(st.just("xmap"), st.just(tagged), small, small, st.just({"order": True})),
    st.tuples(st.just("map"), st.just(tagged)),
    st.tuples(st.just("map"), st.just(tagged), st.just({"threads": 2, "window": 3})),
    st.tuples(st.just("map"), st.just(rolled), st.just({"rng": True, "seed": 3})),
    st.tuples(st.just("pipe"), st.just(again), small, st.just({"kind": tuple})),
    st.tuples(st.just("pipe"), st.just(every), small),
    st.tuples(st.just("pipe"), st.just(jreader.shuffle), small, st.just(1)),
]


NAMED = {
    **{name: getattr(jreader, name) for name in jreader.__all__},
    **{each.__name__: each for each in (again, every, odd, rolled, several, tagged, ten)},
    "half": half,
    "max": max,
}


@pytest.mark.filterwarnings(
    "ignore:.* left none of the samples",
    "ignore:a plain function iterates",
    "ignore:.* makes lists of .* batches",
)
class TestPrinting:
    """What is printed can be typed, where its functions and readers are known by their names."""

    @given(st.lists(st.one_of(STEPS), max_size=6))
    @examples(200, least=40)
    def test_what_is_printed_is_the_same_plan_again(self, steps):
        plan = Pipeline(ten)
        for name, *arguments in steps:
            named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            if name != "map" or "batch" not in repr(plan):  # or it is refused
                plan = getattr(plan, name)(*arguments, **named)
        typed = eval(repr(plan), NAMED)
        assert repr(typed) == repr(plan)
        assert list(typed.firstn(20)) == list(plan.firstn(20))

    def test_so_is_one_that_reads_itself(self):
        plan = Pipeline(ten).skip(8)
        for twice in (plan.chain(plan), plan.compose(plan), plan.chain(ten, plan, plan)):
            assert list(eval(repr(twice), NAMED)) == list(twice)

    def test_so_is_one_whose_ops_are_spelled_as_functions(self):
        inside = Pipeline(jreader.compose(ten, Pipeline(ten).map(half)))
        both = Pipeline(jreader.map_readers(max, Pipeline(ten).skip(1), inside.flat_map(list)))
        for plan in (inside, both, inside.batch(2), Pipeline(batch(shuffle(ten, 4, seed=1), 3))):
            assert list(eval(repr(plan), NAMED)) == list(plan)

    def test_so_is_one_whose_own_op_does_not_begin_with_the_reader(self):
        @dataclass(frozen=True, eq=False, repr=False)
        class swapped(Node):
            fn: object
            reader: object

            def start(self, at):
                return start(self.reader, at).mapped(self.fn)

        plan = Pipeline(swapped(half, Pipeline(ten).skip(1))).firstn(2)
        assert repr(plan) == "Pipeline(swapped(half, Pipeline(ten).skip(n=1))).firstn(n=2)"
        assert list(eval(repr(plan), {**NAMED, "swapped": swapped})) == list(plan) == [0.5, 1]

    def test_a_plan_of_another_epoch_prints_as_it_was_written(self):
        plan = Pipeline(ten).pipe(again, 2).shuffle(4, seed=1)
        assert repr(jreader.at_epoch(plan, 3)) == repr(plan)
