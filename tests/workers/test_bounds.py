"""What is in flight is bounded, what is lost is done again, and what is broken off is gone."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from engines import Here, numbers, same, slow, wait_for_threads
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import WorkerDied, batch, map_samples, start
from jreader.counters import working
from jreader.workers.ahead import made_ahead
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import MapTask, TaskInput
from jreader.workers.threads.thread_map import ThreadCrew


class TestBounds:
    """Work in flight is bounded, and grouped where it is tiny."""

    @given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 9))
    @examples(50)
    def test_no_more_than_the_window_is_read_ahead(self, window, workers, taken):
        for engine in ({"threads": workers}, {"executor": Here(), "concurrency": workers}):
            read = []

            def source(read=read):
                return (read.append(n) or n for n in range(200))

            items = map_samples(str, source, window=window, **engine)()
            for handed in range(1, taken + 1):
                next(items)
                assert len(read) <= handed + window
            items.close()
            assert len(read) <= taken + window

    @pytest.mark.parametrize("window", [3, 8, 20])
    def test_batches_stay_in_the_window_too(self, window):
        read = []

        def source():
            return (read.append(n) or n for n in range(200))

        plan = map_samples(str, source, executor=Here(), concurrency=2, window=window)
        batches = batch(plan, 4)()
        for handed in range(1, 20):
            next(batches)
            assert len(read) <= 4 * handed + window

    def test_tiny_samples_are_sent_in_groups(self):
        executor = Here()
        got = list(map_samples(same, numbers(20_000), executor=executor, concurrency=2)())
        assert got == list(range(20_000))
        assert sum(executor.tasks) == 20_000
        assert len(executor.tasks) < 500
        assert executor.tasks[:3] == [1, 1, 1]

    def test_long_samples_are_sent_one_by_one(self, threads):
        executor = Here()
        list(map_samples(slow, numbers(30), executor=executor, concurrency=2)())
        assert executor.tasks.count(1) > 15  # all, on a machine that does nothing else

    def test_tiny_samples_are_mapped_in_groups_by_threads(self):
        limits = Limits(2, window=16, widest=8192)
        work = working("map", "", "here")
        crew = ThreadCrew("map", "here", start(numbers(20_000)), limits, work, same)
        assert list(made_ahead(crew).items) == list(range(20_000))
        assert crew.chunksize > 4


class TestLosses:
    """A task whose worker is lost is done again; not for ever; and an executor is never shut."""

    def test_nothing_is_lost_and_nothing_comes_twice(self):
        executor = Here(lose=[2, 3, 9, 40])
        assert list(map_samples(slow, numbers(60), executor=executor)()) == list(range(60))
        assert executor.lose == []

    def test_a_process_that_is_killed_is_not_to_be_seen(self, pool, tmp_path):
        flag = tmp_path / "killed"

        def fn(n, rng):
            if n == 11 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return n, rng.random()

        disturbed = list(map_samples(fn, numbers(), rng=True, seed=1, processes=2)())
        assert flag.exists()
        assert disturbed == list(map_samples(fn, numbers(), rng=True, seed=1)())

    def test_a_sample_that_kills_every_process_is_named(self, pool):
        def fn(n):
            if n == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return n

        items = map_samples(fn, numbers(), processes=2, window=1)()
        assert list(islice(items, 3)) == [0, 1, 2]
        with pytest.raises(WorkerDied, match="-9") as caught:
            next(items)
        assert "given sample 3 of this pass by map_samples" in caught.value.__notes__[-1]
        assert "worked on fn(3)" in str(caught.value)

    def test_three_times_are_enough(self):
        executor = Here(lose=[1, 2, 3, 4])
        with pytest.raises(WorkerDied, match=r"sample 0 .* lost their worker 3 times .*lost"):
            list(map_samples(same, numbers(), executor=executor, concurrency=1)())
        assert len(executor.tasks) == 3

    def test_a_pool_that_is_broken_takes_no_more_tasks(self):
        def fn(n):
            if n == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return n

        told = r"ProcessPoolExecutor takes no more .*processes=n"
        with (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
            pytest.raises(WorkerDied, match=told),
        ):
            list(map_samples(fn, numbers(), executor=executor)())

    def test_an_executor_is_left_as_it_was(self):
        executor = Here()
        list(map_samples(same, numbers(), executor=executor)())
        items = map_samples(same, numbers(), executor=executor)()
        next(items)
        items.close()
        assert not executor.shut

    def test_what_waits_is_cancelled_when_a_pass_is_closed(self):
        gate, begun = threading.Event(), []

        def fn(n):
            begun.append(n)
            gate.wait()
            return n

        with Threads(1) as executor:
            executor.submit(gate.wait)
            here = start(map_samples(fn, numbers(), executor=executor, concurrency=4, timeout=0.05))
            with pytest.raises(TimeoutError, match=r"sample 0 .*longer than 0.05 s in map_samples"):
                next(here.items)
            here.close()
            gate.set()
        assert begun == []


class TestEndings:
    """A pass that is broken off leaves nothing."""

    def test_the_source_is_closed(self, engine):
        closed = []

        def source():
            try:
                yield from range(100)
            finally:
                closed.append(True)

        here = start(map_samples(same, source, **engine))
        next(here.items)
        here.close()
        wait_for_threads()
        assert closed == [True]

    @pytest.mark.slow
    def test_two_hundred_epochs_broken_off_leave_the_process_as_it_was(
        self, processes, threads, pool
    ):
        generator = np.random.default_rng(0)
        engines = [{"threads": 2}, {"executor": threads}, {"executor": processes}, {"processes": 2}]

        def epoch(number):
            plan = map_samples(same, numbers(200), **engines[number % 4])
            for _ in islice(plan(), int(generator.integers(40))):
                pass

        for number in range(40):
            epoch(number)
        wait_for_threads()
        gc.collect()
        before = threading.active_count(), descriptors(), resident()
        for number in range(200):
            epoch(number)
        wait_for_threads()
        gc.collect()
        after = threading.active_count(), descriptors(), resident()
        assert after[0] <= before[0]
        assert after[1] <= before[1] + 4  # of blocks of shared memory that wait to be used again
        assert after[2] < before[2] * 1.05

    @pytest.mark.slow
    def test_a_task_and_its_samples_have_names_of_their_own_for_an_engine_that_merges_equals(self):
        """Dask takes tasks of equal names for one, also those of two programs."""
        names = {TaskInput([1]).__dask_tokenize__() for _ in range(9)}
        assert len(names) == 9
        assert MapTask(same).__dask_tokenize__() != MapTask(same).__dask_tokenize__()


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))
