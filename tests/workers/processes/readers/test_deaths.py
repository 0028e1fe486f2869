"""Processes of readers that die: the error says which, where, and how."""

from __future__ import annotations

import pytest
from programs import Watch, program
from widths import few

from jreader import ReaderError, WorkerDied

ON_DEATH = """
    import ctypes, os, signal, subprocess, sys, threading
    import jreader

    def worker_of(items):
        return items.gi_frame.f_locals["self"].pool.workers[0]

    def died(items):
        try:
            sample = next(items)
        except jreader.WorkerDied as error:
            print(next(items, "end"), error, flush=True)
        else:
            print("no error but", type(sample), flush=True)
"""


class TestDeaths:
    """A process that ends before its reader is noticed at once, with its exit code."""

    def seen(self, *parts):
        """The message of the error, after which there is nothing; what hangs, `says` ends."""
        with program(ON_DEATH, *parts) as running:
            after, message = running.says().split(maxsplit=1)
        assert after == "end"
        assert "the process of reader 0 (" in message
        assert "of multiprocess_reader, made at <string>:" in message
        return message

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

    @pytest.mark.parametrize("use_pipe", few([True, False], [True]))
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

    @pytest.mark.parametrize("use_pipe", few([True, False], [False]))
    def test_a_process_killed_while_it_sends_is_noticed(self, use_pipe):
        """The big sample cannot fit the connection, and a grandchild keeps that open."""
        self.seen(f"""
            def source():
                held = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
                yield os.getpid()
                yield bytes(50_000_000)
            items = jreader.multiprocess_reader([source], {use_pipe}, 1)()
            next(items)
            worker, sends = worker_of(items), threading.Event()
            receive = worker.receiver.receive
            def received(*, wait):
                more = receive(wait=wait)
                if worker.process.poll() is None and worker.receiver._data:
                    worker.process.kill()
                    worker.process.wait()
                    sends.set()
                return more
            worker.receiver.receive = received
            sends.wait()
            died(items)
        """)

    @pytest.mark.parametrize(
        ("end", "code"),
        [
            ("os._exit(3)", 3),
            pytest.param("os.kill(os.getpid(), signal.SIGTERM)", -15, marks=pytest.mark.slow),
            pytest.param("ctypes.string_at(0)", -11, marks=pytest.mark.slow),
            pytest.param("os.abort()", -6, marks=pytest.mark.slow),
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
            assert watch.all_gone()
            assert killed not in (first, last)

    def test_its_error_is_a_reader_error(self):
        assert issubclass(WorkerDied, ReaderError)
