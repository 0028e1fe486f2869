"""`jreader.report(loader)` names what limits: one stage is five times as slow as the others."""

import contextlib
import functools
import time
import zlib

import jax
import numpy as np
import pytest
from interpreter import GIL

import jreader
from jreader import DataLoader, Pipeline, arrays

SLOW, ROWS, BATCH = 0.002, 400, 4


def numbers():
    yield from range(ROWS)


def waits(number):
    """A function that waits on a clock, as a disk or a network would have it wait."""
    time.sleep(SLOW)
    return number


def counts(number):
    """A function of Python's, which holds the interpreter's lock."""
    limit = time.thread_time() + SLOW
    while time.thread_time() < limit:
        pass
    return number


DATA = np.random.default_rng(0).integers(0, 9, 200_000, np.uint8).tobytes()


def packs(number):
    """A function in C, which leaves the lock."""
    return number + 0 * len(zlib.compress(DATA, 6))


def large(number):
    """A function whose samples cost more to hand over than to make."""
    return np.full(1_500_000, number % 7, np.uint8)


def slow_numbers():
    for number in range(ROWS):
        yield waits(number)


def looped(loader, step=lambda _feed: None, steps=12):
    feeds = loader.steps(steps)
    for feed in feeds:
        step(feed)
    return jreader.report(loader, feeds=3)


def long_step(_feed):
    time.sleep(5 * BATCH * SLOW)


HELPS_PYTHON = "`processes=2` would help, since it holds the GIL" if GIL else "`threads=2`"


def measured(case):
    """A test that measures: it has five tries, since whatever else runs may mislead one."""

    @functools.wraps(case)
    def tried(*args, **named):
        for _ in range(4):
            with contextlib.suppress(AssertionError):
                return case(*args, **named)
        return case(*args, **named)

    return tried


