"""Processes that die, and processes that must end: with the pass, the program, or its death."""

from __future__ import annotations

import signal

import pytest
from programs import Watch, program

from jreader import ReaderError, WorkerDied

BOTH = pytest.mark.parametrize("use_pipe", [True, False])

ON_DEATH = """
    import ctypes, os, select, signal, subprocess, sys, threading, time
    import jreader

    def crew_of(items):
        return items.gi_frame.f_locals["crew"].children

    def died(items):
        began = time.monotonic()
        try:
            sample = next(items)
        except jreader.WorkerDied as error:
            print(f"{time.monotonic() - began:.3f}", next(items, "end"), error, flush=True)
        else:
            print("no error but", type(sample), flush=True)
"""


class TestDeaths:
    """A process that ends before its reader is noticed within a second, with its exit code."""

    def seen(self, *parts):
        """Seconds, what came after the error, and its message."""
        with program(ON_DEATH, *parts) as running:
            took, after, message = running.says().split(maxsplit=2)
        assert after == "end"
        assert float(took) < 1
        assert "the process of reader 0 (" in message
        assert "of multiprocess_reader, made at <string>:" in message
        return message

    @BOTH
    def test_a_process_killed_while_it_waits_is_noticed(self, use_pipe):
        message = self.seen(f"""
            def source():
                yield os.getpid()
                threading.Event().wait()
            items = jreader.multiprocess_reader([source], {use_pipe})()
            os.kill(next(items), signal.SIGKILL)
            died(items)
        """)
        assert "exit code -9 (killed: perhaps out of memory)" in message

    @BOTH
    def test_a_process_whose_grandchild_holds_its_connection_is_noticed(self, use_pipe):
        message = self.seen(f"""
            def source():
                held = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
                yield os.getpid(), [os.readlink(f"/proc/{{held.pid}}/fd/{{fd}}")
                                    for fd in os.listdir(f"/proc/{{held.pid}}/fd")]
                os.kill(os.getpid(), signal.SIGKILL)
                yield
            items = jreader.multiprocess_reader([source], {use_pipe}, 1)()
            pid, held = next(items)
            assert any(name.startswith("socket:") for name in held), held
            died(items)
        """)
        assert "exit code -9" in message

    @BOTH
    def test_a_process_killed_while_it_sends_is_noticed(self, use_pipe):
        """The big sample cannot fit the connection, and a grandchild keeps that open."""
        self.seen(f"""
            def source():
                held = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
                yield os.getpid()
                yield bytes(50_000_000)
            items = jreader.multiprocess_reader([source], {use_pipe}, 1)()
            pid = next(items)
            select.select([crew_of(items)[0].worker.connection], [], [])
            os.kill(pid, signal.SIGKILL)
            crew_of(items)[0].worker.process.wait()
            died(items)
        """)

    @pytest.mark.parametrize(
        ("end", "code"),
        [
            ("os._exit(3)", 3),
            ("os.kill(os.getpid(), signal.SIGTERM)", -15),
            ("ctypes.string_at(0)", -11),
            ("os.abort()", -6),
        ],
    )
    def test_the_exit_code_is_told(self, end, code):
        message = self.seen(f"""
            def source():
                yield 0
                {end}
                yield 1
            items = jreader.multiprocess_reader([source], queue_size=1)()
            assert next(items) == 0
            died(items)
        """)
        assert f"exit code {code} " in message

    def test_samples_that_were_handed_over_before_the_death_are_not_lost(self):
        self.seen("""
            def source():
                yield from range(5)
                os._exit(1)
            items = jreader.multiprocess_reader([source], queue_size=5)()
            assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
            died(items)
        """)

    def test_one_death_ends_the_pass_and_the_other_processes(self):
        script = """
            def source():
                yield os.getpid()
                threading.Event().wait()
            items = jreader.multiprocess_reader([source, source, source])()
            pids = [next(items) for _ in range(3)]
            print(*pids, flush=True)
            os.kill(pids[1], signal.SIGKILL)
            died(items)
            threading.Event().wait()
        """
        with program(ON_DEATH, script) as running:
            first, killed, last = map(int, running.says().split())
            watch = Watch(first, last)
            assert "the process of reader 1 (" in running.says()
            assert watch.all_gone(within=2)
            assert killed not in (first, last)

    def test_its_error_is_a_reader_error(self):
        assert issubclass(WorkerDied, ReaderError)


WAITING = """
    import os, sys, threading, time
    import jreader
    def source():
        print(os.getpid(), flush=True)
        yield 0
        threading.Event().wait()
"""


