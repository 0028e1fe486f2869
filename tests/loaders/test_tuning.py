"""`load(tune=True)`: the stream stays, whatever is moved and whenever; feeds come quicker."""

import gc
import threading
from itertools import cycle

import numpy as np
import pytest
from graphs import recipes
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from seen import LIMIT, canonical, see, through_json
from widths import examples

from jreader import DataLoader, Pipeline, arrays, batch
from jreader.counters import Counters, counting
from jreader.loaders.tuning import Ceilings, Tuner
from jreader.readers import start
from jreader.tunables import Tunables

# random filters of few samples do so, and windows of short documents, and it is told
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]

VALUES = st.lists(st.integers(1, 9), min_size=1, max_size=20)


def doubled(sample):
    return 2 * sample


def numbers(n):
    return lambda: iter(range(n))


def plan(n=90, threads=3):
    mapped = Pipeline(numbers(n)).map(doubled, threads=threads)
    return mapped.shuffle(8, seed=1).map(doubled, threads=2).batch(4)


def moved(loader, feeds, values):
    """The feeds of a pass, with everything that may be tuned moved between any two of them."""
    values = cycle(values)
    for feed in feeds:
        for each in loader._run.tuner.tunables:
            each.tune(next(values))
        yield feed


def lists(feeds):
    return [feed.tolist() for feed in feeds]


def no_thread_is_left():
    for thread in threading.enumerate():
        if thread.name in ("jreader map_samples", "jreader loader"):
            thread.join(PATIENCE)
            assert not thread.is_alive()
    return True


@given(recipes(), VALUES)
@examples(200)
def test_plans_give_the_same_samples_and_positions_whatever_is_moved(recipe, values):
    whole, tunables, turns = see(recipe.build()), Tunables(), cycle(values)
    if whole.error is not None or not recipe.seeded:
        return
    with counting(Counters(tunables)):
        here = start(recipe.build())
    found, positions = [], [through_json(here.position())]
    for sample in here.items:
        found.append(canonical(sample))
        positions.append(through_json(here.position()))
        if len(found) == LIMIT:
            break
        for each in tunables:
            each.tune(next(turns))
    here.close()
    assert found == whole.samples
    assert positions == whole.positions


@given(VALUES)
@examples(20)
def test_feeds_are_the_same_whatever_is_moved(values):
    loader = plan().load(tune=True)
    assert lists(moved(loader, loader, values)) == lists(plan().load())


@given(VALUES, st.integers(1, 22))
@examples(20)
def test_a_cursor_of_a_tuned_loader_resumes_an_untuned_one_and_the_reverse(values, taken):
    whole = lists(plan().load())
    for tuned, then in [(True, False), (False, True)]:
        loader, other = plan().load(tune=tuned), plan().load(tune=then)
        feeds = loader.epoch(0)
        steps = moved(loader, feeds, values) if tuned else feeds
        head = [next(steps).tolist() for _ in range(taken)]
        rest = other.epoch(0, at=feeds.cursor)
        feeds.close()
        assert head + lists(moved(other, rest, values) if then else rest) == whole


@pytest.mark.parametrize("value", [1, 2, 9])
def test_a_pass_that_is_closed_after_a_move_leaves_no_threads(value):
    loader = plan(10**6).load(tune=True)
    feeds = iter(loader)
    next(feeds)
    for each in loader._run.tuner.tunables:
        each.tune(value)
    feeds.close()
    assert no_thread_is_left()
    for each in loader._run.tuner.tunables:
        each.tune(5)  # of a pass that is over: there is nothing to begin
    assert all("map_samples" not in each.name for each in threading.enumerate())


def test_a_pass_may_be_closed_while_another_thread_moves_it():
    for _ in range(20):
        loader, over = plan(10**6).load(tune=True), threading.Event()
        feeds = iter(loader)
        next(feeds)

        def move(loader=loader, over=over):
            for value in cycle([9, 1, 4, 2]):
                for each in loader._run.tuner.tunables:
                    each.tune(value)
                if over.is_set():
                    return

        mover = threading.Thread(target=move)
        mover.start()
        for _ in range(3):
            next(feeds)
        feeds.close()
        over.set()
        mover.join(PATIENCE)
    assert no_thread_is_left()


