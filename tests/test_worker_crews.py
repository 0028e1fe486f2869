"""What worker processes go through: deaths, faults, and the ends of the program.

Each program has a clock, and is looked at from outside: no process, thread, descriptor or shared
memory of it may be left.
"""

from __future__ import annotations

import os
import signal

import pytest
from programs import Watch, program

pytestmark = pytest.mark.timeout(90)

PROGRAM = """
    import ctypes, gc, os, resource, signal, subprocess, sys, threading, time
    from concurrent.futures import wait
    from pathlib import Path
    import numpy as np
    import jreader
    from jreader import Processes
    from jreader.workers.processes import crews
    from programs import children
    crews._IDLE = 0.1  # what nobody uses ends at once

    def seen():
        gc.collect()
        threads = [each.name for each in threading.enumerate()]
        files = len(os.listdir("/proc/self/fd"))
        shared = Path("/proc/self/maps").read_text().count("memfd:jreader")
        return children(), threads, files, shared, [*Path("/dev/shm").glob("jreader*")]

    def clean():
        limit = time.monotonic() + 15
        while seen() != before and time.monotonic() < limit:
            time.sleep(0.05)
        print("clean" if seen() == before else (before, seen()), flush=True)

    def once(path):
        # true the first time that it is asked
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    before = seen()
"""

ENDS = {
    "os.kill(os.getpid(), signal.SIGKILL)": "exit code -9 (killed: perhaps out of memory)",
    "os.kill(os.getpid(), signal.SIGTERM)": "exit code -15",
    "ctypes.string_at(0)": "exit code -11 (a segmentation fault",
    "os.abort()": "exit code -6 (aborted",
    "os._exit(3)": "exit code 3",
}


def said(*parts):
    """The lines that a program says, up to the one that tells what is left of it."""
    with program(PROGRAM, *parts) as running:
        lines = []
        while not lines or not lines[-1].startswith(("clean", "(")):
            lines.append(running.says())
    assert lines[-1] == "clean"
    return lines[:-1]


