"""Processes of readers must end: with the pass, the program, or its death."""

from __future__ import annotations

import signal

import pytest
from leftovers import said
from programs import Watch, program

WAITING = """
    import os, sys, threading, time
    import jreader
    def source():
        print(os.getpid(), flush=True)
        yield 0
        threading.Event().wait()
"""


@pytest.mark.slow  # kills and exits
class TestLeaving:
    """Processes end with the pass, with the program, and with a program that was killed."""

    def test_ctrl_c_ends_the_wait_and_the_processes(self, use_pipe):
        rest = f"list(jreader.multiprocess_reader([source, source], {use_pipe})())"
        with program(WAITING, rest) as running:
            watch = running.watch(2)
            code, errors = running.told(signal.SIGINT)
            assert watch.all_gone()
        assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)

    @pytest.mark.parametrize("place", ["Worker.__init__", "Popen.__init__", "Worker.begin"])
    def test_an_interrupt_while_processes_are_started_leaves_none(self, place):
        assert said(f"""
            held = jreader.start(jreader.multiprocess_reader([lambda: iter(range(3))] * 2))
            interrupted({place!r}, lambda: next(held.items))
            clean()
        """) == ["interrupted"]  # fmt: skip

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

    def test_a_killed_program_leaves_no_process(self, use_pipe):
        rest = f"list(jreader.multiprocess_reader([source, source], {use_pipe})())"
        with program(WAITING, rest) as running:
            watch = running.watch(2)
            running.process.kill()
            assert watch.all_gone()

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
            watch = running.watch(1)
            assert running.says() == "sending"
            running.process.kill()
            assert watch.all_gone()

    @pytest.mark.parametrize("leave", ["sys.exit(7)", "os._exit(7)"])
    def test_a_blocked_process_does_not_keep_the_program(self, leave):
        rest = f"""
            items = jreader.multiprocess_reader([source])()
            next(items)
            {leave}
        """
        with program(WAITING, rest) as running:
            watch = running.watch(1)
            code, errors = running.ends()
            assert watch.all_gone()
        assert (code, errors) == (7, "")

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
            children = [each.process for each in items.gi_frame.f_locals["self"].pool.workers]
            {leave}
            for child in children:
                child.wait(60)
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(60)
            print(os.path.exists("closed"), set(os.listdir("/proc/self/fd")) - before)
        """
        with program(WAITING, rest) as running:
            int(running.says())
            assert running.says() == "True set()"

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
            assert watch.all_gone()

    @pytest.mark.parametrize(
        ("passes", "whole"), [(8, False), pytest.param(5, True, marks=pytest.mark.slow)]
    )
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
                    thread.join(60)
            print(before == seen(), before, seen())
            print("/dev/shm" in pathlib.Path("/proc/self/maps").read_text())
        """
        done = python(script, PYTHONWARNINGS="always")
        assert done.stderr == ""
        said = done.stdout.splitlines()
        assert said[0].startswith("True "), said
        assert said[1] == "False"


@pytest.mark.parametrize("leave", ["del items", "list(items)"])
def test_what_a_pass_had_is_gone_with_it_without_gc(leave):
    rest = f"""
        import ctypes, gc, weakref  # the file that libffi keeps open for ctypes is none of ours
        gc.disable()
        class Few:
            def __call__(self):
                return iter([bytes(1_000_000)] * 9)
        before = set(os.listdir("/proc/self/fd"))
        made = jreader.multiprocess_reader([Few(), Few()])
        held = [weakref.ref(reader) for reader in made.readers]
        items = made()
        next(items), next(items)
        {leave}
        items = made = None
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(60)
        print([each() for each in held], set(os.listdir("/proc/self/fd")) - before)
    """
    with program(WAITING, rest) as running:
        assert running.says() == "[None, None] set()"
