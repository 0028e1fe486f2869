"""Who the workers are, when they begin, and when they end."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from programs import PATIENCE, Watch, children, printed
from widths import few

import jreader
from jreader.workers import Processes
from jreader.workers.processes import executors, worker_pool


class TestCrews:
    def test_all_of_one_size_are_the_same_workers_which_end_with_the_last(self):
        def begin(_):
            # of this test alone: what others have left behind has no share in these workers
            pass

        one, other = Processes(3, begin), Processes(3, begin)
        pids = {workers.submit(os.getpid).result() for workers in (one, other) for _ in range(4)}
        assert len(pids) <= 3
        watch = Watch(*pids)
        one.shutdown()
        assert other.submit(os.getpid).result() in pids
        del other
        assert watch.all_gone()

    def test_those_of_one_size_that_begin_at_once_are_the_same_too(self, monkeypatch):
        both = threading.Barrier(2)

        def made(*args):
            with suppress(threading.BrokenBarrierError):
                both.wait(0.3)
            return worker_pool.WorkerPool(*args)

        def begin(_):
            pass

        monkeypatch.setattr(executors, "WorkerPool", made)
        crews = [Processes(1, begin) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            tasks = list(threads.map(lambda each: each.submit(os.getpid), crews))
        assert len({task.result() for task in tasks}) == 1

    def test_what_ended_is_not_kept_by_those_that_have_left_it(self, monkeypatch):
        monkeypatch.setattr(worker_pool, "_IDLE_SECONDS", 0)
        workers = Processes(1, lambda _: None)
        assert workers.submit(pow, 2, 3).result() == 8
        pool, (thread,) = weakref.ref(workers._pool), workers._pool.threads
        workers.shutdown()
        thread.join(PATIENCE)
        gc.collect()
        assert (pool(), workers.workers) == (None, 1)

    def test_workers_stay_for_the_next_that_asks_soon(self):
        pids = set()
        for _ in range(3):
            with Processes(1) as one:
                pids.add(one.submit(os.getpid).result())
        assert len(pids) == 1

    def test_workers_that_stay_import_what_can_be_imported_now(self, tmp_path, monkeypatch):
        with Processes(1) as one:
            one.submit(pow, 2, 3).result()
        (tmp_path / "found_later.py").write_text("def ten(n):\n    return 10 * n\n")
        monkeypatch.syspath_prepend(tmp_path)
        ten = importlib.import_module("found_later").ten
        with Processes(1) as one:
            assert one.submit(ten, 1).result() == 10

    def test_they_are_begun_when_there_is_something_to_do(self):
        before = children()
        with Processes(5) as five:
            assert children() <= before  # of which some may be about to leave
            five.submit(pow, 2, 3).result()
            assert len(children() - before) == 1

    def test_each_is_begun_with_the_function_and_knows_who_it_is(self):
        assert jreader.get_worker_info() is None

        def begin(number):
            os.environ["BEGAN"] = os.environ.get("BEGAN", "") + f"{number} "

        def told():
            return os.environ["BEGAN"], jreader.get_worker_info()

        with Processes(2, begin) as workers:
            infos = [workers.submit(told).result() for _ in range(6)]
        for numbers, info in infos:
            assert (numbers, info.num_workers, info.dataset) == (f"{info.id} ", 2, None)
        assert len({info.seed for _, info in infos}) == len({info.id for _, info in infos})
        with pytest.raises(AttributeError):
            infos[0][1].id = 7

    def test_a_forked_child_has_workers_of_its_own(self, python):
        """It inherits the connections of its parent's."""
        script = """
            import os
            from jreader.workers import Processes
            workers = Processes(1)
            mine = workers.submit(os.getpid).result()
            child = os.fork()
            if not child:
                assert workers.submit(os.getpid).result() != mine
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            print(workers.submit(os.getpid).result() == mine)
        """
        assert python(script).stdout == "True\n"

    def test_a_forked_child_leaves_whatever_its_parent_was_doing(self, python):
        script = """
            import os, signal, threading
            from jreader.workers import Processes
            from jreader.workers.processes import executors
            left, used = Processes(1), Processes(1)
            left.submit(os.getpid).result()
            held, go = threading.Event(), threading.Event()
            def hold():
                with left._pool.lock, executors._pools_lock:
                    held.set()
                    go.wait()
            threading.Thread(target=hold).start()
            held.wait()
            child = os.fork()
            if not child:
                signal.alarm(10)
                left.shutdown()
                assert used.submit(pow, 2, 3).result() == 8
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            go.set()
        """
        assert python(script).stdout == "0\n"

    @pytest.mark.parametrize("how", few(["script", "-c", "stdin"], ["-c"]))
    def test_no_guard_is_needed_and_main_is_not_run_again(self, tmp_path, how):
        script = (
            "import sys\n"
            "from jreader.workers import Processes\n"
            "print('main')\n"
            "class Point:\n"
            "    def __init__(self, x): self.x = x\n"
            "def made(x): return Point(x), 'jax' in sys.modules\n"
            "(point, jax) = Processes(1).submit(made, Point(3).x).result()\n"
            "print(point.x, type(point) is Point, jax)\n"
        )
        assert printed(script, how, tmp_path) == ["main", "3 True False", ""]


@pytest.mark.slow
def test_the_stuck_are_counted_out(two):
    """A pool whose worker never answers goes on with the others; the signal is no accident."""
    stuck = two.submit(signal.pause)
    assert [two.submit(pow, 2, n).result() for n in range(5)] == [1, 2, 4, 8, 16]
    pid = next(each.process.pid for each in two._pool.workers if each.task)
    watch = Watch(pid)
    assert not stuck.cancel()
    assert watch.all_gone()
    assert isinstance(stuck.exception(), jreader.WorkerDied)
    assert sorted({two.submit(os.getpid).result() for _ in range(9)}) != [pid]
    assert executors._pools
