"""Workers end with their program, however it ends."""

from __future__ import annotations

import os
import signal

import pytest
from leftovers import PROGRAM, said
from programs import Watch, program

WAITING = """
    def stuck():
        print(os.getpid(), flush=True)
        threading.Event().wait()
    workers = Processes(2)
    futures = [workers.submit(stuck) for _ in range(5)]
"""


@pytest.mark.slow  # kills and exits
class TestLeaving:
    """Workers end with the program, however it ends; they are asked, then killed."""

    def test_ctrl_c_while_waiting_is_one_traceback(self):
        with program(PROGRAM, WAITING, "futures[0].result()") as running:
            watch = running.watch(2)
            code, errors = running.told(signal.SIGINT)
            assert watch.all_gone()
        assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)

    def test_ctrl_c_that_the_program_handles_leaves_workers_that_are_just_starting_alone(self):
        rest = """
            signal.signal(signal.SIGINT, lambda *_: None)
            workers = Processes(2)
            future = workers.submit(pow, 2, 5)
            while not future.done():
                os.killpg(0, signal.SIGINT)
                wait([future], 0.02)
            print(future.result(), flush=True)
        """
        with program(PROGRAM, rest) as running:
            assert running.says() == "32"

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_killed_program_leaves_no_worker(self, number):
        with program(PROGRAM, WAITING, "futures[0].result()") as running:
            watch = running.watch(2)
            os.kill(running.process.pid, number)
            assert watch.all_gone()

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
            assert watch.all_gone()

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
        told = """
            go = threading.Event()
            signal.signal(signal.SIGUSR1, lambda *_: go.set())
        """
        with program(PROGRAM, told, WAITING, "go.wait()", leave) as running:
            watch = running.watch(2)  # both are stuck by now
            os.kill(running.process.pid, signal.SIGUSR1)
            code, errors = running.ends()
            assert watch.all_gone()
        assert (code, errors) == (7, "")

    def test_one_that_holds_the_interpreter_is_killed_when_the_program_ends(self, tmp_path):
        os.mkfifo(tmp_path / "begun")
        rest = f"""
            def stuck():
                print(os.getpid(), flush=True)
                open("{tmp_path}/begun", "w").close()
                ctypes.PyDLL(None).pause()
            one = Processes(1)
            future = one.submit(stuck)
            open("{tmp_path}/begun").close()
        """
        with program(PROGRAM, rest) as running:
            watch = running.watch(1)
            code, errors = running.ends()
            assert watch.all_gone()
        assert (code, errors) == (0, "")

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
