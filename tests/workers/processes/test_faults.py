"""Errors, prints, limits and tasks without an end: they are told, and the workers go on."""

from __future__ import annotations

import os

import pytest
from leftovers import said
from widths import few


class TestFaults:
    def test_errors_of_every_kind_arrive_and_the_worker_goes_on(self):
        lines = said("""
            class Locked(Exception):
                def __init__(self):
                    super().__init__("locked")
                    self.lock = threading.Lock()
            class Fussy(Exception):
                def __init__(self, what, *, where):
                    super().__init__(f"{what} at {where}")
            def raising(kind, *args, **options):
                raise kind(*args, **options)
            with Processes(1) as one:
                pid = one.submit(os.getpid).result()
                for arguments, options in [
                    ((Locked,), {}), ((Fussy, "tea"), {"where": "noon"}), ((SystemExit, 3), {}),
                    ((KeyboardInterrupt,), {}), ((StopIteration,), {}), ((GeneratorExit,), {}),
                ]:
                    error = one.submit(raising, *arguments, **options).exception()
                    told = str(error).split("\\n")[-2:]
                    print(type(error).__name__, *told, flush=True)
                print(one.submit(os.getpid).result() == pid, flush=True)
            clean()
        """)
        assert lines == [
            "ReaderError Locked: locked ",
            "Fussy tea at noon",
            "ReaderError SystemExit: 3 ",
            "ReaderError KeyboardInterrupt ",
            "StopIteration ",
            "ReaderError GeneratorExit ",
            "True",
        ]

    @pytest.mark.parametrize(
        "place",
        few(["Worker.__init__", "Popen.__init__", "Worker.begin"], ["Worker.begin"]),
    )
    def test_an_interrupt_while_a_worker_is_started_leaves_none_and_the_next_task_is_done(
        self, place
    ):
        lines = said(f"""
            with Processes(1) as one:
                interrupted({place!r}, lambda: one.submit(os.getpid))
                print(one.submit(len, "ab").result(), flush=True)
            clean()
        """)
        assert lines == ["interrupted", "2"]

    @pytest.mark.slow
    def test_a_worker_that_cannot_be_begun_names_init_and_leaves_no_half_of_a_pool(self, tmp_path):
        lines = said(f"""
            over = "{tmp_path}/over"
            def waiting():
                while not os.path.exists(over):
                    time.sleep(0.01)
            def begin(number):
                if number == 1 or one:
                    raise ValueError("not today")
            for one in (True, False):
                with Processes(2, begin) as workers:
                    for told in (repr, lambda error: error.__notes__[-1]):
                        futures = [workers.submit(waiting) for _ in range(6)]
                        wait(futures, return_when="FIRST_EXCEPTION")
                        open(over, "w").close()
                        errors = filter(None, (future.exception() for future in futures))
                        print(*set(map(told, errors)), flush=True)
                        os.remove(over)
            clean()
        """)
        assert (
            lines
            == [
                "ValueError('not today')",
                "raised by the init of Processes(2, init), in a worker",
            ]
            * 2
        )

    def test_a_worker_that_prints_disturbs_nothing(self):
        lines = said("""
            def printing(n):
                print("from", n, flush=True)
                os.write(1, b"raw\\n")
                return n
            with Processes(1) as one:
                print(*one.map(printing, range(2)), flush=True)
            clean()
        """)
        assert lines == ["from 0", "raw", "from 1", "raw", "0 1"]

    def test_too_few_descriptors_are_told_and_nothing_is_left(self):
        lines = said("""
            few = len(os.listdir("/proc/self/fd")) + 12
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
            with Processes(20) as workers:
                errors = [workers.submit(time.sleep, 0.2).exception() for _ in range(1)]
                futures = [workers.submit(time.sleep, 0.3) for _ in range(20)]
                told = [error for future in futures if (error := future.exception())]
                print({type(error).__name__ for error in told}, told[0].__notes__[-1], flush=True)
            clean()
        """)
        assert lines == [
            "{'OSError'} raised when a worker process was to be started (see `ulimit -n`)"
        ]

    def test_a_result_that_no_descriptor_is_left_for_is_told_or_comes_otherwise(self):
        lines = said("""
            with Processes(1) as one:
                one.submit(abs, 1).result()
                _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
                few = len(os.listdir("/proc/self/fd"))
                resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
                held = [os.dup(0) for _ in range(few - len(os.listdir("/proc/self/fd")) + 1)]
                error = one.submit(np.zeros, 10**6).exception()
                print(type(error).__name__, error, flush=True)
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
                print(one.submit(np.ones, 10**6).result().sum(), flush=True)
                for each in held:
                    os.close(each)
            clean()
        """)
        assert lines == [
            "OSError [Errno 24] Too many open files (see `ulimit -n`)",
            "1000000.0",
        ]

    @pytest.mark.slow
    def test_results_held_in_numbers_take_no_more_descriptors(self):
        lines = said("""
            with Processes(2) as workers:
                held = list(workers.map(lambda n: np.full(10_000, n), range(1000)))
                print(len(os.listdir("/proc/self/fd")) < 200, flush=True)
                print(all((made == n).all() for n, made in enumerate(held)), flush=True)
                del held
            clean()
        """)
        assert lines == ["True", "True"]

    @pytest.mark.slow
    def test_a_stuck_task_that_nobody_waits_for_is_ended(self, tmp_path):
        """One of them holds the interpreter's lock for ever."""
        for name in ("pausing", "holding"):
            os.mkfifo(tmp_path / name)
        lines = said(f"""
            def stuck(name, pause):
                open(f"{tmp_path}/{{name}}", "w").close()
                pause()
            holding = lambda: ctypes.PyDLL(None).pause()
            with Processes(2) as workers:
                tasks = {{"pausing": signal.pause, "holding": holding}}
                futures = [workers.submit(stuck, *task) for task in tasks.items()]
                for name in tasks:
                    open(f"{tmp_path}/{{name}}").close()
                print([future.cancel() for future in futures], flush=True)
                print(*workers.map(abs, range(4), timeout=100), flush=True)
            clean()
        """)
        assert lines == ["[False, False]", "0 1 2 3"]

    @pytest.mark.slow
    def test_many_tasks_and_pools_leave_nothing(self):
        lines = said("""
            for round in range(4):
                with Processes(1 + round % 3) as workers:
                    futures = [workers.submit(np.full, 20_000, n) for n in range(40)]
                    kept = [future.result() for future in futures[:5]]
                    if round % 2:
                        workers.shutdown(wait=False, cancel_futures=True)
                del futures, kept, workers
            clean()
        """)
        assert lines == []
