"""A pass that is closed by another thread, or ends with its program: nothing waits for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from engines import numbers
from programs import PATIENCE, program

from jreader import Node, buffered, map_samples, multiprocess_reader, start, xmap_readers
from jreader.readers import Pass, itself, op
from jreader.tunables import Tunable
from jreader.workers.limits import Limits
from jreader.workers.loader_workers import fetch_batches
from jreader.workers.lookahead import lookahead
from jreader.workers.threads import Drawer, map_on_threads

others = set()  # threads that were there before a test: they are not its own


@pytest.fixture(autouse=True)
def _others():
    others.clear()
    others.update(threading.enumerate())


@pytest.fixture
def gate(tmp_path):
    """A path that nobody can read before it is opened, in any process."""

    class Gate:
        path = tmp_path / "gate"

        def open(self):
            os.close(os.open(self.path, os.O_RDWR | os.O_NONBLOCK))
            opened = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
            os.write(opened, b"opened" * 100)
            self.opened = opened

    made = Gate()
    os.mkfifo(made.path)
    yield made
    made.open()
    wait_for_threads()
    os.close(made.opened)


def wait_for_threads():
    for thread in {*threading.enumerate()} - others:
        if thread.name.startswith("jreader") and "processes" not in thread.name:
            thread.join(PATIENCE)
            assert not thread.is_alive()


class TestClosedOnce:
    """Whoever leaves last closes the source, and nobody else does."""

    def test_though_its_threads_begin_when_others_have_left(self):
        for _ in range(100):
            closed = []
            up = Pass(iter(()), lambda: None, lambda closed=closed: closed.append(True))
            op, limits = buffered(numbers(), 1), Limits(workers=4, window=8)
            here = map_on_threads(op, lambda up=up: up, itself, limits)
            assert list(here.items) == []
            wait_for_threads()
            assert closed == [True]

    def test_also_by_hand_and_if_nothing_was_asked_for(self):
        closed = []
        up = Pass(iter("ab"), lambda: None, lambda: closed.append(True))
        here = map_on_threads(
            buffered(numbers(), 1), lambda: up, itself, Limits(workers=2, window=8)
        )
        here.close()
        here.close()
        assert (closed, list(here.items)) == ([True], [])

    def test_once_its_map_has_failed_though_nobody_comes_for_the_error(self):
        last_drawn, closed = threading.Event(), threading.Event()

        def source():
            try:
                yield from range(100)
            finally:
                closed.set()

        def failing(number):
            if number == 2:
                last_drawn.set()
            if number == 1:
                last_drawn.wait(PATIENCE)
                raise ValueError("bad")
            return number

        items = map_samples(failing, source, threads=2, window=2)()
        assert next(items) == 0
        assert closed.wait(PATIENCE)
        with pytest.raises(ValueError, match="bad"):
            next(items)

    def test_no_thread_prints_after_close(self, capsys):
        leave = threading.Event()

        def source():
            try:
                yield from range(9)
            finally:
                leave.wait(0.005)

        for _ in range(50):
            list(map_samples(itself, lambda: iter(source()), threads=4)())
        wait_for_threads()
        assert capsys.readouterr().err == ""


class TestClosedElsewhere:
    """One thread waits for a sample, another one closes the pass: the first is told."""

    @pytest.fixture(
        params=["map", "xmap", "as ready", "executor", "processes", "fetch_batches", "apart"]
    )
    def plan(self, request, gate):
        path, kind = gate.path, request.param

        def gated(sample):
            if sample == 1:
                with path.open() as file:
                    file.read(1)
            return sample

        if kind == "map":
            return map_samples(gated, numbers(), threads=2)
        if kind in ("xmap", "as ready"):
            return xmap_readers(gated, numbers(), 1, 2, order=kind == "xmap")
        if kind == "executor":
            executor = request.getfixturevalue("threads")
            return map_samples(gated, numbers(), executor=executor, concurrency=1)
        if kind == "processes":
            return map_samples(gated, numbers(), processes=2)
        if kind == "fetch_batches":
            return fetch_batches(gated, numbers(), process_num=2)
        return multiprocess_reader([map_samples(gated, numbers())])

    def test_who_waits_is_told(self, plan):
        here = start(plan)
        assert next(here.items) == 0
        rest, position = [], here.position()
        waiting = threading.Thread(target=lambda: rest.extend(here.items), daemon=True)
        waiting.start()
        here.close()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        assert rest == []
        if not isinstance(position, str):  # hands samples over as they get ready
            assert here.position() == position

    def test_a_source_that_is_being_read_is_closed_by_who_reads_it(self, threads):
        entered, leave, closed = threading.Event(), threading.Event(), threading.Event()

        def source():
            try:
                yield 0
                entered.set()
                leave.wait(PATIENCE)
                yield 1
            finally:
                closed.set()

        here = start(map_samples(itself, source, executor=threads, concurrency=1, window=1))
        rest = []
        reading = threading.Thread(target=lambda: rest.extend(here.items), daemon=True)
        reading.start()
        assert entered.wait(PATIENCE)
        here.close()
        assert not closed.is_set()
        leave.set()
        reading.join(PATIENCE)
        assert (rest, closed.is_set()) == ([0], True)


SCRIPT = """
    import atexit, os, sys, threading
    from concurrent.futures import ThreadPoolExecutor
    def alive():
        threads = [each.name for each in threading.enumerate() if each is not main]
        print(*[name for name in threads if name.startswith("jreader loader")], "end", flush=True)
    main = threading.current_thread()
    atexit.register(alive)  # before those of jreader and jax: so it is called after them
    from jreader import DataLoader, Pipeline, multiprocess_reader, xmap_readers
    path = sys.argv[-1] if len(sys.argv) > 1 else os.environ["GATE"]
    def gated(number):
        if number == 40:
            with open(path) as file:
                file.read(1)
        return number
    numbers = lambda: iter(range(100))
    plain = Pipeline(numbers)
