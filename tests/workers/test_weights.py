"""One slow item among fast ones does not draw thousands ahead: bounds in items and in bytes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest
from engines import Here, numbers, same

from jreader import Columns, map_samples, start
from jreader.counters import working
from jreader.workers.ahead import made_ahead
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import MapTask, TaskInput, TaskResult
from jreader.workers.memory_estimates import estimated_bytes
from jreader.workers.threads.thread_map import ThreadCrew

MIB = 1 << 20
PER_WORKER = 32 * MIB


class Source:
    """Samples that are light until there are enough of them to be grouped, and heavy then.

    Some time after the slow one was drawn it may go on: nothing tells that nobody draws any more.
    """

    def __init__(self, light, heavy=MIB, count=4000, gate=None):
        self.light, self.heavy, self.count, self.gate = light, heavy, count, gate
        self.slow, self.drawn = light + 200, 0

    def __call__(self):
        for number in range(self.count):
            self.drawn += 1
            if number == self.slow + 2 and self.gate:
                threading.Timer(0.5, os.write, (self.gate, b"1")).start()
            yield number, np.empty(8 if number < self.light else self.heavy, np.uint8)


def test_what_is_drawn_before_any_of_it_is_mapped_is_bounded_in_bytes():
    too_far, gate, light, chunk = threading.Event(), threading.Event(), 5000, 1100

    def source():
        for number in range(light + 300):
            if number == light + 100:
                too_far.set()
            yield number, np.empty(8 if number < light else MIB, np.uint8)

    def fn(sample):
        if sample[0] >= light:
            gate.wait(60)
        return sample

    here = start(map_samples(fn, source, threads=2))
    assert len(list(islice(here.items, light - chunk))) == light - chunk
    try:
        assert not too_far.wait(2)
    finally:
        gate.set()
        here.close()


class TestOneSlowItem:
    """It waits for a gate, and how far the source is drawn meanwhile is counted."""

    @pytest.fixture(
        params=[
            "threads",
            "an executor",
            "processes",
            pytest.param("others", marks=pytest.mark.slow),
            "late",
        ]
    )
    def chosen(self, request):
        return {
            "threads": lambda: {"threads": 2},
            "an executor": lambda: {
                "executor": request.getfixturevalue("threads"),
                "concurrency": 2,
            },
            "processes": lambda: {"processes": 2},
            "others": lambda: {"executor": request.getfixturevalue("processes")},
            "late": lambda: {"threads": 2, "timeout": 100},
        }[request.param]()

    @pytest.mark.parametrize("light", [0, 1000])
    def test_what_is_drawn_behind_it_is_bounded_in_bytes(self, chosen, light, tmp_path):
        path = tmp_path / "gate"
        os.mkfifo(path)
        source = Source(light, gate=os.open(path, os.O_RDWR))
        slow = source.slow

        def fn(sample):
            if sample[0] == slow:
                with path.open("rb", buffering=0) as file:
                    file.read(1)
            return sample

        here = start(map_samples(fn, source, **chosen))
        for number, _ in here.items:
            if number == slow:
                break
        map_on_threads = source.drawn - slow
        here.close()
        os.close(source.gate)
        assert map_on_threads >= 2
        assert map_on_threads * MIB <= 2 * PER_WORKER

    def test_results_that_are_heavier_than_any_before_come_in_parts(self):
        """Samples are small and tasks large when results of 1 MiB begin."""
        executor = Later()

        def grow(n):
            return np.empty(MIB if n > 6000 else 8, np.uint8)

        items = map_samples(grow, numbers(9000), executor=executor, concurrency=2)()
        for result in items:
            if len(result) == MIB:
                break
        held = executor.most
        assert held <= 2 * 2 * PER_WORKER
        assert sum(1 for _ in items) == 9000 - 6002

    def test_a_window_that_was_given_is_taken_at_its_word(self):
        source = Source(0, 2 * MIB, 100)
        items = map_samples(same, source, executor=Here(), concurrency=1, window=60)()
        for _ in range(39):
            next(items)
        assert source.drawn - 39 > 40


class Later(Executor):
    """Does a task when it is given; knows how many bytes of results wait to be taken."""

    def __init__(self):
        self.held = self.most = 0

    def submit(self, fn, /, samples):
        future: Future[TaskResult] = Future()
        outcome = fn(samples)
        size = sum(result.nbytes for result in outcome.results)
        self.held += size
        self.most = max(self.most, self.held)
        future.set_result(outcome)
        return future


class TestTasks:
    def test_one_leaves_what_is_too_much_to_another(self):
        task = MapTask(lambda n: np.empty(MIB, np.uint8))
        done = task(TaskInput(list(range(10)), 3 * MIB))
        assert (len(done.results), done.more, done.bytes) == (4, True, 4 * MIB)
        assert not task(TaskInput(list(range(3)), 3 * MIB)).more

    def test_a_whole_one_leaves_nothing(self):
        done = MapTask(same)(TaskInput(list(range(9))))
        assert (done.results, done.more) == ([*range(9)], False)

    def test_threads_have_fewer_ahead_of_heavy_items(self):
        limits = Limits(2, window=16, widest=8192, max_bytes=2 * PER_WORKER)

        def large(_number):
            return np.empty(8 * MIB, np.uint8)

        work = working("map", "", "here")
        crew = ThreadCrew("map", "here", start(numbers(200)), limits, work, large)
        assert sum(1 for _ in made_ahead(crew).items) == 200
        assert crew.window == 8


class TestWeights:
    def test_values_of_every_kind(self):
        @dataclass
        class Noted:
            image: Any
            name: str

        row = np.zeros(1000)
        for value, least in [
            (row, 8000),
            ((row, 3), 8000),
            ({"image": {"left": row, "right": row}}, 16000),
            ([row] * 100, 800_000),
            ([[[row] * 50] * 50] * 50, 1_000_000_000),
            (Noted(row, "a"), 8000),
            (Columns({"image": row}), 8000),
            (b"a" * 5000, 5000),
            ("a" * 5000, 5000),
        ]:
            assert least <= estimated_bytes(value) < 1.5 * least + 1000

    def test_a_value_that_holds_itself_or_does_not_say(self):
        endless: list[Any] = []
        endless.append(endless)

        class Silent:
            @property
            def nbytes(self):
                raise OSError

        assert estimated_bytes(endless) > 0
        assert estimated_bytes(Silent()) > 0