class TestLimits:
    """Each case of a loop that starves, and of one that does not."""

    @measured
    def test_a_slow_source(self):
        found = looped(Pipeline(slow_numbers).map(abs).batch(BATCH).load())
        assert (found.limit, found.function) == ("source", "slow_numbers")
        assert "test_reports.py:" in str(found)
        assert "it waits most of the time" in found.advice

    @pytest.mark.parametrize(
        ("function", "advice"),
        [
            (counts, HELPS_PYTHON),
            (waits, "would be enough, since it waits most of the time: `threads="),
            (packs, "would be enough, since it releases the GIL: `threads=2`"),
        ],
        ids=["python", "waiting", "c"],
    )
    @measured
    def test_a_slow_map(self, function, advice):
        found = looped(Pipeline(numbers).map(function).batch(BATCH).load())
        assert (found.limit, found.function) == ("map", function.__name__)
        assert found.waiting > 0.2
        assert advice in found.advice

    @pytest.mark.skipif(not GIL, reason="threads share no lock without a GIL")
    @measured
    def test_threads_that_share_the_lock(self):
        loader = Pipeline(numbers).map(counts, threads=3).batch(BATCH).load()
        found = looped(loader, steps=30)
        assert (found.limit, found.function) == ("map", "counts")
        assert "`processes=2` instead of threads" in found.advice
        assert found.arguments == {"processes": 2}

    @measured
    def test_processes_that_make_large_samples_slower_than_threads_would(self):
        found = looped(Pipeline(numbers).map(large, processes=2).batch(2).load(), steps=40)
        assert (found.limit, found.function) == ("map", "large")
        assert "times as long in processes as in this program: `threads=2`" in found.advice
        assert found.arguments == {"threads": 2}

    @measured
    def test_threads_that_are_too_few(self):
        found = looped(Pipeline(numbers).map(waits, threads=2).batch(BATCH).load(), steps=40)
        assert (found.limit, found.function) == ("map", "waits")
        assert "more threads would be enough" in found.advice
        assert 2 < found.arguments["threads"] <= 32

    @measured
    def test_threads_are_as_many_as_tuning_has_come_to(self):
        loader = Pipeline(numbers).map(waits, threads=2).batch(BATCH).load(tune=True)
        for _ in loader.steps(12):
            pass
        for each in loader._run.tuner.tunables:
            each.tune(6)
        found = jreader.report(loader, feeds=3)
        assert [stage.workers for stage in found.stages if stage.name == "map"] == [6]
        assert found.arguments.get("threads", 7) > 6

    def test_a_slow_filter_which_has_no_threads(self):
        found = looped(Pipeline(numbers).filter(waits).batch(BATCH).load())
        assert (found.limit, found.function) == ("map", "waits")
        assert "do that work in .map(fn, threads=" in found.advice

    @measured
    def test_two_equal_slow_maps_either_of_which_limits(self):
        found = looped(Pipeline(numbers).map(waits).map(waits).batch(BATCH).load())
        assert (found.limit, found.function) == ("map", "waits")
        assert list(found.arguments) == ["threads"]

    @measured
    def test_a_slow_source_behind_the_window_of_a_shuffle(self):
        found = looped(Pipeline(slow_numbers).shuffle(16, seed=0).batch(BATCH).load())
        assert (found.limit, found.function) == ("source", "slow_numbers")

    @measured
    def test_a_slow_function_of_batches(self):
        plan = Pipeline(arrays(x=np.arange(400.0))).batch(BATCH)
        found = looped(plan.map_batches(lambda columns: waits(waits(columns))).load())
        assert (found.limit, found.function) == ("map_batches", "<lambda>")
        assert "threads=2" in found.advice

    @measured
    def test_a_slow_function_of_batches_on_too_few_threads(self):
        plan = Pipeline(arrays(x=np.arange(400.0))).batch(BATCH)
        found = looped(plan.map_batches(lambda columns: waits(waits(columns)), threads=1).load())
        assert (found.limit, found.function) == ("map_batches", "<lambda>")
        assert list(found.arguments) == ["threads"]

    @measured
    def test_slow_collation(self):
        class Row:
            def __array__(self, dtype=None, copy=None):
                return waits(np.zeros(4, np.float32))

        found = looped(Pipeline(lambda: [Row() for _ in range(ROWS)]).batch(BATCH).load())
        assert found.limit == "collate"

    @measured
    def test_a_slow_transfer(self, monkeypatch):
        class Rows(np.ndarray):
            """Arrays that `jax.device_put` itself places."""

        put = jax.device_put

        def throttled(*given, **named):
            time.sleep(5 * SLOW)
            return put(*given, **named)

        monkeypatch.setattr(jax, "device_put", throttled)
        batches = [np.zeros((BATCH, 4), np.float32).view(Rows) for _ in range(ROWS)]
        loader = DataLoader.from_generator().set_batch_generator(lambda: iter(batches))
        found = looped(loader)
        assert found.limit == "transfer"
        assert "send fewer bytes" in found.advice

    @measured
    def test_a_slow_function_on_the_devices(self):
        def slow(feed):
            return jax.pure_callback(lambda x: waits(waits(x)), feed, feed)

        loader = Pipeline(arrays(np.arange(400.0, dtype=np.float32))).batch(BATCH).load()
        found = looped(loader.on_device(slow), jax.block_until_ready)
        assert found.limit == "on_device"

    @pytest.mark.parametrize("function", [waits, abs])
    @measured
    def test_a_slow_step(self, function):
        found = looped(Pipeline(numbers).map(function).batch(BATCH).load(), long_step)
        assert found.limit == "step"
        assert "The step limits the epoch, not the data" in str(found)

    @measured
    def test_a_capacity_of_none(self):
        loader = Pipeline(numbers).map(waits).batch(BATCH).load(capacity=0)
        found = looped(loader, lambda _feed: time.sleep(2 * BATCH * SLOW))
        assert found.limit == "capacity"
        assert "load(capacity=2)" in found.advice

    @measured
    def test_a_capacity_that_is_too_small_for_data_that_come_unevenly(self):
        def uneven():
            for number in range(ROWS):
                if number % (10 * BATCH) == 0:
                    time.sleep(20 * BATCH * SLOW)
                yield number

        loader = Pipeline(uneven).batch(BATCH).load(capacity=1)
        found = looped(loader, lambda _feed: time.sleep(3 * BATCH * SLOW), steps=40)
        assert found.limit == "capacity"
        assert (
            "the data are fast enough on average, but arrive unevenly: type load(capacity="
            in found.advice
        )
        assert 4 <= found.arguments["capacity"] <= 32
        assert found.verdict.startswith("The prefetch queue (capacity=1) limits the epoch")

    @measured
    def test_a_cold_cache(self):
        plan = Pipeline(numbers).map(waits).cache().map(abs).batch(BATCH)
        found = looped(plan.load())
        assert (found.limit, found.function) == ("map", "waits")
        assert "below a cache that is still being filled" in found.advice

    @pytest.mark.parametrize("how", ["compose", "interleave", "chain"])
    @measured
    def test_a_slow_reader_among_several_limits(self, how):
        one, other = Pipeline(slow_numbers), Pipeline(numbers).map(abs)
        plans = {
            "compose": lambda: jreader.compose(other, one),
            "interleave": lambda: jreader.interleave(other, one),
            "chain": lambda: jreader.chain(jreader.firstn(other, BATCH), one),
        }
        found = looped(Pipeline(plans[how]()).batch(BATCH).load())
        assert (found.limit, found.function) == ("source", "slow_numbers")

    @measured
    def test_a_far_file_of_which_is_kept_what_was_fetched(self):
        kept = set()

        def fetched():
            for number in range(ROWS):
                if number not in kept:
                    kept.add(waits(number))
                yield number

        found = looped(Pipeline(fetched).map(abs).batch(BATCH).load())
        assert (found.limit, found.function) == ("source", "fetched")

    @measured
    def test_an_unbalanced_mix(self):
        quick = Pipeline(numbers).epochs()
        rare = Pipeline(numbers).epochs().map(lambda n: max(waits(n) for _ in range(10)))
        loader = Pipeline(jreader.mix([quick, rare], [0.75, 0.25], seed=0)).batch(BATCH).load()
        found = looped(loader, steps=20)
        assert (found.limit, found.function) == ("map", "<lambda>")