"""

PLANS = {
    "threads": "plain.map(gated, threads=2, window=4).map(abs)",
    "processes": "plain.map(gated, processes=2, window=4)",
    "readers": "Pipeline(multiprocess_reader([plain.map(gated)], queue_size=1))",
    "buffered": "plain.map(gated).prefetch(2)",
    "xmap": "Pipeline(xmap_readers(gated, numbers, 2, 2, order=True))",
}


@pytest.mark.slow  # kills and exits
class TestAtExit:
    """The threads of a loader have ended when its program has: nobody waits for one of them."""

    @pytest.mark.parametrize(
        ("plan", "leave"),
        [*((plan, "a break") for plan in PLANS), ("threads", "ctrl-c"), ("processes", "ctrl-c")],
    )
    def test_a_loader_that_was_broken_off_has_no_thread_at_the_end(
        self, plan, leave, gate, monkeypatch
    ):
        monkeypatch.setenv("GATE", str(gate.path))
        rest = f"""
            feeds = iter({PLANS[plan]}.batch(4).load(capacity=4))
            for number, feed in enumerate(feeds):
                threading.Event().wait(0.005)  # a step that is awaited: it calls a thread in
                if number == 9:  # another thread waits for the gate, or will
                    break
            print("broken off", flush=True)
            {"" if leave == "a break" else "threading.Event().wait()"}
        """
        with program(SCRIPT, rest) as running:
            assert running.says() == "broken off"
            if leave == "ctrl-c":
                running.signal(signal.SIGINT)
            assert running.says() == "end"


class LockedExecutor(Executor):
    """As Dask's: `cancel` waits for another thread, which needs the lock that `submit` holds.

    It does the first task, and no other.
    """

    def __init__(self):
        self.lock = threading.RLock()
        self.workers = 2
        self.sent = []
        self.cancelled = threading.Event()

    def submit(self, fn, *args):
        with self.lock:
            gc.collect()
            task = Future() if self.sent else done(fn(*args))
            task.add_done_callback(lambda task: task.cancelled() and self.cancel())
            self.sent.append(task)
            return task

    def cancel(self):
        def locked():
            with self.lock:
                self.cancelled.set()

        other = threading.Thread(target=locked, daemon=True)
        other.start()
        other.join()


def done(result):
    future = Future()
    future.set_result(result)
    return future


@pytest.mark.timeout(PATIENCE)
def test_one_that_gc_drops_inside_of_a_lock_of_its_executor_holds_nothing_up():
    executor = LockedExecutor()
    plan = map_samples(itself, numbers(8), executor=executor)

    def begun():
        here = start(plan)
        next(here.items)
        cycle = [here]
        cycle.append(cycle)

    begun()
    assert not executor.cancelled.is_set()
    executor.submit(itself, 0)
    assert executor.cancelled.wait(PATIENCE)
    assert executor.sent[1].cancelled()


@op
class Held(Node):
    """A source that is closed by a function: a generator that has not begun tells of no close."""

    items: Any
    close: Any

    def start(self, at):
        return Pass(self.items(), lambda: None, self.close)


def test_a_source_is_open_as_long_as_its_items_are_mapped():
    ended, closed, met = threading.Event(), threading.Event(), []

    def items():
        yield from range(4)
        ended.set()

    def mapped(item):
        assert ended.wait(PATIENCE)
        met.append(closed.wait(0.2))  # it would be closed at once
        return item

    assert list(xmap_readers(mapped, Held(items, closed.set), 4, 8, order=True)()) == [0, 1, 2, 3]
    assert met == [False] * 4
    assert closed.wait(PATIENCE)


def test_a_tuned_look_ahead_draws_nothing_before_it_is_asked():
    drawn = []

    def read():
        for n in range(40):
            drawn.append(n)
            yield n

    drawer, capacity = Drawer("loader", apart=True), Tunable("capacity", "", "here", 4)
    up = drawer.begun(lambda: start(read))
    feeds = lookahead(up, 2, itself, tunable=capacity, drawer=drawer)
    told = threading.Event()
    drawer.work(told.set)  # what it was told to do before comes first
    try:
        assert told.wait(PATIENCE)
        assert drawn == []
        assert next(feeds.items) == 0
    finally:
        feeds.close()


@pytest.mark.parametrize("failure", [RuntimeError("no more threads"), KeyboardInterrupt()], ids=str)
def test_threads_end_whose_pass_could_not_begin(monkeypatch, failure):
    closed, begin, begun = threading.Event(), threading.Thread.start, []

    def start_two(thread):
        if thread.name == "jreader xmap_readers" and type(thread) is threading.Thread:
            begun.append(thread)
            if len(begun) == 3:
                raise failure
        begin(thread)

    source = Held(lambda: iter(range(10**6)), closed.set)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_two)
        with pytest.raises(type(failure)):
            next(iter(xmap_readers(str, source, 4, 8, order=True)()))
    assert closed.wait(PATIENCE)
    for thread in begun[:2]:
        thread.join(PATIENCE)
        assert not thread.is_alive()
