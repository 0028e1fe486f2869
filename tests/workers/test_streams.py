"""One stream, whoever does the work, in order, with randomness that belongs to the sample."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor as Threads
from itertools import islice

import numpy as np
import pytest
from engines import Here, noisy, numbers, same, seen
from graphs import drawn_for, recipes
from hypothesis import given
from hypothesis import strategies as st
from seen import LIMIT, see
from widths import examples

from jreader import Pipeline, batch, epochs, map_readers, map_samples, shuffle, start
from jreader.readers.lanes import dealt_below

# random windows of few samples do so, and it is told
pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of")

WORKERS = [0, 1, 2, 4, 7]
THREADS = Threads(2)
plans = recipes(depth=3).filter(lambda recipe: recipe.seeded)


class TestOneStream:
    """Who does the work is not to be seen: not in samples, positions, errors or ends."""

    @given(
        plans,
        st.sampled_from(WORKERS),
        st.one_of(st.none(), st.integers(1, 9)),
        st.booleans(),
    )
    @examples(150)
    def test_on_threads(self, recipe, workers, window, rng):
        drawing = {"rng": rng, "seed": 3 if rng else None}
        plain = seen(map_samples(drawn_for, recipe.build(), **drawing))
        given = {"threads": workers, "window": window, **drawing}
        assert seen(map_samples(drawn_for, recipe.build(), **given)) == plain

    @given(
        plans,
        st.sampled_from(WORKERS),
        st.one_of(st.none(), st.integers(1, 9)),
        st.booleans(),
    )
    @examples(100, least=10)
    def test_on_an_executor(self, recipe, workers, window, rng):
        drawing = {"rng": rng, "seed": 3 if rng else None}
        plain = seen(map_samples(drawn_for, recipe.build(), **drawing))
        for executor in (Here(), THREADS):
            given = {"executor": executor, "concurrency": workers, "window": window, **drawing}
            assert seen(map_samples(drawn_for, recipe.build(), **given)) == plain

    @given(plans, st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 5))
    @examples(25, least=10)
    def test_in_processes(self, pool, recipe, window, size):
        drawing = {"rng": True, "seed": 3}
        given = {"processes": 2, "window": window, **drawing}
        plain = map_samples(drawn_for, recipe.build(), **drawing)
        assert seen(map_samples(drawn_for, recipe.build(), **given)) == seen(plain)
        size *= dealt.lanes if (dealt := dealt_below(plain)) else 1  # of each lane as many
        batches = batch(map_samples(drawn_for, recipe.build(), **given), size)
        whole = see(batches)
        assert whole.samples == see(batch(plain, size)).samples
        for place in range(0, len(whole.positions), 3):
            rest = see(batch(plain, size), whole.positions[place], LIMIT - place)
            assert rest.samples == whole.samples[place:]

    @pytest.mark.parametrize(
        "number",
        [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(7, marks=pytest.mark.slow)],
    )
    def test_in_any_number_of_processes(self, number):
        def plan(**engine):
            source = shuffle(numbers(300), 50, seed=1)
            return batch(map_samples(noisy, source, rng=True, seed=7, **engine), 16)

        assert seen(plan(processes=number)) == seen(plan())

    def test_every_position_is_a_place_for_every_engine(self, engine):
        def plan(**chosen):
            source = shuffle(numbers(12), 5, seed=1)
            return epochs(map_samples(noisy, source, rng=True, seed=7, **chosen), 2)

        whole = see(plan())
        assert seen(plan(**engine)) == seen(plan())
        for place in range(0, 24, 3):
            rest = see(plan(**engine), whole.positions[place])
            assert rest.samples == whole.samples[place:]
            assert see(plan(threads=3), rest.positions[-1]).samples == []

    def test_a_plain_map_of_a_pipeline_is_the_map_it_was(self):
        assert type(Pipeline(numbers()).map(str).reader) is map_readers
        assert type(Pipeline(numbers()).map(str, threads=1).reader) is map_samples

    def test_samples_are_not_looked_at(self, engine):
        samples = [None, "", np.zeros(0), np.arange(3), KeyError("x"), (), {}]
        got = list(map_samples(same, lambda: samples, **engine)())
        assert list(map(repr, got)) == list(map(repr, samples))

    def test_a_lambda_over_an_outer_name_travels(self, engine):
        width = 3
        assert list(map_samples(lambda n: n * width, numbers(4), **engine)()) == [0, 3, 6, 9]


class TestRandomness:
    """`rng` depends on seed, epoch, place and number of the sample, and on nothing else."""

    def test_a_sample_draws_what_its_key_says(self):
        (draw,) = map_samples(lambda _, rng: rng.random(), numbers(1), rng=True, seed=5)()
        words = np.random.SeedSequence(5, spawn_key=(0, 1, 0))
        assert draw == np.random.Generator(np.random.Philox(words)).random()

    def test_epochs_samples_and_maps_draw_different_numbers(self):
        def draw(sample, rng):
            return (*sample, int(rng.integers(1 << 60)))

        twice = Pipeline(lambda: [()] * 50)
        for _ in range(2):
            twice = twice.map(draw, rng=True, seed=5, threads=2)
        drawn = [number for pair in twice.epochs(3) for number in pair]
        assert len(set(drawn)) == len(drawn) == 300

    def test_a_filter_below_does_not_move_what_is_drawn_after_resuming(self):
        plan = Pipeline(numbers(30)).filter(lambda n: n % 3).map(noisy, rng=True, seed=1, threads=2)
        here = start(plan)
        head = list(islice(here.items, 7))
        rest = start(plan, here.position())
        assert head + list(rest.items) == list(plan)

    def test_without_a_seed_a_pass_draws_anew_and_can_be_resumed(self):
        plan = map_samples(noisy, numbers(), rng=True, threads=2)
        assert list(plan()) != list(plan())
        here = start(plan)
        next(here.items)
        assert list(start(plan, here.position()).items) == list(here.items)

    def test_a_map_that_draws_nothing_does_not_move_a_shuffle_above_it(self):
        plain = shuffle(map_readers(str, numbers()), 7, seed=1)
        mapped = shuffle(map_samples(str, numbers(), threads=2), 7, seed=1)
        assert list(plain()) == list(mapped())

    def test_a_seed_that_nothing_draws_from_is_refused(self):
        with pytest.raises(TypeError, match=r"seed=3 .* needs rng=True"):
            map_samples(str, numbers(), seed=3)


class TestWhoDoesTheWork:
    @pytest.mark.parametrize(
        "two",
        [
            {"threads": 2, "processes": 2},
            {"threads": 2, "executor": Here()},
            {"processes": 2, "executor": Here()},
        ],
        ids=" and ".join,
    )
    def test_is_said_once(self, two):
        with pytest.raises(
            TypeError, match=r"\(threads=n\).*\(processes=n\).*give only one of them"
        ):
            map_samples(str, numbers(), **two)

    @pytest.mark.parametrize("other", [{}, {"threads": 2}, {"processes": 2}])
    def test_only_an_executor_is_told_how_much_it_does_side_by_side(self, other):
        with pytest.raises(TypeError, match=r"concurrency=4 .* give executor= too"):
            map_samples(str, numbers(), concurrency=4, **other)