def test_threads_come_and_leave_as_they_are_told():
    begun, seven, first, last = threading.Event(), threading.Barrier(7), set(), set()

    def met(sample):
        begun.set()
        if sample < 7:
            seven.wait(PATIENCE)  # for six others
            first.add(threading.get_ident())
        if sample >= 199_000:  # what was taken before the threads left is done by then
            last.add(threading.get_ident())
        return sample

    loader = Pipeline(numbers(200_000)).map(met, threads=2).batch(4).load(tune=True)
    feeds, drawn = iter(loader), []
    consumer = threading.Thread(target=lambda: drawn.append(next(feeds).tolist()))
    consumer.start()
    assert begun.wait(PATIENCE)
    (threads,) = [each for each in loader._run.tuner.tunables if each.name == "threads"]
    threads.tune(7)
    consumer.join(PATIENCE)
    threads.tune(1)
    assert drawn + lists(feeds) == np.arange(200_000).reshape(-1, 4).tolist()
    assert (len(first), len(last)) == (7, 1)


def test_later_epochs_begin_with_what_was_found():
    loader = plan().load(tune=True)
    list(loader)
    for each in loader._run.tuner.tunables:
        each.tune(6)
    list(loader)
    assert loader.tuned.capacity == 6
    assert [each.threads for each in loader.tuned.maps] == [6, 6]
    stats = loader.stats()
    assert [each.workers for each in stats.stages if each.by == "threads"] == [6, 6]
    assert stats.queues[0].room == 6


def test_only_maps_that_were_given_several_threads_are_moved():
    kept = Pipeline(numbers(40)).map(doubled).map(doubled, threads=1).prefetch(3).batch(4)
    loader = kept.load(tune=True)
    list(loader)
    assert loader.tuned.maps == ()


def test_a_window_that_was_given_is_kept_to():
    loader = Pipeline(numbers(40)).map(doubled, threads=2, window=3).batch(4).load(tune=True)
    list(loader)
    (threads,) = [each for each in loader._run.tuner.tunables if each.name == "threads"]
    assert threads.most == 3


@pytest.mark.parametrize("wrong", [1, "yes", None, {"memory": 3}])
def test_what_tune_cannot_be_is_said(wrong):
    with pytest.raises(TypeError, match="type tune=True, or tune="):
        plan().load(tune=wrong)


def test_ceilings_are_numbers_of_at_least_one():
    with pytest.raises(ValueError, match=r"tune=.'threads': \.\.\.. of load needs a whole"):
        plan().load(tune={"threads": 0})
    with pytest.raises(ValueError, match="capacity=0 prefetches none"):
        plan().load(tune=True, capacity=0)


def test_every_door_tunes():
    data = arrays(np.arange(8))
    doors = [
        DataLoader(range(8), batch_size=2, tune=True),
        DataLoader.from_generator(tune=True).set_sample_list_generator(batch(data, 2)),
        Pipeline(batch(data, 2)).load(tune={"capacity": 3}),
    ]
    for loader in doors:
        assert len(list(loader)) == 4
        assert loader.tuned.capacity == 2
    assert plan().load().tuned is None


def test_what_was_found_is_written_as_what_to_type():
    loader = plan().load(tune=True)
    list(loader)
    lines = str(loader.tuned).splitlines()
    assert lines[0].startswith(".map(doubled, threads=3)  # test_tuning.py:")
    assert lines[-1] == ".load(capacity=2)"


class Loop:
    """A loop and its data as arithmetic: how long each feed is waited for, at any setting."""

    def __init__(self, takes, step=0.001, ceilings=None, **values):
        self.takes, self.step, self.clock = takes, step, 0.0
        self.tuner = Tuner(ceilings or Ceilings())
        self.counters = Counters(self.tuner.tunables)
        self.tuner.begin(self.counters)
        for name, value in values.items():
            kind = "capacity" if name == "capacity" else "threads"
            self.tuner.tunables.of(kind, name, "train.py:1", value)
        self.noise = np.random.default_rng(0)
        self.feeds = 0

    @property
    def values(self):
        return {each.function: each.value for each in self.tuner.tunables}

    def run(self, seconds, noise=0.02, stalls=0.0):
        end = self.clock + seconds
        while self.clock < end:
            self.feeds += 1
            came = self.clock
            each, busy = self.takes(self.feeds, **self.values)
            wait = max(2e-6, each - self.step) * (1 + noise * self.noise.standard_normal())
            if self.noise.random() < stalls * (wait + self.step):
                wait += 0.3  # other programs have the cores
            self.clock += wait
            for tunable in self.tuner.tunables:
                if tunable.name == "threads":
                    tunable.spent += busy.get(tunable.function, 0.0)
            left = self.clock
            self.counters.depths.append(0 if wait > 1e-5 else self.values.get("capacity", 2))
            self.tuner.fed(self.counters, int(1e9 * came), int(1e9 * left))
            self.clock += self.step