class TestLeaving:
    """Processes end with the pass, with the program, and with a program that was killed."""

    @BOTH
    def test_ctrl_c_ends_the_wait_and_the_processes(self, use_pipe):
        rest = f"list(jreader.multiprocess_reader([source, source], {use_pipe})())"
        with program(WAITING, rest) as running:
            watch = Watch(int(running.says()), int(running.says()))
            took, code, errors = running.told(signal.SIGINT)
            assert watch.all_gone(within=2)
        assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)
        assert took < 2

    def test_ctrl_c_is_for_the_program_to_handle_not_for_its_processes(self, tmp_path):
        gate = str(tmp_path / "gate")
        rest = f"""
            import signal
            os.mkfifo({gate!r})
            signal.signal(signal.SIGINT, lambda *_: open({gate!r}, "w").close())
            def gated():
                print("waiting", flush=True)
                open({gate!r}).read()
                yield "went on"
            print(*jreader.multiprocess_reader([gated])(), flush=True)
        """
        with program(WAITING, rest) as running:
            assert running.says() == "waiting"
            running.signal(signal.SIGINT)
            assert running.says() == "went on"

    @BOTH
    def test_a_killed_program_leaves_no_process(self, use_pipe):
        rest = f"list(jreader.multiprocess_reader([source, source], {use_pipe})())"
        with program(WAITING, rest) as running:
            watch = Watch(int(running.says()), int(running.says()))
            running.process.kill()
            assert watch.all_gone(within=2)

    def test_a_program_killed_while_a_process_sends_leaves_no_process(self):
        rest = """
            def sending():
                print(os.getpid(), flush=True)
                while True:
                    yield bytes(10_000_000)
            items = jreader.multiprocess_reader([sending])()
            next(items)
            print("sending", flush=True)
            threading.Event().wait()
        """
        with program(WAITING, rest) as running:
            watch = Watch(int(running.says()))
            assert running.says() == "sending"
            running.process.kill()
            assert watch.all_gone(within=2)

    @pytest.mark.parametrize("leave", ["sys.exit(7)", "os._exit(7)"])
    def test_a_blocked_process_does_not_keep_the_program(self, leave):
        rest = f"""
            items = jreader.multiprocess_reader([source])()
            next(items)
            {leave}
        """
        with program(WAITING, rest) as running:
            watch = Watch(int(running.says()))
            took, code, errors = running.ends()
            assert watch.all_gone(within=2)
        assert (code, errors) == (7, "")
        assert took < 3

    @pytest.mark.parametrize("leave", ["del items", "items.close()"])
    def test_whoever_leaves_a_pass_ends_its_processes_and_lets_them_clean_up(self, leave, tmp_path):
        rest = f"""
            import gc
            gc.disable()
            def endless():
                try:
                    while True:
                        yield 1
                finally:
                    open("closed", "w").close()
            os.chdir({str(tmp_path)!r})
            before = set(os.listdir("/proc/self/fd"))
            made = jreader.multiprocess_reader([endless, source])
            items = made()
            next(items), next(items)
            children = [child.worker.process for child in items.gi_frame.f_locals["crew"].children]
            began = time.monotonic()
            {leave}
            for child in children:
                child.wait(3)
            took = time.monotonic() - began
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(10)
            print(os.path.exists("closed"), set(os.listdir("/proc/self/fd")) - before, took < 2)
        """
        with program(WAITING, rest) as running:
            int(running.says())
            assert running.says() == "True set() True"

    def test_processes_that_do_not_end_by_themselves_are_killed_together(self):
        """Each holds its interpreter's lock for ever, so nothing in it can notice anything."""
        rest = """
            import ctypes, signal
            def stuck():
                yield os.getpid()
                os.write(1, b"stuck\\n")
                ctypes.PyDLL(None).pause()
            items = jreader.multiprocess_reader([stuck] * 3, queue_size=1)()
            pids = [next(items) for _ in range(3)]
            try:
                print(*pids, flush=True)
                signal.pause()
            except KeyboardInterrupt:
                items.close()
            signal.pause()
        """
        with program(WAITING, rest) as running:
            said = sorted(running.says() for _ in range(4))
            assert said[1:] == ["stuck"] * 3
            watch = Watch(*map(int, said[0].split()))
            running.signal(signal.SIGINT)
            assert watch.all_gone(within=5)

    @pytest.mark.parametrize(("passes", "whole"), [(20, False), (10, True)])
    def test_many_passes_leave_nothing(self, python, passes, whole):
        script = f"""
            import os, pathlib, threading
            import jreader
            def seen():
                return len(os.listdir("/proc/self/fd")), threading.active_count(), [
                    pid for pid in os.listdir("/proc")
                    if pid.isdigit() and parent_of(pid) == str(os.getpid())
                ]
            def parent_of(pid):
                try:
                    stat = pathlib.Path(f"/proc/{{pid}}/stat").read_text()
                    return stat.rpartition(")")[2].split()[1]
                except OSError:
                    return None
            reader = jreader.multiprocess_reader([lambda: range(50)], queue_size=5)
            before = seen()
            for _ in range({passes}):
                if {whole}:
                    assert list(reader()) == [*range(50)]
                else:
                    next(reader())
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(10)
            print(before == seen(), before, seen())
            print("/dev/shm" in pathlib.Path("/proc/self/maps").read_text())
        """
        done = python(script, timeout=30, PYTHONWARNINGS="always")
        assert done.stderr == ""
        said = done.stdout.splitlines()
        assert said[0].startswith("True "), said
        assert said[1] == "False"