class TestDeaths:
    def test_what_a_worker_leaves_is_done_again(self, tmp_path):
        """Nothing is lost, nothing comes twice, and no order changes."""
        lines = said(f"""
            def work(n, end):
                if n in (3, 11) and once(f"{tmp_path}/{{n}} {{end}}"):
                    exec(end, {{"os": os, "signal": signal, "ctypes": ctypes}})
                return np.full(20_000, n)
            with Processes(2) as workers:
                for end in {list(ENDS)}:
                    made = workers.map(work, range(30), [end] * 30)
                    print([int(each[-1]) for each in made], flush=True)
            clean()
        """)
        assert lines == [str([*range(30)])] * len(ENDS)
        assert len(list(tmp_path.iterdir())) == 2 * len(ENDS)

    def test_what_kills_every_worker_is_an_error_that_names_it(self):
        lines = said(f"""
            def work(n, end):
                if n == 5:
                    exec(end, {{"os": os, "signal": signal, "ctypes": ctypes}})
                return n
            with Processes(2) as workers:
                for end in {list(ENDS)}:
                    futures = [workers.submit(work, n, end) for n in range(12)]
                    print(*(each.exception() or each.result() for each in futures), flush=True)
            clean()
        """)
        for line, (end, told) in zip(lines, ENDS.items(), strict=True):
            assert line.startswith("0 1 2 3 4 3 worker processes died one after another while ")
            assert f"they worked on work(5, {end!r}); the last one ended with {told}" in line
            assert line.endswith("6 7 8 9 10 11")

    def test_a_death_is_noticed_within_a_second(self):
        lines = said("""
            with Processes(1) as one:
                pid = one.submit(os.getpid).result()
                for held in (False, True):
                    if held:  # by a process that the worker started: its connection stays open
                        one.submit(subprocess.Popen, ["sleep", "60"], close_fds=False).exception()
                    future = one.submit(signal.pause)
                    began = time.monotonic()
                    for _ in range(3):
                        while not (tasks := [m for m in one._crew.members if m.ready and m.task]):
                            time.sleep(0.01)
                        died = time.monotonic()
                        tasks[0].process.kill()
                        tasks[0].process.wait()
                        while one._crew.members and one._crew.members[0] is tasks[0]:
                            time.sleep(0.01)
                        assert time.monotonic() - died < 1
                    print(type(future.exception(1)).__name__, flush=True)
            subprocess.run(["pkill", "-P", "1", "-f", "^sleep 60$"])
            clean()
        """)
        assert lines == ["WorkerDied", "WorkerDied"]

    def test_all_killed_at_once_and_while_they_are_idle(self):
        lines = said("""
            with Processes(3) as workers:
                for _ in range(2):
                    wait([workers.submit(time.sleep, 0.05) for _ in range(6)])
                    for pid in children():
                        os.kill(pid, signal.SIGKILL)
                    print(*workers.map(abs, range(6)), flush=True)
            clean()
        """)
        assert lines == ["0 1 2 3 4 5"] * 2

    def test_one_killed_while_it_sends(self, tmp_path):
        """Half a frame is here; the rest never comes."""
        lines = said(f"""
            def work(n):
                if n == 2 and once("{tmp_path}/killed"):
                    pid = os.getpid()
                    threading.Timer(0.1, lambda: os.kill(pid, signal.SIGKILL)).start()
                    class Endless:
                        def __reduce__(self):
                            time.sleep(0.05)
                            return str, ("x" * 300_000_000,)
                    return Endless()
                return n
            with Processes(2) as workers:
                print(*workers.map(work, range(6)), flush=True)
            clean()
        """)
        assert lines == ["0 1 2 3 4 5"]

    def test_workers_that_cannot_begin_are_an_error_at_once(self, tmp_path):
        """They are not begun for ever."""
        (tmp_path / "jreader").mkdir()
        (tmp_path / "jreader" / "__init__.py").write_text("import os; os._exit(7)")
        lines = said(f"""
            sys.path.insert(0, "{tmp_path}")
            with Processes(2) as workers:
                print(workers.submit(abs, 1).exception(), flush=True)
                sys.path.pop(0)
                print(workers.submit(abs, 1).result(), flush=True)
            clean()
        """)
        assert "worker processes ended with exit code 7 before they began" in lines[0]
        assert lines[1] == "1"

    def test_out_of_memory_is_an_error_of_the_task(self):
        lines = said("""
            def limit(number):
                resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
            with Processes(1, limit) as one:
                print(type(one.submit(np.ones, 10**9).exception()).__name__, flush=True)
                print(one.submit(np.ones, 10**6).result().sum(), flush=True)
            clean()
        """)
        assert lines[0] in ("MemoryError", "_ArrayMemoryError")
        assert lines[1] == "1000000.0"


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

    def test_a_worker_that_cannot_be_begun_names_init_and_leaves_no_half_of_a_crew(self):
        lines = said("""
            def begin(number):
                if number == 1 or one:
                    raise ValueError("not today")
            for one in (True, False):
                with Processes(2, begin) as workers:
                    errors = {repr(future.exception()) for future in
                              [workers.submit(time.sleep, 0.2) for _ in range(6)]}
                    print(*errors - {"None"}, flush=True)
                    error = next(filter(None, (future.exception() for future in
                                 [workers.submit(time.sleep, 0.2) for _ in range(6)])))
                    print(error.__notes__[-1], flush=True)
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

    def test_a_stuck_task_that_nobody_waits_for_is_ended(self):
        """One of them holds the interpreter's lock for ever."""
        lines = said("""
            with Processes(2) as workers:
                holding = lambda: ctypes.PyDLL(None).pause()
                stuck = [workers.submit(signal.pause), workers.submit(holding)]
                wait([workers.submit(abs, 1)], 0.5)
                print([future.cancel() for future in stuck], flush=True)
                print(*workers.map(abs, range(4), timeout=10), flush=True)
            clean()
        """)
        assert lines == ["[False, False]", "0 1 2 3"]

    def test_many_tasks_and_crews_leave_nothing(self):
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


WAITING = """
    def stuck():
        print(os.getpid(), flush=True)
        threading.Event().wait()
    workers = Processes(2)
    futures = [workers.submit(stuck) for _ in range(5)]
"""


class TestLeaving:
    """Workers end with the program, however it ends; they are asked, then killed."""

    def watch(self, running):
        return Watch(int(running.says()), int(running.says()))

    def test_ctrl_c_while_waiting_is_one_traceback(self):
        with program(PROGRAM, WAITING, "futures[0].result()") as running:
            watch = self.watch(running)
            took, code, errors = running.told(signal.SIGINT)
            assert watch.all_gone(within=2)
        assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)
        assert took < 8

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_killed_program_leaves_no_worker(self, number):
        with program(PROGRAM, WAITING, "futures[0].result()") as running:
            watch = self.watch(running)
            os.kill(running.process.pid, number)
            assert watch.all_gone(within=2)

    def test_nor_if_a_process_that_it_forked_holds_its_connections(self):
        rest = """
            if not os.fork():
                print("forked", flush=True)
                signal.pause()
            signal.pause()
        """
        with program(PROGRAM, WAITING, rest) as running:
            _, *pids = sorted((running.says() for _ in range(3)), key=str.isdigit)
            watch = Watch(*map(int, pids))
            running.process.kill()
            assert watch.all_gone(within=2)

    @pytest.mark.parametrize(
        "leave",
        [
            "sys.exit(7)",
            "os._exit(7)",
            "threading.Thread(target=lambda: sys.exit(3)).start(); sys.exit(7)",
            "workers.shutdown(wait=False); sys.exit(7)",
        ],
    )
    def test_work_that_never_ends_does_not_keep_the_program(self, leave):
        with program(PROGRAM, WAITING, leave) as running:
            watch = self.watch(running)
            took, code, errors = running.ends()
            assert watch.all_gone(within=2)
        assert (code, errors) == (7, "")
        assert took < 8

    def test_one_that_holds_the_interpreter_is_killed_when_the_program_ends(self):
        rest = """
            def stuck():
                os.write(1, f"{os.getpid()}\\n".encode())
                ctypes.PyDLL(None).pause()
            one = Processes(1)
            future = one.submit(stuck)
            wait([future], 1)
        """
        with program(PROGRAM, rest) as running:
            watch = Watch(int(running.says()))
            took, code, errors = running.ends()
            assert watch.all_gone(within=2)
        assert (code, errors) == (0, "")
        assert took < 8

    def test_what_workers_registered_for_their_end_is_done(self, tmp_path):
        lines = said(f"""
            import atexit
            def begin(number):
                atexit.register(lambda: open("{tmp_path}/done", "w").close())
            with Processes(1, begin) as one:
                one.submit(abs, 1).result()
            clean()
        """)
        assert lines == []
        assert (tmp_path / "done").exists()

    def test_ctrl_c_is_for_the_program_to_handle(self, tmp_path):
        os.mkfifo(tmp_path / "gate")
        rest = f"""
            signal.signal(signal.SIGINT, lambda *_: open("{tmp_path}/gate", "w").close())
            def gated():
                print("waiting", flush=True)
                return open("{tmp_path}/gate").read() + "went on"
            print(Processes(1).submit(gated).result(), flush=True)
        """
        with program(PROGRAM, rest) as running:
            assert running.says() == "waiting"
            running.signal(signal.SIGINT)
            assert running.says() == "went on"
