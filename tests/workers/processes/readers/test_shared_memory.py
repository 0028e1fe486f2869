"""Wherever a program runs, and whatever its readers do, they run in processes."""

from __future__ import annotations

import threading

import pytest
from programs import printed
from watched_source import in_a_thread
from widths import few

import jreader
from jreader import multiprocess_reader, xmap_readers
from jreader.workers.processes import reader_processes, worker_pool


class TestRooms:
    """Where it runs: any script, any descriptor limit, big samples, readers with threads."""

    @pytest.mark.parametrize("how", few(["script", "-c", "stdin"], ["script"]))
    def test_functions_of_main_travel_and_no_guard_is_needed(self, tmp_path, how):
        script = (
            "import jreader\n"
            "print('main')\n"
            "class Point:\n"
            "    def __init__(self, x): self.x = x\n"
            "def double(n): return 2 * n\n"
            "def source():\n"
            "    print('worker')\n"
            "    yield from map(Point, map(double, range(3)))\n\n"
            "samples = list(jreader.multiprocess_reader([source, source])())\n"
            "print([p.x for p in samples], {type(p) is Point for p in samples})\n"
        )
        assert sorted(printed(script, how, tmp_path)) == [
            "",
            "[0, 0, 2, 2, 4, 4] {True}",
            "main",
            "worker",
            "worker",
        ]

    @pytest.mark.parametrize("use_pipe", few([True, False], [True]))
    def test_two_passes_at_once_have_processes_of_their_own(self, use_pipe):
        reader = multiprocess_reader([lambda: range(5), lambda: range(10, 12)], use_pipe=use_pipe)
        one, other = reader(), reader()
        seen = [next(one)], [next(other), *other]
        assert sorted([*seen[0], *one]) == sorted(seen[1]) == [0, 1, 2, 3, 4, 10, 11]
        assert (next(one, "end"), next(one, "end")) == ("end", "end")

    @pytest.mark.slow
    def test_many_big_samples_pass_one_by_one(self, python):
        """A gigabyte in all, though a process may read a thousand samples ahead."""
        script = """
            import re
            import jreader
            def source():
                for place in range(100):
                    yield place, bytes([place]) * 10_000_000
            for place, (number, data) in enumerate(jreader.multiprocess_reader([source])()):
                assert (number, len(data), data[0], data[-1]) == (place, 10_000_000, place, place)
            # not ru_maxrss: a child inherits that of the process that started it
            print(place, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
        """
        place, kilobytes = map(int, python(script).stdout.split())
        assert place == 99
        assert kilobytes < 400_000

    def test_a_reader_may_have_threads_and_processes_of_its_own(self):
        def source():
            gone = threading.Event()
            threading.Thread(target=gone.wait).start()
            inner = multiprocess_reader([lambda: range(3)])
            yield from xmap_readers(str, inner, 2, 2, order=True)()

        assert list(multiprocess_reader([source])()) == ["0", "1", "2"]

    def test_modules_where_a_program_runs_do_not_hide_those_of_python(self, python, tmp_path):
        """As for a script that lies elsewhere: only `python -c` looks there."""
        (tmp_path / "json.py").write_text("raise ImportError('this is not json')")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "script.py").write_text(
            "import jreader\nprint(*jreader.multiprocess_reader([lambda: range(3)])())\n"
        )
        script = """
            import subprocess, sys
            subprocess.run([sys.executable, "elsewhere/script.py"], check=True)
        """
        assert python(script, cwd=tmp_path).stdout == "0 1 2\n"

    def test_too_few_descriptors_are_an_error_that_says_so(self, python):
        script = """
            import errno, gc, os, resource
            import jreader
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
            reader = jreader.multiprocess_reader([lambda: range(3)] * 30)
            before = len(os.listdir("/proc/self/fd"))
            try:
                list(reader())
            except OSError as error:
                print(errno.errorcode[error.errno])
            import threading
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(60)
            gc.collect()
            print(len(os.listdir("/proc/self/fd")) - before)
            print(*jreader.multiprocess_reader([lambda: range(3)])())
        """
        assert python(script).stdout.splitlines() == ["EMFILE", "0", "0 1 2"]


def test_a_pass_whose_program_stalls_as_it_begins_has_its_processes(monkeypatch):
    def stalled(*args):
        pool = worker_pool.WorkerPool(*args)
        pool.threads[0].join(0.2)  # as nobody uses it, it might end
        return pool

    monkeypatch.setattr(worker_pool, "_IDLE_SECONDS", 0)
    monkeypatch.setattr(reader_processes, "WorkerPool", stalled)
    assert in_a_thread(lambda: list(multiprocess_reader([lambda: range(3)])())) == [0, 1, 2]


def test_each_process_knows_which_reader_it_reads():
    def who():
        info = jreader.get_worker_info()
        yield info.id, info.num_workers

    assert list(multiprocess_reader([who] * 3)()) == [(0, 3), (1, 3), (2, 3)]