class TestLeftAlone:
    """The report reads for itself."""

    @pytest.mark.parametrize("capacity", [0, 2])
    def test_the_loop_goes_on_with_its_next_feed(self, capacity):
        plan = Pipeline(numbers).shuffle(50, seed=1).map(abs, threads=2).batch(BATCH)
        expected = [feed.tolist() for feed in plan.load().epoch(0)]
        loader = plan.load(capacity=capacity)
        feeds = loader.epoch(0)
        seen = [next(feeds).tolist() for _ in range(10)]
        jreader.report(loader, feeds=2)
        seen += [feed.tolist() for feed in feeds]
        assert seen == expected

    def test_nothing_that_is_drawn_for_a_plan_changes(self):
        loader = Pipeline(numbers).shuffle(50, seed=1).batch(BATCH).load()
        feeds = loader.epoch(0)
        for _ in range(8):
            next(feeds)
        before = feeds.cursor
        jreader.report(loader, feeds=2)
        assert feeds.cursor == before

    def test_a_source_that_can_be_read_only_once_is_judged_by_the_counters(self):
        passes = []

        def once():
            passes.append("begun")
            if len(passes) > 1:
                raise ConnectionError("gone")
            yield from slow_numbers()

        loader = Pipeline(once).batch(BATCH).load(capacity=0)
        for _, _ in zip(loader, range(8), strict=False):
            pass
        found = jreader.report(loader)
        assert (found.limit, found.function) == ("source", "")
        assert "could not be read again: ConnectionError: gone" in found.note


class TestRefusals:
    def test_a_loader_without_steps(self):
        with pytest.raises(ValueError, match=r"has seen 0 whole ones: run 4 steps or more"):
            jreader.report(Pipeline(numbers).batch(2).load())

    def test_what_is_no_loader(self):
        with pytest.raises(TypeError, match=r"needs the loader that a loop iterates, .* not batch"):
            jreader.report(jreader.batch(numbers, 2))

    def test_a_number_of_feeds_below_one(self):
        loader = Pipeline(numbers).batch(2).load()
        with pytest.raises(ValueError, match=r"feeds of jreader\.report"):
            jreader.report(loader, feeds=0)


def test_the_page_has_every_stage_and_marks_one():
    found = looped(Pipeline(numbers).map(waits).batch(BATCH).load())
    page = found._repr_html_()
    for stage in found.stages:
        assert stage.name in page
    assert page.count("font-weight:bold") == 1
    assert "color" not in page.replace("currentColor", "").replace("color:inherit", "").replace(
        "background:", ""
    )