def waits(work, source=0.0):
    """A function that waits: as quick as there are threads, up to the source's own pace."""

    def takes(_, decode, **_others):
        return max(work / decode, source), {"decode": work}

    return takes


def test_a_function_that_waits_gets_the_threads_that_the_source_can_feed():
    loop = Loop(waits(0.06, source=0.005), decode=2)
    loop.run(30)
    assert 12 <= loop.values["decode"] <= 16
    assert loop.tuner.settled


def test_two_functions_that_limit_each_other_are_both_moved():
    def takes(_, first, second):
        return max(0.04 / first, 0.04 / second, 0.005), {"first": 0.04, "second": 0.04}

    loop = Loop(takes, first=2, second=2)
    loop.run(30)
    assert max(0.04 / value for value in loop.values.values()) <= 0.005 * 1.05


def test_threads_that_are_in_each_others_way_become_fewer():
    def takes(_, decode):
        each = 0.01 * (1 + 0.1 * decode)  # of one lock
        return each, {"decode": each * decode}

    loop = Loop(takes, decode=8)
    loop.run(30)
    assert loop.values["decode"] == 1


def test_nothing_is_moved_where_the_loop_does_not_wait():
    loop = Loop(waits(0.001), step=0.01, decode=2, capacity=2)
    moves = []
    for each in loop.tuner.tunables:
        each.tune = moves.append
    loop.run(30)
    assert not moves


def test_nothing_is_moved_where_the_source_limits():
    loop = Loop(waits(0.001, source=0.01), decode=2)
    loop.run(30)
    assert loop.values["decode"] == 2
    assert loop.tuner.settled


def test_noise_alone_makes_no_move_that_lasts():
    loop = Loop(waits(0.03, source=0.01), decode=4)
    loop.run(60, noise=0.1)
    assert 4 <= loop.values["decode"] <= 8


@pytest.mark.parametrize("seed", range(3))
def test_other_programs_that_stall_the_loop_mislead_it_not_for_long(seed):
    loop = Loop(waits(0.16, source=0.005), decode=2)
    loop.noise = np.random.default_rng(seed)
    loop.run(30, noise=0.1, stalls=1.0)
    seen = []
    for _ in range(40):
        loop.run(1, noise=0.1, stalls=1.0)
        seen.append(loop.values["decode"])  # which may be that of a move that is being tried
    assert np.median(seen) == 32


def test_ceilings_are_kept_to():
    loop = Loop(waits(1.0), ceilings=Ceilings(threads=12), decode=2)
    loop.run(60)
    assert loop.values["decode"] == 12


def test_a_source_that_comes_in_bursts_gets_a_larger_look_ahead():
    def takes(feed, capacity):
        stalls = feed % 32 == 0
        return (max(1e-6, 0.2 - 0.01 * capacity) if stalls else 1e-6), {}

    loop = Loop(takes, step=0.01, capacity=2)
    loop.run(60)
    assert loop.values["capacity"] == 16


def test_a_loop_that_becomes_another_one_is_tuned_anew():
    loop = Loop(waits(0.001, source=0.01), decode=2)
    loop.run(40)
    loop.takes = waits(0.1)
    loop.run(60)
    assert loop.values["decode"] == 32


def test_a_tuned_loader_that_is_dropped_frees_what_it_holds():
    loader = plan().load(tune=True)
    feeds = iter(loader)
    next(feeds)
    del feeds, loader
    gc.collect()
    assert no_thread_is_left()
